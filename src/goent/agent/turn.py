"""One turn: the model speaks, its calls are run, and so on until it has no more to ask."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from itertools import count

import anyio
from msgspec.structs import replace

from goent.agent.calling import Calling, Repetition
from goent.agent.compaction import is_full, summary_request
from goent.agent.events import AnyAgentEvent, Said, StopReason
from goent.agent.models import Chosen, Heard, Models
from goent.agent.records import Answered, Compacted, Piece, Spent, Told, pieces_of
from goent.agent.voice import Voice
from goent.domain.errors import ContextOverflow, GoesOnElsewhere, NothingSaid, WorkerError
from goent.domain.events import BudgetWarned, FailedOver, Noticed, UsageReported
from goent.llm.gather import Gathered, Gathering
from goent.llm.talk import Chunk, ModelRequest, Part, ReasoningPiece, TextPiece, Tool, ToolUse

MOST_STEPS = 200  # model calls of one turn
CIRCLES = "The turn was ended: the model made the same call again and again."
TOO_LONG = f"The turn was ended after {MOST_STEPS} model calls: say `go on` to let it work on."

Tell = Callable[[AnyAgentEvent], Awaitable[None]]


class Turn:
    """The work on one prompt, which is in the session's memory already."""

    def __init__(
        self,
        voice: Voice,
        models: Models,
        chosen: Chosen,
        calling: Calling,
        *,
        system: str,
        tools: Sequence[Tool],
    ) -> None:
        self._memory = voice.memory
        self._models = models
        self._chosen = chosen
        self._provider = chosen.provider
        self._calling = calling
        self._system = system
        self._tools = tuple(tools)
        self._tell = voice.tell
        self._keep = voice.keep
        self._texts: list[str] = []

    @property
    def text(self) -> str:
        """All that the agent has said."""
        return "".join(self._texts)

    async def run(self) -> StopReason:
        repetition = Repetition()
        for step in count(1):
            await self._make_room()
            answer = await self._answer()
            if answer.calls:
                if not await self._calling.run(answer.calls, repetition):
                    await self._keep([Told(text=CIRCLES)])
                    return "max_turn_requests"
            elif answer.reason == "refused":
                return "refusal"
            else:
                return "max_tokens" if answer.reason == "length" else "end_turn"
            if step == MOST_STEPS:
                await self._keep([Told(text=TOO_LONG)])
                return "max_turn_requests"
        raise AssertionError("counting never ends")

    # The model

    async def _answer(self) -> Gathered:
        """What the model says next; what it had said when it broke off is kept too."""
        try:
            return await self._streamed(self._request())
        except ContextOverflow:
            await self.compact()
            return await self._streamed(self._request())

    async def _streamed(self, request: ModelRequest) -> Gathered:
        hearing = _Hearing(self._memory.new_message(), self._tell)
        try:
            await self._models.stream(
                self._memory.id, self._chosen, request, hearing.take, self._hear
            )
        except (WorkerError, anyio.get_cancelled_exc_class()):
            said = [piece for piece in pieces_of(hearing.gathered.parts) if piece.kind == "text"]
            with anyio.CancelScope(shield=True), suppress(GoesOnElsewhere):
                await self._remember(hearing, said)
            raise
        gathered = self._with_own_ids(hearing.gathered)
        if not gathered.calls and not gathered.text.strip() and gathered.reason != "refused":
            raise NothingSaid(f"{self._provider.opencode_model} ended its turn without a word")
        await self._remember(hearing, pieces_of(gathered.parts))
        return gathered

    async def _remember(self, hearing: "_Hearing", pieces: Sequence[Piece]) -> None:
        if pieces:
            model = self._provider.opencode_model
            await self._keep([Answered(message=hearing.message, pieces=tuple(pieces), model=model)])
        self._texts.append(hearing.gathered.text)

    def _with_own_ids(self, gathered: Gathered) -> Gathered:
        """A vendor may give an id twice: in one answer, or in one session."""
        parts: list[Part] = []
        for part in gathered.parts:
            own = (
                replace(part, id=self._memory.own_id(part.id))
                if isinstance(part, ToolUse)
                else part
            )
            parts.append(own)
        return replace(gathered, parts=tuple(parts))

    def _request(self) -> ModelRequest:
        return ModelRequest(
            model=self._provider.model,
            system=self._system,
            messages=self._memory.conversation(),
            tools=self._tools,
        )

    async def _hear(self, heard: Heard) -> None:
        match heard:
            case UsageReported():
                await self._keep([Spent(usage=heard.usage, cost_usd=heard.cost_usd)])
            case FailedOver():
                told = f"{heard.from_provider} -> {heard.to_provider}: {heard.reason}"
                await self._keep([Told(text=told)])
            case BudgetWarned(message=text) | Noticed(text=text):
                await self._keep([Told(text=text)])

    # The window

    async def _make_room(self) -> None:
        if is_full(self._memory.used, self._provider.context_limit) and self._memory.can_shrink:
            await self.compact()

    async def compact(self) -> None:
        """Have the conversation summed up, and go on from that."""
        request = summary_request(self._request(), self._provider.context_limit)
        hearing = Gathering()

        async def take(chunks: Sequence[Chunk]) -> None:
            for chunk in chunks:
                hearing.add(chunk)

        await self._models.stream(self._memory.id, self._chosen, request, take, self._hear)
        summary = hearing.gathered().text.strip()
        if not summary:
            raise NothingSaid(f"{self._provider.opencode_model} gave no summary to go on from")
        asked = self._memory.last_prompt
        await self._keep([Compacted(summary=f"{summary}\n\nThe user's last words:\n{asked}")])
        await self._keep([Told(text="The conversation was summed up to fit the model's window.")])


class _Hearing:
    """One answer on its way to the client."""

    def __init__(self, message: str, tell: Tell) -> None:
        self.message = message
        self._tell = tell
        self._gathering = Gathering()

    @property
    def gathered(self) -> Gathered:
        return self._gathering.gathered()

    async def take(self, chunks: Sequence[Chunk]) -> None:
        for chunk in chunks:
            self._gathering.add(chunk)
            match chunk:
                case TextPiece(text=text) if text:
                    await self._tell(Said(message=self.message, role="agent", text=text))
                case ReasoningPiece(text=text) if text:
                    await self._tell(Said(message=self.message, role="thought", text=text))
                case _:
                    pass
