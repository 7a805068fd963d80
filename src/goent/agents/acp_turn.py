"""One turn over ACP: its events in order, and what its end means."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import anyio

from goent.acp.agent_messages import AnyUpdate
from goent.acp.client_messages import PromptResult, TurnUsage
from goent.agents.acp_translator import AgentTranslator, Translator
from goent.agents.call_permissions import TurnPermissions
from goent.domain.errors import (
    ModelRefused,
    NothingSaid,
    PermissionBypassed,
    PermissionDenied,
    WorkerCrashed,
    WorkerError,
)
from goent.domain.events import DriverEvent, TextDelta, ToolCall
from goent.domain.ports import Emit, TurnStopReason
from goent.permissions.access_rules import AccessRequest
from goent.rpc.json_rpc import RpcError

BUFFER = 1024
LATE_UPDATE_S = 0.3  # seconds for an update or an error that comes after the reply


class AcpTurn:
    """One turn: whoever has news puts it in, `hand_on` passes it to the worker's owner."""

    def __init__(self, translator: Translator) -> None:
        self.cancelled = False
        self.has_output = False
        self.stop_reason = ""
        self.usage: TurnUsage | None = None
        self.error: WorkerError | RpcError | None = None
        self.prompt_scope = anyio.CancelScope()
        self.done = anyio.Event()
        self._something = anyio.Event()
        self._translator = translator
        self._send, self._receive = anyio.create_memory_object_stream[DriverEvent](BUFFER)

    @property
    def running_tool(self) -> str:
        """What the worker's tool is doing, if one is at work."""
        return self._translator.running

    async def run_prompt(self, prompt: Callable[[], Awaitable[PromptResult]]) -> None:
        """Have it taken; a failure is kept in `error`, for what it means is said elsewhere."""
        try:
            with self.prompt_scope:
                result = await prompt()
                self.stop_reason, self.usage = result.stop_reason, result.usage
                if not self.has_output and not self.cancelled:
                    await self._wait_for_late_update()
        except (WorkerError, RpcError) as error:
            self.error = error
            if isinstance(error, WorkerCrashed):
                await self.interrupt()

    async def put(self, event: DriverEvent) -> None:
        """Waits if the owner is slow; what comes after the end is dropped."""
        if isinstance(event, TextDelta | ToolCall):
            self.has_output = True
            self._something.set()
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            await self._send.send(event)

    async def put_update(self, update: AnyUpdate) -> None:
        for event in self._translator.translate(update):
            await self.put(event)

    async def interrupt(self) -> None:
        """Nobody will tell any more how the open tool calls ended."""
        for event in self._translator.fail_open_calls():
            await self.put(event)

    async def forward(self, emit: Emit) -> None:
        """Returns when the turn is closed and everything has left."""
        with self._receive:
            async for event in self._receive:
                await emit(event)

    def close(self) -> None:
        self._send.close()
        self.done.set()

    def discard(self) -> None:
        """Nobody will hear what was not handed on."""
        self.close()
        self._receive.close()

    async def _wait_for_late_update(self) -> None:
        """An update may come after the reply to its prompt; wait if there was none at all."""
        with anyio.move_on_after(LATE_UPDATE_S):
            await self._something.wait()


DETAIL = 300  # characters of what it did


class AgentTurn(AcpTurn):
    """With all that was told of its tool calls, what was allowed, and the last thing that was refused.

    `caught` is set when it has done what was not allowed, which `bypass` tells, and at its end.
    """

    def __init__(self, cwd: Path) -> None:
        self.calls = AgentTranslator(cwd)
        super().__init__(self.calls)
        self.permitted = TurnPermissions()
        self.rejected: AccessRequest | None = None
        self.rejection_message = ""  # what came with the last no
        self.bypass: PermissionBypassed | None = None
        self.bypass_found = anyio.Event()

    def record_bypass(self, agent: str, tool: str, detail: str) -> None:
        """The first such deed ends the turn."""
        if self.bypass is None:
            self.bypass = PermissionBypassed(
                f"{agent} did what its permissions do not allow, and did not ask: {tool} {detail[:DETAIL]!r}. "
                "The turn was ended; what it did so far is in place"
            )
            self.bypass_found.set()

    def close(self) -> None:
        super().close()
        self.bypass_found.set()

    def verdict(self, agent: str) -> TurnStopReason:
        """Of a turn that the agent ended by itself. Raises a `WorkerError` if it is no good end."""
        match self.stop_reason:
            case "cancelled" if self.rejected:
                what, permission = ", ".join(self.rejected.patterns), self.rejected.permission
                raise PermissionDenied(
                    f"permission {permission!r} was refused for {what!r}: the turn ended"
                )
            case "cancelled":
                return "cancelled"
            case "refusal":
                raise ModelRefused(f"the model of {agent} refused to answer")
            case "max_tokens" | "max_turn_requests":
                raise WorkerError(
                    f"{agent} ended its turn early ({self.stop_reason}): what it did so far is in "
                    "place; prompt it to go on"
                )
            case _ if not self.has_output:
                raise NothingSaid(f"{agent} ended its turn without a word and without a tool call")
            case _:
                return "end"
