"""Workers of a method that has one turn: they close after it, and nothing is promised beyond."""

import anyio
import pytest
from scripted_project import OpenProject, Project, assert_grammar

from goent.domain.errors import WorkerIsClosed
from goent.domain.events import WorkerClosed
from goent.domain.replies import SpawnReply, Status
from goent.testing.driver import Pause, ScriptedDriver, say

pytestmark = pytest.mark.anyio


async def spawn(project: Project, *, wait_s: float, permissions: str = "auto") -> SpawnReply:
    spawned = await project.ask(
        "worker_spawn", task="do it", method="cli", permissions=permissions, wait_s=wait_s
    )
    assert isinstance(spawned, SpawnReply)
    return spawned


async def status(project: Project, worker: str) -> Status:
    told = await project.ask("worker_status", worker_id=worker)
    assert isinstance(told, Status)
    return told


async def test_it_closes_after_its_turn(open_project: OpenProject) -> None:
    driver = ScriptedDriver(lambda _: [say("done")])
    async with open_project(driver) as project:
        worker = (await spawn(project, wait_s=10)).worker_id
        told = await status(project, worker)
        assert (told.state, told.open) == ("completed", False)
        await project.closed(worker)
        assert driver.closed == [worker]
        with pytest.raises(WorkerIsClosed):
            await project.ask("worker_prompt", worker_id=worker, prompt="more")
        events = await project.events(worker)
        assert_grammar(events)
        assert events[-1] == WorkerClosed(reason="had its one turn")


async def test_a_prompt_behind_its_turn_is_refused_and_not_lost(open_project: OpenProject) -> None:
    pause = Pause()
    async with open_project(ScriptedDriver(lambda _: [pause, say("done")])) as project:
        worker = (await spawn(project, wait_s=0)).worker_id
        await pause.reached.wait()
        with pytest.raises(WorkerIsClosed, match="'cli', which has one turn"):
            await project.ask("worker_prompt", worker_id=worker, prompt="more", queue=True)
        assert (await status(project, worker)).open
        pause.go_on.set()
        with anyio.fail_after(10):
            await project.closed(worker)


@pytest.mark.parametrize(
    ("permissions", "warned"), [("ask", True), ("edit", True), ("auto", False)]
)
async def test_permissions_that_ask_are_warned_about(
    open_project: OpenProject, permissions: str, warned: bool
) -> None:
    async with open_project(ScriptedDriver(lambda _: [say("done")])) as project:
        spawned = await spawn(project, wait_s=0, permissions=permissions)
        assert any("cannot ask anybody" in warning for warning in spawned.warnings) is warned
