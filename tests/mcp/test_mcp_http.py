"""The HTTP door: who comes in, who does not and why, and when it closes."""

import socket
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio
import httpx2
import msgspec
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream
from lead import Person, TaskClient, answers, start_task, task_until
from mcp import Client, types
from mcp.client.streamable_http import streamable_http_client
from scripted_project import OpenProject, Project
from world import told

from goent.mcp import streamable_http
from goent.mcp.call_tasks import EXTENSION
from goent.mcp.server import McpFrontend
from goent.mcp.streamable_http import HttpOpenReply, HttpOpenRequest, serve_http
from goent.operations.operation_table import Caller
from goent.rpc.byte_streams import LocalStream
from goent.testing.driver import Pause, ScriptedDriver, question, say

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]
ERAS = pytest.mark.parametrize("mode", ["legacy", "auto"])


@asynccontextmanager
async def a_door(project: Project, port: int = 0) -> AsyncGenerator[HttpOpenReply]:
    """Held open as `go-ent mcp --http` does."""
    ours, theirs = socket.socketpair()
    frontend = McpFrontend(project.operations, project.queries)
    async with (
        LocalStream(theirs) as far,
        anyio.create_task_group() as group,
    ):
        group.start_soon(serve_http, far, b"", frontend, Caller(name="mcp", cwd=project.folder))
        async with LocalStream(ours) as near:
            await near.send(msgspec.json.encode(HttpOpenRequest(port=port)) + b"\n")
            line = await BufferedByteReceiveStream(near).receive_until(b"\n", 4096)
            yield msgspec.json.decode(line, type=HttpOpenReply)


@asynccontextmanager
async def a_lead(
    door: HttpOpenReply, mode: str, person: Person | None = None, *, tasks: bool = False
) -> AsyncGenerator[Client]:
    headers = {"Authorization": f"Bearer {door.token}"}
    async with httpx2.AsyncClient(headers=headers, timeout=20, trust_env=False) as requests:
        client = Client(
            streamable_http_client(door.url, http_client=requests),
            mode=mode,
            elicitation_callback=person,
            extensions=[TaskClient()] if tasks else None,
        )
        async with client as lead:
            yield lead


@ERAS
async def test_a_task_is_done_and_a_question_answered_over_http(
    open_project: OpenProject, mode: str
) -> None:
    driver = ScriptedDriver(lambda _: [question("p1"), say("Done.")])
    async with (
        open_project(driver) as project,
        a_door(project) as door,
        a_lead(door, mode, Person("allow_once")) as lead,
    ):
        done = told(await lead.call_tool("worker_spawn", {"task": "do it", "wait_s": 20}))
        assert done["result"]["text"] == "Done."
        worker = done["worker_id"]
        assert await answers(project, worker) == [("p1", "allow_once", "mcp elicitation")]
        read = await lead.read_resource(f"worker://{worker}/output")
        assert read.contents


async def test_a_task_outlives_the_request_that_began_it(open_project: OpenProject) -> None:
    pause = Pause()
    driver = ScriptedDriver(lambda _: [pause, say("Done.")])
    async with (
        open_project(driver) as project,
        a_door(project) as door,
        a_lead(door, "auto", tasks=True) as lead,
    ):
        handle = await start_task(lead, "worker_spawn", {"task": "do it", "wait_s": 20})
        pause.go_on.set()
        done = await task_until(lead, handle.task_id, "completed")
        assert done.result and done.result["structuredContent"]["state"] == "completed"


async def test_a_task_whose_header_names_another_one_is_refused(
    open_project: OpenProject,
) -> None:
    driver = ScriptedDriver(lambda _: [Pause()])
    async with (
        open_project(driver) as project,
        a_door(project) as door,
        a_lead(door, "auto", tasks=True) as lead,
        httpx2.AsyncClient(trust_env=False) as requests,
    ):
        handle = await start_task(lead, "worker_spawn", {"task": "do it", "wait_s": 20})
        meta: dict[str, Any] = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {"extensions": {EXTENSION: {}}},
        }
        body: dict[str, Any] = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tasks/get",
            "params": {"taskId": handle.task_id, "_meta": meta},
        }
        headers = {
            "Authorization": f"Bearer {door.token}",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": "tasks/get",
        }
        for named, status in ((handle.task_id, 200), ("another", 400)):
            answer = await requests.post(door.url, headers=headers | {"Mcp-Name": named}, json=body)
            assert answer.status_code == status, answer.text
        assert answer.json()["error"]["code"] == types.HEADER_MISMATCH


async def test_each_session_has_what_it_was_given_counted_for_itself(
    open_project: OpenProject,
) -> None:
    driver = ScriptedDriver(lambda _: [say("Done.")])
    async with open_project(driver) as project, a_door(project) as door:
        async with a_lead(door, "legacy") as one, a_lead(door, "legacy") as other:
            spawned = told(await one.call_tool("worker_spawn", {"task": "x", "wait_s": 20}))
            asked = {"worker_id": spawned["worker_id"], "since_last": True}
            first = told(await one.call_tool("worker_output", asked))
            again = told(await one.call_tool("worker_output", asked))
            others = told(await other.call_tool("worker_output", asked))
        assert "Done." in first["text"] and again["text"] == ""
        assert others["text"] == first["text"]


async def test_only_who_has_the_token_and_means_this_door_comes_in(
    open_project: OpenProject,
) -> None:
    async with (
        open_project(ScriptedDriver(lambda _: [])) as project,
        a_door(project) as door,
        httpx2.AsyncClient(trust_env=False) as requests,
    ):
        right = {"Authorization": f"Bearer {door.token}"}
        port = door.url.split(":")[2].split("/")[0]
        for headers, status, words in (
            ({}, 401, "go-ent mcp --http"),
            ({"Authorization": "Bearer wrong"}, 401, "Authorization: Bearer TOKEN"),
            ({"Authorization": door.token}, 401, "Authorization: Bearer TOKEN"),
            ({**right, "Host": "evil.example"}, 403, "host 'evil.example'"),
            ({**right, "Host": f"evil.example:{port}"}, 403, "use the url"),
            ({**right, "Origin": "http://evil.example"}, 403, "origin 'http://evil.example'"),
            ({**right, "Origin": "null"}, 403, "origin 'null'"),
        ):
            answer = await requests.post(door.url, headers=headers, json={})
            assert answer.status_code == status, headers
            assert words in answer.json()["error"]["message"]
        nothing = await requests.get(door.url.replace("/mcp", "/etc"), headers=right)
        assert nothing.status_code == 404 and "/mcp" in nothing.json()["error"]["message"]
        inside = await requests.post(
            door.url, headers={**right, "Origin": f"http://localhost:{port}"}, json={}
        )
        assert inside.status_code not in (401, 403)


class Visitor:
    """Speaks the older era, message by message."""

    def __init__(self, requests: httpx2.AsyncClient, url: str) -> None:
        self._requests = requests
        self._url = url

    async def post(self, method: str, session: str = "", **params: object) -> httpx2.Response:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        named = {"Mcp-Session-Id": session} if session else {}
        return await self._requests.post(self._url, headers=named, json=message)

    async def greet(self) -> httpx2.Response:
        client = {"name": "x", "version": "1"}
        return await self.post(
            "initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=client
        )

    async def opened(self) -> str:
        answer = await self.greet()
        assert answer.status_code == 200, answer.text
        return answer.headers["mcp-session-id"]

    def listening(self, session: str) -> AbstractAsyncContextManager[httpx2.Response]:
        return self._requests.stream("GET", self._url, headers={"Mcp-Session-Id": session})


@asynccontextmanager
async def a_visitor(door: HttpOpenReply) -> AsyncGenerator[Visitor]:
    headers = {
        "Authorization": f"Bearer {door.token}",
        "Accept": "application/json, text/event-stream",
    }
    async with httpx2.AsyncClient(trust_env=False, headers=headers, timeout=20) as requests:
        yield Visitor(requests, door.url)


async def test_clients_that_left_without_a_word_keep_nobody_out(
    open_project: OpenProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streamable_http, "MAX_SESSIONS", 3)
    async with (
        open_project(ScriptedDriver(lambda _: [])) as project,
        a_door(project) as door,
        a_visitor(door) as visitor,
    ):
        first, second, third = [await visitor.opened() for _ in range(3)]
        assert (await visitor.post("ping", first)).status_code == 200, "so it is not the idlest"
        fourth = await visitor.opened()
        assert (await visitor.post("ping", second)).status_code == 404, (
            "a client then opens another one"
        )
        for session in (first, third, fourth):
            assert (await visitor.post("ping", session)).status_code == 200
        for _ in range(8):
            await visitor.opened()


async def test_a_client_that_listens_is_the_last_to_be_ended(
    open_project: OpenProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streamable_http, "MAX_SESSIONS", 2)
    async with (
        open_project(ScriptedDriver(lambda _: [])) as project,
        a_door(project) as door,
        a_visitor(door) as visitor,
    ):
        first = await visitor.opened()
        async with visitor.listening(first) as stream:
            assert stream.status_code == 200
            second = await visitor.opened()
            third = await visitor.opened()
            assert (await visitor.post("ping", second)).status_code == 404, "though it came later"
            async with visitor.listening(third):
                await visitor.opened()
                assert (await visitor.post("ping", first)).status_code == 404


async def test_who_has_no_session_to_end_is_refused(
    open_project: OpenProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streamable_http, "MAX_SESSIONS", 1)
    pause = Pause()
    driver = ScriptedDriver(lambda _: [pause, say("Done.")])
    async with open_project(driver) as project, a_door(project) as door, a_visitor(door) as visitor:
        session = await visitor.opened()
        arguments = {"task": "do it", "wait_s": 20}
        async with anyio.create_task_group() as group:

            async def work() -> None:
                call = await visitor.post(
                    "tools/call", session, name="worker_spawn", arguments=arguments
                )
                assert "Done." in call.text

            group.start_soon(work)
            await pause.reached.wait()
            assert (await visitor.greet()).status_code == 503
            pause.go_on.set()
        await visitor.opened()


async def test_the_door_closes_with_its_holder_and_workers_live_on(
    open_project: OpenProject,
) -> None:
    pause = Pause()
    driver = ScriptedDriver(lambda _: [pause, say("Done.")])
    async with open_project(driver) as project:
        async with a_door(project) as door, a_lead(door, "auto") as lead:
            spawned = told(await lead.call_tool("worker_spawn", {"task": "do it"}))
        async with httpx2.AsyncClient(trust_env=False) as requests:
            with pytest.raises(httpx2.ConnectError):
                await requests.get(door.url)
        pause.go_on.set()
        worker = spawned["worker_id"]
        await project.ask("worker_wait", worker_ids=[worker])
        assert project.feed.view(worker).state == "completed"


async def test_a_port_that_is_taken_is_named(open_project: OpenProject) -> None:
    async with (
        open_project(ScriptedDriver(lambda _: [])) as project,
        a_door(project) as door,
    ):
        port = int(door.url.split(":")[2].split("/")[0])
        async with a_door(project, port) as second:
            assert second.url == "" and "127.0.0.1" in second.error
