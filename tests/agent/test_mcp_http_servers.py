"""MCP servers at an address: real ones made with the SDK, and rough ones."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from mcp_desk import HURRIED, PATIENT, a_desk, until, use
from mcp_over_http import Message, body_of, reply, sdk_served, served
from sdk_server import mcp

from goent.agent.agent_ports import McpServerSpec
from goent.agent.mcp.mcp_client import open_mcp_servers

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]
SECRET = "Bearer sk-secret"


def at(url: str) -> McpServerSpec:
    return McpServerSpec(name="web", url=url, headers={"Authorization": SECRET})


@pytest.mark.parametrize("as_json", [True, False])
@pytest.mark.parametrize("newer", [False, True])
async def test_tools_of_an_sdk_server_at_an_address_work(
    tmp_path: Path, as_json: bool, newer: bool
):
    async with sdk_served(as_json=as_json, newer_only=newer) as (url, app):
        async with open_mcp_servers([at(url)], a_desk(tmp_path), patience=PATIENT) as servers:
            assert servers.warnings == ()
            done = await use(servers, "mcp__web__add", b'{"a": 2, "b": 40}')
            assert msgspec.json.decode(done.text) == {"total": 42}
            assert (await use(servers, "mcp__web__fail")).failed
            assert len((await use(servers, "mcp__web__picture")).images) == 1
        verbs = [verb for verb, _ in app.seen]
        last = app.seen[-1][1]
    assert all(head["authorization"] == SECRET for _, head in app.seen)
    if newer:
        assert set(verbs) == {"POST"}
        assert "mcp-session-id" not in last
        assert last["mcp-method"] == "tools/call" and last["mcp-name"] == "picture"
    else:
        assert verbs[-1] == "DELETE", "the session is ended"
        assert last["mcp-session-id"] and last["mcp-protocol-version"] == "2025-11-25"


@pytest.mark.filterwarnings("ignore:The roots capability")
async def test_a_server_at_an_address_may_ask_and_tell(tmp_path: Path):
    async with (
        sdk_served() as (url, _),
        open_mcp_servers([at(url)], a_desk(tmp_path), patience=PATIENT) as servers,
    ):
        roots = await use(servers, "mcp__web__roots")
        assert roots.text.rstrip("/") == tmp_path.as_uri()
        await use(servers, "mcp__web__grow")
        try:
            await until(lambda: "mcp__web__late" in servers.tools)
        finally:
            mcp.remove_tool("late")


@pytest.mark.parametrize("newer", [False, True])
async def test_a_cancelled_call_is_cancelled_at_the_address(tmp_path: Path, newer: bool):
    async with (
        sdk_served(newer_only=newer) as (url, _),
        open_mcp_servers([at(url)], a_desk(tmp_path), patience=PATIENT) as servers,
    ):
        held = msgspec.json.encode({"folder": str(tmp_path)})
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(use, servers, "mcp__web__hold", held)
            await until((tmp_path / "held").exists)
            tasks.cancel_scope.cancel()
        await until((tmp_path / "cancelled").exists)


def rough(
    call: Callable[[Any, dict[str, Any]], Awaitable[None]],
) -> Callable[[Message, Any, Any], Awaitable[None]]:
    """A server whose beginning is right; what a call gets is the test's."""

    async def app(_: Message, receive: Any, send: Any) -> None:
        asked = await body_of(receive)
        result: object = None
        match asked.get("method"):
            case "initialize":
                result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}
            case "tools/list":
                result = {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}
            case "tools/call":
                return await call(send, asked)
            case _:
                return await reply(send, 202, b"")
        answer = {"jsonrpc": "2.0", "id": asked["id"], "result": result}
        return await reply(send, 200, answer, mcp_session_id="s1")

    return app


@pytest.mark.parametrize(
    ("status", "kind", "body", "why"),
    [
        (500, "text/html", b"<h1>oops", "HTTP 500, <h1>oops"),
        (200, "text/html", b"<h1>welcome", "no MCP reply"),
        (200, "application/json", b"{", "no MCP reply"),
        (200, "application/json", b'{"error": "bad"}', "invalid error"),
        (401, "application/json", b'{"detail": "who are you"}', "check the headers"),
        (200, "text/event-stream", b"data: {}\n\ndata: x\n\n", "hung up before it replied"),
        (200, "text/event-stream", b"data: " + b"x" * 17_000_000 + b"\n\n", "too long"),
        (200, "application/json", b" " * 17_000_000, "too long"),
        (400, "application/json", b'{"id":3,"error":{"code":-1,"message":"so not"}}', "so not"),
    ],
)
async def test_a_bad_answer_is_a_failed_outcome(
    tmp_path: Path, status: int, kind: str, body: bytes, why: str
):
    async def call(send: Any, _: dict[str, Any]) -> None:
        await reply(send, status, body, kind)

    async with (
        served(rough(call)) as url,
        open_mcp_servers([at(url)], a_desk(tmp_path), patience=PATIENT) as servers,
    ):
        done = await use(servers, "mcp__web__t")
        assert done.failed and why in done.text
        assert SECRET not in done.text


async def test_a_session_that_the_server_forgot_is_begun_anew(tmp_path: Path):
    calls: list[dict[str, Any]] = []

    async def call(send: Any, asked: dict[str, Any]) -> None:
        calls.append(asked)
        if len(calls) == 1:
            return await reply(send, 404, {"jsonrpc": "2.0", "id": None, "error": {"code": -32001}})
        result = {"content": [{"type": "text", "text": "there you are"}]}
        return await reply(send, 200, {"jsonrpc": "2.0", "id": asked["id"], "result": result})

    async with (
        served(rough(call)) as url,
        open_mcp_servers([at(url)], a_desk(tmp_path), patience=PATIENT) as servers,
    ):
        assert (await use(servers, "mcp__web__t")).text == "there you are"


@pytest.mark.parametrize(
    ("version", "session", "why"),
    [("2025\r\nx: y", "s1", "version"), ("2025-06-18", "é", "session id")],
)
async def test_what_no_header_can_carry_is_not_sent_back(
    tmp_path: Path, version: str, session: str, why: str
):
    async def app(_: Message, receive: Any, send: Any) -> None:
        asked = await body_of(receive)
        answer = {"jsonrpc": "2.0", "id": asked.get("id"), "result": {"protocolVersion": version}}
        await reply(send, 200, answer, mcp_session_id=session)

    async with (
        served(app) as url,
        open_mcp_servers([at(url)], a_desk(tmp_path), patience=PATIENT) as servers,
    ):
        [warning] = servers.warnings
        assert why in warning and "a header cannot hold" in warning


async def test_an_address_where_nobody_answers_rightly_costs_a_warning(tmp_path: Path):
    async def silent(_: Message, receive: Any, __: Any) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    async def moved(_: Message, __: Any, send: Any) -> None:
        await reply(send, 307, b"", location="http://user:pw@127.0.0.2/there?token=1")

    async with served(silent) as mute, served(moved) as away:
        specs = [
            at(mute),
            at(away),
            at("http://127.0.0.1:1/mcp"),
            at("ftp://x/mcp"),
            at("http://[::1/mcp"),
            McpServerSpec(name="web", url=away, headers={"X": "line\nbreak"}),
        ]
        async with open_mcp_servers(specs, a_desk(tmp_path), patience=HURRIED) as servers:
            assert not servers.tools
            said = servers.warnings
    for warning, why in zip(
        said,
        (
            "did not answer within 3 s",
            "redirect to http://127.0.0.2/there, which is not followed",
            "http://127.0.0.1:1/mcp cannot be reached",
            "is not an address",
            "is not an address",
            "its header 'X'",
        ),
        strict=True,
    ):
        assert why in warning
        assert SECRET not in warning
