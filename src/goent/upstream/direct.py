"""How does a request of httpx's get out on our own wires? A transport for its client.

httpx has no setting for the network below it; httpcore, which it is built on, has.
"""

import ssl
from collections.abc import AsyncGenerator, AsyncIterable, Generator
from contextlib import contextmanager

import httpcore2
import httpx2

from goent.upstream.wire import Wires

_ERRORS = (
    httpcore2.NetworkError,
    httpcore2.ProtocolError,
    httpcore2.TimeoutException,
    httpcore2.UnsupportedProtocol,
)


class Direct(httpx2.AsyncBaseTransport):
    """A pool of connections, without a proxy between."""

    def __init__(self, *, kept: int, keep_s: float, trusted: ssl.SSLContext | None = None) -> None:
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=trusted or httpx2.create_ssl_context(),
            max_connections=None,
            max_keepalive_connections=kept,
            keepalive_expiry=keep_s,
            network_backend=Wires(),
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        assert isinstance(request.stream, httpx2.AsyncByteStream)
        url = request.url
        with _told_by_httpx():
            answer = await self._pool.handle_async_request(
                httpcore2.Request(
                    method=request.method,
                    url=httpcore2.URL(
                        scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
                    ),
                    headers=request.headers.raw,
                    content=request.stream,
                    extensions=request.extensions,
                )
            )
        return httpx2.Response(answer.status, headers=answer.headers, stream=_Body(answer))

    async def aclose(self) -> None:
        await self._pool.aclose()


class _Body(httpx2.AsyncByteStream):
    def __init__(self, answer: httpcore2.Response) -> None:
        self._answer = answer

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        assert isinstance(self._answer.stream, AsyncIterable)
        with _told_by_httpx():
            async for piece in self._answer.stream:
                yield piece

    async def aclose(self) -> None:
        await self._answer.aclose()


@contextmanager
def _told_by_httpx() -> Generator[None]:
    """The error of the same name."""
    try:
        yield
    except _ERRORS as error:
        theirs: type[httpx2.TransportError] = getattr(httpx2, type(error).__name__)
        raise theirs(str(error)) from error
