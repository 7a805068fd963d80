"""A peer under test, and the bare wire at its other end."""

import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import msgspec
from anyio.streams.buffered import BufferedByteReceiveStream
from msgspec import Raw, Struct

from goent.rpc.byte_streams import FdReceiveStream, FdSendStream
from goent.rpc.json_rpc import MethodNotFound
from goent.rpc.rpc_peer import Peer

Answer = Callable[[Raw], Awaitable[object]]


class Line(Struct, omit_defaults=True):
    """One message as the far end sees it."""

    jsonrpc: str = ""
    id: Raw = Raw()
    method: str = ""
    params: Raw = Raw()
    result: Raw = Raw()
    error: "Error | None" = None

    @property
    def code(self) -> int:
        assert self.error, self
        return self.error.code


class Error(Struct):
    code: int
    message: str
    data: Raw = Raw()


class Scripted:
    """A handler whose answers are given by the test, and which remembers what it was told."""

    def __init__(self, **answers: Answer) -> None:
        self.answers = answers
        self.told: list[tuple[str, bytes]] = []
        self.errors: list[tuple[str, Exception]] = []

    async def request(self, method: str, params: Raw) -> object:
        if method not in self.answers:
            raise MethodNotFound(method)
        return await self.answers[method](params)

    async def notification(self, method: str, params: Raw) -> None:
        if method in self.answers:
            await self.answers[method](params)
        self.told.append((method, bytes(params)))

    def on_error(self, method: str, error: Exception) -> None:
        self.errors.append((method, error))


class Far:
    """The other end, which says what it likes."""

    def __init__(self, receive: FdReceiveStream, send: FdSendStream) -> None:
        self.receive = receive
        self.send = send
        self._lines = BufferedByteReceiveStream(receive)

    async def say(self, *lines: str | bytes) -> None:
        raw = [line.encode() if isinstance(line, str) else line for line in lines]
        await self.send.send(b"".join(line + b"\n" for line in raw))

    async def hear(self) -> Line:
        with anyio.fail_after(20):
            line = await self._lines.receive_until(b"\n", 1 << 26)
        return msgspec.json.decode(line, type=Line)

    async def hang_up(self) -> None:
        await self.send.aclose()

    async def answer(self, number: Raw, result: str) -> None:
        await self.say(f'{{"jsonrpc":"2.0","id":{bytes(number).decode()},"result":{result}}}')

    async def hear_id(self) -> str:
        return bytes((await self.hear()).id).decode()

    async def hears_the_end(self) -> bytes:
        """All that is left until the connection is closed."""
        left = b""
        with anyio.fail_after(20):
            try:
                while True:
                    left += await self._lines.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return left


def pipe() -> tuple[FdReceiveStream, FdSendStream]:
    ends = os.pipe()
    for end in ends:
        os.set_blocking(end, False)
    return FdReceiveStream(ends[0]), FdSendStream(ends[1])


@asynccontextmanager
async def wired(
    handler: Scripted, *, max_line: int = 1 << 26, max_requests: int = 1024
) -> AsyncGenerator[tuple[Peer, Far]]:
    """A running peer and the far end of its wire."""
    near_in, far_out = pipe()
    far_in, near_out = pipe()
    peer = Peer(
        near_in,
        near_out,
        handler,
        max_line=max_line,
        max_requests=max_requests,
        on_error=handler.on_error,
    )
    async with far_in, far_out, anyio.create_task_group() as tasks:
        tasks.start_soon(peer.run)
        yield peer, Far(far_in, far_out)
        await peer.aclose()


@asynccontextmanager
async def connected(left: Scripted, right: Scripted) -> AsyncGenerator[tuple[Peer, Peer]]:
    """Two running peers that talk to each other."""
    left_in, right_out = pipe()
    right_in, left_out = pipe()
    peers = (
        Peer(left_in, left_out, left, on_error=left.on_error),
        Peer(right_in, right_out, right, on_error=right.on_error),
    )
    async with anyio.create_task_group() as tasks:
        for peer in peers:
            tasks.start_soon(peer.run)
        yield peers
        for peer in peers:
            await peer.aclose()
