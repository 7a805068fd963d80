"""Model requests and answers in neither dialect, and an answer built from its pieces.

A request is a `ModelRequest`. An answer is a sequence of chunks, streamed or not: text, reasoning
and tool calls in pieces, `UsagePiece` whenever more is known (the last one counts), `StopPiece` with
the reason. `ErrorPiece` is an error in place of an answer or its rest.
"""

from collections.abc import Iterable, Iterator
from typing import Final, Literal, NamedTuple

import msgspec
from msgspec import Raw

from goent.domain.types import Usage, Value

MessageRole = Literal["user", "assistant"]
AnswerStopReason = Literal["end", "tool_calls", "length", "refused"]


class MessageText(Value, frozen=True, kw_only=True):
    """Text of either side."""

    text: str


class MessageReasoning(Value, frozen=True, kw_only=True):
    """A model's reasoning. The signature is its vendor's proof; `redacted` is what it hides."""

    text: str = ""
    signature: str = ""
    redacted: str = ""


class MessageImage(Value, frozen=True, kw_only=True):
    """A picture: base64 `data`, or a `url`."""

    media_type: str = ""
    data: str = ""
    url: str = ""


class MessageToolUse(Value, frozen=True, kw_only=True):
    """A tool call that a model made; `arguments` is JSON text as the model wrote it."""

    id: str
    name: str
    arguments: str = "{}"


class MessageToolResult(Value, frozen=True, kw_only=True):
    """The result of the tool call `id`."""

    id: str
    parts: tuple[MessageText | MessageImage, ...] = ()
    is_error: bool = False


MessagePart = MessageText | MessageReasoning | MessageImage | MessageToolUse | MessageToolResult


class ChatMessage(Value, frozen=True, kw_only=True):
    """One side's turn. Tool results belong to the user's."""

    role: MessageRole
    parts: tuple[MessagePart, ...]


NO_ARGUMENTS: Final = Raw(b'{"type":"object","properties":{}}')


class ToolDefinition(Value, frozen=True, kw_only=True):
    """A tool that the model may call; `schema` is the JSON schema of its arguments."""

    name: str
    description: str = ""
    schema: Raw = NO_ARGUMENTS


class RequiredTool(Value, frozen=True, kw_only=True):
    """The tool that the model has to call."""

    name: str


ToolChoice = Literal["auto", "none", "required"] | RequiredTool


class ThinkingSettings(Value, frozen=True, kw_only=True):
    """Anthropic's thinking: with a budget in tokens, or as much as the model likes."""

    mode: Literal["enabled", "adaptive", "disabled"]
    budget: int | None = None


class JsonFormat(Value, frozen=True, kw_only=True):
    """The JSON that the answer has to be: by the `schema`, or any object."""

    schema: Raw | None = None
    name: str = "answer"
    strict: bool | None = None


class ModelRequest(Value, frozen=True, kw_only=True):
    """A request to a model. What is None is left to the provider.

    `thinking` with `thinking_effort` is Anthropic's way to request reasoning, `reasoning_effort` is
    OpenAI's. Neither is translated: a model's name does not say which of them it accepts.
    `extra_fields` are further fields of OpenAI's dialect, which the other has no place for.
    """

    model: str
    messages: tuple[ChatMessage, ...]
    system: str = ""
    tools: tuple[ToolDefinition, ...] = ()
    tool_choice: ToolChoice | None = None
    parallel_tools: bool = True
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: tuple[str, ...] = ()
    stream: bool = True
    reasoning_effort: str | None = None
    thinking: ThinkingSettings | None = None
    thinking_effort: str | None = None
    json_answer: JsonFormat | None = None
    extra_fields: tuple[tuple[str, Raw], ...] = ()


class TextPiece(Value, frozen=True, kw_only=True):
    """The next piece of the answer's text."""

    text: str


class ReasoningPiece(Value, frozen=True, kw_only=True):
    """The next piece of the model's reasoning, or the signature that ends a stretch of it."""

    text: str = ""
    signature: str = ""
    redacted: str = ""


class ToolPiece(Value, frozen=True, kw_only=True):
    """A piece of tool call number `index`, counted from 0. Id and name come once, perhaps late."""

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


class UsagePiece(Value, frozen=True, kw_only=True):
    """The provider's count of all tokens so far."""

    usage: Usage


class StopPiece(Value, frozen=True, kw_only=True):
    """Why the model stopped."""

    reason: AnswerStopReason


class ErrorPiece(Value, frozen=True, kw_only=True):
    """An error in place of the rest; `kind` is the vendor's word for it, or empty."""

    message: str
    kind: str = ""


AnswerChunk = TextPiece | ReasoningPiece | ToolPiece | UsagePiece | StopPiece | ErrorPiece


def merge_turns(messages: Iterable[ChatMessage]) -> tuple[ChatMessage, ...]:
    """The conversation with alternating turns: adjacent messages of one side become one."""
    turns: list[ChatMessage] = []
    for message in messages:
        if turns and turns[-1].role == message.role:
            turns[-1] = ChatMessage(role=message.role, parts=(*turns[-1].parts, *message.parts))
        else:
            turns.append(message)
    return tuple(turns)


BlockKind = Literal["", "text", "reasoning", "tool"]


class StreamPosition(NamedTuple):
    """Where a writer continues a message: `open` is the block that has not ended yet."""

    begun: bool = False
    id: str = ""
    blocks: int = 0  # content blocks begun, the open one included
    open: BlockKind = ""
    calls: int = 0  # tool calls begun


STREAM_START = StreamPosition()


class _ToolCallState:
    __slots__ = ("arguments", "id", "name", "number")

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.arguments = ""
        self.number: int | None = None  # once it has been passed on


class ToolCallAssembler:
    """Reorders pieces so that each call's first one has its id and name.

    `first` is the number of the first call, if earlier ones have been written already.
    """

    def __init__(self, *, first: int = 0) -> None:
        self._next = first
        self._calls: dict[int, _ToolCallState] = {}

    @property
    def has_calls(self) -> bool:
        return bool(self._calls or self._next)

    def add(self, piece: ToolPiece) -> Iterator[ToolPiece]:
        call = self._calls.setdefault(piece.index, _ToolCallState())
        if call.number is not None:
            if piece.arguments:
                call.arguments = piece.arguments  # only whether there are any matters
                yield ToolPiece(index=call.number, arguments=piece.arguments)
            return
        call.id = call.id or piece.id
        call.name = call.name or piece.name
        call.arguments += piece.arguments
        if call.id and call.name:
            yield self._begin(call)

    def finish(self) -> Iterator[ToolPiece]:
        """The end: missing ids and arguments are filled in; a call without a name is dropped."""
        for call in self._calls.values():
            if call.number is not None and not call.arguments:
                yield ToolPiece(index=call.number, arguments="{}")
            elif call.number is None and call.name:
                call.arguments = call.arguments or "{}"
                yield self._begin(call)

    def _begin(self, call: _ToolCallState) -> ToolPiece:
        call.number, self._next = self._next, self._next + 1
        call_id = call.id or f"call_goent_{call.number}"
        return ToolPiece(index=call.number, id=call_id, name=call.name, arguments=call.arguments)


class ModelAnswer(Value, frozen=True, kw_only=True):
    """A whole answer. Without a `stop_reason` it broke off, perhaps with an `error`."""

    parts: tuple[MessagePart, ...]
    usage: Usage | None = None
    stop_reason: AnswerStopReason | None = None
    error: ErrorPiece | None = None

    @property
    def message(self) -> ChatMessage:
        """As it goes into the next request."""
        return ChatMessage(role="assistant", parts=self.parts)

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, MessageText))

    @property
    def reasoning(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, MessageReasoning))

    @property
    def calls(self) -> tuple[MessageToolUse, ...]:
        return tuple(part for part in self.parts if isinstance(part, MessageToolUse))

    @property
    def reason_or_guess(self) -> AnswerStopReason:
        """Why it stopped, or the likeliest reason."""
        return self.stop_reason or ("tool_calls" if self.calls else "end")


class _OpenPart:
    """A part that may continue. Its pieces, perhaps very many, are joined at the end."""

    def __init__(self, first: TextPiece | ReasoningPiece | ToolPiece) -> None:
        self._pieces = [first]

    def add(self, piece: TextPiece | ReasoningPiece | ToolPiece) -> None:
        self._pieces.append(piece)

    def takes(self, piece: TextPiece | ReasoningPiece) -> bool:
        """Whether the piece continues this part: a signature ends a stretch of reasoning."""
        last = self._pieces[-1]
        if isinstance(last, ReasoningPiece) and isinstance(piece, ReasoningPiece):
            return not (last.signature or last.redacted or piece.redacted)
        return isinstance(last, TextPiece) and isinstance(piece, TextPiece)

    def part(self) -> MessagePart:
        pieces, first = self._pieces, self._pieces[0]
        if isinstance(first, ToolPiece):
            arguments = "".join(p.arguments for p in pieces if isinstance(p, ToolPiece))
            return MessageToolUse(id=first.id, name=first.name, arguments=arguments or "{}")
        text = "".join(piece.text for piece in pieces if not isinstance(piece, ToolPiece))
        if isinstance(first, TextPiece):
            return MessageText(text=text)
        last = pieces[-1]
        signature = last.signature if isinstance(last, ReasoningPiece) else ""
        return MessageReasoning(text=text, signature=signature, redacted=first.redacted)


class AnswerBuilder:
    """Builds an answer from its chunks; `answer` gives what there is so far."""

    def __init__(self) -> None:
        self._parts: list[_OpenPart] = []
        self._calls = ToolCallAssembler()
        self._by_number: dict[int, _OpenPart] = {}
        self._usage: Usage | None = None
        self._stop_reason: AnswerStopReason | None = None
        self._error: ErrorPiece | None = None

    def add(self, chunk: AnswerChunk) -> None:
        match chunk:
            case TextPiece() | ReasoningPiece():
                if self._parts and self._parts[-1].takes(chunk):
                    self._parts[-1].add(chunk)
                else:
                    self._parts.append(_OpenPart(chunk))
            case ToolPiece():
                self._take(self._calls.add(chunk))
            case UsagePiece(usage=usage):
                self._usage = usage
            case StopPiece(reason=reason):
                self._take(self._calls.finish())
                self._stop_reason = reason
            case ErrorPiece():
                self._error = chunk

    def answer(self) -> ModelAnswer:
        """Without calls that have no name, or no id yet."""
        return ModelAnswer(
            parts=tuple(part.part() for part in self._parts),
            usage=self._usage,
            stop_reason=self._stop_reason,
            error=self._error,
        )

    def _take(self, pieces: Iterable[ToolPiece]) -> None:
        for piece in pieces:
            if piece.name:
                self._by_number[piece.index] = _OpenPart(piece)
                self._parts.append(self._by_number[piece.index])
            else:
                self._by_number[piece.index].add(piece)


def build_answer(chunks: Iterable[AnswerChunk]) -> ModelAnswer:
    builder = AnswerBuilder()
    for chunk in chunks:
        builder.add(chunk)
    return builder.answer()


def is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text, type=Raw)
    except msgspec.DecodeError:
        return False
    return True
