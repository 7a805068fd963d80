"""A worker's life with a scripted driver: every way a turn can go."""

from decimal import Decimal

import anyio
import pytest
from scripted_project import OpenProject, assert_grammar, result, spawn, wait

from goent.domain.errors import (
    OpenCodeMissing,
    RateLimited,
    RequestError,
    UnknownWorker,
    WorkerBusy,
    WorkerCrashed,
    WorkerIsClosed,
)
from goent.domain.events import (
    PermissionAnswered,
    PlanUpdated,
    TurnEnded,
    UsageReported,
    WorkerClosed,
)
from goent.domain.replies import CancelReply, Costs, OutputReply, PromptReply, SpawnReply, Status
from goent.domain.settings import LimitSettings
from goent.domain.types import PlanEntry, Prompt, Usage
from goent.testing.driver import Pause, ScriptedDriver, ScriptedMove, question, say

pytestmark = pytest.mark.anyio


async def test_a_worker_is_accepted_before_it_is_ready(open_project: OpenProject) -> None:
    driver = ScriptedDriver(lambda _: [say("done")])
    driver.ready = anyio.Event()
    async with open_project(driver) as project:
        spawned = await project.ask("worker_spawn", task="do it")
        assert isinstance(spawned, SpawnReply)
        assert (spawned.state, spawned.provider, spawned.model) == ("starting", "glm", "glm-4")
        assert spawned.reason.startswith("the configured default; the task is ")
        driver.ready.set()
        waited = await wait(project, spawned.worker_id)
        assert [w.state for w in waited.workers] == ["completed"]
        assert waited.workers[0].open


async def test_a_result_is_a_claim_until_a_command_proves_it(open_project: OpenProject) -> None:
    async with open_project(ScriptedDriver(lambda _: [say("all "), say("green")])) as project:
        claimed = await spawn(project)
        verified = await spawn(project, verify=["true", "test -d ."])
        refuted = await spawn(project, verify=["echo broken; exit 3", "true"])
        await wait(project, claimed, verified, refuted)
        assert (await result(project, claimed)).evidence == "claimed"
        assert (await result(project, claimed)).text == "all green"
        assert (await result(project, verified)).evidence == "verified"
        told = await result(project, refuted)
        assert (told.state, told.evidence) == ("failed", "refuted")
        assert [(check.exit, check.tail) for check in told.verify] == [(3, "broken"), (0, "")]
        assert told.failure and told.failure.kind == "verify_failed"
        assert "echo broken" in told.failure.message


async def test_one_fails_the_others_go_on(open_project: OpenProject) -> None:
    def turns(prompt: Prompt) -> list[ScriptedMove]:
        return [RateLimited("come back later")] if "bad" in prompt.text else [say("fine")]

    async with open_project(ScriptedDriver(turns)) as project:
        good, bad = await spawn(project, "good"), await spawn(project, "bad")
        await wait(project, good, bad)
        assert (await result(project, good)).state == "completed"
        failed = await result(project, bad)
        assert failed.failure and failed.failure.kind == "rate_limited"
        assert failed.failure.retryable
        status = await project.ask("worker_status", worker_id=bad)
        assert isinstance(status, Status) and status.open, "its session lives: it can go on"


async def test_a_fault_of_our_own_ends_one_worker_and_says_so(open_project: OpenProject) -> None:
    async with open_project(ScriptedDriver(lambda _: [ZeroDivisionError("oops")])) as project:
        worker = await spawn(project)
        await project.closed(worker)
        told = await result(project, worker)
        assert told.failure and told.failure.kind == "internal" and "oops" in told.failure.message
        assert_grammar(await project.events(worker))


async def test_a_worker_that_cannot_start_fails_and_is_closed(open_project: OpenProject) -> None:
    driver = ScriptedDriver(lambda _: [], open_error=OpenCodeMissing("install it by npm"))
    async with open_project(driver) as project:
        worker = await spawn(project)
        await project.closed(worker)
        told = await result(project, worker)
        assert told.failure and "install it by npm" in told.failure.message
        assert_grammar(await project.events(worker))


async def test_a_crash_closes_the_worker(open_project: OpenProject) -> None:
    crash = WorkerCrashed("opencode ended with 137", returncode=137)
    async with open_project(ScriptedDriver(lambda _: [say("half"), crash])) as project:
        worker = await spawn(project)
        await project.closed(worker)
        told = await result(project, worker)
        assert (told.text, told.state) == ("half", "failed")
        with pytest.raises(WorkerIsClosed, match="spawn another"):
            await project.ask("worker_prompt", worker_id=worker, prompt="go on")


async def test_a_cancelled_turn_keeps_what_was_said_and_the_worker(
    open_project: OpenProject,
) -> None:
    pause = Pause()

    def turns(prompt: Prompt) -> list[ScriptedMove]:
        return [say("half"), pause, say("never")] if prompt.text == "long" else [say("again")]

    async with open_project(ScriptedDriver(turns)) as project:
        worker = await spawn(project, "long")
        await pause.reached.wait()
        cancelled = await project.ask("worker_cancel", worker_id=worker, reason="enough")
        assert isinstance(cancelled, CancelReply)
        assert (cancelled.state, cancelled.result.text) == ("cancelled", "half")
        prompted = await project.ask("worker_prompt", worker_id=worker, prompt="more", wait_s=10)
        assert isinstance(prompted, PromptReply)
        assert (prompted.turn, prompted.state) == (2, "completed")
        assert prompted.result and prompted.result.text == "again"
        ends = [e for e in await project.events(worker) if isinstance(e, TurnEnded)]
        assert [(e.state, e.reason) for e in ends] == [("cancelled", "enough"), ("completed", "")]


async def test_a_turn_that_does_not_stop_is_abandoned_after_the_grace(
    open_project: OpenProject,
) -> None:
    deaf = Pause(deaf=True)
    limits = LimitSettings(cancel_grace_s=0.05)
    async with open_project(ScriptedDriver(lambda _: [deaf]), limits=limits) as project:
        worker = await spawn(project)
        await deaf.reached.wait()
        cancelled = await project.ask("worker_cancel", worker_id=worker)
        assert isinstance(cancelled, CancelReply) and cancelled.state == "cancelled"
        await project.closed(worker)
        closed = (await project.events(worker))[-1]
        assert isinstance(closed, WorkerClosed) and "did not stop" in closed.reason


async def test_cancel_before_the_start_ends_the_worker(open_project: OpenProject) -> None:
    driver = ScriptedDriver(lambda _: [say("never")])
    driver.ready = anyio.Event()
    async with open_project(driver) as project:
        worker = await spawn(project)
        cancelled = await project.ask("worker_cancel", worker_id=worker)
        assert isinstance(cancelled, CancelReply) and cancelled.state == "cancelled"
        await project.closed(worker)
        assert_grammar(await project.events(worker))
        assert driver.prompts == []


async def test_a_turn_beyond_its_time_limit_fails(open_project: OpenProject) -> None:
    async with open_project(ScriptedDriver(lambda _: [say("slow"), Pause()])) as project:
        worker = await spawn(project, timeout_s=0.5)
        await wait(project, worker)
        told = await result(project, worker)
        assert told.failure and told.failure.kind == "timeout" and "0.5 s" in told.failure.message
        assert told.text == "slow"


async def test_a_busy_worker_refuses_a_prompt_unless_it_may_queue(
    open_project: OpenProject,
) -> None:
    pause = Pause()

    def turns(prompt: Prompt) -> list[ScriptedMove]:
        return [pause, say("one")] if prompt.text == "first" else [say(prompt.text)]

    driver = ScriptedDriver(turns)
    async with open_project(driver) as project:
        worker = await spawn(project, "first")
        await pause.reached.wait()
        with pytest.raises(WorkerBusy, match="queue: true"):
            await project.ask("worker_prompt", worker_id=worker, prompt="second")
        queued = await project.ask("worker_prompt", worker_id=worker, prompt="second", queue=True)
        assert isinstance(queued, PromptReply) and queued.turn == 2
        assert [text for _, text in driver.prompts] == ["first"]
        pause.go_on.set()
        await wait(project, worker)
        assert [text for _, text in driver.prompts] == ["first", "second"]


async def test_waiting_right_after_a_prompt_waits_for_that_prompt(
    open_project: OpenProject,
) -> None:
    async with open_project(ScriptedDriver(lambda prompt: [say(prompt.text)])) as project:
        worker = await spawn(project, "first")
        await wait(project, worker)
        for text in ("second", "third"):
            await project.ask("worker_prompt", worker_id=worker, prompt=text)
            await wait(project, worker)
            assert (await result(project, worker)).text == text


async def test_cancel_reaches_a_worker_that_is_being_verified(open_project: OpenProject) -> None:
    async with open_project(ScriptedDriver(lambda _: [say("done")])) as project:
        worker = await spawn(project, verify=["touch begun; sleep 60"])
        with anyio.fail_after(10):
            while not (project.folder / "begun").exists():  # noqa: ASYNC110 (a file is silent)
                await anyio.sleep(0.01)
            cancelled = await project.ask("worker_cancel", worker_id=worker)
        assert isinstance(cancelled, CancelReply) and cancelled.state == "cancelled"
        assert cancelled.result.evidence is None
        again = await project.ask("worker_prompt", worker_id=worker, prompt="more")
        assert isinstance(again, PromptReply), "its session lives"


async def test_cancel_forgets_what_was_queued(open_project: OpenProject) -> None:
    pause = Pause()
    driver = ScriptedDriver(lambda _: [pause, say("x")])
    async with open_project(driver) as project:
        worker = await spawn(project, "first")
        await pause.reached.wait()
        await project.ask("worker_prompt", worker_id=worker, prompt="second", queue=True)
        with anyio.fail_after(10):
            cancelled = await project.ask("worker_cancel", worker_id=worker)
        assert isinstance(cancelled, CancelReply) and cancelled.state == "cancelled"
        await project.ask("worker_cancel", worker_id=worker, close=True)
        assert [text for _, text in driver.prompts] == ["first"]
        assert_grammar(await project.events(worker))


async def test_waiting_for_a_slot_does_not_use_up_the_turns_time(
    open_project: OpenProject,
) -> None:
    pause = Pause()

    def turns(prompt: Prompt) -> list[ScriptedMove]:
        return [pause, say("first")] if prompt.text == "first" else [say("second")]

    async with open_project(ScriptedDriver(turns), limits=LimitSettings(workers=1)) as project:
        first = await spawn(project, "first")
        await pause.reached.wait()
        second = await spawn(project, "second", timeout_s=1)
        await anyio.sleep(1.1)
        pause.go_on.set()
        waited = await wait(project, first, second)
        assert [w.state for w in waited.workers] == ["completed", "completed"]


async def test_what_a_driver_metered_itself_is_in_the_ledger(open_project: OpenProject) -> None:
    spent = UsageReported(
        provider="glm",
        model="glm-4",
        usage=Usage(input=10, output=5),
        cost_usd=Decimal("0.25"),
        source="opencode",
    )
    async with open_project(ScriptedDriver(lambda _: [spent, say("done")])) as project:
        worker = await spawn(project)
        await wait(project, worker)
        costs = await project.ask("cost_report", by="worker")
        assert isinstance(costs, Costs)
        assert [(row.key, row.cost_usd) for row in costs.rows] == [(worker, 0.25)]


async def test_a_question_waits_for_the_first_answer(open_project: OpenProject) -> None:
    async with open_project(ScriptedDriver(lambda _: [question("p1"), say("ran")])) as project:
        worker = await spawn(project)
        waited = await wait(project, worker)
        status = waited.workers[0]
        assert status.state == "waiting" and status.permission
        assert (status.permission.id, status.permission.tool) == ("p1", "bash")
        with pytest.raises(RequestError, match="no open question 'p9' \\(open: p1\\)"):
            await project.ask(
                "worker_answer", worker_id=worker, permission_id="p9", option="reject"
            )
        await project.ask(
            "worker_answer", worker_id=worker, permission_id="p1", option="allow_once"
        )
        with pytest.raises(RequestError, match="p1"):
            await project.ask(
                "worker_answer", worker_id=worker, permission_id="p1", option="reject"
            )
        await wait(project, worker)
        answers = [e for e in await project.events(worker) if isinstance(e, PermissionAnswered)]
        assert [(a.id, a.option, a.by) for a in answers] == [("p1", "allow_once", "test")]


async def test_no_answer_in_time_is_a_no(open_project: OpenProject) -> None:
    driver = ScriptedDriver(lambda _: [question("p1"), say("never")])
    async with open_project(driver, permission_timeout_s=0.05) as project:
        worker = await spawn(project)
        with anyio.fail_after(10):
            while project.feed.views[worker].state != "failed":
                await project.feed.wait_for_news(project.feed.seq)
        told = await result(project, worker)
        assert told.failure and told.failure.kind == "permission_denied"
        answers = [e for e in await project.events(worker) if isinstance(e, PermissionAnswered)]
        assert [(a.option, a.by) for a in answers] == [("reject", "the time limit")]


async def test_progress_comes_from_the_workers_own_list(open_project: OpenProject) -> None:
    pause = Pause()
    plan = PlanUpdated(
        entries=(
            PlanEntry(text="read", status="completed"),
            PlanEntry(text="write the test", status="in_progress"),
        )
    )
    async with open_project(ScriptedDriver(lambda _: [plan, say("…"), pause])) as project:
        worker = await spawn(project)
        await pause.reached.wait()
        await project.feed.commit()
        status = await project.ask("worker_status", worker_id=worker)
        assert isinstance(status, Status)
        assert (status.progress.percent, status.progress.source) == (50, "todos")
        assert status.step == "write the test"


async def test_since_last_gives_each_connection_only_what_is_new(
    open_project: OpenProject,
) -> None:
    pause = Pause()
    async with open_project(ScriptedDriver(lambda _: [say("one "), pause, say("two")])) as project:
        worker = await spawn(project)
        await pause.reached.wait()
        await project.feed.commit()

        async def new() -> str:
            output = await project.ask(
                "worker_output", worker_id=worker, since_last=True, filter="text"
            )
            assert isinstance(output, OutputReply)
            return output.text

        assert (await new(), await new()) == ("one ", "")
        pause.go_on.set()
        await wait(project, worker)
        assert await new() == "two"
        whole = await project.ask("worker_output", worker_id=worker, filter="text")
        assert isinstance(whole, OutputReply) and whole.text == "one two" and not whole.more


async def test_leaving_ends_every_worker_and_the_journal_is_whole(
    open_project: OpenProject,
) -> None:
    driver = ScriptedDriver(lambda _: [say("x"), Pause()])
    async with open_project(driver) as project:
        workers = [await spawn(project) for _ in range(5)]
        with anyio.fail_after(10):
            while len(driver.prompts) < 5:
                await anyio.lowlevel.checkpoint()
    async with open_project(ScriptedDriver(lambda _: [])) as project:
        for worker in workers:
            events = await project.events(worker)
            assert_grammar(events)
            assert isinstance(events[-2], TurnEnded) and events[-2].state == "cancelled"
    assert sorted(driver.closed) == sorted(workers)


async def test_a_worker_of_long_ago_is_still_known(open_project: OpenProject) -> None:
    async with open_project(ScriptedDriver(lambda _: [say("remembered")])) as project:
        worker = await spawn(project)
        await wait(project, worker)
        await project.ask("worker_cancel", worker_id=worker, close=True)
        del project.feed.views[worker]
        assert (await result(project, worker)).text == "remembered"


async def test_an_unknown_worker_is_named(open_project: OpenProject) -> None:
    async with open_project(ScriptedDriver(lambda _: [])) as project:
        for name in ("worker_status", "worker_output", "worker_result", "worker_cancel"):
            with pytest.raises(UnknownWorker, match="no worker 'w-none1'"):
                await project.ask(name, worker_id="w-none1")
