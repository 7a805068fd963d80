"""How is one request after the other made on one connection? By HTTP/1.1, as h11 knows it.

A model's answer comes in hundreds of small chunks, and for each of them h11 takes a tenth of all the
time that the answer costs us. Most often what was read is whole chunks and nothing else: such bytes
change nothing in h11's view of the answer, and need not be shown to it.
"""

import re
import time
from collections.abc import AsyncIterable, Generator
from contextlib import contextmanager, suppress

import h11
import httpx2
import msgspec
from msgspec import Struct

from goent.upstream.wire import Wire

LONGEST_HEAD = 100 * 1024
MOST_HINTS = 32  # informational replies (1xx) before the answer
_SIZE = re.compile(rb"([0-9a-fA-F]{1,8})\r\n")


class Patience(Struct):
    """Seconds, by the names that httpx has for them."""

    connect: float | None = None
    read: float | None = None
    write: float | None = None


class Line:
    """One connection, for one request at a time."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._http = h11.Connection(h11.CLIENT, LONGEST_HEAD)
        self._read_s: float | None = None
        self._between_chunks = False

    async def ask(self, request: httpx2.Request) -> h11.Response:
        """Make the request; the head of its answer, for all of which there is one deadline."""
        patience = patience_of(request)
        self._read_s = patience.read
        with suppress(httpx2.WriteError):  # who refuses a request need not read it to its end
            await self._say(request, patience.write)
        began, hints = time.monotonic(), 0
        while not isinstance(event := self._next(), h11.Response):
            if event is h11.NEED_DATA:
                await self._hear(_left(patience.read, began))
            elif isinstance(event, h11.InformationalResponse):
                hints += 1
                if hints > MOST_HINTS:
                    raise httpx2.RemoteProtocolError(
                        f"more than {MOST_HINTS} informational replies and no answer"
                    )
        return event

    async def piece(self) -> bytes:
        """The next piece of the answer's body, as it came; nothing at its end."""
        if self._between_chunks:
            data = await self._wire.read(self._read_s)
            if chunks := whole_chunks(data):
                return chunks
            self._between_chunks = False
            self._http.receive_data(data)
        while not isinstance(event := self._next(), h11.Data):
            if event is not h11.NEED_DATA:
                return b""
            await self._hear(self._read_s)
        self._between_chunks = event.chunk_end and self._http.trailing_data[0] == b"\r\n"
        return bytes(event.data)

    def ends(self) -> bool:
        """The answer is no longer wanted: can the line be used again?"""
        both = {self._http.our_state, self._http.their_state}
        if both != {h11.DONE} or self._http.trailing_data[0]:  # nobody asked for what follows
            self._wire.close()
            return False
        self._http.start_next_cycle()
        return True

    @property
    def is_broken(self) -> bool:
        """Nobody asks on it, and something came all the same: most often its end."""
        return self._wire.has_news

    def close(self) -> None:
        self._wire.close()

    async def _say(self, request: httpx2.Request, within_s: float | None) -> None:
        assert isinstance(request.stream, AsyncIterable)
        with _told_by_httpx():
            head = h11.Request(
                method=request.method, target=request.url.raw_path, headers=request.headers.raw
            )
        await self._send(head, within_s)
        async for piece in request.stream:
            await self._send(h11.Data(data=piece), within_s)
        await self._send(h11.EndOfMessage(), within_s)

    async def _send(self, event: h11.Event, within_s: float | None) -> None:
        with _told_by_httpx():
            data = self._http.send(event)
        if data:
            await self._wire.write(data, within_s)

    async def _hear(self, within_s: float | None) -> None:
        data = await self._wire.read(within_s)
        if not data and self._http.their_state is h11.SEND_RESPONSE:
            raise httpx2.RemoteProtocolError("the provider hung up without an answer")
        self._http.receive_data(data)

    def _next(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        with _told_by_httpx():
            return self._http.next_event()


def _left(seconds: float | None, began: float) -> float | None:
    if seconds is None:
        return None
    left = began + seconds - time.monotonic()
    if left <= 0:
        raise httpx2.ReadTimeout("the answer did not begin in time")
    return left


def patience_of(request: httpx2.Request) -> Patience:
    return msgspec.convert(request.extensions.get("timeout", {}), Patience)


def whole_chunks(data: bytes) -> bytes:
    """What chunks say, where there is nothing but whole ones; otherwise nothing."""
    said: list[bytes] = []
    at = 0
    while size := _SIZE.match(data, at):
        begin = size.end()
        end = begin + int(size[1], 16)
        if end == begin or data[end : end + 2] != b"\r\n":
            break
        said.append(data[begin:end])
        at = end + 2
    return b"".join(said) if at == len(data) else b""


@contextmanager
def _told_by_httpx() -> Generator[None]:
    """The error of the same name."""
    try:
        yield
    except h11.RemoteProtocolError as error:
        raise httpx2.RemoteProtocolError(str(error)) from error
    except h11.LocalProtocolError as error:
        raise httpx2.LocalProtocolError(str(error)) from error
