"""Model requests and answers in neither dialect, and an answer built from its pieces.

A request is a `ModelRequest`. An answer is a row of chunks, whether it came as a stream or whole:
text, reasoning and tool calls in pieces, `UsagePiece` whenever more is known (the last one counts),
`StopPiece` with the reason. `ErrorPiece` is an error that came where an answer was due.
"""

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from msgspec import Raw

from goent.domain.types import Usage, Value

MessageRole = Literal["user", "assistant"]
AnswerStopReason = Literal["end", "tool_calls", "length", "refused"]


class MessageText(Value, frozen=True, kw_only=True):
    """Something said, by either side."""

    text: str


class MessageReasoning(Value, frozen=True, kw_only=True):
    """What a model thought. The signature is its vendor's proof; `redacted` is thought it hides."""

    text: str = ""
    signature: str = ""
    redacted: str = ""


class MessageImage(Value, frozen=True, kw_only=True):
    """A picture: `data` is base64, or there is a `url`."""

    media_type: str = ""
    data: str = ""
    url: str = ""


class MessageToolUse(Value, frozen=True, kw_only=True):
    """A tool call that a model made; `arguments` is JSON text as the model wrote it."""

    id: str
    name: str
    arguments: str = "{}"


class MessageToolResult(Value, frozen=True, kw_only=True):
    """What became of the tool call `id`."""

    id: str
    parts: tuple[MessageText | MessageImage, ...] = ()
    is_error: bool = False


MessagePart = MessageText | MessageReasoning | MessageImage | MessageToolUse | MessageToolResult


class ChatMessage(Value, frozen=True, kw_only=True):
    """One side's turn to speak. Tool results belong to the user's side."""

    role: MessageRole
    parts: tuple[MessagePart, ...]


class ToolDefinition(Value, frozen=True, kw_only=True):
    """A tool that the model may call; `schema` is the JSON schema of its arguments."""

    name: str
    description: str = ""
    schema: Raw = Raw(b'{"type":"object","properties":{}}')


class RequiredTool(Value, frozen=True, kw_only=True):
    """A tool that the model has to call now."""

    name: str


ToolChoice = Literal["auto", "none", "required"] | RequiredTool


class ThinkingSettings(Value, frozen=True, kw_only=True):
    """How Anthropic is asked to think: with a budget in tokens, or as much as it sees fit."""

    mode: Literal["enabled", "adaptive", "disabled"]
    budget: int | None = None


class JsonFormat(Value, frozen=True, kw_only=True):
    """The answer has to be JSON: by the `schema`, or any object."""

    schema: Raw | None = None
    name: str = "answer"
    strict: bool | None = None


class ModelRequest(Value, frozen=True, kw_only=True):
    """What a model is asked. What is None is the provider's choice.

    `thinking` with `thinking_effort` is Anthropic's way to ask for reasoning, `reasoning_effort`
    is OpenAI's. Neither is translated: which of them a model refuses is not in its name. `others` are
    further fields, as OpenAI's dialect writes them; no other has a place for them.
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
    include_usage: bool = True  # an OpenAI stream tells its usage only to those who ask
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
    """All tokens so far, by the provider's count."""

    usage: Usage


class StopPiece(Value, frozen=True, kw_only=True):
    """Why the model stopped."""

    reason: AnswerStopReason


class ErrorPiece(Value, frozen=True, kw_only=True):
    """An error in place of the rest; `kind` is the vendor's word for it, if it has one."""

    message: str
    kind: str = ""


AnswerChunk = TextPiece | ReasoningPiece | ToolPiece | UsagePiece | StopPiece | ErrorPiece


def merge_turns(messages: Iterable[ChatMessage]) -> tuple[ChatMessage, ...]:
    """The same talk, with the two sides taking turns: neighbours of one side become one."""
    turns: list[ChatMessage] = []
    for message in messages:
        if turns and turns[-1].role == message.role:
            turns[-1] = ChatMessage(role=message.role, parts=(*turns[-1].parts, *message.parts))
        else:
            turns.append(message)
    return tuple(turns)


BlockKind = Literal["", "text", "reasoning", "tool"]


class StreamPosition(NamedTuple):
    """What a writer needs to know to go on: `open` is the block that has not ended yet."""

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
    """Pieces as they come in; out go pieces of which each call's first has its id and name.

    `first` is the number of the first call, where others have been written before.
    """

    def __init__(self, *, first: int = 0) -> None:
        self._next = first
        self._calls: dict[int, _ToolCallState] = {}

    @property
    def has_calls(self) -> bool:
        return bool(self._calls or self._next)

    def add(self, piece: ToolPiece) -> Iterator[ToolPiece]:
        held = self._calls.setdefault(piece.index, _ToolCallState())
        if held.number is not None:
            if piece.arguments:
                held.arguments = piece.arguments  # any of them will do
                yield ToolPiece(index=held.number, arguments=piece.arguments)
            return
        held.id = held.id or piece.id
        held.name = held.name or piece.name
        held.arguments += piece.arguments
        if held.id and held.name:
            yield self._begin(held)

    def finish(self) -> Iterator[ToolPiece]:
        """The end: ids that never came are ours, and no arguments are an empty object.

        A call without a name is none.
        """
        for held in self._calls.values():
            if held.number is not None and not held.arguments:
                yield ToolPiece(index=held.number, arguments="{}")
            elif held.number is None and held.name:
                held.arguments = held.arguments or "{}"
                yield self._begin(held)

    def _begin(self, held: _ToolCallState) -> ToolPiece:
        held.number, self._next = self._next, self._next + 1
        call_id = held.id or f"call_goent_{held.number}"
        return ToolPiece(index=held.number, id=call_id, name=held.name, arguments=held.arguments)


class ModelAnswer(Value, frozen=True, kw_only=True):
    """A whole answer. `stopped` is None if it broke off; `broken` says why, if that was told."""

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
        """Why it stopped, or what is nearest to it."""
        return self.stop_reason or ("tool_calls" if self.calls else "end")


class _OpenPart:
    """A part that may go on. Pieces are joined at the end: there may be very many."""

    def __init__(self, first: TextPiece | ReasoningPiece | ToolPiece) -> None:
        self._pieces = [first]

    @property
    def first(self) -> TextPiece | ReasoningPiece | ToolPiece:
        return self._pieces[0]

    def add(self, piece: TextPiece | ReasoningPiece | ToolPiece) -> None:
        self._pieces.append(piece)

    def takes(self, piece: TextPiece | ReasoningPiece) -> bool:
        """Whether the piece goes on with this part: a signature ends a stretch of thought."""
        last = self._pieces[-1]
        if isinstance(last, ReasoningPiece) and isinstance(piece, ReasoningPiece):
            return not (last.signature or last.redacted or piece.redacted)
        return isinstance(last, TextPiece) and isinstance(piece, TextPiece)

    def part(self) -> MessagePart:
        pieces, first = self._pieces, self._pieces[0]
        if isinstance(first, ToolPiece):
            told = "".join(piece.arguments for piece in pieces if isinstance(piece, ToolPiece))
            return MessageToolUse(id=first.id, name=first.name, arguments=told or "{}")
        text = "".join(piece.text for piece in pieces if not isinstance(piece, ToolPiece))
        if isinstance(first, TextPiece):
            return MessageText(text=text)
        last = pieces[-1]
        signature = last.signature if isinstance(last, ReasoningPiece) else ""
        return MessageReasoning(text=text, signature=signature, redacted=first.redacted)


class AnswerBuilder:
    """Takes chunks one by one; `gathered` may be asked at any time."""

    def __init__(self) -> None:
        self._parts: list[_OpenPart] = []
        self._calls = ToolCallAssembler()
        self._by_number: dict[int, _OpenPart] = {}
        self._usage: Usage | None = None
        self._stopped: AnswerStopReason | None = None
        self._broken: ErrorPiece | None = None

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
                self._stopped = reason
            case ErrorPiece():
                self._broken = chunk

    def answer(self) -> ModelAnswer:
        """Calls that have no name, or as yet no id, are not in it."""
        return ModelAnswer(
            parts=tuple(part.part() for part in self._parts),
            usage=self._usage,
            stop_reason=self._stopped,
            error=self._broken,
        )

    def _take(self, pieces: Iterable[ToolPiece]) -> None:
        for piece in pieces:
            if piece.name:
                self._by_number[piece.index] = _OpenPart(piece)
                self._parts.append(self._by_number[piece.index])
            else:
                self._by_number[piece.index].add(piece)


def build_answer(chunks: Iterable[AnswerChunk]) -> ModelAnswer:
    gathering = AnswerBuilder()
    for chunk in chunks:
        gathering.add(chunk)
    return gathering.answer()
