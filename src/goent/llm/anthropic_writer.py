"""How is an answer said in Anthropic's dialect? Messages, as a stream or whole."""

from collections.abc import Iterable, Iterator

import msgspec

from goent.domain.types import Usage
from goent.llm.anthropic_rules import as_object, safe_id
from goent.llm.calls import CallsInPieces
from goent.llm.errors import error_event
from goent.llm.gather import gather
from goent.llm.place import START, Block, Place
from goent.llm.talk import (
    Broken,
    Chunk,
    Image,
    Part,
    Reasoning,
    ReasoningPiece,
    Stopped,
    StopReason,
    Text,
    TextPiece,
    ToolPiece,
    ToolResult,
    ToolUse,
    UsageTold,
)
from goent.llm.tokens import anthropic_usage

ID = "msg_goent"
_STOPS: dict[StopReason, str] = {
    "end": "end_turn",
    "tool_calls": "tool_use",
    "length": "max_tokens",
    "refused": "refusal",
}

_Piece = TextPiece | ReasoningPiece | ToolPiece
_json = msgspec.json.encode


class AnthropicWriter:
    """Writes one stream, or the rest of one.

    The vendor's blocks come one after the other. Who speaks of other things before a tool call is
    whole has to wait with them until the end.
    """

    def __init__(self, model: str, *, after: Place = START) -> None:
        self._model = model
        self._begun = after.begun
        self._index = after.blocks - 1  # of the last block
        self._open: Block = after.open
        self._calls = CallsInPieces(first=after.calls)
        self._call: int | None = None  # the number of the call whose block is open
        self._arguments: list[str] = []  # of that call
        self._waiting: list[_Piece] = []
        self._usage: Usage | None = None
        self._reason: StopReason | None = None
        self._broken = False

    def write(self, chunk: Chunk) -> bytes:
        match chunk:
            case TextPiece() | ReasoningPiece():
                return self._piece(chunk)
            case ToolPiece():
                return b"".join(self._piece(piece) for piece in self._calls.add(chunk))
            case UsageTold():
                self._usage = chunk.usage
                return b""
            case Stopped():
                self._reason = self._reason or chunk.reason
                return b""
            case Broken():
                self._broken = True
                return error_event("anthropic", chunk.message)

    def close(self) -> bytes:
        if self._broken:
            return b""
        rest = b"".join(self._piece(piece) for piece in self._calls.rest())
        rest += self._end_block()
        for part in gather(self._waiting).parts:
            rest += b"".join(self._say(piece) for piece in _as_pieces(part)) + self._end_block()
        reason = self._reason or ("tool_calls" if self._calls.begun else "end")
        ending = _json({"stop_reason": _STOPS[reason], "stop_sequence": None})
        usage = _json(anthropic_usage(self._usage or Usage()))
        return (
            self._message_start()
            + rest
            + _event(b"message_delta", b'"delta":%b,"usage":%b' % (ending, usage))
            + b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
        )

    def _piece(self, piece: _Piece) -> bytes:
        if self._call is None or (isinstance(piece, ToolPiece) and piece.index == self._call):
            return self._say(piece)
        if self._waiting or not _whole("".join(self._arguments)):
            self._waiting.append(piece)
            return b""
        return self._end_block() + self._say(piece)

    def _say(self, piece: _Piece) -> bytes:
        match piece:
            case TextPiece():
                begin = b"" if self._open == "text" else self._begin("text", b'"text","text":""')
                return begin + self._delta(b'"text_delta","text":', piece.text)
            case ReasoningPiece():
                return self._reasoning(piece)
            case ToolPiece():
                return self._tool(piece)

    def _reasoning(self, piece: ReasoningPiece) -> bytes:
        if piece.redacted:
            data = _json(piece.redacted)
            return (
                self._begin("reasoning", b'"redacted_thinking","data":' + data) + self._end_block()
            )
        written = b""
        if self._open != "reasoning":
            written = self._begin("reasoning", b'"thinking","thinking":"","signature":""')
        if piece.text:
            written += self._delta(b'"thinking_delta","thinking":', piece.text)
        if piece.signature:
            written += self._delta(b'"signature_delta","signature":', piece.signature)
            written += self._end_block()
        return written

    def _tool(self, piece: ToolPiece) -> bytes:
        begin = b""
        if piece.name:
            call_id, name = _json(safe_id(piece.id)), _json(piece.name)
            begin = self._begin(
                "tool", b'"tool_use","id":%b,"name":%b,"input":{}' % (call_id, name)
            )
            self._call, self._arguments = piece.index, []
        elif piece.index != self._call:
            return b""  # something after the end of a call that was whole: blanks
        if not piece.arguments:
            return begin
        self._arguments.append(piece.arguments)
        return begin + self._delta(b'"input_json_delta","partial_json":', piece.arguments)

    def _begin(self, block: Block, head: bytes) -> bytes:
        before = self._message_start() + self._end_block()
        self._open = block
        self._index += 1
        body = b'"index":%d,"content_block":{"type":%b}' % (self._index, head)
        return before + _event(b"content_block_start", body)

    def _end_block(self) -> bytes:
        if not self._open:
            return b""
        self._open, self._call = "", None
        return _event(b"content_block_stop", b'"index":%d' % self._index)

    def _delta(self, kind: bytes, said: str) -> bytes:
        return (
            b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,'
            b'"delta":{"type":%b%b}}\n\n' % (self._index, kind, _json(said))
        )

    def _message_start(self) -> bytes:
        if self._begun:
            return b""
        self._begun = True
        message: dict[str, object] = {
            **_head(self._model),
            "content": (),
            "stop_reason": None,
            "stop_sequence": None,
            # What is not known yet is told at the end.
            "usage": anthropic_usage(self._usage or Usage()),
        }
        return _event(b"message_start", b'"message":' + _json(message))


def write_answer(model: str, chunks: Iterable[Chunk]) -> bytes:
    answer = gather(chunks)
    return _json(
        {
            **_head(model),
            "content": [_block(part) for part in answer.parts],
            "stop_reason": _STOPS[answer.reason],
            "stop_sequence": None,
            "usage": anthropic_usage(answer.usage or Usage()),
        }
    )


def _whole(arguments: str) -> bool:
    try:
        msgspec.json.decode(arguments, type=msgspec.Raw)
    except msgspec.DecodeError:
        return False
    return True


def _as_pieces(part: Part) -> Iterator[_Piece]:
    match part:
        case Text(text=text):
            yield TextPiece(text=text)
        case Reasoning(text=text, signature=signature, redacted=redacted):
            yield ReasoningPiece(text=text, signature=signature, redacted=redacted)
        case ToolUse(id=call_id, name=name, arguments=arguments):
            yield ToolPiece(index=-1, id=call_id, name=name, arguments=arguments)
        case Image() | ToolResult():
            raise _unsayable(part)


def _block(part: Part) -> dict[str, object]:
    match part:
        case Text(text=text):
            return {"type": "text", "text": text}
        case Reasoning(redacted=data) if data:
            return {"type": "redacted_thinking", "data": data}
        case Reasoning(text=text, signature=signature):
            return {"type": "thinking", "thinking": text, "signature": signature}
        case ToolUse(id=call_id, name=name, arguments=arguments):
            head = {"type": "tool_use", "id": safe_id(call_id), "name": name}
            return {**head, "input": as_object(arguments)}
        case Image() | ToolResult():
            raise _unsayable(part)


def _unsayable(part: Part) -> AssertionError:
    return AssertionError(f"no model says a {type(part).__name__}")


def _head(model: str) -> dict[str, object]:
    return {"id": ID, "type": "message", "role": "assistant", "model": model}


def _event(name: bytes, body: bytes) -> bytes:
    return b'event: %b\ndata: {"type":"%b",%b}\n\n' % (name, name, body)
