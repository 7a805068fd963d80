"""How do requests come in and answers go out? HTTP/1.1 on a bare socket.

Bare, because a fault needs the socket: a server that only ends connections politely can
neither reset one in the middle of a stream nor stay silent on it.
"""

import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from http import HTTPStatus

import anyio

from goent.domain.types import Value

HEAD_LIMIT = 64 * 1024
BODY_LIMIT = 64 * 1024 * 1024
IDLE = 300.0  # seconds for a request to arrive on an open connection
STUCK = 60.0  # seconds for a client to read what was sent
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class BadRequest(Exception):
    """What came in is not HTTP/1.1."""


class ClientGone(Exception):
    """The other side closed or reset the connection."""


class Request(Value, frozen=True, kw_only=True):
    """One request; the names of its headers are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    keep_alive: bool


class Connection:
    """One client's socket."""

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(0)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock = sock
        self._buffer = bytearray()
        self._chunked = False

    @property
    def closed(self) -> bool:
        return self._sock.fileno() < 0

    async def request(self) -> Request | None:
        """The next request, or None when the client has no more."""
        with anyio.move_on_after(IDLE), suppress(ClientGone):
            head = await self._until(b"\r\n\r\n")
            method, path, version, headers = _parse_head(head)
            if headers.get("expect", "").lower() == "100-continue":
                await self.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            closing = "close" in headers.get("connection", "").lower()
            return Request(
                method=method,
                path=path,
                headers=headers,
                body=await self._body(headers),
                keep_alive=version == "HTTP/1.1" and not closing,
            )
        return None

    async def begin(self, status: int, headers: Mapping[str, str], length: int | None) -> None:
        """Send the head. Without a length, the body goes in chunks until `finish`."""
        self._chunked = length is None
        framing = "transfer-encoding: chunked" if length is None else f"content-length: {length}"
        lines = [f"HTTP/1.1 {status} {_phrase(status)}", framing]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        await self.write("\r\n".join([*lines, "", ""]).encode("latin-1"))

    async def send(self, data: bytes) -> None:
        """Send a part of the body."""
        await self.write(b"%x\r\n%s\r\n" % (len(data), data) if self._chunked else data)

    async def finish(self) -> None:
        if self._chunked:
            await self.write(b"0\r\n\r\n")

    async def write(self, data: bytes) -> None:
        rest = memoryview(data)
        try:
            with anyio.fail_after(STUCK):
                while rest:
                    try:
                        rest = rest[self._sock.send(rest) :]
                    except BlockingIOError:
                        await anyio.wait_writable(self._sock)
        except (
            OSError
        ) as error:  # TimeoutError is one: a client that does not read is as good as gone
            raise ClientGone from error

    async def while_connected(self, work: Callable[[], Awaitable[None]]) -> bool:
        """Do the work until it ends or the client goes; True if it ended."""
        ended = False
        async with anyio.create_task_group() as tasks:

            async def watch() -> None:
                with suppress(ClientGone):
                    while True:
                        await self._receive()
                tasks.cancel_scope.cancel()

            tasks.start_soon(watch)
            with suppress(ClientGone):
                await work()
                ended = True
            tasks.cancel_scope.cancel()
        return ended

    def close(self, *, reset: bool = False) -> None:
        """Close politely, or as if the cable were cut."""
        if self.closed:
            return
        if reset:
            with suppress(OSError):
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        anyio.notify_closing(self._sock)
        self._sock.close()

    async def _body(self, headers: Mapping[str, str]) -> bytes:
        if "chunked" in headers.get("transfer-encoding", "").lower():
            return await self._chunks()
        length = _number(headers.get("content-length", "0"), base=10)
        return await self._exactly(length)

    async def _chunks(self) -> bytes:
        body = bytearray()
        while size := _number(
            (await self._until(b"\r\n")).partition(b";")[0].decode("latin-1"), base=16
        ):
            body += await self._exactly(size)
            await self._until(b"\r\n")
            if len(body) > BODY_LIMIT:
                raise BadRequest(f"the body is longer than {BODY_LIMIT} bytes")
        while await self._until(b"\r\n"):
            pass  # trailers mean nothing to us
        return bytes(body)

    async def _until(self, mark: bytes) -> bytes:
        while (end := self._buffer.find(mark)) < 0:
            if len(self._buffer) > HEAD_LIMIT:
                raise BadRequest(f"the head is longer than {HEAD_LIMIT} bytes")
            await self._receive()
        return self._take(end, skip=len(mark))

    async def _exactly(self, length: int) -> bytes:
        if length > BODY_LIMIT:
            raise BadRequest(f"the body is longer than {BODY_LIMIT} bytes")
        while len(self._buffer) < length:
            await self._receive()
        return self._take(length)

    def _take(self, length: int, *, skip: int = 0) -> bytes:
        taken = bytes(self._buffer[:length])
        del self._buffer[: length + skip]
        return taken

    async def _receive(self) -> None:
        try:
            while True:
                try:
                    data = self._sock.recv(64 * 1024)
                    break
                except BlockingIOError:
                    await anyio.wait_readable(self._sock)
        except (OSError, anyio.ClosedResourceError) as error:
            raise ClientGone from error
        if not data:
            raise ClientGone
        self._buffer += data


def _parse_head(head: bytes) -> tuple[str, str, str, dict[str, str]]:
    first, *lines = head.decode("latin-1").split("\r\n")
    try:
        method, path, version = first.split(" ")
    except ValueError:
        raise BadRequest(f"{first!r} is no request line") from None
    fields = (line.partition(":") for line in lines)
    return method, path, version, {name.lower(): value.strip() for name, _, value in fields}


def _number(text: str, *, base: int) -> int:
    try:
        number = int(text, base)
    except ValueError:
        number = -1
    if number < 0:
        raise BadRequest(f"{text!r} is no length")
    return number


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Scripted"
