"""Runs the MCP servers of a session and offers their tools as tools of the agent."""

import logging
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import chain, count, zip_longest
from typing import TypeVar
from zlib import crc32

import anyio
import msgspec
from msgspec import UNSET, Raw, UnsetType

from goent.agent.agent_ports import (
    AgentTool,
    McpServerSpec,
    OnToolProgress,
    PermissionNeed,
    ToolContext,
    ToolIntent,
    ToolInvocation,
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
    INITIALIZE_PARAMS,
    INITIALIZED,
    REQUEST_META,
    STATELESS_VERSION,
    TOOLS_CALL,
    TOOLS_LIST,
    CallParams,
    ListToolsParams,
    ListToolsResult,
    McpInitializeResult,
    McpToolOffer,
    outcome_of,
    read_offers,
    shorten_result,
)
from goent.domain.types import Value
from goent.rpc.json_rpc import METHOD_NOT_FOUND, BadReply, RpcError

MAX_NAME_CHARS = 64
MAX_SERVER_CHARS = 24  # that a long server name keeps
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")


class ToolNames:
    """Gives each tool a unique, stable name that vendors accept: 64 of letters, digits, `_`, `-`."""

    def __init__(self) -> None:
        self._given: dict[tuple[int, str], str] = {}

    def name(self, place: int, server: str, tool: str) -> str:
        """`place` distinguishes servers of the same name."""
        key = (place, tool)
        if key not in self._given:
            self._given[key] = self._new_name(server, tool, f"{place}\0{server}\0{tool}")
        return self._given[key]

    def _new_name(self, server: str, tool: str, whole: str) -> str:
        taken = set(self._given.values())
        name = f"mcp__{_safe_name(server)}__{_safe_name(tool)}"
        if len(name) <= MAX_NAME_CHARS and name not in taken:
            return name
        front = f"mcp__{_safe_name(server)[:MAX_SERVER_CHARS]}__{_safe_name(tool)}"
        marks = (f"_{crc32(whole.encode(errors='replace'), salt):08x}" for salt in count())
        names = (front[: MAX_NAME_CHARS - len(mark)] + mark for mark in marks)
        return next(name for name in names if name not in taken)


def _safe_name(word: str) -> str:
    return _UNSAFE.sub("_", word).strip("_") or "x"


MAX_TOOLS = 120  # of all servers together: OpenAI takes 128, and the agent has tools of its own
MAX_PAGES = 100
MAX_PROBLEMS = 3  # with tools, that are named one by one
RELIST_S = 1.0  # between one list of changed tools and the next
EXPECTED_ERRORS = (McpServerError, RpcError, BadReply, TimeoutError)

T = TypeVar("T")

_log = logging.getLogger(__name__)


class McpTimeouts(Value, frozen=True, kw_only=True):
    """How long a session waits for its servers, and how long a start and a call may take."""

    wait_s: float = 10.0
    start_s: float = 60.0
    call_s: float = 1800.0


class McpServer:
    """One server of a session. Its failures are warnings, and failed tool calls."""

    def __init__(self, spec: McpServerSpec, context: ToolContext, timeouts: McpTimeouts) -> None:
        self.name = spec.name
        self.offers: tuple[McpToolOffer, ...] = ()
        self.settled = anyio.Event()  # it is usable, or has failed for good
        self._spec = spec
        self._context = context
        self._timeouts = timeouts
        self._handler = ServerRequestHandler(context.roots)
        self._connection: McpConnection | None = None
        self._meta: Raw | UnsetType = UNSET
        self._handshaking = anyio.Lock()
        self._unavailable_reason = "it has not started yet"
        self._warnings: dict[str, None] = {}

    @property
    def warnings(self) -> tuple[str, ...]:
        warnings = list(self._warnings)
        if not self.settled.is_set():
            warnings.append(f"it is still starting, at most {self._timeouts.start_s:g} s")
        return tuple(f"MCP server {self.name!r}: {warning}" for warning in warnings)

    async def run(self) -> None:
        """Runs the server until it is gone or we are cancelled."""
        opened: AbstractAsyncContextManager[McpConnection] = (
            http_connection(self._spec, self._handler)
            if self._spec.url
            else stdio_connection(self._spec, self._context, self._handler)
        )
        try:
            async with opened as connection:
                await self._serve(connection)
        except McpServerError as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001 (a server must not cost the session)
            _log.error("the MCP server %r", self.name, exc_info=error)
            self._fail(McpServerError(f"internal error: {type(error).__name__}"))

    async def call(self, tool: str, arguments: Raw) -> Raw:
        """The undecoded result. Raises what an `McpConnection` raises, and `TimeoutError`."""
        connection = self._connection
        if connection is None:
            raise McpServerError(self._unavailable_reason)
        params = CallParams(name=tool, arguments=arguments, meta=self._meta)
        with anyio.fail_after(self._timeouts.call_s):
            try:
                return await connection.request(TOOLS_CALL, params, name=tool)
            except McpSessionExpired:
                async with self._handshaking:
                    await self._handshake(connection)
                return await connection.request(TOOLS_CALL, params, name=tool)

    async def _serve(self, connection: McpConnection) -> None:
        try:
            with anyio.fail_after(self._timeouts.start_s):
                await self._connect(connection)
        except TimeoutError:
            late = f"it did not answer within {self._timeouts.start_s:g} s{connection.stderr_tail}"
            return self._fail(McpServerError(late))
        except EXPECTED_ERRORS as error:
            return self._fail(error)
        self._connection = connection
        self.settled.set()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch_tool_changes, connection)
            self._fail(await connection.wait_until_gone())
            tasks.cancel_scope.cancel()
        return None

    async def _connect(self, connection: McpConnection) -> None:
        """A server that refuses the handshake may be of the newer era, which has none."""
        try:
            await self._handshake(connection)
        except RpcError as refusal:
            self._meta = REQUEST_META
            await connection.set_version(STATELESS_VERSION, stateless=True)
            try:
                await self._list(connection)
            except EXPECTED_ERRORS:
                raise refusal from None
        else:
            await self._list(connection)

    async def _handshake(self, connection: McpConnection) -> None:
        raw = await connection.request(INITIALIZE, INITIALIZE_PARAMS)
        result = _decoded(raw, McpInitializeResult, INITIALIZE)
        await connection.set_version(result.protocol_version, stateless=False)
        await connection.notify(INITIALIZED, None)

    async def _list(self, connection: McpConnection) -> None:
        found: list[Raw] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            params = ListToolsParams(cursor=cursor, meta=self._meta)
            try:
                raw = await connection.request(TOOLS_LIST, params)
            except RpcError as refusal:
                if refusal.code != METHOD_NOT_FOUND or self._meta is not UNSET:
                    raise
                break  # it has no tools
            page = _decoded(raw, ListToolsResult, TOOLS_LIST)
            found += page.tools
            cursor = page.next_cursor
            if not cursor or len(found) > MAX_TOOLS:
                break
        if len(found) > MAX_TOOLS:
            self._warn(f"it has more than {MAX_TOOLS} tools: the first {MAX_TOOLS} are used")
        self.offers, problems = read_offers(found[:MAX_TOOLS])
        for problem in problems[:MAX_PROBLEMS]:
            self._warn(problem)
        if len(problems) > MAX_PROBLEMS:
            self._warn(f"{len(problems)} of its tools cannot be used")

    async def _watch_tool_changes(self, connection: McpConnection) -> None:
        while True:
            await self._handler.tools_changed.wait()
            self._handler.tools_changed = anyio.Event()
            try:
                with anyio.fail_after(self._timeouts.start_s):
                    await self._list(connection)
            except EXPECTED_ERRORS as error:
                self._warn(f"its tools have changed, but it does not list them: {error}")
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
        raise BadReply(f"its reply to {method!r} is invalid: {error}") from error


class McpTool:
    """A tool of a server. Only the server knows its effects, so it always needs a permission."""

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

    async def prepare(self, arguments: bytes) -> ToolInvocation:
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

        async def run(_: OnToolProgress) -> ToolOutcome:
            return await self._call(Raw(arguments or b"{}"))

        return ToolInvocation(intent, run)

    async def _call(self, arguments: Raw) -> ToolOutcome:
        try:
            return outcome_of(await self._server.call(self._offer.tool, arguments))
        except RpcError as refusal:
            why = f"refused the call: {refusal}"
        except TimeoutError:
            why = "did not answer in time: the call was abandoned"
        except McpServerError as error:
            why = f"is unavailable: {error}"
        except (msgspec.DecodeError, RecursionError, BadReply) as error:
            why = f"sent an invalid result: {error}"
        text = shorten_result(f"The MCP server {self._server.name!r} {why}")
        return ToolOutcome(text=text, failed=True)


class McpServers:
    """The servers of one session. Read anew for each turn: servers start late, change, and die."""

    def __init__(self, servers: Sequence[McpServer]) -> None:
        self._servers = servers
        self._names = ToolNames()

    @property
    def tools(self) -> Mapping[str, AgentTool]:
        """As many as a model accepts, one of each server in turn, so that none is crowded out."""
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
        warnings = tuple(warning for server in self._servers for warning in server.warnings)
        offered = sum(len(server.offers) for server in self._servers)
        if offered > MAX_TOOLS:
            warnings += (f"MCP servers: {MAX_TOOLS} of {offered} tools are used, some of each",)
        return warnings


@asynccontextmanager
async def open_mcp_servers(
    servers: Sequence[McpServerSpec], context: ToolContext, *, patience: McpTimeouts | None = None
) -> AsyncGenerator[McpServers]:
    """Starts all servers in parallel; leaving ends them, with everything they started.

    A slow server is waited for only as long as `wait_s`: its tools appear when it is up.
    """
    patience = patience or McpTimeouts()
    opened = [McpServer(spec, context, patience) for spec in servers]
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
