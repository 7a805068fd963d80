"""How do bytes come from a provider, without a timer and two system calls for each few of them?

On asyncio's own transports: a connection stays registered with the event loop for as long as it
lives, and one deadline is moved on instead of a new one set. Errors have httpx's names.
"""

import asyncio
import select
import ssl
from typing import Self

import anyio
import httpx2

MOST_UNREAD = 256 * 1024  # bytes; beyond them the provider has to wait
NEVER = float("inf")
STAGGER_S = 0.25  # between the addresses of one host


class Wire(asyncio.Protocol):
    """One connection, read by one task at a time."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._unread: list[bytes] = []
        self._size = 0
        self._ended = False
        self._failure: Exception | None = None
        self._reader: asyncio.Future[None] | None = None
        self._deadline = 0.0
        self._clock: asyncio.TimerHandle | None = None
        self._writable = asyncio.Event()
        self._writable.set()

    @classmethod
    async def connect(
        cls, host: str, port: int, *, tls: ssl.SSLContext | None = None, within_s: float | None
    ) -> Self:
        try:
            with anyio.fail_after(within_s):
                _, wire = await asyncio.get_running_loop().create_connection(
                    cls, host, port, ssl=tls, happy_eyeballs_delay=STAGGER_S
                )
        except TimeoutError as error:
            raise httpx2.ConnectTimeout(f"{host}:{port} does not answer") from error
        except OSError as error:  # `ssl.SSLError` is one
            raise httpx2.ConnectError(str(error)) from error
        return wire

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._failure = exc
        self._ended = True
        self._writable.set()
        self._wake()
        if self._clock:
            self._clock.cancel()

    def data_received(self, data: bytes) -> None:
        self._unread.append(data)
        self._size += len(data)
        if self._size > MOST_UNREAD:
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        self._ended = True
        self._wake()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    async def read(self, within_s: float | None = None) -> bytes:
        """All that has come. Nothing means the end."""
        if not (self._unread or self._ended):
            await self._wait(within_s)
        if self._unread:
            return self._taken()
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
    def has_news(self) -> bool:
        """Has anything come, the end included, even if the event loop has not seen it yet?"""
        if self._ended or self._unread or self._transport.is_closing():
            return True
        now = select.poll()
        now.register(self._transport.get_extra_info("socket"), select.POLLIN)
        return bool(now.poll(0))

    async def _wait(self, seconds: float | None) -> None:
        self._deadline = NEVER if seconds is None else self._loop.time() + seconds
        if self._clock is None or self._clock.when() > self._deadline:
            self._set_the_clock()
        self._reader = self._loop.create_future()
        try:
            await self._reader
        finally:
            self._reader = None

    def _set_the_clock(self) -> None:
        if self._clock:
            self._clock.cancel()
            self._clock = None
        if self._deadline < NEVER:
            self._clock = self._loop.call_at(self._deadline, self._look_at_the_clock)

    def _look_at_the_clock(self) -> None:
        self._clock = None
        if self._reader is None or self._reader.done():
            return
        if self._loop.time() < self._deadline:  # it was moved on since
            self._set_the_clock()
        else:
            self._reader.set_exception(httpx2.ReadTimeout("nothing came in time"))

    def _wake(self) -> None:
        if self._reader and not self._reader.done():
            self._reader.set_result(None)

    def _taken(self) -> bytes:
        taken = b"".join(self._unread)
        self._unread.clear()
        if self._size > MOST_UNREAD:
            self._transport.resume_reading()
        self._size = 0
        return taken
