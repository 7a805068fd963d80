"""Runs one turn: model answers and tool calls alternate until the model has no more calls.

When the context is nearly full, the model summarizes the conversation and continues from its
summary; the records stay as they are.
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

COMPACTION_SHARE = 0.8  # of the window; above it the next answers and results might not fit
MAX_RESULT_CHARS = 2_000  # of a tool's result that a summary needs
CHARS_PER_TOKEN = 3  # a cautious estimate

SUMMARY_INSTRUCTIONS = """\
Summarize this conversation so that you can continue the work from your summary alone. Keep: what \
the user wants, in their words where they matter; decisions and why; what was done, with the files \
and commands; what is known of the code; what is left to do and what comes next. Leave out what \
no longer matters. Write nothing but the summary."""


def summary_request(request: ModelRequest, window: int) -> ModelRequest:
    """A request for a summary of another one's conversation, as one text that fits.

    Vendors refuse tool calls and results in a request without tools, so they are written out.
    """
    texts = (
        f"[{message.role}]\n" + "\n".join(filter(None, map(_part_text, message.parts)))
        for message in request.messages
    )
    text = "\n\n".join(texts)
    room = int(window * COMPACTION_SHARE) * CHARS_PER_TOKEN
    if len(text) > room:
        text = f"{text[: room // 5]}\n[... cut ...]\n{text[-room * 4 // 5 :]}"
    prompt = MessageText(text=f"{SUMMARY_INSTRUCTIONS}\n\n<conversation>\n{text}\n</conversation>")
    return replace(
        request, messages=(ChatMessage(role="user", parts=(prompt,)),), tools=(), tool_choice=None
    )


def _part_text(part: MessagePart) -> str:
    match part:
        case MessageText(text=text):
            return text
        case MessageToolUse():
            return f"(calls {part.name} with {_shorten(part.arguments)})"
        case MessageToolResult():
            text = " ".join(each.text for each in part.parts if isinstance(each, MessageText))
            return f"({'failed' if part.is_error else 'result'}: {_shorten(text)})"
        case MessageImage():
            return "(an image)"
        case MessageReasoning():
            return ""


def _shorten(text: str) -> str:
    if len(text) <= MAX_RESULT_CHARS:
        return text
    return f"{text[: MAX_RESULT_CHARS // 2]} [...] {text[-MAX_RESULT_CHARS // 2 :]}"


MAX_STEPS = 200  # model calls of one turn
LOOP_STOP_TEXT = "The turn was ended: the model repeated the same call again and again."
STEP_LIMIT_TEXT = f"The turn was ended after {MAX_STEPS} model calls: say `continue` to resume."


class ConversationTurn:
    """The work on one prompt, which is in the session's memory already."""

    def __init__(
        self,
        reporter: SessionReporter,
        models: ModelAccess,
        chosen: ChosenModel,
        runner: ToolRunner,
        *,
        system: str,
        tools: Sequence[ToolDefinition],
    ) -> None:
        self._memory = reporter.memory
        self._models = models
        self._chosen = chosen
        self._provider = chosen.provider
        self._window = chosen.provider.context_limit or DEFAULT_CONTEXT_WINDOW
        self._runner = runner
        self._system = system
        self._tools = tuple(tools)
        self._send = reporter.send
        self._keep = reporter.keep
        self._texts: list[str] = []

    @property
    def text(self) -> str:
        """All text of the agent in this turn."""
        return "".join(self._texts)

    async def run(self) -> StopReason:
        repetition = Repetition()
        for step in count(1):
            full = self._memory.context_tokens > COMPACTION_SHARE * self._window
            if full and self._memory.can_compact:
                await self.compact()
            answer = await self._answer()
            if answer.calls:
                if not await self._runner.run(answer.calls, repetition):
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

    async def _answer(self) -> ModelAnswer:
        try:
            return await self._stream(self._request())
        except ContextOverflow:
            await self.compact()
            return await self._stream(self._request())

    async def _stream(self, request: ModelRequest) -> ModelAnswer:
        """The model's next answer. The text of one that breaks off is recorded, too."""
        streamed = _StreamedAnswer(self._memory.new_message(), self._send)
        try:
            await self._models.stream(
                self._memory.id, self._chosen, request, streamed.add_chunks, self._record_event
            )
        except (WorkerError, anyio.get_cancelled_exc_class()):
            pieces = answer_pieces(streamed.answer.parts)
            with anyio.CancelScope(shield=True), suppress(GoesOnElsewhere):
                await self._keep_answer(streamed, [p for p in pieces if p.kind == "text"])
            raise
        answer = self._with_unique_ids(streamed.answer)
        said_something = answer.calls or answer.text.strip()
        if not said_something and answer.reason_or_guess != "refused":
            raise NothingSaid(f"{self._provider.opencode_model} ended its turn without any output")
        await self._keep_answer(streamed, answer_pieces(answer.parts))
        return answer

    async def _keep_answer(
        self, streamed: "_StreamedAnswer", pieces: Sequence[AnswerPiece]
    ) -> None:
        if pieces:
            model = self._provider.opencode_model
            record = Answered(message=streamed.message, pieces=tuple(pieces), model=model)
            await self._keep([record])
        self._texts.append(streamed.answer.text)

    def _with_unique_ids(self, answer: ModelAnswer) -> ModelAnswer:
        """A vendor may use an id twice: in one answer, or in one session."""
        parts = (
            replace(part, id=self._memory.unique_call_id(part.id))
            if isinstance(part, MessageToolUse)
            else part
            for part in answer.parts
        )
        return replace(answer, parts=tuple(parts))

    def _request(self) -> ModelRequest:
        return ModelRequest(
            model=self._provider.model,
            system=self._system,
            messages=self._memory.conversation(),
            tools=self._tools,
        )

    async def _record_event(self, event: ModelCallEvent) -> None:
        match event:
            case UsageReported():
                await self._keep([Spent(usage=event.usage, cost_usd=event.cost_usd)])
            case FailedOver():
                text = f"{event.from_provider} -> {event.to_provider}: {event.reason}"
                await self._keep([Told(text=text)])
            case BudgetWarned(message=text) | Noticed(text=text):
                await self._keep([Told(text=text)])

    async def compact(self) -> None:
        """Replaces the conversation, for the model, by its own summary."""
        request = summary_request(self._request(), self._window)
        builder = AnswerBuilder()

        async def take(chunks: Sequence[AnswerChunk]) -> None:
            for chunk in chunks:
                builder.add(chunk)

        await self._models.stream(self._memory.id, self._chosen, request, take, self._record_event)
        summary = builder.answer().text.strip()
        if not summary:
            raise NothingSaid(f"{self._provider.opencode_model} returned no summary")
        prompt = self._memory.last_prompt
        await self._keep([Compacted(summary=f"{summary}\n\nThe user's last prompt:\n{prompt}")])
        await self._keep([Told(text="The conversation was summarized to fit the model's window.")])


class _StreamedAnswer:
    """One answer, sent to the client as it arrives."""

    def __init__(self, message: str, send: SendEvent) -> None:
        self.message = message
        self._send = send
        self._builder = AnswerBuilder()

    @property
    def answer(self) -> ModelAnswer:
        return self._builder.answer()

    async def add_chunks(self, chunks: Sequence[AnswerChunk]) -> None:
        for chunk in chunks:
            self._builder.add(chunk)
            match chunk:
                case TextPiece(text=text) if text:
                    await self._send(Said(message=self.message, role="agent", text=text))
                case ReasoningPiece(text=text) if text:
                    await self._send(Said(message=self.message, role="thought", text=text))
                case _:
                    pass
