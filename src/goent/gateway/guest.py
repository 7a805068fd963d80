"""How does an HTTP server live inside the daemon? uvicorn, as a guest.

uvicorn waits for ever for the rest of a request. Here a request has to be whole in time, and
whoever dawdles is told so and put out.

asyncio accepts whoever connects, and where descriptors run out it logs thousands of tracebacks.
Here connections are accepted by ourselves: within limits, and a lack of descriptors is one line.

uvicorn shows every piece of an answer to h11, which only writes its length before it. Here the
pieces in the middle of an answer in chunks are written at once: they change nothing in h11's view.
"""

import asyncio
import errno
import logging
import socket
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from typing import Literal

import anyio
import msgspec
import uvicorn
from anyio.abc import TaskGroup
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from goent.gateway.connection_table import ConnectionLimits, ConnectionTable
from goent.gateway.http import AUTHENTICATED, Headers, Message, Receive, Scope, Send
from goent.gateway.peer_user import PeerUsers

log = logging.getLogger(__name__)

GRACE_S = 2
HEAD_S = 10.0  # from a connection, or a request's first byte, to the end of the request's head
BODY_S = 60.0  # from there to the request's last byte
MOST_HEAD = 64 * 1024  # bytes of a request's head
KEEP_ALIVE_S = 600  # a client that reuses a connection which is just being closed sees an error
BACKLOG = 4096  # a client that does not fit in waits a second before it tries again
BATCH = 32  # connections that are accepted before others have their turn
NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
NO_ROOM_S = 0.1  # until somebody may have closed something
MADE_ROOM = 32  # connections that are closed when descriptors run out

Application = Callable[[Scope, Receive, Send], Awaitable[None]]
Phase = Literal["head", "body"]


class GuestProtocol(H11Protocol):
    """One connection."""

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        table: ConnectionTable,
        user: int | None,
    ) -> None:
        super().__init__(config, server_state, {})
        self.user = user
        self._table = table
        self._told: Application = self.app
        self.app = self._answer
        self._phase: Phase | None = None
        self._patience: asyncio.TimerHandle | None = None
        self.timeout_keep_alive = int(HEAD_S)  # until it has shown a token

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._table.add(self)
        self._mind()

    def connection_lost(self, exc: Exception | None) -> None:
        self._table.remove(self)
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
        if not self._may_answer():
            self.transport.close()
        elif len(self.conn.trailing_data[0]) > MOST_HEAD:
            words = f"the head of the request is too long: at most {MOST_HEAD} bytes are taken"
            self._refuse("431 Request Header Fields Too Large", words)
        else:
            super().send_400_response(msg)

    @property
    def is_idle(self) -> bool:
        between = not self.scope or self.cycle.response_complete
        return between and self._awaited() is None

    def drop(self) -> None:
        self._settle()
        self.transport.abort()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        told = {**scope, AUTHENTICATED: self._authenticated}
        await self._told(told, receive, _Shortcut(self, scope, send))

    def _authenticated(self) -> None:
        self.timeout_keep_alive = KEEP_ALIVE_S
        self._table.authenticated(self)

    def _mind(self) -> None:
        """Start the clock of the phase that the request is in; a phase has one."""
        phase = self._awaited()
        if phase == self._phase:
            return
        self._settle()
        self._phase = phase
        if phase is not None:
            limit = HEAD_S if phase == "head" else BODY_S
            self._patience = self.loop.call_later(limit, self._put_out, limit)

    def _awaited(self) -> Phase | None:
        """A request has begun and is not whole, or the first one is still to come."""
        match self.conn.their_state.__name__:
            case "SEND_BODY":
                return "body"
            case "IDLE" if not self.scope or self.conn.trailing_data[0]:
                return "head"
            case _:
                return None

    def _may_answer(self) -> bool:
        return self.conn.our_state.__name__ in ("IDLE", "SEND_RESPONSE")

    def _settle(self) -> None:
        self._phase = None
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _put_out(self, limit: float) -> None:
        part = "request" if self._phase == "body" else "head of the request"
        if self._may_answer():
            self._refuse("408 Request Timeout", f"the {part} was not whole within {limit:g} s")
        else:
            self.transport.close()

    def _refuse(self, status: str, message: str) -> None:
        self.transport.write(_refusal(status, message))
        self.transport.close()


def _refusal(status: str, message: str) -> bytes:
    words = f"go-ent: {message}".encode()
    head = (
        f"HTTP/1.1 {status}\r\ncontent-type: text/plain\r\n"
        f"connection: close\r\ncontent-length: {len(words)}\r\n\r\n"
    )
    return head.encode() + words


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


class SilentConnection:
    """A connection that has not said anything yet: a socket, and no more. It takes 30 µs and 1 kB.

    With its first byte it becomes a `GuestProtocol`, which takes five times as long to make.
    """

    is_idle = True

    def __init__(self, table: ConnectionTable, connection: socket.socket, user: int | None) -> None:
        self.user = user
        self.connection = connection
        self._table = table
        self._loop = asyncio.get_running_loop()
        self._patience = self._loop.call_later(HEAD_S, self._put_out, HEAD_S)

    def listen(self, spoke: "Callable[[SilentConnection], None]") -> None:
        """Call `spoke` when there is something to read, or the other side has left."""
        self._table.add(self)
        self._loop.add_reader(self.connection, spoke, self)

    def leave(self) -> None:
        """The socket is somebody else's now."""
        self._table.remove(self)
        self._patience.cancel()
        self._loop.remove_reader(self.connection)

    def drop(self) -> None:
        self.leave()
        self.connection.close()

    def _put_out(self, limit: float) -> None:
        words = f"the head of the request was not whole within {limit:g} s"
        with suppress(OSError):
            self.connection.send(_refusal("408 Request Timeout", words))
        self.drop()


class GuestServer(uvicorn.Server):
    """Signals stay with the daemon, and no clock ticks ten times a second."""

    def __init__(
        self,
        app: Callable[..., Awaitable[None]],
        limits: ConnectionLimits = ConnectionLimits(),  # noqa: B008 (frozen)
    ) -> None:
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
                h11_max_incomplete_event_size=MOST_HEAD,
            )
        )
        self._stopped = anyio.Event()
        self._table = ConnectionTable(limits)
        self._users = PeerUsers()
        self._listener: socket.socket | None = None

    async def serve_on(self, listener: socket.socket) -> None:
        self._listener = listener
        try:
            with anyio.CancelScope(shield=True):  # `stop` ends it, so that connections are closed
                await self.serve([listener])
        finally:
            self._users.close()

    def stop(self) -> None:
        self.should_exit = True
        self._stopped.set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self.lifespan.startup()
        self.servers = []
        self.started = True

    async def main_loop(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._accept, tasks)
            await self._stopped.wait()
            tasks.cancel_scope.cancel()
        self._table.drop_strangers()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def _accept(self, tasks: TaskGroup) -> None:
        assert self._listener, "given by `serve_on`"
        self._listener.settimeout(0)
        own = self._listener.getsockname()
        accepted = 0

        def spoke(silent: SilentConnection) -> None:
            silent.leave()
            tasks.start_soon(self._attend, silent.connection, silent.user)

        while True:
            try:
                connection, peer = await asyncio.get_running_loop().sock_accept(self._listener)
            except OSError as error:
                await self._wait_for_room(error)
                continue
            user = self._users.find(peer, own)
            if self._takes(connection, user):
                SilentConnection(self._table, connection, user).listen(spoke)
            accepted += 1
            if accepted % BATCH == 0:
                await asyncio.sleep(0)

    def _takes(self, connection: socket.socket, user: int | None) -> bool:
        if not self._table.welcomes(user):
            log.warning("refused a connection of another user (uid %s)", user)
        elif not self._table.make_room():
            log.warning("refused a connection: all %d are at work", len(self._table))
            words = f"all {len(self._table)} connections are at work: try again"
            with suppress(OSError):
                connection.send(_refusal("503 Service Unavailable", words))
        else:
            return True
        connection.close()
        return False

    async def _attend(self, connection: socket.socket, user: int | None) -> None:
        def protocol() -> GuestProtocol:
            return GuestProtocol(self.config, self.server_state, self._table, user)

        loop = asyncio.get_running_loop()
        await loop.connect_accepted_socket(protocol, connection)

    async def _wait_for_room(self, error: OSError) -> None:
        log.warning("a connection could not be accepted: %s", error.strerror)
        if error.errno in NO_ROOM:
            for _ in range(MADE_ROOM):
                if not self._table.drop_idle():
                    break
        await asyncio.sleep(NO_ROOM_S)
