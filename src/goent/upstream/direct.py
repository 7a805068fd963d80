"""How does a request of httpx's get out on our own lines? A transport for its client.

Lines that nobody uses are kept for a while: to connect takes longer than to ask.
"""

import ssl
import time
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

import httpx2

from goent.upstream.line import Line, patience_of
from goent.upstream.wire import Wire

PORTS = {"http": 80, "https": 443}


class _Origin(NamedTuple):
    scheme: str
    host: str
    port: int


class _Free(NamedTuple):
    origin: _Origin
    line: Line
    until: float


class Direct(httpx2.AsyncBaseTransport):
    """The lines to all providers, without a proxy between."""

    def __init__(self, *, kept: int, keep_s: float, trusted: ssl.SSLContext | None = None) -> None:
        self._kept = kept
        self._keep_s = keep_s
        self._trusted = trusted or httpx2.create_ssl_context()
        self._trusted.set_alpn_protocols(["http/1.1"])
        self._free: list[_Free] = []  # the longest unused first

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        origin = _origin(request.url)
        line = self._taken(origin) or await self._connected(origin, request)
        try:
            head = await line.ask(request)
        except BaseException:
            line.close()
            raise
        body = _Body(line, lambda: self._give_back(origin, line))
        return httpx2.Response(head.status_code, headers=head.headers.raw_items(), stream=body)

    async def aclose(self) -> None:
        while self._free:
            self._free.pop().line.close()

    async def _connected(self, origin: _Origin, request: httpx2.Request) -> Line:
        wire = await Wire.connect(
            origin.host,
            origin.port,
            tls=self._trusted if origin.scheme == "https" else None,
            within_s=patience_of(request).connect,
        )
        return Line(wire)

    def _taken(self, origin: _Origin) -> Line | None:
        """A line to there that is still good; the last one used is the likeliest."""
        self._let_go()
        for free in self._free[::-1]:
            if free.origin == origin:
                self._free.remove(free)
                if not free.line.is_broken:
                    return free.line
                free.line.close()
        return None

    def _give_back(self, origin: _Origin, line: Line) -> None:
        if line.ends():
            self._free.append(_Free(origin, line, time.monotonic() + self._keep_s))
            self._let_go()

    def _let_go(self) -> None:
        now = time.monotonic()
        while self._free and (len(self._free) > self._kept or self._free[0].until < now):
            self._free.pop(0).line.close()


class _Body(httpx2.AsyncByteStream):
    def __init__(self, line: Line, over: Callable[[], None]) -> None:
        self._line = line
        self._over = over

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if piece := await self._line.piece():
            return piece
        raise StopAsyncIteration

    async def aclose(self) -> None:
        self._over()


def _origin(url: httpx2.URL) -> _Origin:
    if url.scheme not in PORTS:
        raise httpx2.UnsupportedProtocol(f"{str(url)!r} is no address of HTTP")
    return _Origin(url.scheme, url.raw_host.decode("ascii"), url.port or PORTS[url.scheme])
