"""A turn that falls silent: told of, and ended only if nothing of it works any more."""

import anyio
import pytest
from scripted_project import OpenProject, Project

from goent.domain.events import Noticed
from goent.domain.ports import WorkerLiveness
from goent.domain.replies import Result, SpawnReply, Status
from goent.domain.settings import LimitSettings
from goent.testing.driver import Pause, ScriptedDriver, question, say

pytestmark = pytest.mark.anyio

QUICK = LimitSettings(stall_s=0.2)


async def notices(project: Project, worker: str, n: int) -> list[str]:
    """What was told of its silence, once there are so many."""
    with anyio.fail_after(10):
        while True:
            seen, events = project.feed.seq, await project.events(worker)
            told = [event.text for event in events if isinstance(event, Noticed)]
            if len(told) >= n:
                return told
            await project.feed.wait_for_news(seen)


async def test_a_turn_without_signs_of_life_is_reported_and_then_ended(
    open_project: OpenProject,
) -> None:
    driver = ScriptedDriver(lambda _: [say("half"), Pause()])
    driver.signs = WorkerLiveness(alive=False, detail="its process uses no CPU")
    async with open_project(driver, limits=QUICK) as project:
        spawned = await project.ask("worker_spawn", task="x", wait_s=10)
        assert isinstance(spawned, SpawnReply) and spawned.result and spawned.result.failure
        assert spawned.result.failure.kind == "stalled"
        assert spawned.result.text == "half"
        told = [e.text for e in await project.events(spawned.worker_id) if isinstance(e, Noticed)]
        assert len(told) == 2 and all("stalled: its process uses no CPU" in text for text in told)


async def test_a_slow_worker_that_lives_is_never_ended(open_project: OpenProject) -> None:
    pause = Pause()
    driver = ScriptedDriver(lambda _: [pause, say("at last")])
    driver.signs = WorkerLiveness(alive=True, detail="waits for the model")
    async with open_project(driver, limits=QUICK) as project:
        spawned = await project.ask("worker_spawn", task="x", wait_s=0)
        assert isinstance(spawned, SpawnReply)
        await notices(project, spawned.worker_id, 4)
        status = await project.ask("worker_status", worker_id=spawned.worker_id)
        assert isinstance(status, Status) and status.state == "running"
        assert "still working: waits for the model" in status.step
        pause.go_on.set()
        await project.ask("worker_wait", worker_ids=[spawned.worker_id], timeout_s=10)
        result = await project.ask("worker_result", worker_id=spawned.worker_id)
        assert isinstance(result, Result) and result.state == "completed"


async def test_a_question_that_nobody_answers_is_no_stall(open_project: OpenProject) -> None:
    driver = ScriptedDriver(lambda _: [question("p1"), say("done")])
    driver.signs = WorkerLiveness(alive=False, detail="nothing")
    async with open_project(driver, limits=QUICK) as project:
        spawned = await project.ask("worker_spawn", task="x", wait_s=10)
        assert isinstance(spawned, SpawnReply) and spawned.state == "waiting"
        await anyio.sleep(4 * QUICK.stall_s)
        assert project.feed.view(spawned.worker_id).state == "waiting"
        assert await notices(project, spawned.worker_id, 0) == []
