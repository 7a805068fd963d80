"""What a worker may spend: held back before it starts, and looked at before every call."""

import time
from contextlib import AbstractAsyncContextManager
from decimal import Decimal

import pytest
from scripted_project import CODER, GLM, OpenProject, Project

from goent.billing.budget_rules import day_of
from goent.domain.errors import BudgetExceeded, BudgetSpent
from goent.domain.events import AnyEvent, BudgetWarned, UsageReported
from goent.domain.money import CallDelay, CallSize, FinishedCall, StartedCall
from goent.domain.replies import BudgetLine, Costs, Result, SpawnReply
from goent.domain.settings import BudgetSettings
from goent.domain.task_profile import TaskSample
from goent.domain.types import Price, Provider, Usage
from goent.testing.driver import Pause, ScriptedDriver, ScriptedMove, say

pytestmark = pytest.mark.anyio

KEY = "sk-held"
TENTH = Provider(
    name="tenth",
    backend="deepseek",
    model="small",
    price=Price(input=Decimal("0.1"), output=Decimal("0.2"), cache_read=Decimal("0.01")),
)
PROVIDERS = (GLM, TENTH, CODER)


class Calls:
    """Model calls of a worker, as the gateway tells of them. A token of input costs $0.000001."""

    def __init__(self, project: Project, worker: str, model: Provider = GLM) -> None:
        self._project = project
        self._worker = worker
        self._model = model
        self._number = 0

    async def begin(self, tokens: int) -> CallDelay | None:
        async def size() -> CallSize:
            return CallSize(input=tokens, output=0)

        self._number += 1
        call = StartedCall(
            id=f"{self._worker}-{self._number}",
            worker=self._worker,
            backend=self._model.backend,
            model=self._model.model,
        )
        return await self._project.calls.books.call_started(call, size)

    async def make(self, tokens: int, *, taken: int | None = None) -> None:
        assert await self.begin(tokens) is None
        call = FinishedCall(
            id=f"{self._worker}-{self._number}",
            worker=self._worker,
            session="",
            backend=self._model.backend,
            model=self._model.model,
            status=200,
            usage=Usage(input=tokens if taken is None else taken),
            billable=True,
            seconds=1,
        )
        await self._project.calls.books.call_finished(call)


class Working:
    """A driver whose turns last until they are let go."""

    def __init__(self) -> None:
        self.pauses: list[Pause] = []
        self.driver = ScriptedDriver(self._turn)

    def _turn(self, _: object) -> list[ScriptedMove]:
        self.pauses.append(Pause())
        return [say("begun"), self.pauses[-1], say("done")]


def opened(
    open_project: OpenProject, driver: ScriptedDriver, budget: BudgetSettings, *, held: bool = True
) -> AbstractAsyncContextManager[Project]:
    keys = dict.fromkeys((p.backend for p in PROVIDERS), KEY) if held else {}
    return open_project(driver, budget=budget, keys=keys, providers=PROVIDERS)


TASK = "Add a command that exports the reports as CSV, JSON and HTML, with tests"


async def spawn(project: Project, **more: object) -> SpawnReply:
    spawned = await project.ask("worker_spawn", task=TASK, **more)
    assert isinstance(spawned, SpawnReply)
    return spawned


async def at_work(project: Project, **more: object) -> str:
    worker = (await spawn(project, **more)).worker_id
    while project.feed.view(worker).step != "writing":
        await project.feed.wait_for_news(project.feed.seq)
    return worker


async def result(project: Project, worker: str) -> Result:
    await project.ask("worker_wait", worker_ids=[worker], timeout_s=30)
    told = await project.ask("worker_result", worker_id=worker)
    assert isinstance(told, Result)
    return told


async def remember(project: Project, provider: Provider, cost: str) -> None:
    """Enough earlier tasks of the model, of whatever kind."""
    for number in range(20):
        await project.app.history.add(
            TaskSample(
                at=float(number),
                provider=provider.name,
                backend=provider.backend,
                model=provider.model,
                method="acp",
                type="test",
                complexity="high",
                size=10.0,
                cost_usd=Decimal(cost),
                usage=Usage(),
                seconds=30.0,
                state="completed",
            )
        )


def warned(events: list[AnyEvent]) -> list[str]:
    return [event.message for event in events if isinstance(event, BudgetWarned)]


@pytest.mark.spec("P35")
async def test_a_task_that_does_not_fit_a_hard_budget_is_refused_with_a_cheaper_provider(
    open_project: OpenProject,
) -> None:
    driver = ScriptedDriver(lambda _: [say("done")])
    async with opened(open_project, driver, BudgetSettings()) as project:
        await remember(project, GLM, "0.05")
        await remember(project, TENTH, "0.005")
        with pytest.raises(BudgetExceeded) as refused:
            await spawn(project, budget_usd=0.01)
        assert "$0.01 (budget_usd), has no room for this task on 'glm'" in str(refused.value)
        assert "likely to cost $0.05" in str(refused.value)
        assert "provider 'tenth' would fit, at about $0.005" in str(refused.value)
        with pytest.raises(BudgetExceeded, match=r"cheapest route, provider 'tenth', .*\$0\.005"):
            await spawn(project, budget_usd=0.001)
        assert (await spawn(project, budget_usd=0.01, provider="tenth")).warnings == ()
        assert len(driver.opened) <= 1


@pytest.mark.spec("P35")
async def test_an_estimate_alone_refuses_nobody_and_warns_with_a_cheaper_provider(
    open_project: OpenProject,
) -> None:
    working = Working()
    async with opened(open_project, working.driver, BudgetSettings()) as project:
        spawned = await spawn(project, budget_usd=0.01)
        (told,) = spawned.warnings
        assert "$0.01 (budget_usd), may not be enough" in told
        assert "this task on 'glm' is estimated at $0.049" in told
        assert "stops at the limit; provider 'tenth' would fit, at about $0.0049" in told
        with pytest.raises(BudgetSpent, match="has no room for the next call"):
            await Calls(project, spawned.worker_id).begin(20_000)


@pytest.mark.spec("P35")
async def test_what_has_to_be_read_is_known_and_refuses(open_project: OpenProject) -> None:
    driver = ScriptedDriver(lambda _: [say("done")])
    async with opened(open_project, driver, BudgetSettings()) as project:
        (project.folder / "long.txt").write_text("word " * 50_000)
        assert (await spawn(project, budget_usd=0.06, files=["long.txt"])).warnings
        with pytest.raises(BudgetExceeded, match="has no room for this task on 'glm'"):
            await spawn(project, budget_usd=0.01, files=["long.txt"])


@pytest.mark.spec("P35")
async def test_an_estimate_starts_nothing_where_the_budget_is_used_up(
    open_project: OpenProject,
) -> None:
    driver = ScriptedDriver(lambda _: [say("done")])
    budget = BudgetSettings(per_day=Decimal("0.05"), hard=True)
    async with opened(open_project, driver, budget) as project:
        await Calls(project, "w-other").make(40_000, taken=50_000)
        with pytest.raises(BudgetExceeded, match="has no room for this task on 'glm'"):
            await spawn(project)


@pytest.mark.spec("P35")
async def test_a_soft_budget_warns_and_names_who_would_fit(open_project: OpenProject) -> None:
    driver = ScriptedDriver(lambda _: [say("done")])
    budget = BudgetSettings(
        per_task=Decimal("0.01"), per_day=Decimal(1), per_project=Decimal("0.05")
    )
    async with opened(open_project, driver, budget) as project:
        task, whole = (await spawn(project)).warnings
        assert "(budget.per_task), would be exceeded" in task and "'tenth' would fit" in task
        assert "$0.05 (budget.per_project), is nearly used up" in whole


@pytest.mark.spec("P35")
async def test_what_a_worker_is_likely_to_cost_is_held_until_its_turn_is_over(
    open_project: OpenProject,
) -> None:
    working = Working()
    budget = BudgetSettings(per_day=Decimal("0.12"), hard=True)
    async with opened(open_project, working.driver, budget) as project:
        workers = [await at_work(project) for _ in range(2)]
        await remember(project, GLM, "0.05")
        with pytest.raises(BudgetExceeded, match=r"\$0\.098 held for work under way"):
            await spawn(project)
        await Calls(project, workers[0]).make(2000)
        working.pauses[0].go_on.set()
        assert (await result(project, workers[0])).cost_usd == 0.002
        costs = await project.ask("cost_report")
        assert isinstance(costs, Costs)
        assert costs.budgets == (
            BudgetLine(
                scope="day",
                key=day_of(time.time()),
                limit_usd=0.12,
                spent_usd=0.002,
                held_usd=0.0487735,
                left_usd=0.0692265,
                hard=True,
                unknown_calls=0,
            ),
        )
        await spawn(project)


@pytest.mark.spec("P35")
@pytest.mark.parametrize("hard", [True, False])
async def test_without_a_price_a_hard_budget_refuses_and_a_soft_one_warns(
    open_project: OpenProject, *, hard: bool
) -> None:
    driver = ScriptedDriver(lambda _: [say("done")])
    budget = BudgetSettings(per_day=Decimal(1), hard=hard)
    async with opened(open_project, driver, budget) as project:
        if hard:
            with pytest.raises(BudgetExceeded, match=r"no price is known .* set its `price` in"):
                await spawn(project, provider=CODER.name)
        else:
            (told,) = (await spawn(project, provider=CODER.name)).warnings
            assert "no price is known for provider 'deepseek/deepseek-coder'" in told


@pytest.mark.spec("P35")
async def test_the_call_that_would_pass_a_hard_budget_does_not_go_out(
    open_project: OpenProject,
) -> None:
    working = Working()
    async with opened(open_project, working.driver, BudgetSettings()) as project:
        worker = await at_work(project, budget_usd=0.1)
        calls = Calls(project, worker)
        await calls.make(50_000)
        await calls.make(20_000)
        with pytest.raises(BudgetSpent) as refused:
            await calls.begin(40_000)
        assert f"task {worker}, $0.10 (budget_usd), has no room for the next call" in str(
            refused.value
        )
        assert "$0.07 spent" in str(refused.value)
        assert "likely to cost $0.04; provider 'tenth' would fit" in str(refused.value)
        await calls.make(20_000)
        (near,) = warned(await project.events(worker))
        assert "is nearly used up: $0.07 spent" in near
        working.pauses[0].go_on.set()
        assert near in (await result(project, worker)).notes


@pytest.mark.spec("P35")
async def test_a_soft_budget_warns_once_when_it_is_near_and_once_when_it_is_passed(
    open_project: OpenProject,
) -> None:
    working = Working()
    budget = BudgetSettings(per_project=Decimal("0.1"))
    async with opened(open_project, working.driver, budget) as project:
        worker = await at_work(project)
        calls = Calls(project, worker)
        for _ in range(8):
            await calls.make(20_000)
        near, passed = warned(await project.events(worker))
        assert "is nearly used up: $0.06 spent" in near
        assert "would be exceeded: $0.10 spent" in passed


@pytest.mark.spec("P35")
async def test_a_fallback_without_a_price_is_not_called_under_a_hard_budget(
    open_project: OpenProject,
) -> None:
    working = Working()
    async with opened(open_project, working.driver, BudgetSettings()) as project:
        worker = await at_work(project, budget_usd=0.1)
        with pytest.raises(BudgetSpent, match="no price is known"):
            await Calls(project, worker, CODER).begin(100)


@pytest.mark.spec("P35")
async def test_a_provider_that_goes_direct_is_refused_under_a_hard_budget(
    open_project: OpenProject,
) -> None:
    driver = ScriptedDriver(lambda _: [say("done")])
    async with opened(open_project, driver, BudgetSettings(), held=False) as project:
        with pytest.raises(BudgetExceeded, match=r"do not pass through go-ent.*direct: stop"):
            await spawn(project, budget_usd=1)
        await spawn(project)


@pytest.mark.spec("P35")
async def test_or_it_is_stopped_at_its_next_report_as_configured(
    open_project: OpenProject,
) -> None:
    def turn(_: object) -> list[ScriptedMove]:
        report = UsageReported(
            provider="glm",
            model="glm-4",
            usage=Usage(input=1),
            cost_usd=Decimal("0.6"),
            source="opencode",
        )
        return [report, say("half"), report, Pause(), say("never said")]

    budget = BudgetSettings(direct="stop")
    async with opened(open_project, ScriptedDriver(turn), budget, held=False) as project:
        worker = (await spawn(project, budget_usd=1)).worker_id
        told = await result(project, worker)
        assert told.failure and told.failure.kind == "budget_exceeded"
        assert "$1.00 (budget_usd), is used up: $1.20 spent" in told.failure.message
        assert (told.text, told.cost_usd) == ("half", 1.2), "what it did is kept"
        with pytest.raises(BudgetExceeded, match=r"is used up: \$1\.20 spent"):
            await project.ask("worker_prompt", worker_id=worker, prompt="go on")


@pytest.mark.spec("P35")
async def test_a_direct_provider_without_a_price_does_not_begin_when_all_is_spent(
    open_project: OpenProject,
) -> None:
    driver = ScriptedDriver(lambda _: [say("done")])
    budget = BudgetSettings(per_day=Decimal("0.05"), hard=True, direct="stop")
    async with opened(open_project, driver, budget, held=False) as project:
        (told,) = (await spawn(project, provider=CODER.name)).warnings
        assert "no price is known" in told
        await Calls(project, "w-other").make(40_000, taken=60_000)
        with pytest.raises(BudgetExceeded, match=r"\(budget\.per_day\), is used up"):
            await spawn(project, provider=CODER.name)


@pytest.mark.spec("P35")
async def test_a_call_waits_for_others_that_may_leave_room(open_project: OpenProject) -> None:
    working = Working()
    async with opened(open_project, working.driver, BudgetSettings()) as project:
        worker = await at_work(project, budget_usd=0.1)
        calls = Calls(project, worker)
        assert await calls.begin(90_000) is None
        hindrance = await calls.begin(20_000)
        assert hindrance and hindrance.wait_s
        assert "calls in progress may use up the budget of task" in hindrance.reason
