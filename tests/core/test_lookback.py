"""What the outcomes of real turns teach, what that changes, and what is told of it."""

import time
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace
from scripted_project import OpenProject, Project, spawn, wait

from goent.domain.errors import NothingSaid, ProviderDown, RateLimited
from goent.domain.events import TextDelta, ToolCall
from goent.domain.replies import ExplainReply, Instead, LearnedReply, RecommendReply
from goent.domain.settings import Settings
from goent.domain.task_profile import TaskSample
from goent.domain.types import Evidence, Price, Provider, Usage
from goent.providers.track_record import SqliteHistory
from goent.routing.backtest import RoutingKnowledge, run_backtest
from goent.routing.experience import HALF_LIFE_S
from goent.routing.forecast import PastTasks
from goent.testing.driver import Pause, ScriptedDriver

pytestmark = pytest.mark.anyio

TASK = "Refactor the parser so that errors are values"
PRICE = Price(input=Decimal(1), output=Decimal(2))
ANN = Provider(name="ann", backend="a", model="ann-1", price=PRICE, best_for=("refactor",))
BEN = Provider(name="ben", backend="b", model="ben-1", price=PRICE, best_for=("refactor",))
WORK = [ToolCall(id="1", tool="edit", status="completed"), TextDelta(text="Done.")]


def samples(provider: Provider, evidence: Evidence, count: int, at: float) -> list[TaskSample]:
    sample = TaskSample(
        at=at,
        provider=provider.name,
        backend=provider.backend,
        model=provider.model,
        method="acp",
        type="refactor",
        complexity="simple",
        size=30.0,
        cost_usd=Decimal("0.02"),
        usage=Usage(),
        seconds=30.0,
        state="failed" if evidence == "refuted" else "completed",
        evidence=evidence,
    )
    return [replace(sample, at=at + n) for n in range(count)]


def left_to_the_policy(*, learning: bool = True) -> Callable[[Settings], Settings]:
    def amended(settings: Settings) -> Settings:
        return replace(settings, default_provider=None, default_chosen=False, learning=learning)

    return amended


async def kept(tmp_path: Path, *added: TaskSample) -> Sequence[TaskSample]:
    async with SqliteHistory.open(tmp_path / "history.db") as history:
        for sample in added:
            await history.add(sample)
        return await history.recent()


async def learned(project: Project) -> LearnedReply:
    told = await project.operations.cli_table["routes_learned"].call({}, project.caller)
    assert isinstance(told, LearnedReply)
    return told


async def test_outcomes_decide_among_equals_and_that_is_told_everywhere(
    open_project: OpenProject, tmp_path: Path
) -> None:
    async with open_project(
        ScriptedDriver(lambda _: WORK), providers=(ANN, BEN), amended=left_to_the_policy()
    ) as project:
        explain = project.operations.cli_table["routes_explain"]
        before = await explain.call({"task": TASK}, project.caller)
        assert isinstance(before, ExplainReply) and before.provider == "ann"
        now = time.time()
        await kept(tmp_path, *samples(ANN, "refuted", 20, now), *samples(BEN, "verified", 20, now))
        after = await explain.call({"task": TASK}, project.caller)
        assert isinstance(after, ExplainReply) and after.provider == "ben"
        (step,) = [each for each in after.steps if each.source == "learning"]
        assert step.decided and "ben rather than ann: ben 20 of 20 good" in step.why
        told = await project.ask("provider_recommend", task=TASK)
        assert isinstance(told, RecommendReply)
        assert "by outcomes: ben rather than ann" in told.rationale


async def test_switched_off_it_changes_nothing_and_still_tells_what_it_knows(
    open_project: OpenProject, tmp_path: Path
) -> None:
    await kept(tmp_path, *samples(ANN, "refuted", 20, 0), *samples(BEN, "verified", 20, 0))
    async with open_project(
        ScriptedDriver(lambda _: WORK),
        providers=(ANN, BEN),
        amended=left_to_the_policy(learning=False),
    ) as project:
        told = await project.operations.cli_table["routes_explain"].call(
            {"task": TASK}, project.caller
        )
        assert isinstance(told, ExplainReply) and told.provider == "ann"
        assert "learning" not in {step.source for step in told.steps}
        report = await learned(project)
        assert (report.learning, report.outcomes) == (False, 40)
        assert "learning is off" in report.notes[0]


async def test_looking_back_uses_only_what_was_known_before_each_task(
    open_project: OpenProject, tmp_path: Path
) -> None:
    """Ann and Ben in turn, twenty each; then ten more to Ann, as if nothing had been learned."""
    began = time.time() - 1000
    both = zip(samples(ANN, "refuted", 20, began), samples(BEN, "verified", 20, began), strict=True)
    more = samples(ANN, "refuted", 10, began + 100)
    gone = replace(more[0], model="gone", at=began + 200)
    silent = replace(more[0], state="cancelled", evidence=None, at=began + 300)
    await kept(tmp_path, *(each for pair in both for each in pair), *more, gone, silent)
    async with open_project(
        ScriptedDriver(lambda _: WORK), providers=(ANN, BEN), amended=left_to_the_policy()
    ) as project:
        report = await learned(project)
    assert (report.outcomes, report.left_out) == (51, 1)
    ben, other, ann = report.classes
    assert (ann.provider, ann.refuted, ann.enough) == ("ann", 30, True)
    assert (ben.verified, ben.cost_usd, ben.seconds) == (20, 0.02, 30.0)
    assert (other.provider, other.enough) == ("a/gone", False)
    assert (ben.chance > 0.8, ann.chance < 0.3) == (True, True)
    found = report.lookback
    assert found.tasks == 50, "of the model that is gone nothing can be said"
    (change,) = found.instead
    assert change == Instead(
        type="refactor", complexity="simple", chosen="ann", instead="ben", tasks=change.tasks
    )
    assert 20 <= change.tasks <= 22, "ten, and those of the first twenty after the eighth or so"
    assert found.agreed == 50 - change.tasks
    assert found.chosen_chance and found.learned_chance
    assert found.learned_chance > found.chosen_chance + 0.2


async def test_without_outcomes_the_report_says_so(open_project: OpenProject) -> None:
    async with open_project(ScriptedDriver(lambda _: WORK)) as project:
        report = await learned(project)
    assert (report.outcomes, report.classes, report.lookback.tasks) == (0, (), 0)
    assert "no outcomes yet" in report.notes[0]


async def test_every_turn_leaves_what_came_of_it(open_project: OpenProject, tmp_path: Path) -> None:
    pause = Pause()
    turns = {
        "checked": WORK,
        "wrong": WORK,
        "claimed": WORK,
        "Refactor the parser": [TextDelta(text="Done.")],
        "silent": [NothingSaid("nothing")],
        "down": [ProviderDown("503")],
        "limited": [RateLimited("429")],
        "cancelled": [pause],
    }
    verify = {"checked": ["true"], "wrong": ["false"]}
    driver = ScriptedDriver(lambda prompt: turns[prompt.text])
    async with open_project(driver) as project:
        for task in turns:
            worker = await spawn(project, task, verify=verify.get(task, []))
            if task == "cancelled":
                await pause.reached.wait()
                await project.ask("worker_cancel", worker_id=worker)
            await wait(project, worker, timeout_s=20)
        with anyio.fail_after(20):
            while len(found := await kept(tmp_path)) < len(turns):  # noqa: ASYNC110 (lessons are written beside the workers)
                await anyio.sleep(0.05)
        report = await learned(project)
    told = {(sample.state, sample.evidence, sample.failure) for sample in found}
    assert told == {
        ("completed", "verified", None),
        ("failed", "refuted", "verify_failed"),
        ("completed", "claimed", None),
        ("completed", "refuted", None),
        ("failed", None, "empty_turn"),
        ("failed", None, "provider_down"),
        ("failed", None, "rate_limited"),
        ("cancelled", None, None),
    }
    assert (report.outcomes, report.left_out) == (5, 3)
    counts = [(c.verified, c.refuted, c.claimed, c.failed) for c in report.classes]
    assert tuple(map(sum, zip(*counts, strict=True))) == (1, 1, 1, 2)


def test_what_has_faded_by_now_was_fresh_then() -> None:
    then = time.time() - 10 * HALF_LIFE_S
    pairs = zip(samples(ANN, "refuted", 25, then), samples(BEN, "verified", 25, then), strict=True)
    old = tuple(each for pair in pairs for each in pair)
    settings = Settings(project=Path("/project"), providers=(ANN, BEN))
    report = run_backtest(
        RoutingKnowledge(
            settings=settings, samples=old, past=PastTasks(old), prices={}, now=time.time()
        )
    )
    assert [line.enough for line in report.classes] == [False, False]
    (change,) = report.lookback.instead
    assert change.tasks > 10
