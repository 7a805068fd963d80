"""What a go-ent that starts makes of workers whose go-ent died."""

import anyio
import pytest
from scripted_project import OpenProject, Project, assert_grammar

from goent.domain.events import TextDelta, TurnEnded, TurnStarted, WorkerClosed, WorkerSpawned
from goent.domain.money import CallSize, StartedCall
from goent.domain.replies import Costs, PromptReply, Result, Status, WaitReply
from goent.testing.driver import ScriptedDriver, question, say

pytestmark = pytest.mark.anyio


async def spawned(project: Project) -> str:
    reply = await project.ask("worker_spawn", task="begin", wait_s=10)
    worker = getattr(reply, "worker_id", "")
    assert worker
    return worker


def as_if_killed(project: Project, worker: str) -> None:
    """A daemon that is killed writes nothing more: its worker stays open in the journal."""
    life = project.orchestrator.living_workers[worker]
    life._services.feed.append = _nothing  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue] (a kill cannot be had otherwise in one process)


async def _nothing(*_: object) -> None: ...


async def test_a_worker_goes_on_in_the_session_it_had(open_project: OpenProject) -> None:
    async with open_project(ScriptedDriver(lambda _: [say("one")])) as project:
        worker = await spawned(project)
        as_if_killed(project, worker)
    driver = ScriptedDriver(lambda _: [say("two")])
    async with open_project(driver) as project:
        status = await project.ask("worker_status", worker_id=worker)
        assert isinstance(status, Status) and (status.open, status.state) == (True, "completed")
        assert driver.opened == [], "nothing is started before somebody asks"
        prompted = await project.ask("worker_prompt", worker_id=worker, prompt="more", wait_s=10)
        assert isinstance(prompted, PromptReply)
        assert (prompted.turn, prompted.state) == (2, "completed")
        assert [spec.resume for spec in driver.opened] == [f"session-of-{worker}"]
        assert driver.prompts == [(worker, "more")], "no prompt is repeated"
        await project.ask("worker_cancel", worker_id=worker, close=True)
        assert_grammar(await project.events(worker))


async def test_a_revived_worker_knows_how_often_it_has_asked(open_project: OpenProject) -> None:
    """So that no id of a question is used for a second one."""
    asks = ScriptedDriver(lambda _: [question("p1"), question("p2"), say("one")])
    async with open_project(asks, permission_timeout_s=20) as project:
        worker = await spawned(project)
        await project.ask(
            "worker_answer", worker_id=worker, permission_id="p1", option="allow_once"
        )
        await project.ask("worker_wait", worker_ids=[worker], timeout_s=10)
        await project.ask(
            "worker_answer", worker_id=worker, permission_id="p2", option="allow_once"
        )
        await project.ask("worker_wait", worker_ids=[worker], timeout_s=10)
        as_if_killed(project, worker)
    driver = ScriptedDriver(lambda _: [say("two")])
    async with open_project(driver) as project:
        await project.ask("worker_prompt", worker_id=worker, prompt="more", wait_s=10)
        assert [spec.asked for spec in driver.opened] == [2]


async def test_a_turn_that_was_under_way_failed_and_says_so(open_project: OpenProject) -> None:
    async with open_project(ScriptedDriver(lambda _: [say("one")])) as project:
        worker = await spawned(project)
        await project.feed.append(worker, TurnStarted(turn=2, prompt="more"))
        await project.feed.append(worker, TextDelta(text="half"))
        await project.feed.commit()
        as_if_killed(project, worker)
    async with open_project(ScriptedDriver(lambda _: [say("again")])) as project:
        status = await project.ask("worker_status", worker_id=worker)
        assert isinstance(status, Status) and status.failure
        assert (status.state, status.failure.kind, status.open) == ("failed", "daemon_died", True)
        prompted = await project.ask("worker_prompt", worker_id=worker, prompt="go on", wait_s=10)
        assert isinstance(prompted, PromptReply) and prompted.turn == 3
        await project.ask("worker_cancel", worker_id=worker, close=True)
        events = await project.events(worker)
        assert_grammar(events)
        ends = [event.state for event in events if isinstance(event, TurnEnded)]
        assert ends == ["completed", "failed", "completed"]


async def unsized() -> CallSize:
    raise AssertionError("without a limit nobody has to know how large it is")


@pytest.mark.spec("P25", "P33")
async def test_a_call_that_was_under_way_is_counted_as_one_of_unknown_cost(
    open_project: OpenProject,
) -> None:
    async with open_project(ScriptedDriver(lambda _: [say("one")])) as project:
        worker = await spawned(project)
        await project.feed.append(worker, TurnStarted(turn=2, prompt="more"))
        await project.feed.commit()
        call = StartedCall(id="c1", worker=worker, backend="moonshot", model="glm-4")
        await project.calls.books.call_started(call, unsized)
        as_if_killed(project, worker)
    async with open_project(ScriptedDriver(lambda _: [say("again")])) as project:
        result = await project.ask("worker_result", worker_id=worker)
        assert isinstance(result, Result) and result.cost_usd is None
        assert "the cost of 1 of 1 model calls is unknown" in result.notes[0]
        costs = await project.ask("cost_report", by="provider")
        assert isinstance(costs, Costs)
        assert [(line.key, line.calls, line.unknown_calls) for line in costs.rows] == [
            ("glm", 1, 1)
        ]
        await project.ask("worker_cancel", worker_id=worker, close=True)
        assert_grammar(await project.events(worker))


async def test_a_worker_that_never_had_a_session_is_closed(open_project: OpenProject) -> None:
    driver = ScriptedDriver(lambda _: [say("never")])
    driver.ready = anyio.Event()
    async with open_project(driver) as project:
        reply = await project.ask("worker_spawn", task="begin")
        worker = getattr(reply, "worker_id", "")
        as_if_killed(project, worker)
    async with open_project(ScriptedDriver(lambda _: [])) as project:
        await project.feed.commit()
        status = await project.ask("worker_status", worker_id=worker)
        assert isinstance(status, Status) and not status.open
        assert status.state == "failed", "whoever waits for it is not left waiting"
        assert status.failure and "Spawn it again" in status.failure.message
        events = await project.events(worker)
        assert_grammar(events)
        assert isinstance(events[0], WorkerSpawned)


async def test_a_worker_that_was_closed_before_it_began_is_not_starting_for_ever(
    open_project: OpenProject,
) -> None:
    async with open_project(ScriptedDriver(lambda _: [say("never")])) as project:
        worker = await spawned(project)
        born = (await project.events(worker))[0]
        await project.feed.append("w-early", born)
        await project.feed.append(
            "w-early", WorkerClosed(reason="the journal could not be written")
        )
        await project.feed.commit()
        waited = await project.ask("worker_wait", worker_ids=["w-early"], timeout_s=10)
        assert isinstance(waited, WaitReply) and not waited.timed_out
        assert (waited.workers[0].state, waited.workers[0].open) == ("cancelled", False)
