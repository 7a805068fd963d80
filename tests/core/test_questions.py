"""What is told of an open question, and what may be said with its answer."""

import time

import pytest
from scripted_project import OpenProject, Project

from goent.domain.errors import RequestError
from goent.domain.events import PermissionAnswered, PermissionAsked
from goent.domain.replies import AnswerReply, OutputReply, Question, Status
from goent.testing.driver import ScriptedDriver, question, say

pytestmark = pytest.mark.anyio


async def asking(project: Project) -> str:
    spawned = await project.ask("worker_spawn", task="x", wait_s=10)
    assert getattr(spawned, "state", "") == "waiting"
    return getattr(spawned, "worker_id", "")


async def asked_by(project: Project, worker: str) -> Question:
    status = await project.ask("worker_status", worker_id=worker)
    assert isinstance(status, Status) and status.permission
    return status.permission


async def test_a_question_tells_its_rule_and_when_it_becomes_a_no(
    open_project: OpenProject,
) -> None:
    driver = ScriptedDriver(lambda _: [question("p1", detail="make test"), say("done")])
    async with open_project(driver, permission_timeout_s=60) as project:
        worker = await asking(project)
        told = await asked_by(project, worker)
        assert told.always == 'allow bash "make test" for this worker'
        assert told.seconds_left is not None and 50 < told.seconds_left <= 60
        (event,) = [e for e in await project.events(worker) if isinstance(e, PermissionAsked)]
        assert event.always == ("make test",)
        assert event.expires_at is not None and 0 < event.expires_at - time.time() <= 60
        assert told.expires_at and told.expires_at.endswith("Z")


async def test_a_question_with_a_reason_tells_it_and_has_no_always(
    open_project: OpenProject,
) -> None:
    asked = question("p1", "edit", ".envrc\n+x", reason="direnv runs it")
    async with open_project(ScriptedDriver(lambda _: [asked, say("done")])) as project:
        worker = await asking(project)
        told = await asked_by(project, worker)
        assert (told.reason, told.always) == ("direnv runs it", "")
        output = await project.ask("worker_output", worker_id=worker)
        assert isinstance(output, OutputReply) and "direnv runs it" in output.text
        with pytest.raises(RequestError, match="offers allow_once, reject"):
            await project.ask(
                "worker_answer", worker_id=worker, permission_id="p1", option="allow_always"
            )


async def test_words_go_with_a_no_and_are_in_the_journal(open_project: OpenProject) -> None:
    driver = ScriptedDriver(lambda _: [question("p1"), say("Done otherwise.")])
    async with open_project(driver) as project:
        worker = await asking(project)
        answer = {"worker_id": worker, "permission_id": "p1", "message": " use make check "}
        for option in ("allow_once", "allow_always"):
            with pytest.raises(RequestError, match="reject and say what to do instead"):
                await project.ask("worker_answer", **answer, option=option)
        answered = await project.ask("worker_answer", **answer, option="reject")
        assert isinstance(answered, AnswerReply) and answered.message_passed
        await project.ask("worker_wait", worker_ids=[worker])
        assert project.feed.view(worker).state == "completed"
        (event,) = [e for e in await project.events(worker) if isinstance(e, PermissionAnswered)]
        assert (event.option, event.message) == ("reject", "use make check")
        output = await project.ask("worker_output", worker_id=worker, filter="tools")
        assert (
            isinstance(output, OutputReply) and "reject by test [p1]: use make check" in output.text
        )


async def test_a_plain_no_says_nothing_of_words(open_project: OpenProject) -> None:
    async with open_project(ScriptedDriver(lambda _: [question("p1"), say("x")])) as project:
        worker = await asking(project)
        answered = await project.ask(
            "worker_answer", worker_id=worker, permission_id="p1", option="reject", message=" "
        )
        assert isinstance(answered, AnswerReply)
        assert (answered.message_passed, answered.note) == (None, "")
        await project.ask("worker_wait", worker_ids=[worker])
        view = project.feed.view(worker)
        assert (view.state, view.open) == ("failed", True)
