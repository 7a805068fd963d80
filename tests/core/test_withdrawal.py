"""A question whose asker is gone: taken back at once, and its id is never used again."""

import anyio
import pytest
from scripted_project import OpenProject, Project

from goent.domain.errors import RequestError
from goent.domain.events import PermissionAnswered, PermissionWithdrawn
from goent.domain.replies import OutputReply, Status, WaitReply
from goent.testing.driver import AbandonedQuestion, Pause, ScriptedDriver, question, say

pytestmark = pytest.mark.anyio


async def asking(project: Project) -> str:
    """A worker that has asked its first question."""
    spawned = await project.ask("worker_spawn", task="x", wait_s=10)
    assert getattr(spawned, "state", "") == "waiting"
    return getattr(spawned, "worker_id", "")


async def status_of(project: Project, worker: str) -> Status:
    status = await project.ask("worker_status", worker_id=worker)
    assert isinstance(status, Status)
    return status


@pytest.mark.spec("P29")
async def test_a_question_is_withdrawn_with_the_process_that_asked_it(
    open_project: OpenProject,
) -> None:
    lost, pause = AbandonedQuestion(question("p1")), Pause()
    driver = ScriptedDriver(lambda _: [lost, pause, question("p2"), say("done")])
    async with open_project(driver, permission_timeout_s=20) as project:
        worker = await asking(project)
        lost.gone.set()
        with anyio.fail_after(10):
            await pause.reached.wait()
            await project.feed.commit()
        status = await status_of(project, worker)
        assert (status.state, status.permission, status.questions) == ("running", None, 0)
        with pytest.raises(RequestError, match=r"'p1' of worker .* withdrawn: its process has end"):
            await project.ask(
                "worker_answer", worker_id=worker, permission_id="p1", option="allow_once"
            )
        pause.go_on.set()
        waited = await project.ask("worker_wait", worker_ids=[worker], timeout_s=10)
        assert isinstance(waited, WaitReply) and waited.workers[0].permission
        assert waited.workers[0].permission.id == "p2"
        await project.ask("worker_answer", worker_id=worker, permission_id="p2", option="reject")
        events = await project.events(worker)
        assert [e.id for e in events if isinstance(e, PermissionWithdrawn)] == ["p1"]
        assert [e.id for e in events if isinstance(e, PermissionAnswered)] == ["p2"]
        told = await project.ask("worker_output", worker_id=worker, filter="tools")
        assert (
            isinstance(told, OutputReply) and "withdrawn: its process has ended [p1]" in told.text
        )


async def test_an_answer_that_was_faster_stays_the_answer(open_project: OpenProject) -> None:
    lost = AbandonedQuestion(question("p1"))
    async with open_project(ScriptedDriver(lambda _: [lost, say("done")])) as project:
        worker = await asking(project)
        await project.ask("worker_answer", worker_id=worker, permission_id="p1", option="reject")
        lost.gone.set()
        await project.ask("worker_wait", worker_ids=[worker], timeout_s=5)
        events = await project.events(worker)
        assert [e.id for e in events if isinstance(e, PermissionAnswered)] == ["p1"]
        assert not [e for e in events if isinstance(e, PermissionWithdrawn)]
