"""Calls that wait become tasks, where the client offers to ask after them."""

import pytest
from lead import Person, TaskClient, a_lead, answers, ask_task, start_task, task_until
from mcp import Client, MCPError, types
from scripted_project import OpenProject, Project
from world import refusal, told

from goent.mcp.call_tasks import EXTENSION
from goent.testing.driver import Pause, ScriptedDriver, question, say

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]


def held() -> tuple[Pause, ScriptedDriver]:
    pause = Pause()
    return pause, ScriptedDriver(lambda _: [pause, say("Done.")])


async def a_worker(lead: Client) -> str:
    return told(await lead.call_tool("worker_spawn", {"task": "do it"}))["worker_id"]


def state_of(project: Project, worker: str) -> str:
    return project.feed.view(worker).state


async def test_a_spawn_that_waits_is_a_task_whose_result_is_the_tools(
    open_project: OpenProject,
) -> None:
    pause, driver = held()
    async with (
        open_project(driver) as project,
        a_lead(project, "auto", extensions=[TaskClient()]) as lead,
    ):
        extensions = lead.server_capabilities.extensions
        assert extensions is not None and EXTENSION in extensions
        handle = await start_task(lead, "worker_spawn", {"task": "do it", "wait_s": 30})
        (worker,) = project.feed.views
        assert handle.status == "working" and worker in handle.status_message
        assert handle.poll_interval_ms == 1000 and handle.ttl_ms > 0
        assert (await task_until(lead, handle.task_id, "working")).result is None
        pause.go_on.set()
        done = await task_until(lead, handle.task_id, "completed")
        assert done.result
        result = types.CallToolResult.model_validate(done.result)
        assert told(result)["result"]["text"] == "Done."


async def test_a_wait_without_a_limit_lasts_until_the_worker_ends(
    open_project: OpenProject,
) -> None:
    pause, driver = held()
    async with (
        open_project(driver) as project,
        a_lead(project, "auto", extensions=[TaskClient()]) as lead,
    ):
        worker = await a_worker(lead)
        short = await start_task(lead, "worker_wait", {"worker_ids": [worker], "timeout_s": 0.1})
        ended = await task_until(lead, short.task_id, "completed")
        assert ended.result and ended.result["structuredContent"]["timed_out"]
        handle = await start_task(lead, "worker_wait", {"worker_ids": [worker]})
        pause.go_on.set()
        done = await task_until(lead, handle.task_id, "completed")
        assert done.result and not done.result["structuredContent"]["timed_out"]


async def test_to_cancel_a_task_ends_the_waiting_and_never_the_worker(
    open_project: OpenProject,
) -> None:
    pause, driver = held()
    async with (
        open_project(driver) as project,
        a_lead(project, "auto", extensions=[TaskClient()]) as lead,
    ):
        worker = await a_worker(lead)
        handle = await start_task(lead, "worker_wait", {"worker_ids": [worker]})
        await ask_task(lead, "cancel", handle.task_id)
        cancelled = await task_until(lead, handle.task_id, "cancelled")
        assert "the worker continues" in cancelled.status_message
        assert state_of(project, worker) in ("starting", "running")
        pause.go_on.set()
        again = await start_task(lead, "worker_wait", {"worker_ids": [worker]})
        await task_until(lead, again.task_id, "completed")
        assert state_of(project, worker) == "completed"
        await ask_task(lead, "cancel", again.task_id)
        assert (await task_until(lead, again.task_id, "completed")).result, "an end is an end"


async def test_a_question_is_put_by_the_task_and_answered_by_an_update(
    open_project: OpenProject,
) -> None:
    driver = ScriptedDriver(lambda _: [question("p1"), question("p2"), say("Done.")])
    async with (
        open_project(driver) as project,
        a_lead(project, "auto", Person(), extensions=[TaskClient()]) as lead,
    ):
        handle = await start_task(lead, "worker_spawn", {"task": "do it", "wait_s": 30})
        (worker,) = project.feed.views
        asked = await task_until(lead, handle.task_id, "input_required")
        assert asked.input_requests
        ((key, request),) = asked.input_requests.items()
        assert isinstance(request, types.ElicitRequest)
        assert "make test" in request.params.message
        stray = {"of/another/question": {"action": "accept", "content": {"answer": "reject"}}}
        await ask_task(lead, "update", handle.task_id, stray)
        await ask_task(lead, "update", handle.task_id, {"of another kind": ["roots", 1]})
        with pytest.raises(MCPError, match="is not an answer to a form") as no_answer:
            await ask_task(lead, "update", handle.task_id, {key: {"roots": []}})
        assert no_answer.value.code == types.INVALID_PARAMS
        assert (await task_until(lead, handle.task_id, "input_required")).input_requests
        yes = {"action": "accept", "content": {"answer": "allow_once"}}
        await ask_task(lead, "update", handle.task_id, {key: yes})
        await project.queries.wait_for_answer(worker, "p1")
        second = await task_until(lead, handle.task_id, "input_required")
        assert second.input_requests and key not in second.input_requests
        await project.ask(
            "worker_answer", worker_id=worker, permission_id="p2", option="allow_once"
        )
        done = await task_until(lead, handle.task_id, "completed")
        assert done.result and done.result["structuredContent"]["state"] == "completed"
        assert await answers(project, worker) == [
            ("p1", "allow_once", "mcp elicitation"),
            ("p2", "allow_once", "test"),
        ]


async def test_a_client_without_forms_gets_the_question_as_the_result(
    open_project: OpenProject,
) -> None:
    driver = ScriptedDriver(lambda _: [question("p1"), say("Done.")])
    async with (
        open_project(driver) as project,
        a_lead(project, "auto", extensions=[TaskClient()]) as lead,
    ):
        worker = await a_worker(lead)
        handle = await start_task(lead, "worker_wait", {"worker_ids": [worker]})
        done = await task_until(lead, handle.task_id, "completed")
        assert done.result
        assert done.result["structuredContent"]["workers"][0]["permission"]["id"] == "p1"


async def test_what_needs_no_waiting_is_no_task(open_project: OpenProject) -> None:
    driver = ScriptedDriver(lambda _: [say("Done.")])
    async with (
        open_project(driver) as project,
        a_lead(project, "auto", extensions=[TaskClient()]) as lead,
    ):
        worker = await a_worker(lead)
        while state_of(project, worker) != "completed":
            await project.feed.wait_for_news(project.feed.seq)
        ended = await lead.call_tool("worker_wait", {"worker_ids": [worker]})
        assert told(ended)["workers"][0]["state"] == "completed"
        refused = await lead.call_tool("worker_wait", {"worker_ids": ["w-none1"]})
        assert refused.is_error and "no worker" in refusal(refused)


async def test_tasks_are_only_for_those_who_declare_them(open_project: OpenProject) -> None:
    _, driver = held()
    async with open_project(driver) as project:
        async with a_lead(project, "auto", extensions=[TaskClient()]) as lead:
            with pytest.raises(MCPError, match="no task 'none'") as unknown:
                await ask_task(lead, "get", "none")
            assert unknown.value.code == -32602
        async with a_lead(project, "auto") as other:
            with pytest.raises(MCPError, match="does not declare") as undeclared:
                await ask_task(other, "get", "none")
            assert undeclared.value.code == -32021
            waited = await other.call_tool("worker_spawn", {"task": "do it", "wait_s": 0.1})
            assert told(waited)["result"] is None
        async with a_lead(project, "legacy", extensions=[TaskClient()]) as old:
            waited = await old.call_tool("worker_spawn", {"task": "do it", "wait_s": 0.1})
            assert told(waited)["result"] is None, "the handshake era has no tasks"


async def test_the_client_goes_and_its_waiting_with_it_but_not_the_worker(
    open_project: OpenProject,
) -> None:
    pause, driver = held()
    async with open_project(driver) as project:
        async with a_lead(project, "auto", extensions=[TaskClient()]) as lead:
            await start_task(lead, "worker_spawn", {"task": "do it", "wait_s": 30})
        (worker,) = project.feed.views
        pause.go_on.set()
        async with a_lead(project, "auto") as lead:
            waited = told(await lead.call_tool("worker_wait", {"worker_ids": [worker]}))
            assert waited["workers"][0]["state"] == "completed"
