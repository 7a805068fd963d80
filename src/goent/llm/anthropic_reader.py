"""What does a model say in Anthropic's dialect? Messages, in a stream or whole."""

from collections.abc import Iterator

import msgspec
from msgspec import Raw, Struct

from goent.llm.broken import ended, not_understood, told_error
from goent.llm.place import Block, Place
from goent.llm.sse import SseEvent
from goent.llm.talk import (
    Chunk,
    ReasoningPiece,
    Stopped,
    StopReason,
    TextPiece,
    ToolPiece,
    UsageTold,
)
from goent.llm.tokens import UNREADABLE, AnthropicFigures

_STOPS: dict[str, StopReason] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "pause_turn": "end",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refused",
}
_BLOCKS: dict[str, Block] = {
    "text": "text",
    "thinking": "reasoning",
    "redacted_thinking": "reasoning",
    "tool_use": "tool",
}
_NO_INPUT = (b"", b"null")


class _Delta(Struct):
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None


class _Block(Struct):
    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    id: str | None = None
    name: str | None = None
    input: Raw = Raw()


class _Message(Struct):
    id: str | int | None = None
    usage: Raw = Raw()


class _Event(Struct):
    type: str = ""
    index: int = 0
    delta: _Delta | None = None
    content_block: _Block | None = None
    message: _Message | None = None
    usage: Raw = Raw()


class _Answer(Struct):
    type: str = ""
    content: list[_Block] | None = None
    stop_reason: str | None = None
    usage: Raw = Raw()


_decode = msgspec.json.Decoder(_Event).decode
_decode_answer = msgspec.json.Decoder(_Answer).decode


class AnthropicReader:
    """Reads the events of one stream."""

    def __init__(self) -> None:
        self._id = ""
        self._begun = False
        self._stopped = False
        self._blocks = 0
        self._open: Block = ""
        self._calls: dict[int, int] = {}  # our number of a call, by the index of its block
        self._input = ""  # a call's arguments that came with its block; they count if none follow
        self._figures = AnthropicFigures()

    @property
    def place(self) -> Place:
        return Place(
            begun=self._begun,
            id=self._id,
            blocks=self._blocks,
            open=self._open,
            calls=len(self._calls),
        )

    def read(self, event: SseEvent) -> tuple[Chunk, ...]:
        try:
            told = _decode(event.data)
        except UNREADABLE as error:
            if event.event == b"error" or b'"error"' in event.data:
                return (told_error(event.data),)
            return (not_understood(event.data, error),)
        match told.type or event.event.decode(errors="replace"):
            case "content_block_delta" if told.delta:
                return self._piece(told.index, told.delta)
            case "content_block_start" if told.content_block:
                return tuple(self._start(told.index, told.content_block))
            case "content_block_stop":
                return self._stop_block(told.index)
            case "message_start":
                self._begun = True
                self._id = str((told.message and told.message.id) or "")
                return self._usage(told.message.usage if told.message else told.usage)
            case "message_delta":
                stop = told.delta.stop_reason if told.delta else None
                return *self._usage(told.usage), *self._stop(stop)
            case "error":
                return (told_error(event.data),)
            case _:
                return ()

    def _piece(self, index: int, delta: _Delta) -> tuple[Chunk, ...]:
        # What a piece is goes by its content: some vendors leave out the type.
        if delta.text:
            return (TextPiece(text=delta.text),)
        if delta.partial_json:
            call = self._calls.get(index)
            self._input = ""
            # Without a number it belongs to a tool that runs at the provider's.
            return () if call is None else (ToolPiece(index=call, arguments=delta.partial_json),)
        if delta.thinking or delta.signature:
            return (ReasoningPiece(text=delta.thinking or "", signature=delta.signature or ""),)
        return ()

    def _start(self, index: int, block: _Block) -> Iterator[Chunk]:
        self._blocks = max(self._blocks, index + 1)
        self._open = _BLOCKS.get(block.type, "")
        if block.type == "tool_use":
            self._calls[index] = number = len(self._calls)
            given = bytes(block.input)
            self._input = "{}" if given in _NO_INPUT else given.decode()
            yield ToolPiece(index=number, id=block.id or "", name=block.name or "")
        else:
            yield from _said(block)

    def _stop_block(self, index: int) -> tuple[Chunk, ...]:
        self._open = ""
        given, self._input = self._input, ""
        call = self._calls.get(index)
        return (ToolPiece(index=call, arguments=given),) if given and call is not None else ()

    def _stop(self, reason: str | None) -> tuple[Chunk, ...]:
        if not reason or self._stopped:
            return ()
        self._stopped = True
        stop = _STOPS.get(reason, "end")
        # Not every vendor of this dialect says that there are calls to be made.
        return (Stopped(reason="tool_calls" if stop == "end" and self._calls else stop),)

    def _usage(self, told: Raw) -> tuple[Chunk, ...]:
        before = self._figures.usage
        self._figures.add(bytes(told))
        usage = self._figures.usage
        return (UsageTold(usage=usage),) if usage and usage != before else ()

    def read_whole(self, body: bytes) -> tuple[Chunk, ...]:
        """A plain answer."""
        try:
            answer = _decode_answer(body)
        except UNREADABLE as error:
            return (not_understood(body, error),)
        if answer.content is None and b'"error"' in body:
            return (told_error(body),)
        chunks: list[Chunk] = []
        for index, block in enumerate(answer.content or ()):
            chunks += self._start(index, block)
            chunks += self._stop_block(index)
        return *chunks, *self._usage(answer.usage), *self._stop(answer.stop_reason)


def read_answer(body: bytes) -> tuple[Chunk, ...]:
    return ended(AnthropicReader().read_whole(body), body)


def _said(block: _Block) -> Iterator[Chunk]:
    """What a block has in it already when it begins: all of it, in a plain answer."""
    match block.type:
        case "text" if block.text:
            yield TextPiece(text=block.text)
        case "thinking" if block.thinking or block.signature:
            yield ReasoningPiece(text=block.thinking or "", signature=block.signature or "")
        case "redacted_thinking" if block.data:
            yield ReasoningPiece(redacted=block.data)
        case _:
            return
