"""Runs one turn: model answers and tool calls alternate until the model has no more calls.

The model itself sums it up, and goes on from its summary; the records stay as they are.
"""

from collections.abc import Sequence
from contextlib import suppress
from itertools import count

import anyio
from msgspec.structs import replace

from goent.agent.agent_events import Said, StopReason
from goent.agent.agent_ports import ChosenModel, ModelAccess, ModelCallEvent
from goent.agent.session_records import (
    DEFAULT_CONTEXT_WINDOW,
    Answered,
    AnswerPiece,
    Compacted,
    SessionReporter,
    Spent,
    Told,
    answer_pieces,
)
from goent.agent.tool_runner import Repetition, SendEvent, ToolRunner
from goent.domain.errors import ContextOverflow, GoesOnElsewhere, NothingSaid, WorkerError
from goent.domain.events import BudgetWarned, FailedOver, Noticed, UsageReported
from goent.providers.model_messages import (
    AnswerBuilder,
    AnswerChunk,
    ChatMessage,
    MessageImage,
    MessagePart,
    MessageReasoning,
    MessageText,
    MessageToolResult,
    MessageToolUse,
    ModelAnswer,
    ModelRequest,
    ReasoningPiece,
    TextPiece,
    ToolDefinition,
)

COMPACTION_SHARE = 0.8  # of the window: from here on the next answers and results might not fit
MAX_RESULT_CHARS = 2_000  # characters of a tool's result that a summary needs
CHARS_PER_TOKEN = 3  # to a token, at the least that is likely

SUMMARY_INSTRUCTIONS = """\
Sum up this conversation so that you can go on with the work from your summary alone. Keep: what \
the user wants, in their words where they matter; decisions and why; what was done, with the files \
and commands; what is known of the code; what is left to do and what comes next. Leave out what \
no longer matters. Write nothing but the summary."""


def is_full(used: int, window: int | None) -> bool:
    return used > COMPACTION_SHARE * (window or DEFAULT_CONTEXT_WINDOW)


def summary_request(request: ModelRequest, window: int | None) -> ModelRequest:
    """Ask for a summary of what the request holds, as one text that fits.

    Without tools, vendors refuse calls and results of tools: they are written out.
    """
    told = "\n\n".join(f"[{m.role}]\n{_message_text(m)}" for m in request.messages)
    room = int((window or DEFAULT_CONTEXT_WINDOW) * COMPACTION_SHARE) * CHARS_PER_TOKEN
    if len(told) > room:
        told = f"{told[: room // 5]}\n[... cut ...]\n{told[-room * 4 // 5 :]}"
    asked = MessageText(text=f"{SUMMARY_INSTRUCTIONS}\n\n<conversation>\n{told}\n</conversation>")
    return replace(
        request, messages=(ChatMessage(role="user", parts=(asked,)),), tools=(), tool_choice=None
    )


def _message_text(message: ChatMessage) -> str:
    return "\n".join(filter(None, (_part_text(part) for part in message.parts)))


def _part_text(part: MessagePart) -> str:
    match part:
        case MessageText(text=text):
            return text
        case MessageToolUse():
            return f"(calls {part.name} with {_shorten(part.arguments)})"
        case MessageToolResult():
            said = " ".join(each.text for each in part.parts if isinstance(each, MessageText))
            return f"({'failed' if part.is_error else 'result'}: {_shorten(said)})"
        case MessageImage():
            return "(a picture)"
        case MessageReasoning():
            return ""


def _shorten(text: str) -> str:
    if len(text) <= MAX_RESULT_CHARS:
        return text
    return f"{text[: MAX_RESULT_CHARS // 2]} [...] {text[-MAX_RESULT_CHARS // 2 :]}"


MAX_STEPS = 200  # model calls of one turn
LOOP_STOP_TEXT = "The turn was ended: the model made the same call again and again."
STEP_LIMIT_TEXT = (
    f"The turn was ended after {MAX_STEPS} model calls: say `go on` to let it work on."
)


class ConversationTurn:
    """The work on one prompt, which is in the session's memory already."""

    def __init__(
        self,
        voice: SessionReporter,
        models: ModelAccess,
        chosen: ChosenModel,
        calling: ToolRunner,
        *,
        system: str,
        tools: Sequence[ToolDefinition],
    ) -> None:
        self._memory = voice.memory
        self._models = models
        self._chosen = chosen
        self._provider = chosen.provider
        self._calling = calling
        self._system = system
        self._tools = tuple(tools)
        self._send = voice.send
        self._keep = voice.keep
        self._texts: list[str] = []

    @property
    def text(self) -> str:
        """All that the agent has said."""
        return "".join(self._texts)

    async def run(self) -> StopReason:
        repetition = Repetition()
        for step in count(1):
            await self._compact_if_needed()
            answer = await self._answer()
            if answer.calls:
                if not await self._calling.run(answer.calls, repetition):
                    await self._keep([Told(text=LOOP_STOP_TEXT)])
                    return "max_turn_requests"
            elif answer.reason_or_guess == "refused":
                return "refusal"
            else:
                return "max_tokens" if answer.reason_or_guess == "length" else "end_turn"
            if step == MAX_STEPS:
                await self._keep([Told(text=STEP_LIMIT_TEXT)])
                return "max_turn_requests"
        raise AssertionError("counting never ends")

    # The model

    async def _answer(self) -> ModelAnswer:
        """What the model says next; what it had said when it broke off is kept too."""
        try:
            return await self._stream(self._request())
        except ContextOverflow:
            await self.compact()
            return await self._stream(self._request())

    async def _stream(self, request: ModelRequest) -> ModelAnswer:
        hearing = _StreamedAnswer(self._memory.new_message(), self._send)
        try:
            await self._models.stream(
                self._memory.id, self._chosen, request, hearing.add_chunks, self._record_event
            )
        except (WorkerError, anyio.get_cancelled_exc_class()):
            said = [
                piece for piece in answer_pieces(hearing.gathered.parts) if piece.kind == "text"
            ]
            with anyio.CancelScope(shield=True), suppress(GoesOnElsewhere):
                await self._keep_answer(hearing, said)
            raise
        gathered = self._with_unique_ids(hearing.gathered)
        if (
            not gathered.calls
            and not gathered.text.strip()
            and gathered.reason_or_guess != "refused"
        ):
            raise NothingSaid(f"{self._provider.opencode_model} ended its turn without a word")
        await self._keep_answer(hearing, answer_pieces(gathered.parts))
        return gathered

    async def _keep_answer(self, hearing: "_StreamedAnswer", pieces: Sequence[AnswerPiece]) -> None:
        if pieces:
            model = self._provider.opencode_model
            await self._keep([Answered(message=hearing.message, pieces=tuple(pieces), model=model)])
        self._texts.append(hearing.gathered.text)

    def _with_unique_ids(self, gathered: ModelAnswer) -> ModelAnswer:
        """A vendor may give an id twice: in one answer, or in one session."""
        parts: list[MessagePart] = []
        for part in gathered.parts:
            own = (
                replace(part, id=self._memory.unique_call_id(part.id))
                if isinstance(part, MessageToolUse)
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

    async def _record_event(self, heard: ModelCallEvent) -> None:
        match heard:
            case UsageReported():
                await self._keep([Spent(usage=heard.usage, cost_usd=heard.cost_usd)])
            case FailedOver():
                told = f"{heard.from_provider} -> {heard.to_provider}: {heard.reason}"
                await self._keep([Told(text=told)])
            case BudgetWarned(message=text) | Noticed(text=text):
                await self._keep([Told(text=text)])

    # The window

    async def _compact_if_needed(self) -> None:
        if (
            is_full(self._memory.context_tokens, self._provider.context_limit)
            and self._memory.can_compact
        ):
            await self.compact()

    async def compact(self) -> None:
        """Have the conversation summed up, and go on from that."""
        request = summary_request(self._request(), self._provider.context_limit)
        hearing = AnswerBuilder()

        async def take(chunks: Sequence[AnswerChunk]) -> None:
            for chunk in chunks:
                hearing.add(chunk)

        await self._models.stream(self._memory.id, self._chosen, request, take, self._record_event)
        summary = hearing.answer().text.strip()
        if not summary:
            raise NothingSaid(f"{self._provider.opencode_model} gave no summary to go on from")
        asked = self._memory.last_prompt
        await self._keep([Compacted(summary=f"{summary}\n\nThe user's last words:\n{asked}")])
        await self._keep([Told(text="The conversation was summed up to fit the model's window.")])


class _StreamedAnswer:
    """One answer on its way to the client."""

    def __init__(self, message: str, tell: SendEvent) -> None:
        self.message = message
        self._send = tell
        self._gathering = AnswerBuilder()

    @property
    def gathered(self) -> ModelAnswer:
        return self._gathering.answer()

    async def add_chunks(self, chunks: Sequence[AnswerChunk]) -> None:
        for chunk in chunks:
            self._gathering.add(chunk)
            match chunk:
                case TextPiece(text=text) if text:
                    await self._send(Said(message=self.message, role="agent", text=text))
                case ReasoningPiece(text=text) if text:
                    await self._send(Said(message=self.message, role="thought", text=text))
                case _:
                    pass
