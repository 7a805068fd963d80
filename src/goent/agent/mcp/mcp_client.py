"""Runs the MCP servers of a session and offers their tools as tools of the agent.

Both vendors take letters, digits, `_` and `-`, at most 64 of them; servers take what they like.
"""

import logging
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import chain, zip_longest
from typing import TypeVar
from zlib import crc32

import anyio
import msgspec
from msgspec import Raw

from goent.agent.agent_ports import (
    AgentTool,
    McpServerSpec,
    OnToolProgress,
    PermissionNeed,
    ToolContext,
    ToolIntent,
    ToolMistake,
    ToolOutcome,
)
from goent.agent.mcp.mcp_connection import (
    McpConnection,
    McpServerError,
    McpSessionExpired,
    ServerRequestHandler,
    http_connection,
    stdio_connection,
)
from goent.agent.mcp.mcp_messages import (
    INITIALIZE,
    INITIALIZED,
    STATELESS_VERSION,
    TOOLS_CALL,
    TOOLS_LIST,
    CallParams,
    ListToolsParams,
    ListToolsResult,
    McpInitializeParams,
    McpInitializeResult,
    McpToolOffer,
    RequestMeta,
    outcome_of,
    read_offers,
    shorten_result,
)
from goent.domain.types import Value
from goent.rpc.json_rpc import METHOD_NOT_FOUND, BadReply, RpcError

MAX_NAME_CHARS = 64
MAX_SERVER_CHARS = 24  # characters that a long name of a server keeps
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")


class ToolNames:
    """Gives each tool a name of its own, and the same one whenever it is asked again."""

    def __init__(self) -> None:
        self._given: dict[tuple[int, str], str] = {}
        self._taken: set[str] = set()

    def name(self, place: int, server: str, tool: str) -> str:
        """`place` tells two servers of one name apart."""
        key = (place, tool)
        if key not in self._given:
            self._given[key] = self._new(server, tool, f"{place}\0{server}\0{tool}")
            self._taken.add(self._given[key])
        return self._given[key]

    def _new(self, server: str, tool: str, whole: str) -> str:
        name = f"mcp__{_safe_name(server)}__{_safe_name(tool)}"
        if len(name) <= MAX_NAME_CHARS and name not in self._taken:
            return name
        salt = 0
        while True:
            mark = f"_{crc32(whole.encode(errors='replace'), salt):08x}"
            front = f"mcp__{_safe_name(server)[:MAX_SERVER_CHARS]}__{_safe_name(tool)}"
            name = front[: MAX_NAME_CHARS - len(mark)] + mark
            if name not in self._taken:
                return name
            salt += 1


def _safe_name(word: str) -> str:
    return _UNSAFE.sub("_", word).strip("_") or "x"


MAX_TOOLS = 120  # of all servers together: OpenAI takes 128, and the agent has tools of its own
MAX_PAGES = 100
MAX_COMPLAINTS = 3
RELIST_S = 1.0  # between one change of the list and the next look at it
EXPECTED_ERRORS = (McpServerError, RpcError, BadReply, TimeoutError)

T = TypeVar("T")

_log = logging.getLogger(__name__)


class McpTimeouts(Value, frozen=True, kw_only=True):
    """Seconds: a session waits for its servers, a server may take to start, a call may take."""

    wait_s: float = 10.0
    start_s: float = 60.0
    call_s: float = 1800.0


class McpServer:
    """Never raises: what goes wrong is a warning, and the answer to whoever calls a tool."""

    def __init__(self, spec: McpServerSpec, desk: ToolContext, patience: McpTimeouts) -> None:
        self.name = spec.name
        self.offers: tuple[McpToolOffer, ...] = ()
        self.settled = anyio.Event()  # it can be used, or it never will
        self._spec = spec
        self._desk = desk
        self._patience = patience
        self._callee = ServerRequestHandler(desk.roots)
        self._connection: McpConnection | None = None
        self._envelope: RequestMeta | None = None
        self._greeting = anyio.Lock()
        self._unavailable_reason = "it has not started yet"
        self._warnings: dict[str, None] = {}

    @property
    def warnings(self) -> tuple[str, ...]:
        said = list(self._warnings)
        if not self.settled.is_set():
            said.append(f"it is still starting, and has {self._patience.start_s:g} s for it")
        return tuple(f"MCP server {self.name!r}: {warning}" for warning in said)

    async def run(self) -> None:
        """Start it, and attend to it until it is gone or we are cancelled."""
        try:
            async with self._opened() as line:
                await self._serve(line)
        except McpServerError as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001 (a server must not cost the session)
            _log.error("the MCP server %r", self.name, exc_info=error)
            self._fail(McpServerError(f"go-ent failed at it: {type(error).__name__}"))

    async def call(self, tool: str, arguments: Raw) -> Raw:
        """The result as it came. Raises what a `Line` raises, and `TimeoutError`."""
        line = self._connection
        if line is None:
            raise McpServerError(self._unavailable_reason)
        params = CallParams(name=tool, arguments=arguments, meta=self._envelope)
        with anyio.fail_after(self._patience.call_s):
            try:
                return await line.request(TOOLS_CALL, params, name=tool)
            except McpSessionExpired:
                async with self._greeting:
                    await self._handshake(line)
                return await line.request(TOOLS_CALL, params, name=tool)

    def _opened(self) -> AbstractAsyncContextManager[McpConnection]:
        if self._spec.url:
            return http_connection(self._spec, self._callee)
        return stdio_connection(self._spec, self._desk, self._callee)

    async def _serve(self, line: McpConnection) -> None:
        try:
            with anyio.fail_after(self._patience.start_s):
                await self._connect(line)
        except TimeoutError:
            late = f"it did not answer within {self._patience.start_s:g} s{line.stderr_tail}"
            return self._fail(McpServerError(late))
        except EXPECTED_ERRORS as error:
            return self._fail(error)
        self._connection = line
        self.settled.set()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch_tool_changes, line)
            self._fail(await line.wait_until_gone())
            tasks.cancel_scope.cancel()
        return None

    async def _connect(self, line: McpConnection) -> None:
        """Whoever refuses a handshake may be of the newer era, which has none."""
        try:
            await self._handshake(line)
        except RpcError as refusal:
            self._envelope = RequestMeta()
            await line.set_version(STATELESS_VERSION, stateless=True)
            try:
                await self._list(line)
            except EXPECTED_ERRORS:
                raise refusal from None
        else:
            await self._list(line)

    async def _handshake(self, line: McpConnection) -> None:
        raw = await line.request(INITIALIZE, McpInitializeParams())
        result = _decoded(raw, McpInitializeResult, INITIALIZE)
        await line.set_version(result.protocol_version, stateless=False)
        await line.notify(INITIALIZED, None)

    async def _list(self, line: McpConnection) -> None:
        found: list[Raw] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            params = ListToolsParams(cursor=cursor, meta=self._envelope)
            try:
                raw = await line.request(TOOLS_LIST, params)
            except RpcError as refusal:
                if refusal.code != METHOD_NOT_FOUND or self._envelope:
                    raise
                break  # it has no tools
            page = _decoded(raw, ListToolsResult, TOOLS_LIST)
            found += page.tools
            cursor = page.next_cursor
            if not cursor or len(found) > MAX_TOOLS:
                break
        if len(found) > MAX_TOOLS:
            self._warn(f"it has more than {MAX_TOOLS} tools: the first {MAX_TOOLS} are used")
        self.offers, wrong = read_offers(found[:MAX_TOOLS])
        for complaint in wrong[:MAX_COMPLAINTS]:
            self._warn(complaint)
        if len(wrong) > MAX_COMPLAINTS:
            self._warn(f"{len(wrong)} of its tools cannot be used")

    async def _watch_tool_changes(self, line: McpConnection) -> None:
        while True:
            await self._callee.tools_changed.wait()
            self._callee.tools_changed = anyio.Event()
            try:
                with anyio.fail_after(self._patience.start_s):
                    await self._list(line)
            except EXPECTED_ERRORS as error:
                self._warn(f"its tools have changed and it does not say how: {error}")
            await anyio.sleep(RELIST_S)

    def _fail(self, error: Exception) -> None:
        self._connection = None
        self._unavailable_reason = str(error)
        self._warn(self._unavailable_reason)
        self.settled.set()

    def _warn(self, warning: str) -> None:
        self._warnings[warning] = None


def _decoded(raw: Raw, kind: type[T], method: str) -> T:
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadReply(f"its reply to {method!r} makes no sense: {error}") from error


class McpTool:
    """What it does, only its server knows: so it always needs a permission."""

    def __init__(self, server: McpServer, offer: McpToolOffer, name: str) -> None:
        self.name = name
        self._server = server
        self._offer = offer

    @property
    def description(self) -> str:
        return self._offer.description

    @property
    def schema(self) -> Raw:
        return self._offer.schema

    async def prepare(self, arguments: bytes) -> "McpCall":
        try:
            msgspec.json.decode(arguments or b"{}", type=dict[str, Raw])
        except (msgspec.DecodeError, RecursionError) as error:
            raise ToolMistake(
                f"the arguments of {self.name!r} must be a JSON object: {error}"
            ) from error
        server, offer = self._server, self._offer
        intent = ToolIntent(
            kind="other",
            title=f"{server.name}: {offer.title}",
            need=PermissionNeed(permission="mcp", patterns=(self.name,), always=(self.name,)),
            runs_alone=not offer.read_only,
        )
        return McpCall(server, offer.tool, Raw(arguments or b"{}"), intent)


class McpCall:
    """One call. Cancelled, the server is told."""

    def __init__(self, server: McpServer, tool: str, arguments: Raw, intent: ToolIntent) -> None:
        self.intent = intent
        self._server = server
        self._tool = tool
        self._arguments = arguments

    async def run(self, report: OnToolProgress) -> ToolOutcome:
        try:
            return outcome_of(await self._server.call(self._tool, self._arguments))
        except RpcError as refusal:
            return self._failed(f"refused the call: {refusal}")
        except TimeoutError:
            return self._failed("did not answer in time: the call was given up")
        except McpServerError as trouble:
            return self._failed(f"cannot be used: {trouble}")
        except (msgspec.DecodeError, RecursionError, BadReply) as error:
            return self._failed(f"gave an answer that makes no sense: {error}")

    def _failed(self, why: str) -> ToolOutcome:
        return ToolOutcome(
            text=shorten_result(f"The MCP server {self._server.name!r} {why}"), failed=True
        )


class McpServers:
    """The servers of one session. Ask again for each turn: servers come late, change, and die."""

    def __init__(self, servers: Sequence[McpServer]) -> None:
        self._servers = servers
        self._names = ToolNames()

    @property
    def tools(self) -> Mapping[str, AgentTool]:
        """As many as a model takes; each server gives one in turn, so that none is crowded out."""
        columns = (
            [(place, server, offer) for offer in server.offers]
            for place, server in enumerate(self._servers)
        )
        in_turn = [offered for offered in chain.from_iterable(zip_longest(*columns)) if offered]
        tools: dict[str, AgentTool] = {}
        for place, server, offer in in_turn[:MAX_TOOLS]:
            name = self._names.name(place, server.name, offer.tool)
            tools[name] = McpTool(server, offer, name)
        return tools

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the user should know of the servers, as it stands now."""
        said = tuple(warning for server in self._servers for warning in server.warnings)
        offered = sum(len(server.offers) for server in self._servers)
        if offered > MAX_TOOLS:
            said += (f"MCP servers: of their {offered} tools {MAX_TOOLS} are used, some of each",)
        return said


@asynccontextmanager
async def open_mcp_servers(
    servers: Sequence[McpServerSpec], desk: ToolContext, *, patience: McpTimeouts | None = None
) -> AsyncGenerator[McpServers]:
    """Start them all at once. They are gone when the context closes, with all that they started.

    A server that is slow to start is not waited for any longer than the others may want: its tools
    come when it does.
    """
    patience = patience or McpTimeouts()
    opened = [McpServer(spec, desk, patience) for spec in servers]
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        for server in opened:
            tasks.start_soon(server.run)
        with anyio.move_on_after(patience.wait_s):
            for server in opened:
                await server.settled.wait()
        try:
            yield McpServers(opened)
        except Exception as error:  # noqa: BLE001 (raised below, as itself and not in a group)
            failure = error
        tasks.cancel_scope.cancel()
    if failure:
        raise failure
