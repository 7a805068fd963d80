"""One MCP server of a session: how it begins, what it offers, and how it ends."""

import logging
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

import anyio
import msgspec
from msgspec import Raw

from goent.agent.mcp.http import http_line
from goent.agent.mcp.line import Callee, Line, ServerTrouble, SessionForgotten
from goent.agent.mcp.messages import (
    INITIALIZE,
    INITIALIZED,
    STATELESS_VERSION,
    TOOLS_CALL,
    TOOLS_LIST,
    CallParams,
    Envelope,
    InitializeParams,
    InitializeResult,
    ListToolsParams,
    ListToolsResult,
)
from goent.agent.mcp.offers import Offer, read_offers
from goent.agent.mcp.stdio import stdio_line
from goent.agent.ports import Desk, ServerSpec
from goent.domain.types import Value
from goent.rpc import BadReply, RpcError
from goent.rpc.errors import METHOD_NOT_FOUND

MOST_TOOLS = 120  # of all servers together: OpenAI takes 128, and the agent has tools of its own
MOST_PAGES = 100
MOST_COMPLAINTS = 3
RELIST_S = 1.0  # between one change of the list and the next look at it
EXPECTED = (ServerTrouble, RpcError, BadReply, TimeoutError)

T = TypeVar("T")

_log = logging.getLogger(__name__)


class Patience(Value, frozen=True, kw_only=True):
    """Seconds: a session waits for its servers, a server may take to start, a call may take."""

    wait_s: float = 10.0
    start_s: float = 60.0
    call_s: float = 1800.0


class Server:
    """Never raises: what goes wrong is a warning, and the answer to whoever calls a tool."""

    def __init__(self, spec: ServerSpec, desk: Desk, patience: Patience) -> None:
        self.name = spec.name
        self.offers: tuple[Offer, ...] = ()
        self.settled = anyio.Event()  # it can be used, or it never will
        self._spec = spec
        self._desk = desk
        self._patience = patience
        self._callee = Callee(desk.roots)
        self._line: Line | None = None
        self._envelope: Envelope | None = None
        self._greeting = anyio.Lock()
        self._why = "it has not started yet"
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
                await self._use(line)
        except ServerTrouble as error:
            self._give_up(error)
        except Exception as error:  # noqa: BLE001 (a server must not cost the session)
            _log.error("the MCP server %r", self.name, exc_info=error)
            self._give_up(ServerTrouble(f"go-ent failed at it: {type(error).__name__}"))

    async def call(self, tool: str, arguments: Raw) -> Raw:
        """The result as it came. Raises what a `Line` raises, and `TimeoutError`."""
        line = self._line
        if line is None:
            raise ServerTrouble(self._why)
        params = CallParams(name=tool, arguments=arguments, meta=self._envelope)
        with anyio.fail_after(self._patience.call_s):
            try:
                return await line.request(TOOLS_CALL, params, name=tool)
            except SessionForgotten:
                async with self._greeting:
                    await self._shake_hands(line)
                return await line.request(TOOLS_CALL, params, name=tool)

    def _opened(self) -> AbstractAsyncContextManager[Line]:
        if self._spec.url:
            return http_line(self._spec, self._callee)
        return stdio_line(self._spec, self._desk, self._callee)

    async def _use(self, line: Line) -> None:
        try:
            with anyio.fail_after(self._patience.start_s):
                await self._meet(line)
        except TimeoutError:
            late = f"it did not answer within {self._patience.start_s:g} s{line.last_words}"
            return self._give_up(ServerTrouble(late))
        except EXPECTED as error:
            return self._give_up(error)
        self._line = line
        self.settled.set()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._follow, line)
            self._give_up(await line.over())
            tasks.cancel_scope.cancel()
        return None

    async def _meet(self, line: Line) -> None:
        """Whoever refuses a handshake may be of the newer era, which has none."""
        try:
            await self._shake_hands(line)
        except RpcError as refusal:
            self._envelope = Envelope()
            await line.begin(STATELESS_VERSION, stateless=True)
            try:
                await self._list(line)
            except EXPECTED:
                raise refusal from None
        else:
            await self._list(line)

    async def _shake_hands(self, line: Line) -> None:
        raw = await line.request(INITIALIZE, InitializeParams())
        result = _decoded(raw, InitializeResult, INITIALIZE)
        await line.begin(result.protocol_version, stateless=False)
        await line.notify(INITIALIZED, None)

    async def _list(self, line: Line) -> None:
        found: list[Raw] = []
        cursor: str | None = None
        for _ in range(MOST_PAGES):
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
            if not cursor or len(found) > MOST_TOOLS:
                break
        if len(found) > MOST_TOOLS:
            self._warn(f"it has more than {MOST_TOOLS} tools: the first {MOST_TOOLS} are used")
        self.offers, wrong = read_offers(found[:MOST_TOOLS])
        for complaint in wrong[:MOST_COMPLAINTS]:
            self._warn(complaint)
        if len(wrong) > MOST_COMPLAINTS:
            self._warn(f"{len(wrong)} of its tools cannot be used")

    async def _follow(self, line: Line) -> None:
        while True:
            await self._callee.tools_changed.wait()
            self._callee.tools_changed = anyio.Event()
            try:
                with anyio.fail_after(self._patience.start_s):
                    await self._list(line)
            except EXPECTED as error:
                self._warn(f"its tools have changed and it does not say how: {error}")
            await anyio.sleep(RELIST_S)

    def _give_up(self, error: Exception) -> None:
        self._line = None
        self._why = str(error)
        self._warn(self._why)
        self.settled.set()

    def _warn(self, warning: str) -> None:
        self._warnings[warning] = None


def _decoded(raw: Raw, kind: type[T], method: str) -> T:
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadReply(f"its reply to {method!r} makes no sense: {error}") from error
