"""A running daemon that everybody is rude to, and what must be true of it afterwards."""

import socket
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
from anyio.abc import ByteSendStream, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream
from world import World, a_cold_world

from goent.system.project_folders import log_path

BOUND_S = 30.0
INTERNAL_ERROR = -32603
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "fuzz", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


@asynccontextmanager
async def a_fuzzed_daemon(folder: Path) -> "AsyncGenerator[FuzzedDaemon]":
    async with a_cold_world(folder) as world:
        started = await world.go_ent("ps")
        assert started.exit == 0, started.err
        info = await world.daemon()
        assert info
        yield FuzzedDaemon(world, info.pid)


class Line:
    """One connection, line by line."""

    def __init__(self, receive: BufferedByteReceiveStream, send: ByteSendStream) -> None:
        self._receive = receive
        self._send = send

    async def say(self, *lines: bytes) -> None:
        for line in lines:
            await self._send.send(line + b"\n")

    async def hear(self) -> dict[str, Any]:
        with anyio.fail_after(BOUND_S):
            line = await self._receive.receive_until(b"\n", 1 << 24)
        return msgspec.json.decode(line, type=dict[str, Any])

    async def ask(self, number: str, method: str, **params: object) -> list[dict[str, Any]]:
        """All that is heard until this is answered, the answer last."""
        await self.say(request(number, method, **params))
        return await self.hear_until(number)

    async def hear_until(self, number: str) -> list[dict[str, Any]]:
        heard: list[dict[str, Any]] = []
        with anyio.fail_after(BOUND_S):
            while not heard or heard[-1].get("id") != number:
                heard.append(await self.hear())
        return heard


class FuzzedDaemon:
    def __init__(self, world: World, pid: int) -> None:
        self.world = world
        self.pid = pid
        self._read = 0

    @asynccontextmanager
    async def connection(self, kind: str) -> AsyncGenerator[Line]:
        hello = {"goent": 1, "version": "x", "kind": kind, "cwd": str(self.world.project)}
        async with await anyio.connect_unix(self.world.socket) as stream:
            line = Line(BufferedByteReceiveStream(stream), stream)
            assert (await line.hear())["goent"] == 1
            await line.say(msgspec.json.encode(hello))
            yield line

    async def raw(self) -> SocketStream:
        return await anyio.connect_unix(self.world.socket)

    def memory(self) -> int:
        """Resident bytes."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * 4096

    async def is_well(self) -> None:
        """It serves a good client, is the one it was, and has nothing to be ashamed of."""
        async with self.connection("control") as line:
            answer = (await line.ask("well", "daemon_status"))[-1]
        assert answer["result"]["pid"] == self.pid
        log = log_path(self.world.key, self.world.env).read_bytes()
        news, self._read = log[self._read :].decode(errors="replace"), len(log)
        found = max(map(news.find, ("Traceback", "internal error")))
        assert found < 0, news[max(0, found - 300) : found + 3000]


async def to_the_end(stream: SocketStream) -> bytes:
    """Say no more, and hear until the other side closes."""
    left = b""
    with anyio.fail_after(BOUND_S):
        try:
            await stream.send_eof()
            while True:
                left += await stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError, OSError):
            return left


def request(number: object, method: str, **params: object) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", "id": number, "method": method, "params": params})


def assert_clear(replies: Iterable[dict[str, Any]]) -> None:
    """Every refusal says what was wrong, and none is an internal error."""
    for reply in replies:
        error: dict[str, Any] | None = reply.get("error")
        if error is not None:
            assert error["code"] != INTERNAL_ERROR, reply
            assert len(error["message"]) > 5, reply


def http_socket(port: int) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port), timeout=BOUND_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock
