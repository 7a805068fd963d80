"""MCP over streamable HTTP on loopback: a door that is open while somebody holds it.

`go-ent mcp --http` connects to the daemon's socket, is told address and token, and keeps the
connection; when it goes, the door closes. Every request needs the token, a Host that is the
door's own (a name that a stranger's DNS points here is not), and no Origin but it.
"""

import hmac
import secrets
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace

import anyio
import msgspec
from anyio.abc import ByteStream
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.types import INVALID_REQUEST

from goent.core.operation import Caller
from goent.frontends.mcp.asking import Context
from goent.frontends.mcp.http_sessions import Message, Receive, Scope, Send, Sessions
from goent.frontends.mcp.server import McpFrontend
from goent.gateway.connection_table import ConnectionLimits
from goent.gateway.guest import BACKLOG, GuestServer
from goent.gateway.http import HungUp, Refused, authenticated, read_body
from goent.lines import MAX_LINE
from goent.upstream.memory import Memory

PATH = "/mcp"
MOST_SESSIONS = 32
SESSION_IDLE_S = 1800.0
ASK_S = 10.0
ASK_LIMIT = 4096
# Whoever holds the token may be another user, say a container's; each connection is a stream at most.
LIMITS = ConnectionLimits(total=256, strangers=64, other_users=32)
MOST_BODIES = 4 * MAX_LINE  # bytes of all requests that are read at a time


class HttpAsked(msgspec.Struct, frozen=True, kw_only=True):
    """The one line that the holder of the door sends; port 0 is any that is free."""

    port: int = 0


class HttpOpened(msgspec.Struct, frozen=True, kw_only=True):
    """The one line that it is sent; after it, silence until either side closes."""

    url: str = ""
    token: str = ""
    error: str = ""


async def serve_http(
    stream: ByteStream, already_read: bytes, frontend: McpFrontend, caller: Caller
) -> None:
    """Open the door, say where it is, and close it when the stream ends."""
    try:
        with anyio.fail_after(ASK_S):
            asked = await _asked(stream, already_read)
        listener = _listener(asked.port)
    except (OSError, ValueError, OverflowError, RecursionError) as error:
        refusal = HttpOpened(error=f"cannot listen on 127.0.0.1: {error}")
        await stream.send(msgspec.json.encode(refusal) + b"\n")
        return
    with listener:
        async with _open_door(listener, frontend, caller) as opened:
            await stream.send(msgspec.json.encode(opened) + b"\n")
            with suppress(anyio.EndOfStream):
                while True:
                    await stream.receive()


async def _asked(stream: ByteStream, received: bytes) -> HttpAsked:
    while b"\n" not in received:
        if len(received) > ASK_LIMIT:
            raise ValueError(f"{ASK_LIMIT} bytes and no end of the line that names the port")
        received += await stream.receive()
    return msgspec.json.decode(received.partition(b"\n")[0], type=HttpAsked)


def _listener(port: int) -> socket.socket:
    # The protocol is named because asyncio switches Nagle's algorithm off only then.
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
async def _open_door(
    listener: socket.socket, frontend: McpFrontend, caller: Caller
) -> AsyncGenerator[HttpOpened]:
    port = int(listener.getsockname()[1])
    token = secrets.token_urlsafe(32)
    callers = Callers(caller)
    sessions = StreamableHTTPSessionManager(
        frontend.server(callers),
        max_sessions=MOST_SESSIONS,
        session_idle_timeout=SESSION_IDLE_S,
        max_request_body_size=MAX_LINE,
    )
    inside = Sessions(sessions.handle_request, MOST_SESSIONS, callers.forget)
    server = GuestServer(Doorkeeper(inside, port, token), LIMITS)
    async with anyio.create_task_group() as group:
        group.start_soon(server.serve_on, listener)
        try:
            async with sessions.run():
                yield HttpOpened(url=f"http://127.0.0.1:{port}{PATH}", token=token)
        finally:
            server.stop()


@dataclass
class Callers:
    """Who a request comes from: a session, or the door as a whole where there are none."""

    anybody: Caller
    _sessions: dict[str, Caller] = field(default_factory=dict[str, Caller])

    def __call__(self, context: Context) -> Caller:
        session = context.request.headers.get("mcp-session-id") if context.request else None
        if not session:
            return self.anybody
        if session not in self._sessions:
            self._sessions[session] = replace(self.anybody, cursors={})
        return self._sessions[session]

    def forget(self, session: str) -> None:
        self._sessions.pop(session, None)


class Doorkeeper:
    """Lets in who has the token and means this door."""

    def __init__(self, inside: Sessions, port: int, token: str) -> None:
        self._inside = inside
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        self._bearer = f"Bearer {token}".encode()
        self._memory = Memory(MOST_BODIES)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(scope["path"], dict(scope["headers"]))
        if refusal is not None:
            await _refuse(send, *refusal)
            return
        authenticated(scope)
        # The SDK takes it for a fault of its own if a client leaves before the body's end.
        with suppress(HungUp):
            try:
                with self._memory.share() as share:
                    body = await read_body(receive, share, most=MAX_LINE)
            except Refused as too_long:
                await _refuse(send, too_long.status, str(too_long))
            else:
                await self._inside.handle(scope, body, _replayed(body, receive), send)

    def _refusal(self, path: str, headers: dict[bytes, bytes]) -> tuple[int, str] | None:
        host = headers.get(b"host", b"").decode("latin-1")
        if host not in self._hosts:
            return 403, f"host {host!r} is not this server's: use the url that go-ent printed"
        origin = headers.get(b"origin", b"").decode("latin-1")
        if origin and origin.removeprefix("http://") not in self._hosts:
            return 403, f"origin {origin!r} may not come in: web pages are not served"
        if not hmac.compare_digest(headers.get(b"authorization", b""), self._bearer):
            return 401, (
                "this needs the header 'Authorization: Bearer TOKEN' with the token that "
                "`go-ent mcp --http` printed; it is a new one each time that starts"
            )
        return None if path == PATH else (404, f"there is nothing at {path!r}: MCP is at {PATH}")


def _replayed(body: bytes, receive: Receive) -> Receive:
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return first.pop() if first else await receive()

    return replay


async def _refuse(send: Send, status: int, message: str) -> None:
    error = {"code": INVALID_REQUEST, "message": f"go-ent: {message}"}
    body = msgspec.json.encode({"jsonrpc": "2.0", "id": None, "error": error})
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        *([(b"www-authenticate", b"Bearer")] if status == 401 else []),  # noqa: PLR2004 (HTTP's)
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
