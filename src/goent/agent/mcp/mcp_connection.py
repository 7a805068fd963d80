"""Connects to one MCP server, over the pipes of a child process or over streamable HTTP.

Over HTTP each request is a POST. Its reply is a JSON object, or a stream of events in which the
server may send its own requests before it replies. The older era has sessions, which we end.
"""

import base64
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import SplitResult, urlsplit, urlunsplit

import anyio
from anyio import Event
from msgspec import Raw

from goent import __version__
from goent.agent.agent_ports import McpServerSpec, ToolContext
from goent.agent.mcp.mcp_messages import CANCELLED, INITIALIZE, PING, ROOTS_LIST, TOOLS_CHANGED
from goent.domain.errors import GoentError, WorkerCrashed
from goent.proc.child_process import SupervisedProcess, supervised
from goent.proc.process_table import new_mark
from goent.providers.sse import SseSplitter
from goent.rpc import json_rpc
from goent.rpc.json_rpc import (
    ABSENT,
    BadReply,
    CancelParams,
    ConnectionLost,
    MethodNotFound,
    RpcError,
    RpcMessage,
    reply_error,
)
from goent.rpc.rpc_peer import Peer

if TYPE_CHECKING:
    import httpx2


MAX_MESSAGE_BYTES = 16 * 1024 * 1024


class McpServerError(GoentError):
    """The server is unavailable: not started, gone, or sending invalid data."""


class McpSessionExpired(McpServerError):
    """The server has ended our session: a new handshake is needed."""


class McpConnection(Protocol):
    """One server. Raises `RpcError` for a refusal, `BadReply` for nonsense, else `McpServerError`."""

    @property
    def stderr_tail(self) -> str:
        """Its last standard error, as the end of a sentence; empty if there is none."""
        ...

    async def request(self, method: str, params: object, *, name: str = "") -> Raw:
        """`name` is the tool's, for routing headers. Cancelling cancels the call at the server."""
        ...

    async def notify(self, method: str, params: object) -> None: ...

    async def set_version(self, version: str, *, stateless: bool) -> None: ...

    async def wait_until_gone(self) -> McpServerError:
        """Waits until the server is gone, and returns why."""
        ...


class ServerRequestHandler:
    """Answers the requests of a server: `ping` and `roots/list`."""

    def __init__(self, roots: tuple[Path, ...]) -> None:
        self._roots = roots
        self.tools_changed = Event()

    async def request(self, method: str, params: Raw) -> object:
        if method == PING:
            return {}
        if method == ROOTS_LIST:
            return {"roots": [{"uri": path.as_uri(), "name": path.name} for path in self._roots]}
        raise MethodNotFound(method)

    async def notification(self, method: str, params: Raw) -> None:
        if method == TOOLS_CHANGED:
            self.tools_changed.set()


GRACE_S = 1.0  # between the steps of ending a server, and to wait for its exit code
MAX_STDERR_CHARS = 600  # of standard error that a warning quotes


class _McpPeer(Peer):
    cancels = CANCELLED


class StdioConnection:
    """A server on pipes, the same for both eras."""

    def __init__(self, peer: Peer, child: SupervisedProcess) -> None:
        self._peer = peer
        self._child = child
        self._ended = anyio.Event()

    async def run(self) -> None:
        await self._peer.run()
        self._ended.set()

    async def request(self, method: str, params: object, *, name: str = "") -> Raw:
        try:
            return await self._peer.request_raw(method, params)
        except ConnectionLost:
            raise await self.wait_until_gone() from None

    async def notify(self, method: str, params: object) -> None:
        with suppress(ConnectionLost):  # the next request raises why
            await self._peer.notify(method, params)

    async def set_version(self, version: str, *, stateless: bool) -> None:
        return

    async def wait_until_gone(self) -> McpServerError:
        await self._ended.wait()
        code = None
        with anyio.move_on_after(GRACE_S):
            code = await self._child.wait()
        how = "closed its output" if code is None else f"ended with exit code {code}"
        return McpServerError(f"it {how}{self.stderr_tail}")

    @property
    def stderr_tail(self) -> str:
        stderr = self._child.stderr[-MAX_STDERR_CHARS:]
        return f"; its standard error: {stderr}" if stderr else ""


@asynccontextmanager
async def stdio_connection(
    spec: McpServerSpec, context: ToolContext, handler: ServerRequestHandler
) -> AsyncGenerator[StdioConnection]:
    """Starts a server; leaving ends it, with everything it started."""
    command = [spec.command, *spec.arguments]
    env = {**context.environ, **spec.environ}
    mark = new_mark(context.owner)
    try:
        async with supervised(command, cwd=context.cwd, env=env, mark=mark, grace=GRACE_S) as child:
            peer = _McpPeer(child.stdout, child.stdin, handler, max_line=MAX_MESSAGE_BYTES)
            connection = StdioConnection(peer, child)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(connection.run)
                yield connection
                await peer.aclose()
    except WorkerCrashed as error:
        raise McpServerError(f"it {error}") from None


LOOPBACK = ("localhost", "127.0.0.1", "::1")
HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class RequestHeaders:
    """The client's own headers, and those of the connection: protocol version and session."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._client_headers = {name.lower(): value for name, value in given.items()}
        self.session = ""
        self.version = ""
        self.stateless = False

    def reset(self) -> None:
        self.session = ""
        self.version = ""

    def for_request(self, method: str, name: str = "") -> dict[str, str]:
        """For one request. The newer era repeats method and tool name, for routing."""
        headers = {"user-agent": f"go-ent/{__version__}", **self._client_headers}
        if self.version:
            headers["mcp-protocol-version"] = self.version
        if self.session:
            headers["mcp-session-id"] = self.session
        if self.stateless and method:
            headers["mcp-method"] = method
            if name:
                headers["mcp-name"] = _encoded_name(name)
        return headers


def check_sendable(spec: McpServerSpec) -> None:
    """Raises `McpServerError` for an unusable address or header, without quoting secrets."""
    parts = _parts(spec.url)
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise McpServerError(
            f"{public_address(spec.url)!r} is not an address: use http://… or https://…"
        )
    for name, value in spec.headers.items():
        header_value(value if HEADER_NAME.fullmatch(name) else "\n", f"its header {name!r}")


def header_value(value: str, what: str) -> str:
    """The value, if a header can hold it. Raises `McpServerError`, which does not quote it."""
    if not (value.isascii() and value.isprintable()):
        raise McpServerError(f"{what} has characters that a header cannot hold")
    return value


def public_address(url: str) -> str:
    """The address without its possible secrets: user, password, query."""
    parts = _parts(url)
    if parts is None:
        return url.partition("?")[0].rpartition("@")[2]
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def is_loopback(url: str) -> bool:
    parts = _parts(url)
    return parts is not None and parts.hostname in LOOPBACK


def _parts(url: str) -> SplitResult | None:
    try:
        return urlsplit(url)
    except ValueError:  # such as half an IPv6 address
        return None


def _encoded_name(name: str) -> str:
    if name.isascii() and name.isprintable() and name == name.strip() and "=?" not in name:
        return name
    return f"=?base64?{base64.b64encode(name.encode()).decode()}?="


GOODBYE_S = 2.0  # for the last messages to a server
CONNECT_S = 10.0
QUOTED_CHARS = 300  # of an unexpected page
REOPEN_S = 5.0  # before an ended stream of notifications is opened again

JSON_TYPE = "application/json"
EVENT_STREAM_TYPE = "text/event-stream"
NOT_FOUND = 404
AUTH_STATUSES = (401, 403)


class HttpConnection:
    """A server at a URL, for as long as its HTTP client is open."""

    stderr_tail = ""

    def __init__(
        self, client: "httpx2.AsyncClient", spec: McpServerSpec, handler: ServerRequestHandler
    ) -> None:
        self._client = client
        self._url = spec.url
        self._handler = handler
        self._headers = RequestHeaders(spec.headers)
        self._numbers = count(1)

    async def request(self, method: str, params: object, *, name: str = "") -> Raw:
        number = next(self._numbers)
        if method == INITIALIZE:
            self._headers.reset()
        line = json_rpc.request_line(number, method, params)
        try:
            return await self._request(number, line, method, name)
        except anyio.get_cancelled_exc_class():
            # In the newer era hanging up cancels the request.
            if method != INITIALIZE and not self._headers.stateless:
                notice = CancelParams(request_id=Raw(b"%d" % number))
                with anyio.move_on_after(GOODBYE_S, shield=True), suppress(McpServerError):
                    async with self._post(json_rpc.notification_line(CANCELLED, notice), ""):
                        pass
            raise

    async def notify(self, method: str, params: object) -> None:
        async with self._post(json_rpc.notification_line(method, params), method) as response:
            if not response.is_success:
                raise self._error_for_response(response, await _read_body(response))

    async def set_version(self, version: str, *, stateless: bool) -> None:
        self._headers.version = header_value(version, "its protocol version")
        self._headers.stateless = stateless

    async def wait_until_gone(self) -> McpServerError:
        """Never returns, as each request connects anew; listens for notifications meanwhile."""
        if self._headers.session:
            with suppress(McpServerError, BadReply):
                await self._listen()
        await anyio.sleep_forever()
        raise AssertionError

    async def end_session(self) -> None:
        """Ends the session, if there is one; failures do not matter."""
        if self._headers.session:
            with anyio.move_on_after(GOODBYE_S, shield=True), suppress(McpServerError):
                async with self._send("DELETE", b"", self._headers.for_request("")):
                    pass

    async def _request(self, number: int, body: bytes, method: str, name: str) -> Raw:
        async with self._post(body, method, name) as response:
            if response.is_success and (session := response.headers.get("mcp-session-id")):
                self._headers.session = header_value(session, "its session id")
            kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
            if response.is_success and kind == EVENT_STREAM_TYPE:
                return await self._answer_among_events(response, number)
            page = await _read_body(response)
            reply = _parse_message(page) if kind == JSON_TYPE else None
            if reply is None or (reply.error is ABSENT and not response.is_success):
                raise self._error_for_response(response, page)
            return _result(reply)

    async def _answer_among_events(self, response: "httpx2.Response", number: int) -> Raw:
        async with aclosing(_messages(response)) as messages:
            async for message in messages:
                if message.method is not None:
                    await self._handle_request(message)
                elif bytes(message.id) == b"%d" % number:
                    return _result(message)
        raise McpServerError(f"{public_address(self._url)} hung up before it replied")

    async def _listen(self) -> None:
        while True:
            headers = {**self._headers.for_request(""), "accept": EVENT_STREAM_TYPE}
            async with self._send("GET", b"", headers) as response:
                if not response.is_success:
                    return
                async with aclosing(_messages(response)) as messages:
                    async for message in messages:
                        if message.method is not None:
                            await self._handle_request(message)
            await anyio.sleep(REOPEN_S)

    async def _handle_request(self, message: RpcMessage) -> None:
        method = message.method or ""
        if message.id is ABSENT:
            await self._handler.notification(method, message.params)
            return
        try:
            result = await self._handler.request(method, message.params)
            reply = json_rpc.result_line(message.id, result)
        except RpcError as refusal:
            reply = json_rpc.error_line(message.id, refusal)
        with suppress(McpServerError):
            async with self._post(reply, ""):
                pass

    @asynccontextmanager
    async def _post(
        self, body: bytes, method: str, name: str = ""
    ) -> AsyncGenerator["httpx2.Response"]:
        headers = {
            "content-type": JSON_TYPE,
            "accept": f"{JSON_TYPE}, {EVENT_STREAM_TYPE}",
            **self._headers.for_request(method, name),
        }
        async with self._send("POST", body, headers) as response:
            if response.status_code == NOT_FOUND and self._headers.session:
                raise McpSessionExpired(f"{public_address(self._url)} has ended the session")
            yield response

    @asynccontextmanager
    async def _send(
        self, verb: str, body: bytes, headers: dict[str, str]
    ) -> AsyncGenerator["httpx2.Response"]:
        import httpx2  # noqa: PLC0415 (4 MB, and most sessions name no address)

        try:
            async with self._client.stream(verb, self._url, content=body, headers=headers) as reply:
                yield reply
        except (httpx2.TransportError, httpx2.InvalidURL, httpx2.DecodingError) as error:
            why = str(error) or type(error).__name__
            raise McpServerError(f"{public_address(self._url)} cannot be reached: {why}") from None

    def _error_for_response(self, response: "httpx2.Response", page: bytes) -> McpServerError:
        detail = page[: 4 * QUOTED_CHARS].decode(errors="replace").strip()[:QUOTED_CHARS]
        if to := response.headers.get("location"):
            detail = f"a redirect to {public_address(to)}, which is not followed: use that address"
        elif response.status_code in AUTH_STATUSES:
            detail = f"authentication failed: check the headers given for it. {detail}"
        status = f"HTTP {response.status_code}" + (f", {detail}" if detail else "")
        return McpServerError(f"{public_address(self._url)} sent no MCP reply: {status}")


@asynccontextmanager
async def http_connection(
    spec: McpServerSpec, handler: ServerRequestHandler
) -> AsyncGenerator[HttpConnection]:
    """A server at its address; nothing is sent yet."""
    import httpx2  # noqa: PLC0415 (4 MB, and most sessions name no address)

    check_sendable(spec)
    timeout = httpx2.Timeout(connect=CONNECT_S, read=None, write=CONNECT_S, pool=CONNECT_S)
    async with httpx2.AsyncClient(timeout=timeout, trust_env=not is_loopback(spec.url)) as client:
        connection = HttpConnection(client, spec, handler)
        try:
            yield connection
        finally:
            await connection.end_session()


async def _messages(response: "httpx2.Response") -> AsyncGenerator[RpcMessage]:
    splitter = SseSplitter(limit=MAX_MESSAGE_BYTES)
    async for piece in response.aiter_bytes():
        for event in splitter.feed(piece):
            message = _parse_message(event.data)
            if message is not None:
                yield message
        if splitter.dropped:
            raise BadReply(f"an event of more than {MAX_MESSAGE_BYTES} bytes is too long")


async def _read_body(response: "httpx2.Response") -> bytes:
    body = bytearray()
    async for piece in response.aiter_bytes():
        body += piece
        if len(body) > MAX_MESSAGE_BYTES:
            raise BadReply(f"a reply of more than {MAX_MESSAGE_BYTES} bytes is too long")
    return bytes(body)


def _parse_message(data: bytes) -> RpcMessage | None:
    try:
        return json_rpc.read_message(data)
    except json_rpc.InvalidMessage:
        return None


def _result(reply: RpcMessage) -> Raw:
    if reply.error is ABSENT:
        return reply.result
    raise reply_error(reply.error)
