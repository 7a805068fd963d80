"""A worker whose provider or program fails goes on with another, and repeats nothing blindly."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import anyio
import pytest
from msgspec.structs import replace
from scripted_project import GLM, OpenProject, Project, assert_grammar

from goent.domain.errors import (
    AuthRefused,
    OutOfCredit,
    PermissionDenied,
    ProtocolError,
    RateLimited,
    WorkerCrashed,
    WorkerError,
)
from goent.domain.events import (
    AnyEvent,
    FailedOver,
    PermissionWithdrawn,
    ToolCall,
    TurnEnded,
    TurnStarted,
)
from goent.domain.ports import Emit, TurnStopReason, WorkerSpec
from goent.domain.replies import ProviderList, Result, SpawnReply
from goent.domain.types import Command, FileChange, Prompt, Provider
from goent.testing.driver import Pause, ScriptedDriver, ScriptedMove, ScriptedSession, question, say
from goent.workers.worker_failover import (
    CONTINUE_PROMPT,
    LOOK_FIRST_WARNING,
    MAX_FAILOVERS,
    TASK_HEADING,
)

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

OTHERS = tuple(
    Provider(name=name, backend=name, model="m") for name in ("spare", "second", "third")
)
FIRST = replace(GLM, fallbacks=tuple(p.name for p in OTHERS))
ALL = (FIRST, *OTHERS)
CRASH = WorkerCrashed("two processes were lost in one turn")
EDIT = ToolCall(
    id="t1",
    tool="edit",
    status="completed",
    changes=(FileChange(path="src/api.py", added=3, removed=1),),
)
RAN = ToolCall(
    id="t2", tool="bash", status="completed", command=Command(command="make test", exit=0)
)


class Fragile(ScriptedDriver):
    """Fails on its first provider as it is told to; whoever takes over says so.

    `forgets`: a session that was left cannot be opened again.
    """

    def __init__(
        self,
        first: Sequence[ScriptedMove],
        *,
        forgets: bool = False,
        healthy: frozenset[str] | None = None,
    ) -> None:
        super().__init__(lambda _: [])
        self._first = first
        self._forgets = forgets
        self._healthy = healthy

    @asynccontextmanager
    async def open(self, spec: WorkerSpec) -> AsyncGenerator[ScriptedSession]:
        if spec.resume and self._forgets:
            raise WorkerError(f"OpenCode has no session {spec.resume!r}")
        well = self._healthy is None or spec.provider.name in self._healthy
        fine = spec.provider.name != "glm" and well
        moves = [say(f"done by {spec.provider.name}", "m2")] if fine else self._first

        def turns(_: Prompt) -> Sequence[ScriptedMove]:
            return moves

        self._turns = turns
        async with super().open(spec) as session:
            yield session


async def spawned(project: Project) -> str:
    accepted = await project.ask("worker_spawn", task="tidy up")
    assert isinstance(accepted, SpawnReply)
    return accepted.worker_id


async def finished(project: Project, **more: object) -> Result:
    accepted = await project.ask("worker_spawn", task="tidy up", wait_s=20, **more)
    assert isinstance(accepted, SpawnReply)
    assert accepted.result
    return accepted.result


async def told(project: Project, worker: str, kind: type[AnyEvent]) -> list[AnyEvent]:
    return [event for event in await project.events(worker) if isinstance(event, kind)]


@pytest.mark.spec("P37")
@pytest.mark.parametrize(
    "error", [RateLimited("429: slow down", retry_after_s=3600), OutOfCredit("402: empty"), CRASH]
)
async def test_the_worker_goes_on_with_the_next_provider_in_the_same_session(
    open_project: OpenProject, error: WorkerError
) -> None:
    driver = Fragile([EDIT, say("I begin"), error])
    async with open_project(driver, providers=ALL) as project:
        result = await finished(project)
        assert (result.state, result.text) == ("completed", "done by spare")
        (moved,) = result.failovers
        assert (moved.from_provider, moved.to_provider) == ("glm", "spare")
        assert str(error) in moved.reason
        worker = result.worker_id
        assert [text for _, text in driver.prompts] == ["tidy up", CONTINUE_PROMPT]
        first, second = driver.opened
        assert (second.cwd, second.resume) == (first.cwd, f"session-of-{worker}")
        assert [p.name for p in second.fallbacks] == ["second", "third"]
        assert len(await told(project, worker, TurnStarted)) == 1
        assert len(await told(project, worker, TurnEnded)) == 1
        again = await project.ask("worker_prompt", worker_id=worker, prompt="more", wait_s=20)
        assert again and driver.prompts[-1] == (worker, "more")
        assert len(driver.opened) == 2, "it stays where it is"
        await project.ask("worker_cancel", worker_id=worker, close=True)
        await project.closed(worker)
        assert_grammar(await project.events(worker))


@pytest.mark.spec("P36", "P27")
async def test_what_a_direct_provider_does_is_known_of_it(open_project: OpenProject) -> None:
    driver = Fragile([RateLimited("429: slow down", retry_after_s=3600)])
    async with open_project(driver, providers=ALL) as project:
        await finished(project)
        found = await project.ask("provider_list")
        assert isinstance(found, ProviderList)
        glm, spare, *_ = found.providers
        assert (glm.health, glm.cooldown_until is not None) == ("limited", True)
        assert "slow down" in glm.health_reason
        assert (spare.health, spare.cooldown_until) == ("direct", None)
        healthy = await project.ask("provider_list", healthy_only=True)
        assert isinstance(healthy, ProviderList)
        assert [p.name for p in healthy.providers] == ["spare", "second", "third"]


async def test_where_no_provider_can_be_used_now_the_list_says_where_to_look(
    open_project: OpenProject,
) -> None:
    driver = Fragile([RateLimited("429: slow down", retry_after_s=3600)])
    async with open_project(driver, providers=ALL[:1]) as project:
        await finished(project)
        healthy = await project.ask("provider_list", healthy_only=True)
        assert isinstance(healthy, ProviderList)
        assert healthy.providers == () and "without healthy_only" in healthy.warnings[0]


async def test_a_session_that_is_gone_is_replaced_by_one_with_a_brief(
    open_project: OpenProject,
) -> None:
    driver = Fragile([EDIT, RAN, say("Half of it is done."), CRASH], forgets=True)
    async with open_project(driver, providers=ALL) as project:
        result = await finished(project)
        assert (result.state, result.text) == ("completed", "done by spare")
        assert len(result.failovers) == 1, "the same provider in a new session is no move"
        assert driver.opened[-1].resume is None
        told = driver.prompts[-1][1]
        for words in ("tidy up", "src/api.py", "make test (exit 0)", "Half of it is done."):
            assert words in told
        assert LOOK_FIRST_WARNING in told


async def test_a_prompt_that_may_not_have_arrived_is_told_with_care(
    open_project: OpenProject,
) -> None:
    driver = Fragile([ProtocolError("no such method")])
    async with open_project(driver, providers=ALL) as project:
        assert (await finished(project)).state == "completed"
        told = driver.prompts[-1][1]
        assert (
            told.startswith(CONTINUE_PROMPT) and TASK_HEADING in told and told.endswith("tidy up")
        )


async def test_the_moves_of_a_turn_are_bounded(open_project: OpenProject) -> None:
    driver = Fragile([EDIT, CRASH], healthy=frozenset())
    async with open_project(driver, providers=ALL) as project:
        result = await finished(project)
        assert (result.state, len(result.failovers)) == ("failed", MAX_FAILOVERS)
        assert result.failure and result.failure.kind == "worker_crashed"
        assert [spec.provider.name for spec in driver.opened] == ["glm", "spare", "second"]
        assert driver.opened[-1].resume is None, "a session that failed twice is left"
        await project.closed(result.worker_id)
        assert_grammar(await project.events(result.worker_id))


@pytest.mark.parametrize("error", [CRASH, RateLimited("429")])
async def test_a_pinned_task_stays_and_names_who_would_be_next(
    open_project: OpenProject, error: WorkerError
) -> None:
    driver = Fragile([error])
    async with open_project(driver, providers=ALL) as project:
        result = await finished(project, provider="glm")
        assert (result.state, result.failovers) == ("failed", ())
        assert result.failure and result.failure.retry_with == "spare"
        moved = await finished(project, provider="glm", allow_fallback=True)
        assert (moved.state, moved.text) == ("completed", "done by spare")


@pytest.mark.parametrize("error", [CRASH, RateLimited("429"), AuthRefused("401: who?")])
async def test_without_fallbacks_a_failed_task_names_who_could_take_it(
    open_project: OpenProject, error: WorkerError
) -> None:
    twin = Provider(name="twin", backend=GLM.backend, model="glm-5")
    driver = Fragile([error])
    async with open_project(driver, providers=(GLM, twin, OTHERS[0])) as project:
        result = await finished(project, provider="glm")
        assert result.failure and result.failure.retry_with == "spare"
        moved = await finished(project, provider=result.failure.retry_with)
        assert moved.text == "done by spare"


async def test_nobody_is_named_who_cannot_take_the_task(open_project: OpenProject) -> None:
    driver = Fragile([RateLimited("429")])
    async with open_project(driver, providers=(GLM, OTHERS[0])) as project:
        await project.calls.healths.record_failure(
            OTHERS[0], RateLimited("429", retry_after_s=900), began=0
        )
        result = await finished(project, provider="glm")
        assert result.failure and result.failure.retry_with is None


async def test_the_workers_own_fault_names_nobody(open_project: OpenProject) -> None:
    driver = Fragile([PermissionDenied("bash was refused")])
    async with open_project(driver, providers=(GLM, OTHERS[0])) as project:
        result = await finished(project, provider="glm")
        assert result.failure and result.failure.retry_with is None


@pytest.mark.parametrize(
    "error", [PermissionDenied("bash was refused"), AuthRefused("401: who?"), WorkerError("odd")]
)
async def test_what_another_provider_cannot_mend_moves_nobody(
    open_project: OpenProject, error: WorkerError
) -> None:
    driver = Fragile([error])
    async with open_project(driver, providers=ALL) as project:
        result = await finished(project)
        assert (result.state, result.failovers) == ("failed", ())
        assert len(driver.opened) == 1


async def test_what_the_gateway_has_tried_is_not_tried_again(open_project: OpenProject) -> None:
    driver = Fragile([RateLimited("all were asked")])
    async with open_project(driver, providers=ALL, keys={"moonshot": "sk-held"}) as project:
        result = await finished(project)
        assert (result.state, result.failovers) == ("failed", ())
        assert project.calls.healths.condition(FIRST).state == "unknown", (
            "the gateway tells of its own"
        )


async def test_a_fallback_that_is_out_is_passed_over(open_project: OpenProject) -> None:
    driver = Fragile([CRASH])
    async with open_project(driver, providers=ALL) as project:
        for each in OTHERS[:2]:
            await project.calls.healths.record_failure(
                each, RateLimited("429", retry_after_s=900), began=0
            )
        assert (await finished(project)).text == "done by third"


async def test_nobody_left_is_the_failure_that_it_was(open_project: OpenProject) -> None:
    driver = Fragile([CRASH])
    async with open_project(driver, providers=ALL) as project:
        for each in OTHERS:
            await project.calls.healths.record_failure(
                each, RateLimited("429", retry_after_s=900), began=0
            )
        result = await finished(project)
        assert (result.state, result.failovers) == ("failed", ())
        assert result.failure and result.failure.message == str(CRASH)


async def test_a_cancelled_turn_goes_on_nowhere(open_project: OpenProject) -> None:
    pause = Pause()
    driver = Fragile([pause, CRASH])
    async with open_project(driver, providers=ALL) as project:
        worker = await spawned(project)
        await pause.reached.wait()
        await project.ask("worker_cancel", worker_id=worker)
        assert project.feed.view(worker).state == "cancelled"
        assert not await told(project, worker, FailedOver)


async def test_a_cancel_in_the_middle_of_a_move_ends_the_worker(open_project: OpenProject) -> None:
    pause = Pause()
    driver = Fragile([pause, CRASH])
    async with open_project(driver, providers=ALL) as project:
        worker = await spawned(project)
        await pause.reached.wait()
        driver.ready = anyio.Event()  # from here on nobody gets a session
        pause.go_on.set()
        with anyio.fail_after(20):
            while project.feed.view(worker).moved_to != "spare":
                await project.feed.wait_for_news(project.feed.seq)
            await project.ask("worker_cancel", worker_id=worker)
            await project.closed(worker)
        assert project.feed.view(worker).state == "cancelled"
        assert_grammar(await project.events(worker))


class Breaking(Fragile):
    """Its program breaks while a question is open."""

    @asynccontextmanager
    async def open(self, spec: WorkerSpec) -> AsyncGenerator[ScriptedSession]:
        async with super().open(spec) as session:
            broken = spec.provider.name == "glm"
            yield BreakingSession(self, spec, self._turns) if broken else session


class BreakingSession(ScriptedSession):
    async def prompt(self, prompt: Prompt, emit: Emit) -> TurnStopReason:
        await emit(question("q1"))
        raise ProtocolError("a broken line")


async def test_a_question_of_the_session_that_failed_is_withdrawn(
    open_project: OpenProject,
) -> None:
    async with open_project(Breaking([]), providers=ALL) as project:
        worker = await spawned(project)
        with anyio.fail_after(20):
            while project.feed.view(worker).state != "completed":
                await project.feed.wait_for_news(project.feed.seq)
        (gone,) = await told(project, worker, PermissionWithdrawn)
        assert isinstance(gone, PermissionWithdrawn) and gone.id == "q1"
