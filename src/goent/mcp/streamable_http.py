"""Serves MCP over streamable HTTP on loopback, for as long as the requesting client stays connected.

`go-ent mcp --http` connects to the daemon's socket, receives address and token, and keeps the
connection; when it closes, so does the endpoint. Every request needs the token, the endpoint's own
Host (against DNS rebinding), and no foreign Origin.

Few clients delete their session before they leave, and a new one must not wait until old ones time
out: the idlest session is ended. Its client gets 404 and opens another, as the protocol says.
"""

import hmac
import secrets
import socket
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, MutableMapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
import msgspec
from anyio.abc import ByteStream
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.types import INVALID_REQUEST

from goent.gateway.asgi import ClientHungUp, RequestRefused, mark_authenticated, read_body
from goent.gateway.loopback_server import BACKLOG, ConnectionLimits, LoopbackServer
from goent.mcp.elicitation import McpContext
from goent.mcp.server import McpFrontend
from goent.operations.operation_table import Caller
from goent.providers.connections import BodyMemory
from goent.system.line_splitter import MAX_LINE

SESSION_HEADER = b"mcp-session-id"
NOT_FOUND = 404

AsgiScope = MutableMapping[str, Any]
AsgiMessage = MutableMapping[str, Any]
AsgiReceive = Callable[[], Awaitable[AsgiMessage]]
AsgiSend = Callable[[AsgiMessage], Awaitable[None]]
AsgiApp = Callable[[AsgiScope, AsgiReceive, AsgiSend], Awaitable[None]]


@dataclass
class HttpSession:
    """A client's session."""

    requests: Counter[str] = field(default_factory=Counter[str])  # open ones, by HTTP method
    used_at: float = field(default_factory=anyio.current_time)

    @property
    def idle_rank(self) -> tuple[bool, float]:
        """Sessions whose client has left come before those whose client still listens."""
        return self.requests["GET"] > 0, self.used_at

    @property
    def is_busy(self) -> bool:
        return self.requests["POST"] > 0


class HttpSessions:
    """Passes requests on, and ends the idlest session to make room for a new one."""

    def __init__(self, inside: AsgiApp, most: int, forget: Callable[[str], None]) -> None:
        self._app = inside
        self._most = most
        self._forget = forget
        self._open: dict[str, HttpSession] = {}
        self._opening = 0
        self._room = anyio.Lock()

    async def handle(
        self, scope: AsgiScope, body: bytes, receive: AsgiReceive, send: AsgiSend
    ) -> None:
        name = dict(scope["headers"]).get(SESSION_HEADER, b"").decode("latin-1")
        if name:
            await self._forward_in_session(name, scope, receive, send)
        elif b'"initialize"' in body:
            await self._forward_initialize(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _forward_in_session(
        self, name: str, scope: AsgiScope, receive: AsgiReceive, send: AsgiSend
    ) -> None:
        async def watch(message: AsgiMessage) -> None:
            if message.get("status") == NOT_FOUND:
                self._drop(name)
            await send(message)

        with self._in_use(name, scope["method"]):
            await self._app(scope, receive, watch)
        if scope["method"] == "DELETE":
            self._drop(name)

    async def _forward_initialize(
        self, scope: AsgiScope, receive: AsgiReceive, send: AsgiSend
    ) -> None:
        async with self._room:
            if len(self._open) + self._opening >= self._most:
                await self._end_idlest(scope)
            self._opening += 1
        answered = False

        async def watch(message: AsgiMessage) -> None:
            nonlocal answered
            if not answered:
                answered = True
                self._opening -= 1
                name = dict(message["headers"]).get(SESSION_HEADER, b"").decode("latin-1")
                if name:
                    self._open[name] = HttpSession()
            await send(message)

        try:
            await self._app(scope, receive, watch)
        finally:
            if not answered:
                self._opening -= 1

    async def _end_idlest(self, scope: AsgiScope) -> None:
        """Ends none if all are busy; then the SDK refuses the new session."""
        idle = {name: session for name, session in self._open.items() if not session.is_busy}
        if not idle:
            return
        name = min(idle, key=lambda each: idle[each].idle_rank)
        self._drop(name)
        delete = {
            **scope,
            "method": "DELETE",
            "headers": [(SESSION_HEADER, name.encode("latin-1"))],
        }
        await self._app(delete, _empty_body, _discard)

    @contextmanager
    def _in_use(self, name: str, method: str) -> Generator[None]:
        session = self._open.get(name, HttpSession())
        session.requests[method] += 1
        session.used_at = anyio.current_time()
        try:
            yield
        finally:
            session.requests[method] -= 1
            session.used_at = anyio.current_time()

    def _drop(self, name: str) -> None:
        self._open.pop(name, None)
        self._forget(name)


async def _empty_body() -> AsgiMessage:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _discard(_: AsgiMessage) -> None: ...


MCP_PATH = "/mcp"
MAX_SESSIONS = 32
SESSION_IDLE_S = 1800.0
OPEN_REQUEST_S = 10.0
MAX_OPEN_REQUEST_BYTES = 4096
# A client with the token may run as another user, such as a container's.
CONNECTION_LIMITS = ConnectionLimits(total=256, strangers=64, other_users=32)
MAX_BODY_BYTES = 4 * MAX_LINE  # of all requests that are read at a time


class HttpOpenRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The one line that the requesting client sends; port 0 is any free one."""

    port: int = 0


class HttpOpenReply(msgspec.Struct, frozen=True, kw_only=True):
    """The one line that it receives; nothing follows until either side closes."""

    url: str = ""
    token: str = ""
    error: str = ""


async def serve_http(
    stream: ByteStream, already_read: bytes, frontend: McpFrontend, caller: Caller
) -> None:
    """Opens an endpoint, replies with its address, and closes it when the stream ends."""
    try:
        with anyio.fail_after(OPEN_REQUEST_S):
            request = await _read_open_request(stream, already_read)
        listener = _listener(request.port)
    except (OSError, ValueError, OverflowError, RecursionError) as error:
        refusal = HttpOpenReply(error=f"cannot listen on 127.0.0.1: {error}")
        await stream.send(msgspec.json.encode(refusal) + b"\n")
        return
    with listener:
        async with _open_endpoint(listener, frontend, caller) as opened:
            await stream.send(msgspec.json.encode(opened) + b"\n")
            with suppress(anyio.EndOfStream):
                while True:
                    await stream.receive()


async def _read_open_request(stream: ByteStream, received: bytes) -> HttpOpenRequest:
    while b"\n" not in received:
        if len(received) > MAX_OPEN_REQUEST_BYTES:
            raise ValueError(f"the request has more than {MAX_OPEN_REQUEST_BYTES} bytes")
        received += await stream.receive()
    return msgspec.json.decode(received.partition(b"\n")[0], type=HttpOpenRequest)


def _listener(port: int) -> socket.socket:
    # The protocol is named because asyncio disables Nagle's algorithm only then.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


@asynccontextmanager
async def _open_endpoint(
    listener: socket.socket, frontend: McpFrontend, caller: Caller
) -> AsyncGenerator[HttpOpenReply]:
    port = int(listener.getsockname()[1])
    token = secrets.token_urlsafe(32)
    callers = Callers(caller)
    sessions = StreamableHTTPSessionManager(
        frontend.server(callers),
        max_sessions=MAX_SESSIONS,
        session_idle_timeout=SESSION_IDLE_S,
        max_request_body_size=MAX_LINE,
    )
    inside = HttpSessions(sessions.handle_request, MAX_SESSIONS, callers.forget)
    server = LoopbackServer(TokenGate(inside, port, token), CONNECTION_LIMITS)
    async with anyio.create_task_group() as group:
        group.start_soon(server.serve_on, listener)
        try:
            async with sessions.run():
                yield HttpOpenReply(url=f"http://127.0.0.1:{port}{MCP_PATH}", token=token)
        finally:
            server.stop()


@dataclass
class Callers:
    """The callers of requests: one per session, and one for requests without a session."""

    anybody: Caller
    _sessions: dict[str, Caller] = field(default_factory=dict[str, Caller])

    def __call__(self, context: McpContext) -> Caller:
        session = context.request.headers.get("mcp-session-id") if context.request else None
        if not session:
            return self.anybody
        if session not in self._sessions:
            self._sessions[session] = replace(self.anybody, cursors={})
        return self._sessions[session]

    def forget(self, session: str) -> None:
        self._sessions.pop(session, None)


class TokenGate:
    """Lets in requests that have the token and name this endpoint."""

    def __init__(self, inside: HttpSessions, port: int, token: str) -> None:
        self._app = inside
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        self._bearer = f"Bearer {token}".encode()
        self._memory = BodyMemory(MAX_BODY_BYTES)

    async def __call__(self, scope: AsgiScope, receive: AsgiReceive, send: AsgiSend) -> None:
        refusal = self._refusal(scope["path"], dict(scope["headers"]))
        if refusal is not None:
            await _refuse(send, *refusal)
            return
        mark_authenticated(scope)
        # The SDK reports an internal error if a client hangs up before the end of the body.
        with suppress(ClientHungUp):
            try:
                with self._memory.share() as share:
                    body = await read_body(receive, share, most=MAX_LINE)
            except RequestRefused as too_long:
                await _refuse(send, too_long.status, str(too_long))
            else:
                await self._app.handle(scope, body, _replay_body(body, receive), send)

    def _refusal(self, path: str, headers: dict[bytes, bytes]) -> tuple[int, str] | None:
        host = headers.get(b"host", b"").decode("latin-1")
        if host not in self._hosts:
            return 403, f"host {host!r} is not this server's: use the url that go-ent printed"
        origin = headers.get(b"origin", b"").decode("latin-1")
        if origin and origin.removeprefix("http://") not in self._hosts:
            return 403, f"origin {origin!r} is refused: web pages are not served"
        if not hmac.compare_digest(headers.get(b"authorization", b""), self._bearer):
            return 401, (
                "send the header 'Authorization: Bearer TOKEN' with the token that "
                "`go-ent mcp --http` printed; each start has a new one"
            )
        return None if path == MCP_PATH else (404, f"nothing is at {path!r}: MCP is at {MCP_PATH}")


def _replay_body(body: bytes, receive: AsgiReceive) -> AsgiReceive:
    first: list[AsgiMessage] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> AsgiMessage:
        return first.pop() if first else await receive()

    return replay


async def _refuse(send: AsgiSend, status: int, message: str) -> None:
    error = {"code": INVALID_REQUEST, "message": f"go-ent: {message}"}
    body = msgspec.json.encode({"jsonrpc": "2.0", "id": None, "error": error})
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        *([(b"www-authenticate", b"Bearer")] if status == 401 else []),  # noqa: PLR2004 (HTTP's)
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
