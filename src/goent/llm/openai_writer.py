"""How is an answer said in OpenAI's dialect? Chat Completions, as a stream or whole."""

from collections.abc import Iterable

import msgspec

from goent.domain.types import Usage
from goent.llm.calls import CallsInPieces
from goent.llm.errors import error_event
from goent.llm.gather import gather
from goent.llm.place import START, Place
from goent.llm.talk import (
    Broken,
    Chunk,
    ReasoningPiece,
    Stopped,
    StopReason,
    TextPiece,
    ToolPiece,
    UsageTold,
)
from goent.llm.tokens import openai_usage

ID = "chatcmpl-goent"
_STOPS: dict[StopReason, str] = {
    "end": "stop",
    "tool_calls": "tool_calls",
    "length": "length",
    "refused": "content_filter",
}

_json = msgspec.json.encode


class OpenAiWriter:
    """Writes one stream, or the rest of one."""

    def __init__(self, model: str, *, after: Place = START, tell_usage: bool = True) -> None:
        head = _head(after.id or ID, "chat.completion.chunk", model)
        self._head = b"data: " + _json(head)[:-1]
        self._role = b"" if after.begun else b'"role":"assistant",'
        self._calls = CallsInPieces(first=after.calls)
        self._tell_usage = tell_usage
        self._usage: Usage | None = None
        self._ended = False  # by a finish reason or an error

    def write(self, chunk: Chunk) -> bytes:
        match chunk:
            case TextPiece():
                return self._delta(b'"content":' + _json(chunk.text))
            case ReasoningPiece():
                # Neither signatures nor hidden thoughts have a place here.
                return (
                    self._delta(b'"reasoning_content":' + _json(chunk.text)) if chunk.text else b""
                )
            case ToolPiece():
                return b"".join(self._tool(piece) for piece in self._calls.add(chunk))
            case UsageTold():
                self._usage = chunk.usage
                return b""
            case Stopped():
                return self._stop(chunk.reason)
            case Broken():
                self._ended = True
                return error_event("openai", chunk.message)

    def close(self) -> bytes:
        ending = b"" if self._ended else self._stop("tool_calls" if self._calls.begun else "end")
        if self._usage and self._tell_usage:
            usage = _json(openai_usage(self._usage))
            ending += b'%b,"choices":[],"usage":%b}\n\n' % (self._head, usage)
        return ending + b"data: [DONE]\n\n"

    def _stop(self, reason: StopReason) -> bytes:
        if self._ended:
            return b""
        late = b"".join(self._tool(piece) for piece in self._calls.rest())
        self._ended = True
        return late + self._choice(self._role.rstrip(b","), b'"%b"' % _STOPS[reason].encode())

    def _tool(self, piece: ToolPiece) -> bytes:
        function: dict[str, str] = {"arguments": piece.arguments}
        call: dict[str, object] = {"index": piece.index, "function": function}
        if piece.name:
            call |= {"id": piece.id, "type": "function"}
            function["name"] = piece.name
        return self._delta(b'"tool_calls":[%b]' % _json(call))

    def _delta(self, said: bytes) -> bytes:
        role, self._role = self._role, b""
        return self._choice(role + said, b"null")

    def _choice(self, delta: bytes, reason: bytes) -> bytes:
        return b'%b,"choices":[{"index":0,"delta":{%b},"finish_reason":%b}]}\n\n' % (
            self._head,
            delta,
            reason,
        )


def write_answer(model: str, chunks: Iterable[Chunk]) -> bytes:
    answer = gather(chunks)
    message: dict[str, object] = {"role": "assistant", "content": answer.text or None}
    if answer.reasoning:
        message["reasoning_content"] = answer.reasoning
    if answer.calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in answer.calls
        ]
    choice = {"index": 0, "message": message, "finish_reason": _STOPS[answer.reason]}
    head = _head(ID, "chat.completion", model)
    usage = {"usage": openai_usage(answer.usage)} if answer.usage else {}
    return _json({**head, "choices": [choice], **usage})


def _head(message_id: str, kind: str, model: str) -> dict[str, object]:
    return {"id": message_id, "object": kind, "created": 0, "model": model}
