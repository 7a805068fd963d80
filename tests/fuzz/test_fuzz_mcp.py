"""MCP on standard input and output: by the socket, and through the shim."""

import os
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import anyio
import msgspec
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream
from fuzzed_daemon import META, FuzzedDaemon, Line, assert_clear, request
from mutation import mutated, rounds
from world import GO_ENT, kill

from goent.daemon.shim import Shim

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

HELLO = request(
    0,
    "initialize",
    protocolVersion="2025-06-18",
    capabilities={"elicitation": {}},
    clientInfo={"name": "fuzz", "version": "1"},
)
INITIALIZED = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
CORPUS = [
    INITIALIZED,
    request(1, "ping"),
    request(2, "tools/list", cursor=None),
    request(3, "tools/call", name="worker_list", arguments={"limit": 3}),
    request(4, "tools/call", name="worker_status", arguments={"worker_id": "w-1"}),
    request(5, "tools/call", name="worker_wait", arguments={"worker_ids": ["w-1"], "timeout_s": 1}),
    request(6, "tools/call", name="provider_list", arguments={}, _meta={"progressToken": 1}),
    request(7, "tools/call", name="cost_report", arguments={"by": "model"}),
    request(8, "resources/list"),
    request(9, "resources/read", uri="worker://w-1/output"),
    request(10, "prompts/get", name="delegate", arguments={"task": "x"}),
    request(11, "tasks/get", taskId="t-1"),
    request(12, "server/discover", _meta=META),
    request(13, "tools/call", name="worker_list", arguments={}, _meta=META),
    request(14, "logging/setLevel", level="debug"),
    request(15, "completion/complete", ref={"type": "ref/prompt", "name": "delegate"}, argument={}),
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5,"reason":"x"}}',
    b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}',
    b'{"jsonrpc":"2.0","id":99,"result":{"action":"accept"}}',
    b'{"jsonrpc":"2.0","id":99,"error":{"code":-1,"message":"no"}}',
]


@asynccontextmanager
async def through_the_shim(daemon: FuzzedDaemon) -> AsyncGenerator[Line]:
    async with await anyio.open_process(
        [*GO_ENT, "mcp"], cwd=daemon.world.project, env=daemon.world.env, stderr=sys.stderr
    ) as shim:
        assert shim.stdin and shim.stdout
        try:
            yield Line(BufferedByteReceiveStream(shim.stdout), shim.stdin)
        finally:
            kill(shim.pid)


def opened(daemon: FuzzedDaemon, way: str) -> AbstractAsyncContextManager[Line]:
    return through_the_shim(daemon) if way == "shim" else daemon.connection("mcp")


WAYS = pytest.mark.parametrize("way", ["socket", "shim"])


@asynccontextmanager
async def a_client(daemon: FuzzedDaemon, way: str) -> AsyncGenerator[Line]:
    async with opened(daemon, way) as line:
        await line.say(HELLO, INITIALIZED)
        assert "result" in await line.hear()
        yield line


@WAYS
@pytest.mark.spec("A03")
async def test_no_message_that_went_bad_stops_the_next_one(daemon: FuzzedDaemon, way: str) -> None:
    before = daemon.memory()
    for chance in rounds(f"mcp {way}", 0.1 if way == "shim" else 0.5):
        async with a_client(daemon, way) as line:
            for number in range(10):
                await line.say(*(mutated(CORPUS, chance) for _ in range(5)))
                assert_clear(await line.ask(f"good {number}", "tools/list"))
    await daemon.is_well()
    assert daemon.memory() - before < 64 << 20


@WAYS
async def test_no_first_word_that_went_bad_keeps_others_out(daemon: FuzzedDaemon, way: str) -> None:
    for chance in rounds(f"first word {way}", 0.1 if way == "shim" else 0.5):
        async with opened(daemon, way) as line:
            await line.say(mutated([HELLO, CORPUS[12]], chance), mutated(CORPUS, chance))
            assert_clear(await line.ask("good", "tools/list"))
    await daemon.is_well()


@WAYS
@pytest.mark.spec("A03")
async def test_what_is_wrong_is_named_under_the_id_of_whoever_asked(
    daemon: FuzzedDaemon, way: str
) -> None:
    async with a_client(daemon, way) as line:
        for bad, number, words in (
            (b"{", None, "parse error"),
            (b"\xff", None, "parse error"),
            (b"[" * 100_000 + b"]" * 100_000, None, "nested too deeply"),
            (b"[1]", None, "invalid request"),
            (b'{"jsonrpc":"1.0","id":7,"method":"ping"}', 7, "invalid request"),
            (b'{"jsonrpc":"2.0","id":"x","method":5}', "x", "invalid request"),
        ):
            await line.say(bad)
            reply = await line.hear()
            assert (reply["id"], words in reply["error"]["message"]) == (number, True), (bad, reply)
    await daemon.is_well()


@WAYS
@pytest.mark.spec("A03")
async def test_a_message_beyond_the_limit_is_refused_and_the_next_one_served(
    daemon: FuzzedDaemon, way: str
) -> None:
    piece = b"x" * (1 << 20)
    async with a_client(daemon, way) as line:
        await line._send.send(b'{"method":"tools/call","params":{"name":"')  # pyright: ignore[reportPrivateUsage] (a line in pieces)
        for _ in range(65):
            await line._send.send(piece)  # pyright: ignore[reportPrivateUsage] (a line in pieces)
        await line.say(b'"},"jsonrpc":"2.0","id":"long"}')
        (refused,) = await line.hear_until("long")
        assert "at most 67108864 bytes" in refused["error"]["message"]
        assert_clear(await line.ask("good", "tools/list"))
    await daemon.is_well()


@WAYS
async def test_a_prompt_of_twenty_megabytes_is_answered_in_seconds(
    daemon: FuzzedDaemon, way: str
) -> None:
    async with a_client(daemon, way) as line:
        began = time.monotonic()
        arguments = {"task": "x" * (20 << 20), "provider": "nobody"}
        (answer,) = await line.ask("big", "tools/call", name="worker_spawn", arguments=arguments)
        assert time.monotonic() - began < 20
    assert "nobody" in msgspec.json.encode(answer).decode()
    await daemon.is_well()


async def test_a_last_line_without_a_newline_is_heard(daemon: FuzzedDaemon) -> None:
    with anyio.fail_after(20):
        done = await anyio.run_process(
            [*GO_ENT, "mcp"], input=b"{", cwd=daemon.world.project, env=daemon.world.env
        )
    assert b"parse error" in done.stdout


def test_an_odd_method_is_answered_like_any_other_when_the_daemon_is_lost() -> None:
    heard, stdout = os.pipe()
    shim = Shim(Path(), 0, stdout)
    shim._remember(b'{"jsonrpc":"2.0","id":1,"method":["ping"]}')  # pyright: ignore[reportPrivateUsage] (a daemon's death takes seconds)
    shim._settle_in_flight()  # pyright: ignore[reportPrivateUsage] (the same)
    os.close(stdout)
    with os.fdopen(heard, "rb") as told:
        assert b"ended while this call was in flight" in told.read()
