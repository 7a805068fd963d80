"""Reads and writes answers in OpenAI's dialect, streamed or whole."""

from collections.abc import Iterable

import msgspec
from msgspec import Raw, Struct

from goent.domain.types import Usage
from goent.providers.model_messages import (
    STREAM_START,
    AnswerChunk,
    AnswerStopReason,
    ErrorPiece,
    ReasoningPiece,
    StopPiece,
    StreamPosition,
    TextPiece,
    ToolCallAssembler,
    ToolPiece,
    UsagePiece,
    build_answer,
)
from goent.providers.openai_requests import arguments_text
from goent.providers.provider_errors import error_event, error_piece, malformed_piece, with_stop
from goent.providers.sse import SseEvent
from goent.providers.token_usage import DECODE_ERRORS, OpenAiUsageReader, openai_usage

_STOP_REASONS: dict[str, AnswerStopReason] = {
    "stop": "end",
    "length": "length",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",  # Z.AI
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "refused",
    "sensitive": "refused",  # Z.AI
    "refusal": "refused",
}
# Not reasons to stop: the provider gave up.
_FAILURE_REASONS = frozenset({"error", "network_error", "insufficient_system_resource"})


class _Function(Struct):
    name: str | None = None
    arguments: Raw = Raw(b'""')


class _Call(Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _ContentPart(Struct):
    text: str | None = None
    thinking: "list[_ContentPart] | None" = None


class _Delta(Struct):
    content: str | list[_ContentPart] | None = None
    reasoning_content: str | None = None  # DeepSeek, Moonshot, Z.AI
    reasoning: str | dict[str, Raw] | None = None  # OpenRouter, vLLM; elsewhere its settings
    refusal: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(Struct):
    index: int | None = 0
    delta: _Delta | None = None
    message: _Delta | None = None  # of a plain answer
    finish_reason: str | None = None
    usage: Raw = Raw()  # Moonshot


class _Answer(Struct):
    id: str | int | None = None
    choices: list[_Choice] | None = None
    usage: Raw = Raw()
    error: Raw = Raw()


_decode = msgspec.json.Decoder(_Answer).decode
_EMPTY = (b"", b"null")


class _OpenCall:
    """A tool call that has begun: its vendor's index, and the id and name as far as they came."""

    __slots__ = ("id", "name", "vendors_index")

    def __init__(self, vendors_index: int | None) -> None:
        self.vendors_index = vendors_index
        self.id = ""
        self.name = ""


class OpenAiReader:
    """Reads the events of one stream, or one plain answer as if it were the only event."""

    def __init__(self) -> None:
        self.place = STREAM_START
        self._stopped = False
        self._calls: list[_OpenCall] = []
        self._figures = OpenAiUsageReader()

    def read(self, event: SseEvent) -> tuple[AnswerChunk, ...]:
        data = event.data
        if data == b"[DONE]":
            return ()
        try:
            answer = _decode(data)
            if answer.choices and answer.choices[0].index in (0, None):
                return self._choice(answer.choices[0], answer)
        except DECODE_ERRORS as error:
            return (malformed_piece(data, error),)
        if event.event == b"error" or bytes(answer.error) not in _EMPTY:
            return (error_piece(data),)
        return self._usage(answer.usage)

    def _choice(self, choice: _Choice, answer: _Answer) -> tuple[AnswerChunk, ...]:
        chunks: list[AnswerChunk] = []
        if delta := choice.delta or choice.message:
            thought = delta.reasoning_content or delta.reasoning
            if thought and isinstance(thought, str):
                chunks.append(ReasoningPiece(text=thought))
            if content := delta.content or delta.refusal:
                if isinstance(content, str):
                    chunks.append(TextPiece(text=content))
                else:
                    chunks += (piece for part in content for piece in _pieces(part))
            if delta.tool_calls:
                chunks += (self._tool(call) for call in delta.tool_calls)
        if not self.place.id or (delta and delta.tool_calls):
            known_id = self.place.id or str(answer.id or "")
            self.place = StreamPosition(begun=True, id=known_id, calls=len(self._calls))
        if choice.finish_reason and not self._stopped:
            self._stopped = True
            chunks.append(self._stop(choice.finish_reason))
        if bytes(answer.error) not in _EMPTY:
            chunks.append(error_piece(msgspec.json.encode({"error": answer.error})))
        for usage in (choice.usage, answer.usage):
            chunks += self._usage(usage)
        return tuple(chunks)

    def _stop(self, reason: str) -> StopPiece | ErrorPiece:
        if reason in _FAILURE_REASONS:
            return ErrorPiece(message=f"the provider stopped with {reason!r}", kind=reason)
        stop = _STOP_REASONS.get(reason, "end")
        # Some vendors say "stop" although the model made calls.
        return StopPiece(reason="tool_calls" if stop == "end" and self._calls else stop)

    def _usage(self, encoded: Raw) -> tuple[AnswerChunk, ...]:
        usage = None if bytes(encoded) in _EMPTY else self._figures.update(bytes(encoded))
        return (UsagePiece(usage=usage),) if usage else ()

    def _tool(self, call: _Call) -> ToolPiece:
        function = call.function or _Function()
        name = function.name or ""
        index = self._call_index(call, name)
        begun = self._calls[index]
        # Some vendors repeat id and name in every piece.
        new_id = "" if begun.id else (call.id or "")
        new_name = "" if begun.name else name
        begun.id, begun.name = begun.id or new_id, begun.name or new_name
        arguments = arguments_text(function.arguments)
        return ToolPiece(index=index, id=new_id, name=new_name, arguments=arguments)

    def _call_index(self, call: _Call, name: str) -> int:
        """The number of the call that the piece belongs to; vendors' own indexes are not reliable."""
        for index in range(len(self._calls) - 1, -1, -1):
            begun = self._calls[index]
            if call.id and begun.id:
                same = call.id == begun.id and call.index in (None, begun.vendors_index)
            elif call.index is not None:
                same = call.index == begun.vendors_index
            else:  # neither id nor index: a second name begins a second call
                same = index == len(self._calls) - 1 and not (name and begun.name)
            if same:
                return index
        self._calls.append(_OpenCall(call.index))
        return len(self._calls) - 1


def _pieces(part: _ContentPart) -> list[AnswerChunk]:
    """Mistral's content: text and reasoning in parts."""
    thought = "".join(each.text or "" for each in part.thinking or ())
    chunks: list[AnswerChunk] = [ReasoningPiece(text=thought)] if thought else []
    return [*chunks, TextPiece(text=part.text)] if part.text else chunks


def read_openai_answer(body: bytes) -> tuple[AnswerChunk, ...]:
    return with_stop(OpenAiReader().read(SseEvent(b"", body)), body)


ANSWER_ID = "chatcmpl-goent"
_STOP_NAMES: dict[AnswerStopReason, str] = {
    "end": "stop",
    "tool_calls": "tool_calls",
    "length": "length",
    "refused": "content_filter",
}

_encode = msgspec.json.encode


class OpenAiWriter:
    """Writes one stream, or the rest of one."""

    def __init__(self, model: str, *, after: StreamPosition = STREAM_START) -> None:
        head = _answer_head(after.id or ANSWER_ID, "chat.completion.chunk", model)
        self._head = b"data: " + _encode(head)[:-1]
        self._role = b"" if after.begun else b'"role":"assistant",'
        self._calls = ToolCallAssembler(first=after.calls)
        self._usage: Usage | None = None
        self._ended = False  # by a finish reason or an error

    def write(self, chunk: AnswerChunk) -> bytes:
        match chunk:
            case TextPiece():
                return self._delta(b'"content":' + _encode(chunk.text))
            case ReasoningPiece():
                if not chunk.text:
                    return b""  # the dialect has no place for signatures and redacted reasoning
                return self._delta(b'"reasoning_content":' + _encode(chunk.text))
            case ToolPiece():
                return b"".join(map(self._tool, self._calls.add(chunk)))
            case UsagePiece():
                self._usage = chunk.usage
                return b""
            case StopPiece():
                return self._stop(chunk.reason)
            case ErrorPiece():
                self._ended = True
                return error_event("openai", chunk.message)

    def close(self) -> bytes:
        ending = self._stop("tool_calls" if self._calls.has_calls else "end")
        if self._usage:
            usage = _encode(openai_usage(self._usage))
            ending += b'%b,"choices":[],"usage":%b}\n\n' % (self._head, usage)
        return ending + b"data: [DONE]\n\n"

    def _stop(self, reason: AnswerStopReason) -> bytes:
        if self._ended:
            return b""
        late = b"".join(map(self._tool, self._calls.finish()))
        self._ended = True
        return late + self._choice(self._role.rstrip(b","), b'"%b"' % _STOP_NAMES[reason].encode())

    def _tool(self, piece: ToolPiece) -> bytes:
        function: dict[str, str] = {"arguments": piece.arguments}
        call: dict[str, object] = {"index": piece.index, "function": function}
        if piece.name:
            call |= {"id": piece.id, "type": "function"}
            function["name"] = piece.name
        return self._delta(b'"tool_calls":[%b]' % _encode(call))

    def _delta(self, field: bytes) -> bytes:
        role, self._role = self._role, b""
        return self._choice(role + field, b"null")

    def _choice(self, delta: bytes, reason: bytes) -> bytes:
        return b'%b,"choices":[{"index":0,"delta":{%b},"finish_reason":%b}]}\n\n' % (
            self._head,
            delta,
            reason,
        )


def write_openai_answer(model: str, chunks: Iterable[AnswerChunk]) -> bytes:
    answer = build_answer(chunks)
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
    choice = {"index": 0, "message": message, "finish_reason": _STOP_NAMES[answer.reason_or_guess]}
    head = _answer_head(ANSWER_ID, "chat.completion", model)
    usage = {"usage": openai_usage(answer.usage)} if answer.usage else {}
    return _encode({**head, "choices": [choice], **usage})


def _answer_head(message_id: str, kind: str, model: str) -> dict[str, object]:
    return {"id": message_id, "object": kind, "created": 0, "model": model}
