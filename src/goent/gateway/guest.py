"""How does an HTTP server live inside the daemon? uvicorn, as a guest.

uvicorn waits for ever for the rest of a request. Here a request has to be whole in time, and
whoever dawdles is told so and put out.

uvicorn shows every piece of an answer to h11, which only writes its length before it. Here the
pieces in the middle of an answer in chunks are written at once: they change nothing in h11's view.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from http import HTTPStatus

import anyio
import msgspec
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from goent.gateway.http import Headers, Message, Receive, Scope, Send

GRACE_S = 2
REQUEST_S = 60.0  # from a connection, or a request's first byte, to the request's last byte
KEEP_ALIVE_S = 600  # a client that reuses a connection which is just being closed sees an error

Application = Callable[[Scope, Receive, Send], Awaitable[None]]


class GuestProtocol(H11Protocol):
    """One connection."""

    _patience: asyncio.TimerHandle | None = None

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, object],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._told: Application = self.app
        self.app = self._answer

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._mind()

    def connection_lost(self, exc: Exception | None) -> None:
        self._settle()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._mind()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._mind()

    def send_400_response(self, msg: str) -> None:
        # By itself it would begin this answer in the middle of another one.
        if self._may_answer():
            super().send_400_response(msg)
        else:
            self.transport.close()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._told(scope, receive, _Shortcut(self, scope, send))

    def _mind(self) -> None:
        if not self._is_awaited():
            self._settle()
        elif self._patience is None:
            self._patience = self.loop.call_later(REQUEST_S, self._put_out)

    def _is_awaited(self) -> bool:
        """A request has begun and is not whole, or the first one is still to come."""
        match self.conn.their_state.__name__:
            case "SEND_BODY":
                return True
            case "IDLE":
                return not self.scope or bool(self.conn.trailing_data[0])
            case _:
                return False

    def _may_answer(self) -> bool:
        return self.conn.our_state.__name__ in ("IDLE", "SEND_RESPONSE")

    def _settle(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _put_out(self) -> None:
        if self._may_answer():
            words = b"go-ent: the request was not whole within %g s" % REQUEST_S
            self.transport.write(
                b"HTTP/1.1 408 Request Timeout\r\ncontent-type: text/plain\r\n"
                b"connection: close\r\ncontent-length: %d\r\n\r\n%b" % (len(words), words)
            )
        self.transport.close()


class _Shortcut:
    """How one answer is sent."""

    def __init__(self, guest: GuestProtocol, scope: Scope, send: Send) -> None:
        self._transport, self._flow, self._cycle = guest.transport, guest.flow, guest.cycle
        self._scope = scope
        self._send = send
        self._in_chunks = False

    async def __call__(self, message: Message) -> None:
        body = message.get("body")
        if self._in_chunks and isinstance(body, bytes) and body and message.get("more_body"):
            if self._flow.write_paused and not self._cycle.disconnected:
                await self._flow.drain()
            if not self._cycle.disconnected:
                self._transport.write(b"%x\r\n%b\r\n" % (len(body), body))
        else:
            self._in_chunks = message["type"] == "http.response.start" and self._has_chunks(message)
            await self._send(message)

    def _has_chunks(self, start: Message) -> bool:
        """As h11 decides it, of answers that have a body for certain."""
        told = msgspec.convert(start.get("headers", ()), Headers)
        return (
            self._scope["http_version"] == "1.1"
            and self._scope["method"] in {"GET", "POST"}
            and start["status"] == HTTPStatus.OK
            and all(name.lower() != b"content-length" for name, _ in told)
        )


class GuestServer(uvicorn.Server):
    """Signals stay with the daemon, and no clock ticks ten times a second."""

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=GuestProtocol,
                ws="none",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                access_log=False,
                date_header=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=GRACE_S,
            )
        )
        self._stopped = anyio.Event()

    async def serve_on(self, listener: socket.socket) -> None:
        with anyio.CancelScope(shield=True):  # `stop` ends it, so that connections are closed
            await self.serve([listener])

    def stop(self) -> None:
        self.should_exit = True
        self._stopped.set()

    async def main_loop(self) -> None:
        await self._stopped.wait()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield
