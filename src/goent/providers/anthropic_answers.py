"""Reads and writes answers in Anthropic's dialect, streamed or whole."""

from collections.abc import Iterable, Iterator

import msgspec
from msgspec import Raw, Struct

from goent.domain.types import Usage
from goent.providers.anthropic_requests import safe_id, wire_block
from goent.providers.model_messages import (
    STREAM_START,
    AnswerChunk,
    AnswerStopReason,
    BlockKind,
    ErrorPiece,
    MessageImage,
    MessagePart,
    MessageReasoning,
    MessageText,
    MessageToolResult,
    MessageToolUse,
    ReasoningPiece,
    StopPiece,
    StreamPosition,
    TextPiece,
    ToolCallAssembler,
    ToolPiece,
    UsagePiece,
    build_answer,
    is_json,
)
from goent.providers.provider_errors import error_event, error_piece, malformed_piece, with_stop
from goent.providers.sse import SseEvent
from goent.providers.token_usage import DECODE_ERRORS, AnthropicUsageReader, anthropic_usage

_STOP_REASONS: dict[str, AnswerStopReason] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "pause_turn": "end",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refused",
}
_BLOCK_KINDS: dict[str, BlockKind] = {
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


class _StreamEvent(Struct):
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


_decode = msgspec.json.Decoder(_StreamEvent).decode
_decode_answer = msgspec.json.Decoder(_Answer).decode


class AnthropicReader:
    """Reads the events of one stream."""

    def __init__(self) -> None:
        self._id = ""
        self._begun = False
        self._stopped = False
        self._blocks = 0
        self._open: BlockKind = ""
        self._calls: dict[int, int] = {}  # each call's number, by the index of its block
        self._input = ""  # arguments that came with the call's block; used if none follow
        self._figures = AnthropicUsageReader()

    @property
    def place(self) -> StreamPosition:
        return StreamPosition(
            begun=self._begun,
            id=self._id,
            blocks=self._blocks,
            open=self._open,
            calls=len(self._calls),
        )

    def read(self, event: SseEvent) -> tuple[AnswerChunk, ...]:
        try:
            read = _decode(event.data)
        except DECODE_ERRORS as error:
            if event.event == b"error" or b'"error"' in event.data:
                return (error_piece(event.data),)
            return (malformed_piece(event.data, error),)
        match read.type or event.event.decode(errors="replace"):
            case "content_block_delta" if read.delta:
                return self._piece(read.index, read.delta)
            case "content_block_start" if read.content_block:
                return tuple(self._start(read.index, read.content_block))
            case "content_block_stop":
                return self._stop_block(read.index)
            case "message_start":
                self._begun = True
                self._id = str((read.message and read.message.id) or "")
                return self._usage(read.message.usage if read.message else read.usage)
            case "message_delta":
                stop = read.delta.stop_reason if read.delta else None
                return *self._usage(read.usage), *self._stop(stop)
            case "error":
                return (error_piece(event.data),)
            case _:
                return ()

    def _piece(self, index: int, delta: _Delta) -> tuple[AnswerChunk, ...]:
        # Told apart by content: some vendors leave out the type.
        if delta.text:
            return (TextPiece(text=delta.text),)
        if delta.partial_json:
            call = self._calls.get(index)
            self._input = ""
            # Without a number it belongs to a tool that the provider runs.
            return () if call is None else (ToolPiece(index=call, arguments=delta.partial_json),)
        if delta.thinking or delta.signature:
            return (ReasoningPiece(text=delta.thinking or "", signature=delta.signature or ""),)
        return ()

    def _start(self, index: int, block: _Block) -> Iterator[AnswerChunk]:
        self._blocks = max(self._blocks, index + 1)
        self._open = _BLOCK_KINDS.get(block.type, "")
        if block.type == "tool_use":
            self._calls[index] = number = len(self._calls)
            given = bytes(block.input)
            self._input = "{}" if given in _NO_INPUT else given.decode()
            yield ToolPiece(index=number, id=block.id or "", name=block.name or "")
        else:
            yield from _block_pieces(block)

    def _stop_block(self, index: int) -> tuple[AnswerChunk, ...]:
        self._open = ""
        given, self._input = self._input, ""
        call = self._calls.get(index)
        return (ToolPiece(index=call, arguments=given),) if given and call is not None else ()

    def _stop(self, reason: str | None) -> tuple[AnswerChunk, ...]:
        if not reason or self._stopped:
            return ()
        self._stopped = True
        stop = _STOP_REASONS.get(reason, "end")
        # Not every vendor of this dialect gives tool_use as the reason.
        return (StopPiece(reason="tool_calls" if stop == "end" and self._calls else stop),)

    def _usage(self, encoded: Raw) -> tuple[AnswerChunk, ...]:
        usage = self._figures.update(bytes(encoded))
        return (UsagePiece(usage=usage),) if usage else ()

    def read_whole(self, body: bytes) -> tuple[AnswerChunk, ...]:
        try:
            answer = _decode_answer(body)
        except DECODE_ERRORS as error:
            return (malformed_piece(body, error),)
        if answer.content is None and b'"error"' in body:
            return (error_piece(body),)
        chunks: list[AnswerChunk] = []
        for index, block in enumerate(answer.content or ()):
            chunks += self._start(index, block)
            chunks += self._stop_block(index)
        return *chunks, *self._usage(answer.usage), *self._stop(answer.stop_reason)


def read_anthropic_answer(body: bytes) -> tuple[AnswerChunk, ...]:
    return with_stop(AnthropicReader().read_whole(body), body)


def _block_pieces(block: _Block) -> Iterator[AnswerChunk]:
    """The content that comes with the block itself: all of it, in a plain answer."""
    match block.type:
        case "text" if block.text:
            yield TextPiece(text=block.text)
        case "thinking" if block.thinking or block.signature:
            yield ReasoningPiece(text=block.thinking or "", signature=block.signature or "")
        case "redacted_thinking" if block.data:
            yield ReasoningPiece(redacted=block.data)
        case _:
            return


ANSWER_ID = "msg_goent"
_STOP_NAMES: dict[AnswerStopReason, str] = {
    "end": "end_turn",
    "tool_calls": "tool_use",
    "length": "max_tokens",
    "refused": "refusal",
}

_ContentPiece = TextPiece | ReasoningPiece | ToolPiece
_encode = msgspec.json.encode


class AnthropicWriter:
    """Writes one stream, or the rest of one.

    Blocks come one after the other, so what belongs to another block waits until an open tool call
    is complete.
    """

    def __init__(self, model: str, *, after: StreamPosition = STREAM_START) -> None:
        self._model = model
        self._begun = after.begun
        self._index = after.blocks - 1  # of the last block
        self._open: BlockKind = after.open
        self._calls = ToolCallAssembler(first=after.calls)
        self._call: int | None = None  # the number of the call whose block is open
        self._arguments: list[str] = []  # of that call
        self._deferred: list[_ContentPiece] = []
        self._usage: Usage | None = None
        self._reason: AnswerStopReason | None = None
        self._broken = False

    def write(self, chunk: AnswerChunk) -> bytes:
        match chunk:
            case TextPiece() | ReasoningPiece():
                return self._piece(chunk)
            case ToolPiece():
                return b"".join(map(self._piece, self._calls.add(chunk)))
            case UsagePiece():
                self._usage = chunk.usage
                return b""
            case StopPiece():
                self._reason = self._reason or chunk.reason
                return b""
            case ErrorPiece():
                self._broken = True
                return error_event("anthropic", chunk.message)

    def close(self) -> bytes:
        if self._broken:
            return b""
        rest = b"".join(map(self._piece, self._calls.finish()))
        rest += self._end_block()
        for part in build_answer(self._deferred).parts:
            rest += b"".join(map(self._write_piece, _as_pieces(part))) + self._end_block()
        reason = self._reason or ("tool_calls" if self._calls.has_calls else "end")
        ending = _encode({"stop_reason": _STOP_NAMES[reason], "stop_sequence": None})
        usage = _encode(anthropic_usage(self._usage or Usage()))
        return (
            self._message_start()
            + rest
            + _sse_event(b"message_delta", b'"delta":%b,"usage":%b' % (ending, usage))
            + b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
        )

    def _piece(self, piece: _ContentPiece) -> bytes:
        if self._call is None or (isinstance(piece, ToolPiece) and piece.index == self._call):
            return self._write_piece(piece)
        if self._deferred or not is_json("".join(self._arguments)):
            self._deferred.append(piece)
            return b""
        return self._end_block() + self._write_piece(piece)

    def _write_piece(self, piece: _ContentPiece) -> bytes:
        match piece:
            case TextPiece():
                opened = self._open == "text"
                begin = b"" if opened else self._begin_block("text", b'"text","text":""')
                return begin + self._delta(b'"text_delta","text":', piece.text)
            case ReasoningPiece():
                return self._reasoning(piece)
            case ToolPiece():
                return self._tool(piece)

    def _reasoning(self, piece: ReasoningPiece) -> bytes:
        if piece.redacted:
            head = b'"redacted_thinking","data":' + _encode(piece.redacted)
            return self._begin_block("reasoning", head) + self._end_block()
        written = b""
        if self._open != "reasoning":
            written = self._begin_block("reasoning", b'"thinking","thinking":"","signature":""')
        if piece.text:
            written += self._delta(b'"thinking_delta","thinking":', piece.text)
        if piece.signature:
            written += self._delta(b'"signature_delta","signature":', piece.signature)
            written += self._end_block()
        return written

    def _tool(self, piece: ToolPiece) -> bytes:
        begin = b""
        if piece.name:
            call_id, name = _encode(safe_id(piece.id)), _encode(piece.name)
            begin = self._begin_block(
                "tool", b'"tool_use","id":%b,"name":%b,"input":{}' % (call_id, name)
            )
            self._call, self._arguments = piece.index, []
        elif piece.index != self._call:
            return b""  # whitespace after the end of a complete call
        if not piece.arguments:
            return begin
        self._arguments.append(piece.arguments)
        return begin + self._delta(b'"input_json_delta","partial_json":', piece.arguments)

    def _begin_block(self, block: BlockKind, head: bytes) -> bytes:
        before = self._message_start() + self._end_block()
        self._open = block
        self._index += 1
        body = b'"index":%d,"content_block":{"type":%b}' % (self._index, head)
        return before + _sse_event(b"content_block_start", body)

    def _end_block(self) -> bytes:
        if not self._open:
            return b""
        self._open, self._call = "", None
        return _sse_event(b"content_block_stop", b'"index":%d' % self._index)

    def _delta(self, kind: bytes, text: str) -> bytes:
        return (
            b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,'
            b'"delta":{"type":%b%b}}\n\n' % (self._index, kind, _encode(text))
        )

    def _message_start(self) -> bytes:
        if self._begun:
            return b""
        self._begun = True
        message: dict[str, object] = {
            **_answer_head(self._model),
            "content": (),
            "stop_reason": None,
            "stop_sequence": None,
            # What is not known yet follows at the end.
            "usage": anthropic_usage(self._usage or Usage()),
        }
        return _sse_event(b"message_start", b'"message":' + _encode(message))


def write_anthropic_answer(model: str, chunks: Iterable[AnswerChunk]) -> bytes:
    answer = build_answer(chunks)
    return _encode(
        {
            **_answer_head(model),
            "content": [wire_block(part) for part in answer.parts],
            "stop_reason": _STOP_NAMES[answer.reason_or_guess],
            "stop_sequence": None,
            "usage": anthropic_usage(answer.usage or Usage()),
        }
    )


def _as_pieces(part: MessagePart) -> Iterator[_ContentPiece]:
    match part:
        case MessageText(text=text):
            yield TextPiece(text=text)
        case MessageReasoning(text=text, signature=signature, redacted=redacted):
            yield ReasoningPiece(text=text, signature=signature, redacted=redacted)
        case MessageToolUse(id=call_id, name=name, arguments=arguments):
            yield ToolPiece(index=-1, id=call_id, name=name, arguments=arguments)
        case MessageImage() | MessageToolResult():
            raise AssertionError(f"not a part of an answer: {type(part).__name__}")


def _answer_head(model: str) -> dict[str, object]:
    return {"id": ANSWER_ID, "type": "message", "role": "assistant", "model": model}


def _sse_event(name: bytes, body: bytes) -> bytes:
    return b'event: %b\ndata: {"type":"%b",%b}\n\n' % (name, name, body)
