"""What does a model say in OpenAI's dialect? Chat Completions, in a stream or whole."""

import msgspec
from msgspec import Raw, Struct

from goent.llm.broken import ended, not_understood, told_error
from goent.llm.openai_request import arguments_text
from goent.llm.place import START, Place
from goent.llm.sse import SseEvent
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
from goent.llm.tokens import UNREADABLE, OpenAiFigures

_STOPS: dict[str, StopReason] = {
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
# Reasons that are none: the provider gave up.
_FAILURES = frozenset({"error", "network_error", "insufficient_system_resource"})


class _Function(Struct):
    name: str | None = None
    arguments: Raw = Raw(b'""')


class _Call(Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Said(Struct):
    text: str | None = None
    thinking: "list[_Said] | None" = None


class _Delta(Struct):
    content: str | list[_Said] | None = None
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
_NOTHING = (b"", b"null")


class _Begun:
    """A tool call that has begun: what its vendor calls it, and what has been told of it."""

    __slots__ = ("id", "name", "vendors_index")

    def __init__(self, vendors_index: int | None) -> None:
        self.vendors_index = vendors_index
        self.id = ""
        self.name = ""


class OpenAiReader:
    """Reads the events of one stream, or one plain answer as if it were the only event."""

    def __init__(self) -> None:
        self.place = START
        self._stopped = False
        self._calls: list[_Begun] = []
        self._figures = OpenAiFigures()

    def read(self, event: SseEvent) -> tuple[Chunk, ...]:
        data = event.data
        if data == b"[DONE]":
            return ()
        try:
            answer = _decode(data)
            if answer.choices and answer.choices[0].index in (0, None):
                return self._choice(answer.choices[0], answer)
        except UNREADABLE as error:
            return (not_understood(data, error),)
        if event.event == b"error" or bytes(answer.error) not in _NOTHING:
            return (told_error(data),)
        return self._usage(answer.usage)

    def _choice(self, choice: _Choice, answer: _Answer) -> tuple[Chunk, ...]:
        chunks: list[Chunk] = []
        if delta := choice.delta or choice.message:
            thought = delta.reasoning_content or delta.reasoning
            if thought and isinstance(thought, str):
                chunks.append(ReasoningPiece(text=thought))
            if content := delta.content or delta.refusal:
                if isinstance(content, str):
                    chunks.append(TextPiece(text=content))
                else:
                    chunks += (piece for said in content for piece in _pieces(said))
            if delta.tool_calls:
                chunks += (self._tool(call) for call in delta.tool_calls)
        if not self.place.id or (delta and delta.tool_calls):
            self._move_on(answer.id)
        if choice.finish_reason and not self._stopped:
            self._stopped = True
            chunks.append(self._stop(choice.finish_reason))
        if bytes(answer.error) not in _NOTHING:
            chunks.append(told_error(msgspec.json.encode({"error": answer.error})))
        for told in (choice.usage, answer.usage):
            chunks += self._usage(told)
        return tuple(chunks)

    def _move_on(self, named: str | int | None) -> None:
        told = self.place.id or str(named or "")
        self.place = Place(begun=True, id=told, calls=len(self._calls))

    def _stop(self, reason: str) -> Stopped | Broken:
        if reason in _FAILURES:
            return Broken(message=f"the provider stopped with {reason!r}", kind=reason)
        stop = _STOPS.get(reason, "end")
        # Some vendors say "stop" although there are calls to be made.
        return Stopped(reason="tool_calls" if stop == "end" and self._calls else stop)

    def _usage(self, told: Raw) -> tuple[Chunk, ...]:
        if bytes(told) in _NOTHING:
            return ()
        before = self._figures.usage
        self._figures.add(bytes(told))
        usage = self._figures.usage
        return (UsageTold(usage=usage),) if usage and usage != before else ()

    def _tool(self, call: _Call) -> ToolPiece:
        function = call.function or _Function()
        name = function.name or ""
        index = self._which(call, name)
        begun = self._calls[index]
        # Some vendors repeat id and name in every piece.
        new_id = "" if begun.id else (call.id or "")
        new_name = "" if begun.name else name
        begun.id, begun.name = begun.id or new_id, begun.name or new_name
        arguments = arguments_text(function.arguments)
        return ToolPiece(index=index, id=new_id, name=new_name, arguments=arguments)

    def _which(self, call: _Call, name: str) -> int:
        """Our number of the call that the piece belongs to; not every vendor's index is one."""
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
        self._calls.append(_Begun(call.index))
        return len(self._calls) - 1


def _pieces(said: _Said) -> list[Chunk]:
    """Mistral's content: texts and thoughts in parts."""
    thought = "".join(part.text or "" for part in said.thinking or ())
    chunks: list[Chunk] = [ReasoningPiece(text=thought)] if thought else []
    return [*chunks, TextPiece(text=said.text)] if said.text else chunks


def read_answer(body: bytes) -> tuple[Chunk, ...]:
    return ended(OpenAiReader().read(SseEvent(b"", body)), body)
