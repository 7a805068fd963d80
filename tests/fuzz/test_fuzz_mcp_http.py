"""MCP over HTTP: the daemon's door, and all who knock at it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx2
import msgspec
import pytest
from fuzzed_daemon import META, FuzzedDaemon, request, to_the_end
from http_talk import HUGE, bad_requests, post, talk
from mutation import mutated, rounds

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

HELLO = request(
    0,
    "initialize",
    protocolVersion="2025-06-18",
    capabilities={},
    clientInfo={"name": "fuzz", "version": "1"},
)
BODIES = [
    request(1, "ping"),
    request(2, "tools/list", _meta=META),
    request(3, "tools/call", name="worker_list", arguments={"limit": 3}, _meta=META),
    request(4, "tools/call", name="worker_status", arguments={"worker_id": "w-1"}, _meta=META),
    request(5, "server/discover", _meta=META),
    request(6, "tasks/get", taskId="t", _meta=META),
    request(7, "resources/read", uri="worker://w-1/output", _meta=META),
    b'{"jsonrpc":"2.0","method":"notifications/initialized"}',
]


class Door:
    def __init__(self, url: str, token: str) -> None:
        self.url = url
        self.port = int(url.split(":")[2].removesuffix("/mcp"))
        self.headers = {
            "host": f"127.0.0.1:{self.port}",
            "authorization": f"Bearer {token}",
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
            "mcp-protocol-version": "2026-07-28",
            "mcp-method": "tools/list",
            "mcp-session-id": "0123456789abcdef0123456789abcdef",
        }

    async def serves(self) -> None:
        headers = {**self.headers, "mcp-protocol-version": "2025-06-18"}
        del headers["mcp-session-id"], headers["mcp-method"]
        async with httpx2.AsyncClient(trust_env=False, timeout=10, headers=headers) as client:
            answer = await client.post(self.url, content=HELLO)
            assert answer.status_code == 200 and "go-ent" in answer.text, answer.text
            session = {"mcp-session-id": answer.headers["mcp-session-id"]}
            assert (await client.delete(self.url, headers=session)).status_code == 200


@asynccontextmanager
async def a_door(daemon: FuzzedDaemon) -> AsyncGenerator[Door]:
    async with daemon.connection("http") as line:
        await line.say(b'{"port":0}')
        opened = await line.hear()
        yield Door(opened["url"], opened["token"])
    await daemon.is_well()


@pytest.mark.spec("A03")
async def test_no_request_that_went_bad_stops_the_next_one(daemon: FuzzedDaemon) -> None:
    before = daemon.memory()
    async with a_door(daemon) as door:
        for chance in rounds("http"):
            for _ in range(3):
                pieces = bad_requests("/mcp", door.headers, BODIES, chance)
                reply = await talk(door.port, *pieces)
                assert reply.status != 500, (pieces, reply)
                silent = reply.status < 300 or reply.status in (405, 406, 415)
                assert silent or len(reply.body) > 10, (pieces, reply)
        await door.serves()
    assert daemon.memory() - before < 64 << 20


async def test_what_is_refused_is_refused_with_the_reason(daemon: FuzzedDaemon) -> None:
    async with a_door(daemon) as door:
        good, body = door.headers, BODIES[1]
        for sent, status, words in (
            (post("/mcp", {**good, "authorization": "Bearer \xff"}, body), 401, b"TOKEN"),
            (post("/mcp", {**good, "authorization": ""}, body), 401, b"TOKEN"),
            (post("/mcp", {**good, "host": "evil.example"}, body), 403, b"evil.example"),
            (post("/mcp", {**good, "origin": "http://evil.example"}, body), 403, b"origin"),
            (post("/%2e%2e/mcp", good, body), 404, b"MCP is at /mcp"),
            (post("/mcp", good, body, length="x"), 400, b"Invalid HTTP"),
            (HUGE.join([b"POST /mcp HTTP/1.1\r\n", b"\r\n"]), 431, b"longer than 65536 bytes"),
        ):
            reply = await talk(door.port, sent)
            assert reply.status == status and words in reply.body, (sent[:200], reply)
        await door.serves()


async def test_whoever_leaves_before_the_end_of_the_body_leaves_no_fault(
    daemon: FuzzedDaemon,
) -> None:
    async with a_door(daemon) as door:
        headers = {**door.headers, "mcp-protocol-version": "2025-06-18"}
        del headers["mcp-session-id"], headers["mcp-method"]
        for each in (door.headers, headers):
            for body, length in ((b"", "10"), (HELLO, "9999"), (HELLO[:20], str(len(HELLO)))):
                await talk(door.port, post("/mcp", each, body, length=length))
        await door.serves()


async def test_no_order_for_a_door_that_went_bad_is_left_without_an_answer(
    daemon: FuzzedDaemon,
) -> None:
    hello = msgspec.json.encode({"goent": 1, "kind": "http", "cwd": "/"}) + b"\n"
    orders = [b'{"port":0}\n', b'{"port":1}\n', b'{"port":70000}\n', b"{}\n"]
    for chance in rounds("door"):
        async with await daemon.raw() as stream:
            await stream.send(hello + mutated(orders, chance) + b"\n")
            _, _, answer = (await to_the_end(stream)).partition(b"\n")
        opened = msgspec.json.decode(answer, type=dict[str, str])
        assert opened.get("url") or len(opened["error"]) > 30, answer
    await daemon.is_well()
