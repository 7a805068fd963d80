"""What is known of the turn under way, and in which order do its events leave?"""

from collections.abc import Awaitable, Callable
from contextlib import suppress

import anyio

from goent.acp.messages import PromptResult, TurnUsage
from goent.acp.updates import AnyUpdate
from goent.domain.errors import WorkerCrashed, WorkerError
from goent.domain.events import DriverEvent, TextDelta, ToolCall
from goent.domain.ports import Emit
from goent.drivers.acp_translate import Translator
from goent.rpc import RpcError

BUFFER = 1024
LATE = 0.3  # seconds for an update or an error that comes after the reply


class AcpTurn:
    """One turn: whoever has news puts it in, `hand_on` passes it to the worker's owner."""

    def __init__(self, translator: Translator) -> None:
        self.cancelled = False
        self.spoke = False
        self.stop_reason = ""
        self.usage: TurnUsage | None = None
        self.error: WorkerError | RpcError | None = None
        self.asking = anyio.CancelScope()
        self.answered = anyio.Event()
        self._something = anyio.Event()
        self._translator = translator
        self._send, self._receive = anyio.create_memory_object_stream[DriverEvent](BUFFER)

    @property
    def running_tool(self) -> str:
        """What the worker's tool is doing, if one is at work."""
        return self._translator.running

    async def take(self, prompt: Callable[[], Awaitable[PromptResult]]) -> None:
        """Have it taken; a failure is kept in `error`, for what it means is said elsewhere."""
        try:
            with self.asking:
                result = await prompt()
                self.stop_reason, self.usage = result.stop_reason, result.usage
                if not self.spoke and not self.cancelled:
                    await self._last_words()
        except (WorkerError, RpcError) as error:
            self.error = error
            if isinstance(error, WorkerCrashed):
                await self.interrupt()

    async def put(self, event: DriverEvent) -> None:
        """Waits if the owner is slow; what comes after the end is dropped."""
        if isinstance(event, TextDelta | ToolCall):
            self.spoke = True
            self._something.set()
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            await self._send.send(event)

    async def tell(self, update: AnyUpdate) -> None:
        for event in self._translator.translate(update):
            await self.put(event)

    async def interrupt(self) -> None:
        """Nobody will tell any more how the open tool calls ended."""
        for event in self._translator.interrupted():
            await self.put(event)

    async def hand_on(self, emit: Emit) -> None:
        """Returns when the turn is closed and everything has left."""
        with self._receive:
            async for event in self._receive:
                await emit(event)

    def close(self) -> None:
        self._send.close()
        self.answered.set()

    def discard(self) -> None:
        """Nobody will hear what was not handed on."""
        self.close()
        self._receive.close()

    async def _last_words(self) -> None:
        """An update may come after the reply to its prompt; wait if there was none at all."""
        with anyio.move_on_after(LATE):
            await self._something.wait()
