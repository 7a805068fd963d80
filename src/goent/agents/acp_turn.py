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
LATE_UPDATE_TIMEOUT_S = 0.3  # for an update or an error that arrives after the reply


class AcpTurn:
    """One turn: whoever has news puts it in, and `forward` emits it in order."""

    def __init__(self, translator: Translator) -> None:
        self.cancelled = False
        self.has_output = False
        self.stop_reason = ""
        self.usage: TurnUsage | None = None
        self.error: WorkerError | RpcError | None = None
        self.rejected: AccessRequest | None = None  # the last refusal
        self.bypass: PermissionBypassed | None = None  # something ran without permission
        self.bypass_found = anyio.Event()  # also set when the turn is closed
        self.prompt_scope = anyio.CancelScope()
        self.done = anyio.Event()
        self._has_news = anyio.Event()
        self._translator = translator
        self._send, self._receive = anyio.create_memory_object_stream[DriverEvent](BUFFER)

    @property
    def running_tool(self) -> str:
        """The tool call that is running; empty if none is."""
        return self._translator.running

    async def run_prompt(self, prompt: Callable[[], Awaitable[PromptResult]]) -> None:
        """Send the prompt and wait for its end; a failure is kept in `error`."""
        try:
            with self.prompt_scope:
                result = await prompt()
                self.stop_reason, self.usage = result.stop_reason, result.usage
                if not self.has_output and not self.cancelled:
                    # An update may arrive after the reply to its prompt.
                    with anyio.move_on_after(LATE_UPDATE_TIMEOUT_S):
                        await self._has_news.wait()
        except (WorkerError, RpcError) as error:
            self.error = error
            if isinstance(error, WorkerCrashed):
                await self.interrupt()

    async def put(self, event: DriverEvent) -> None:
        """Waits if the owner is slow; drops what comes after the end."""
        if isinstance(event, TextDelta | ToolCall):
            self.has_output = True
            self._has_news.set()
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            await self._send.send(event)

    async def put_update(self, update: AnyUpdate) -> None:
        for event in self._translator.translate(update):
            await self.put(event)

    async def interrupt(self) -> None:
        """End the open tool calls as failed: nothing more will arrive about them."""
        for event in self._translator.fail_open_calls():
            await self.put(event)

    async def forward(self, emit: Emit) -> None:
        """Returns when the turn is closed and everything has been emitted."""
        with self._receive:
            async for event in self._receive:
                await emit(event)

    def record_bypass(self, bypass: PermissionBypassed) -> None:
        """Only the first one is kept: it ends the turn."""
        self.bypass = self.bypass or bypass
        self.bypass_found.set()

    def check_rejected(self) -> None:
        """Raises `PermissionDenied` if a refusal ended the turn."""
        if self.rejected:
            permission, subject = self.rejected.permission, request_text(self.rejected)
            raise PermissionDenied(
                f"permission {permission!r} was refused for {subject!r}: the turn ended"
            )

    def close(self) -> None:
        self._send.close()
        self.done.set()
        self.bypass_found.set()

    def discard(self) -> None:
        """Close the turn and drop what was not forwarded."""
        self.close()
        self._receive.close()


class AgentTurn(AcpTurn):
    """A turn of an agent, with its tool calls so far and what was allowed."""

    def __init__(self, cwd: Path) -> None:
        self.calls = AgentTranslator(cwd)
        super().__init__(self.calls)
        self.permitted = TurnPermissions()
        self.rejection_message = ""  # the owner's words with the last refusal

    def verdict(self, agent: str) -> TurnStopReason:
        """How a turn ended that the agent ended itself; raises a `WorkerError` if badly."""
        match self.stop_reason:
            case "cancelled":
                self.check_rejected()
                return "cancelled"
            case "refusal":
                raise ModelRefused(f"the model of {agent} refused to answer")
            case "max_tokens" | "max_turn_requests":
                raise WorkerError(
                    f"{agent} ended its turn early ({self.stop_reason}): what it did so far is in "
                    "place; prompt it to continue"
                )
            case _ if not self.has_output:
                raise NothingSaid(f"{agent} ended its turn without a word and without a tool call")
            case _:
                return "end"


def request_text(request: AccessRequest) -> str:
    """What a permission is for, on one line."""
    return ", ".join(request.patterns) or next(iter(request.detail.splitlines()), "*")
