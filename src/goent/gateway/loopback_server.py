"""Runs uvicorn inside the daemon, with bounded connections and deadlines for requests.

uvicorn alone would wait for ever for the rest of a request, and asyncio accepts whoever connects and
logs a traceback for each connection that finds no descriptor free. Here a request has a deadline,
connections are limited, and a lack of descriptors is one line in the log.

A connection that has not shown a valid token yet is a stranger's. When there are too many of those,
the oldest is closed; a real client sends its first request within milliseconds.

uvicorn passes every piece of an answer through h11, which only adds its length. Here pieces in the
middle of a chunked answer are written directly: they change nothing in h11's view.
"""

import asyncio
import errno
import logging
import os
import resource
import socket
import struct
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from typing import Literal, Protocol

import anyio
import msgspec
import uvicorn
from anyio.abc import TaskGroup
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from goent.domain.types import Value
from goent.gateway.asgi import AUTHENTICATED_KEY, AsgiMessage, AsgiScope, Headers, Receive, Send

ROOT_UID = 0


class ConnectionLimits(Value, frozen=True, kw_only=True):
    """How many connections one server holds.

    `other_users`: of users other than this one and root, where the system says whose they are.
    """

    total: int = 1024
    strangers: int = 256
    other_users: int = 0


class TrackedConnection(Protocol):
    """A connection in the table."""

    user: int | None

    @property
    def is_idle(self) -> bool:
        """No request of it is in progress."""
        ...

    def drop(self) -> None: ...


class ConnectionTable:
    """The open connections. The longest unused come first in both lists."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self._strangers: dict[TrackedConnection, None] = {}
        self._known: dict[TrackedConnection, None] = {}

    def __len__(self) -> int:
        return len(self._strangers) + len(self._known)

    def accepts_user(self, user: int | None) -> bool:
        """Whether this user may open one more connection."""
        if not is_another_user(user):
            return True
        present = sum(is_another_user(each.user) for each in (*self._strangers, *self._known))
        return present < self._limits.other_users

    def make_room(self) -> bool:
        """Make room for one more connection; False if every one is busy."""
        while len(self._strangers) >= self._limits.strangers:
            self._drop(next(iter(self._strangers)))
        while len(self) >= self._most():
            if not self.drop_idle():
                return False
        return True

    def drop_idle(self) -> bool:
        """Close the oldest stranger, or else the longest idle connection; False if there is none."""
        oldest = next(iter(self._strangers), None)
        oldest = oldest or next((each for each in self._known if each.is_idle), None)
        if oldest is None:
            return False
        self._drop(oldest)
        return True

    def drop_strangers(self) -> None:
        for each in tuple(self._strangers):
            self._drop(each)

    def add(self, connection: TrackedConnection) -> None:
        self._strangers[connection] = None

    def authenticated(self, connection: TrackedConnection) -> None:
        """Move the connection to the known ones, or to their end."""
        if connection in self._strangers or connection in self._known:
            self.remove(connection)
            self._known[connection] = None

    def remove(self, connection: TrackedConnection) -> None:
        self._strangers.pop(connection, None)
        self._known.pop(connection, None)

    def _drop(self, connection: TrackedConnection) -> None:
        self.remove(connection)
        connection.drop()

    def _most(self) -> int:
        """Half of the descriptors are for others: processes, databases, providers."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return self._limits.total if soft < 0 else max(1, min(self._limits.total, soft // 2))


def is_another_user(user: int | None) -> bool:
    return user is not None and user not in (os.geteuid(), ROOT_UID)


NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
NLM_F_REQUEST = 1
ANY_STATE = ANY_COOKIE = 0xFFFFFFFF
STALE_ANSWERS = 4  # to earlier queries, which are skipped

_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_QUERY = struct.Struct("=BBBxI")  # family, protocol, extensions, states
_ADDRESSES = struct.Struct("!HH4s12x4s12x")
_INTERFACE_AND_COOKIE = struct.Struct("=III")
_UID = struct.Struct("=I")
_UID_AT = _HEADER.size + 4 + _ADDRESSES.size + _INTERFACE_AND_COOKIE.size + 12

SocketAddress = tuple[str, int]


class PeerUsers:
    """Asks the kernel which user opened a connection (netlink, `sock_diag`); None where it cannot.

    That takes 5 µs, however many sockets there are; reading `/proc/net/tcp` takes 11 ms for 3,000.
    """

    def __init__(self) -> None:
        self._sequence = 0
        self._kernel: socket.socket | None = None
        family = getattr(socket, "AF_NETLINK", None)
        if family is not None:
            with suppress(OSError):
                self._kernel = socket.socket(family, socket.SOCK_DGRAM, NETLINK_SOCK_DIAG)
                self._kernel.settimeout(0)

    def find(self, peer: SocketAddress, own: SocketAddress) -> int | None:
        """The user id of the process that connected from `peer`, or None."""
        if self._kernel is None:
            return None
        self._sequence = (self._sequence + 1) & 0xFFFFFFFF
        try:
            self._kernel.sendto(_query(peer, own, self._sequence), (0, 0))
            for _ in range(STALE_ANSWERS):
                answer = self._kernel.recv(4096)
                _, kind, _, sequence, _ = _HEADER.unpack_from(answer)
                if sequence == self._sequence:
                    break
            else:
                return None
        except (OSError, struct.error):
            return None
        if kind != SOCK_DIAG_BY_FAMILY or len(answer) < _UID_AT + _UID.size:
            return None  # an error: there is no such socket here
        (uid,) = _UID.unpack_from(answer, _UID_AT)
        return int(uid)

    def close(self) -> None:
        if self._kernel is not None:
            self._kernel.close()
            self._kernel = None


def _query(peer: SocketAddress, own: SocketAddress, sequence: int) -> bytes:
    ends = socket.inet_aton(peer[0]), socket.inet_aton(own[0])
    body = (
        _QUERY.pack(socket.AF_INET, socket.IPPROTO_TCP, 0, ANY_STATE)
        + _ADDRESSES.pack(peer[1], own[1], *ends)
        + _INTERFACE_AND_COOKIE.pack(0, ANY_COOKIE, ANY_COOKIE)
    )
    length = _HEADER.size + len(body)
    return _HEADER.pack(length, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, sequence, 0) + body


log = logging.getLogger(__name__)

GRACE_S = 2
HEAD_S = 10.0  # from connecting, or a request's first byte, to the end of its head
BODY_S = 60.0  # from there to its last byte
MAX_HEAD_BYTES = 64 * 1024  # bytes of a request's head
KEEP_ALIVE_S = 600  # long: a client that reuses a connection just being closed sees an error
BACKLOG = 4096  # a client beyond it waits a second before it retries
ACCEPT_BATCH = 32  # connections that are accepted before other tasks run
NO_ROOM_ERRNOS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
NO_ROOM_S = 0.1  # until a descriptor may be free
MAX_DROPPED = 32  # connections closed when descriptors run out

Application = Callable[[AsgiScope, Receive, Send], Awaitable[None]]
Phase = Literal["head", "body"]


class LoopbackProtocol(H11Protocol):
    """One connection, with a deadline for each request."""

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
        self._inner_app: Application = self.app
        self.app = self._answer
        self._phase: Phase | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self.timeout_keep_alive = int(HEAD_S)  # until it has shown a token

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._table.add(self)
        self._update_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        self._table.remove(self)
        self._cancel_deadline()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._update_deadline()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._update_deadline()

    def send_400_response(self, msg: str) -> None:
        # uvicorn would begin this answer in the middle of another one.
        if not self._may_answer():
            self.transport.close()
        elif len(self.conn.trailing_data[0]) > MAX_HEAD_BYTES:
            message = f"the head of the request is longer than {MAX_HEAD_BYTES} bytes, the limit"
            self._refuse("431 Request Header Fields Too Large", message)
        else:
            super().send_400_response(msg)

    @property
    def is_idle(self) -> bool:
        between = not self.scope or self.cycle.response_complete
        return between and self._expected_phase() is None

    def drop(self) -> None:
        self._cancel_deadline()
        self.transport.abort()

    async def _answer(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        extended = {**scope, AUTHENTICATED_KEY: self._authenticated}
        await self._inner_app(extended, receive, _ChunkSender(self, scope, send))

    def _authenticated(self) -> None:
        self.timeout_keep_alive = KEEP_ALIVE_S
        self._table.authenticated(self)

    def _update_deadline(self) -> None:
        """Start the deadline of a phase when the request enters it."""
        phase = self._expected_phase()
        if phase == self._phase:
            return
        self._cancel_deadline()
        self._phase = phase
        if phase is not None:
            limit = HEAD_S if phase == "head" else BODY_S
            self._deadline = self.loop.call_later(limit, self._time_out, limit)

    def _expected_phase(self) -> Phase | None:
        """The incomplete part of a request that has begun, or of the first one."""
        match self.conn.their_state.__name__:
            case "SEND_BODY":
                return "body"
            case "IDLE" if not self.scope or self.conn.trailing_data[0]:
                return "head"
            case _:
                return None

    def _may_answer(self) -> bool:
        return self.conn.our_state.__name__ in ("IDLE", "SEND_RESPONSE")

    def _cancel_deadline(self) -> None:
        self._phase = None
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _time_out(self, limit: float) -> None:
        part = "request" if self._phase == "body" else "head of the request"
        if self._may_answer():
            self._refuse("408 Request Timeout", f"the {part} was not complete within {limit:g} s")
        else:
            self.transport.close()

    def _refuse(self, status: str, message: str) -> None:
        self.transport.write(_refusal_bytes(status, message))
        self.transport.close()


def _refusal_bytes(status: str, message: str) -> bytes:
    body = f"go-ent: {message}".encode()
    head = (
        f"HTTP/1.1 {status}\r\ncontent-type: text/plain\r\n"
        f"connection: close\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class _ChunkSender:
    """Sends one answer; pieces in the middle of a chunked one bypass h11."""

    def __init__(self, connection: LoopbackProtocol, scope: AsgiScope, send: Send) -> None:
        self._transport = connection.transport
        self._flow = connection.flow
        self._cycle = connection.cycle
        self._scope = scope
        self._send = send
        self._in_chunks = False

    async def __call__(self, message: AsgiMessage) -> None:
        body = message.get("body")
        if self._in_chunks and isinstance(body, bytes) and body and message.get("more_body"):
            if self._flow.write_paused and not self._cycle.disconnected:
                await self._flow.drain()
            if not self._cycle.disconnected:
                self._transport.write(b"%x\r\n%b\r\n" % (len(body), body))
        else:
            self._in_chunks = message["type"] == "http.response.start" and self._has_chunks(message)
            await self._send(message)

    def _has_chunks(self, start: AsgiMessage) -> bool:
        """As h11 decides it, for answers that are certain to have a body."""
        headers = msgspec.convert(start.get("headers", ()), Headers)
        return (
            self._scope["http_version"] == "1.1"
            and self._scope["method"] in {"GET", "POST"}
            and start["status"] == HTTPStatus.OK
            and all(name.lower() != b"content-length" for name, _ in headers)
        )


class SilentConnection:
    """A connection that has sent nothing yet: a bare socket, which costs 30 µs and 1 kB.

    With its first byte it becomes a `LoopbackProtocol`, which takes five times as long to create.
    """

    is_idle = True

    def __init__(self, table: ConnectionTable, connection: socket.socket, user: int | None) -> None:
        self.user = user
        self.connection = connection
        self._table = table
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.call_later(HEAD_S, self._time_out, HEAD_S)

    def listen(self, on_data: "Callable[[SilentConnection], None]") -> None:
        """Call `on_data` when there is something to read, or the client has left."""
        self._table.add(self)
        self._loop.add_reader(self.connection, on_data, self)

    def detach(self) -> None:
        """Leave the socket to another owner."""
        self._table.remove(self)
        self._deadline.cancel()
        self._loop.remove_reader(self.connection)

    def drop(self) -> None:
        self.detach()
        self.connection.close()

    def _time_out(self, limit: float) -> None:
        message = f"the head of the request was not complete within {limit:g} s"
        with suppress(OSError):
            self.connection.send(_refusal_bytes("408 Request Timeout", message))
        self.drop()


class LoopbackServer(uvicorn.Server):
    """A uvicorn server that leaves signals to the daemon and has no ticking main loop."""

    def __init__(
        self,
        app: Callable[..., Awaitable[None]],
        limits: ConnectionLimits = ConnectionLimits(),  # noqa: B008 (frozen)
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=LoopbackProtocol,
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
                h11_max_incomplete_event_size=MAX_HEAD_BYTES,
            )
        )
        self._stopped = anyio.Event()
        self._table = ConnectionTable(limits)
        self._users = PeerUsers()
        self._listener: socket.socket | None = None

    async def serve_on(self, listener: socket.socket) -> None:
        self._listener = listener
        try:
            with anyio.CancelScope(
                shield=True
            ):  # only `stop` ends it, so that connections are closed
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

        def hand_over(silent: SilentConnection) -> None:
            silent.detach()
            tasks.start_soon(self._hand_over, silent.connection, silent.user)

        while True:
            try:
                connection, peer = await asyncio.get_running_loop().sock_accept(self._listener)
            except OSError as error:
                await self._wait_for_room(error)
                continue
            user = self._users.find(peer, own)
            if self._admits(connection, user):
                SilentConnection(self._table, connection, user).listen(hand_over)
            accepted += 1
            if accepted % ACCEPT_BATCH == 0:
                await asyncio.sleep(0)

    def _admits(self, connection: socket.socket, user: int | None) -> bool:
        if not self._table.accepts_user(user):
            log.warning("refused a connection of another user (uid %s)", user)
        elif not self._table.make_room():
            log.warning("refused a connection: all %d are busy", len(self._table))
            message = f"all {len(self._table)} connections are busy: try again"
            with suppress(OSError):
                connection.send(_refusal_bytes("503 Service Unavailable", message))
        else:
            return True
        connection.close()
        return False

    async def _hand_over(self, connection: socket.socket, user: int | None) -> None:
        def protocol() -> LoopbackProtocol:
            return LoopbackProtocol(self.config, self.server_state, self._table, user)

        loop = asyncio.get_running_loop()
        await loop.connect_accepted_socket(protocol, connection)

    async def _wait_for_room(self, error: OSError) -> None:
        log.warning("a connection could not be accepted: %s", error.strerror)
        if error.errno in NO_ROOM_ERRNOS:
            for _ in range(MAX_DROPPED):
                if not self._table.drop_idle():
                    break
        await asyncio.sleep(NO_ROOM_S)
