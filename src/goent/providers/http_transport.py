"""Pooled HTTP/1.1 connections to providers, as a transport for httpx.

An answer comes in hundreds of small chunks, so the cost of each matters (decision 19 has the
figures). A socket stays registered with the event loop, and its read timeout is one deadline that
moves on. HTTP is h11's, with one exception: bytes that are whole chunks and nothing else change
nothing in h11's view of the answer, so they bypass it. Errors are httpx's.
"""

import asyncio
import os
import re
import select
import ssl
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Generator
from contextlib import contextmanager, suppress
from typing import NamedTuple, Self

import anyio
import h11
import httpx2
import msgspec
from msgspec import Struct

MAX_UNREAD = 256 * 1024  # bytes; reading pauses beyond them
NEVER = float("inf")
CONNECT_STAGGER_S = 0.25  # between attempts at the addresses of one host


class ProviderSocket(asyncio.Protocol):
    """One connection, read by one task at a time."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._unread: list[bytes] = []
        self._size = 0
        self._ended = False
        self._failure: Exception | None = None
        self._reader: asyncio.Future[None] | None = None
        self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._writable = asyncio.Event()
        self._writable.set()

    @classmethod
    async def connect(
        cls, host: str, port: int, *, tls: ssl.SSLContext | None = None, within_s: float | None
    ) -> Self:
        try:
            with anyio.fail_after(within_s):
                _, wire = await asyncio.get_running_loop().create_connection(
                    cls, host, port, ssl=tls, happy_eyeballs_delay=CONNECT_STAGGER_S
                )
        except TimeoutError as error:
            raise httpx2.ConnectTimeout(f"{host}:{port} does not answer") from error
        except OSError as error:
            raise httpx2.ConnectError(_connect_error_text(error)) from error
        return wire

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._failure = exc
        self._ended = True
        self._writable.set()
        self._wake_reader()
        if self._timer:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        self._unread.append(data)
        self._size += len(data)
        if self._size > MAX_UNREAD:
            self._transport.pause_reading()
        self._wake_reader()

    def eof_received(self) -> None:
        self._ended = True
        self._wake_reader()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    async def read(self, within_s: float | None = None) -> bytes:
        """All bytes that have come; none at the end."""
        if not (self._unread or self._ended):
            await self._wait(within_s)
        if self._unread:
            return self._drain()
        if self._failure:
            raise httpx2.ReadError(str(self._failure)) from self._failure
        return b""

    async def write(self, data: bytes, within_s: float | None = None) -> None:
        if self._ended and self._transport.is_closing():
            raise httpx2.WriteError("the provider has closed the connection")
        self._transport.write(data)
        try:
            with anyio.fail_after(within_s):
                await self._writable.wait()
        except TimeoutError as error:
            raise httpx2.WriteTimeout("the provider does not read the request") from error
        if self._failure:
            raise httpx2.WriteError(str(self._failure)) from self._failure

    def close(self) -> None:
        self._transport.abort()

    @property
    def has_pending_data(self) -> bool:
        """Whether bytes or the end have come, even if the event loop has not seen them yet."""
        if self._ended or self._unread or self._transport.is_closing():
            return True
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket"), select.POLLIN)
        return bool(poll.poll(0))

    async def _wait(self, seconds: float | None) -> None:
        self._deadline = NEVER if seconds is None else self._loop.time() + seconds
        if self._timer is None or self._timer.when() > self._deadline:
            self._arm_timer()
        self._reader = self._loop.create_future()
        try:
            await self._reader
        finally:
            self._reader = None

    def _arm_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if self._deadline < NEVER:
            self._timer = self._loop.call_at(self._deadline, self._check_timer)

    def _check_timer(self) -> None:
        self._timer = None
        if self._reader is None or self._reader.done():
            return
        if self._loop.time() < self._deadline:  # the deadline has moved on since
            self._arm_timer()
        else:
            self._reader.set_exception(httpx2.ReadTimeout("nothing came in time"))

    def _wake_reader(self) -> None:
        if self._reader and not self._reader.done():
            self._reader.set_result(None)

    def _drain(self) -> bytes:
        taken = b"".join(self._unread)
        self._unread.clear()
        if self._size > MAX_UNREAD:
            self._transport.resume_reading()
        self._size = 0
        return taken


def _connect_error_text(error: OSError) -> str:
    """The system's own words: asyncio puts addresses and several attempts into its message."""
    if isinstance(error, ssl.SSLError):
        return str(error)
    attempt = re.search(r"\[Errno (\d+)\] Connect call failed", str(error))
    return os.strerror(int(attempt[1])) if attempt else error.strerror or str(error)


MAX_HEAD = 100 * 1024
MAX_INFORMATIONAL = 32  # informational replies (1xx) before the answer
_CHUNK_SIZE = re.compile(rb"([0-9a-fA-F]{1,8})\r\n")


class HttpTimeouts(Struct):
    """Seconds, by httpx's names."""

    connect: float | None = None
    read: float | None = None
    write: float | None = None


class Http1Connection:
    """One connection, for one request at a time."""

    def __init__(self, wire: ProviderSocket) -> None:
        self._wire = wire
        self._parser = h11.Connection(h11.CLIENT, MAX_HEAD)
        self._read_s: float | None = None
        self._between_chunks = False

    async def send_request(self, request: httpx2.Request) -> h11.Response:
        """Send the request and return the head of its answer, within one read timeout."""
        timeouts = timeouts_of(request)
        self._read_s = timeouts.read
        with suppress(
            httpx2.WriteError
        ):  # a provider may refuse a request before reading all of it
            await self._write_request(request, timeouts.write)
        began, informational = time.monotonic(), 0
        while not isinstance(event := self._next(), h11.Response):
            if event is h11.NEED_DATA:
                await self._receive(_seconds_left(timeouts.read, began))
            elif isinstance(event, h11.InformationalResponse):
                informational += 1
                if informational > MAX_INFORMATIONAL:
                    raise httpx2.RemoteProtocolError(
                        f"more than {MAX_INFORMATIONAL} informational replies and no answer"
                    )
        return event

    async def read_piece(self) -> bytes:
        """The next piece of the answer's body, as it came; empty at the end."""
        if self._between_chunks:
            data = await self._wire.read(self._read_s)
            if chunks := join_chunks(data):
                return chunks
            self._between_chunks = False
            self._parser.receive_data(data)
        while not isinstance(event := self._next(), h11.Data):
            if event is not h11.NEED_DATA:
                return b""
            await self._receive(self._read_s)
        self._between_chunks = event.chunk_end and self._parser.trailing_data[0] == b"\r\n"
        return bytes(event.data)

    def finish(self) -> bool:
        """End the answer; returns whether the connection can be reused, and closes it if not."""
        both = {self._parser.our_state, self._parser.their_state}
        if both != {h11.DONE} or self._parser.trailing_data[0]:  # surplus bytes answer no request
            self._wire.close()
            return False
        self._parser.start_next_cycle()
        return True

    @property
    def is_broken(self) -> bool:
        """Whether something came while it was idle: most often its end."""
        return self._wire.has_pending_data

    def close(self) -> None:
        self._wire.close()

    async def _write_request(self, request: httpx2.Request, within_s: float | None) -> None:
        assert isinstance(request.stream, AsyncIterable)
        with _httpx_errors():
            head = h11.Request(
                method=request.method, target=request.url.raw_path, headers=request.headers.raw
            )
        await self._send(head, within_s)
        async for piece in request.stream:
            await self._send(h11.Data(data=piece), within_s)
        await self._send(h11.EndOfMessage(), within_s)

    async def _send(self, event: h11.Event, within_s: float | None) -> None:
        with _httpx_errors():
            data = self._parser.send(event)
        if data:
            await self._wire.write(data, within_s)

    async def _receive(self, within_s: float | None) -> None:
        data = await self._wire.read(within_s)
        if not data and self._parser.their_state is h11.SEND_RESPONSE:
            raise httpx2.RemoteProtocolError("the provider hung up without an answer")
        self._parser.receive_data(data)

    def _next(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        with _httpx_errors():
            return self._parser.next_event()


def _seconds_left(seconds: float | None, began: float) -> float | None:
    if seconds is None:
        return None
    left = began + seconds - time.monotonic()
    if left <= 0:
        raise httpx2.ReadTimeout("the answer did not begin in time")
    return left


def timeouts_of(request: httpx2.Request) -> HttpTimeouts:
    return msgspec.convert(request.extensions.get("timeout", {}), HttpTimeouts)


def join_chunks(data: bytes) -> bytes:
    """The content of whole chunks; empty if the data is anything else."""
    content: list[bytes] = []
    at = 0
    while size := _CHUNK_SIZE.match(data, at):
        begin = size.end()
        end = begin + int(size[1], 16)
        if end == begin or data[end : end + 2] != b"\r\n":
            break
        content.append(data[begin:end])
        at = end + 2
    return b"".join(content) if at == len(data) else b""


@contextmanager
def _httpx_errors() -> Generator[None]:
    """h11's errors as httpx's of the same name."""
    try:
        yield
    except h11.RemoteProtocolError as error:
        raise httpx2.RemoteProtocolError(str(error)) from error
    except h11.LocalProtocolError as error:
        raise httpx2.LocalProtocolError(str(error)) from error


DEFAULT_PORTS = {"http": 80, "https": 443}


class _Origin(NamedTuple):
    scheme: str
    host: str
    port: int


class _IdleConnection(NamedTuple):
    origin: _Origin
    connection: Http1Connection
    until: float


class PooledTransport(httpx2.AsyncBaseTransport):
    """Direct connections to all providers; idle ones are kept for a while."""

    def __init__(self, *, kept: int, keep_s: float, trusted: ssl.SSLContext | None = None) -> None:
        self._kept = kept
        self._keep_s = keep_s
        self._ssl_context = trusted or httpx2.create_ssl_context()
        self._ssl_context.set_alpn_protocols(["http/1.1"])
        self._idle: list[_IdleConnection] = []  # the longest unused first

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        origin = _origin_of(request.url)
        connection = self._reuse(origin) or await self._connect(origin, request)
        try:
            head = await connection.send_request(request)
        except BaseException:
            connection.close()
            raise
        body = _AnswerBody(connection, lambda: self._release(origin, connection))
        return httpx2.Response(head.status_code, headers=head.headers.raw_items(), stream=body)

    async def aclose(self) -> None:
        while self._idle:
            self._idle.pop().connection.close()

    async def _connect(self, origin: _Origin, request: httpx2.Request) -> Http1Connection:
        wire = await ProviderSocket.connect(
            origin.host,
            origin.port,
            tls=self._ssl_context if origin.scheme == "https" else None,
            within_s=timeouts_of(request).connect,
        )
        return Http1Connection(wire)

    def _reuse(self, origin: _Origin) -> Http1Connection | None:
        """An idle connection there that still works, preferably the last one used."""
        self._close_expired()
        for idle in self._idle[::-1]:
            if idle.origin == origin:
                self._idle.remove(idle)
                if not idle.connection.is_broken:
                    return idle.connection
                idle.connection.close()
        return None

    def _release(self, origin: _Origin, connection: Http1Connection) -> None:
        if connection.finish():
            self._idle.append(_IdleConnection(origin, connection, time.monotonic() + self._keep_s))
            self._close_expired()

    def _close_expired(self) -> None:
        now = time.monotonic()
        while self._idle and (len(self._idle) > self._kept or self._idle[0].until < now):
            self._idle.pop(0).connection.close()


class _AnswerBody(httpx2.AsyncByteStream):
    def __init__(self, connection: Http1Connection, over: Callable[[], None]) -> None:
        self._connection = connection
        self._over = over

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if piece := await self._connection.read_piece():
            return piece
        raise StopAsyncIteration

    async def aclose(self) -> None:
        self._over()


def _origin_of(url: httpx2.URL) -> _Origin:
    if url.scheme not in DEFAULT_PORTS:
        raise httpx2.UnsupportedProtocol(f"{str(url)!r} is not an HTTP address")
    return _Origin(url.scheme, url.raw_host.decode("ascii"), url.port or DEFAULT_PORTS[url.scheme])
