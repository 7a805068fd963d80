"""What does a command's answer say? JSON in the known shapes, or text.

An object tells `text`, or `output` (older: `output_messages`) as messages with tool calls, and how
much it took. Whatever else it is, it is what the assistant said. A null is as good as nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import msgspec
from msgspec import Struct

from goent.evals.traces import CallStatus, TokenUsage, Trace, TracedCall, TracedMessage

Warn = Callable[[str], None]
_TELLING: Final = ("output", "output_messages", "text")


class _Call(Struct, kw_only=True, frozen=True):
    tool: str
    id: str | None = None
    input: object = None
    output: object = None
    status: str | None = None
    start_time: str | None = None
    end_time: str | None = None
    duration_ms: float | None = None


class _Message(Struct, kw_only=True, frozen=True):
    role: str | None = None
    content: object = None
    tool_calls: tuple[_Call, ...] | None = None
    start_time: str | None = None
    end_time: str | None = None
    parent: str | None = None


class _Tokens(Struct, kw_only=True, frozen=True):
    input: int | None = None
    output: int | None = None
    cached: int | None = None
    reasoning: int | None = None


class _Answer(Struct, kw_only=True, frozen=True):
    text: str | None = None
    output: tuple[_Message, ...] | str | None = None
    output_messages: tuple[_Message, ...] | None = None
    token_usage: _Tokens | None = None
    cost_usd: float | None = None
    duration_ms: float | None = None
    start_time: str | None = None
    end_time: str | None = None
    file_changes: str | None = None


def read_answer(
    said: bytes, *, duration_ms: float | None = None, warn: Warn = lambda _: None
) -> Trace:
    """The trace of an attempt that answered with this; `duration_ms` where it tells none itself.

    `warn` is told of an answer that wants to be more than text, and is not.
    """
    try:
        answer = msgspec.json.decode(said, type=_Answer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if keys := _told_by(said):
            tells = " and ".join(f"`{key}`" for key in keys)
            warn(f"an answer with {tells} is taken for text, its tool calls too, for {error}")
        text = said.decode(errors="replace").strip()
        return Trace(messages=_spoken(text), duration_ms=duration_ms)
    messages = _messages(answer)
    if messages is None:  # an object of some other kind: it is the answer itself
        return Trace(messages=_spoken(said.decode().strip()), duration_ms=duration_ms)
    told = answer.token_usage
    return Trace(
        messages=messages,
        usage=TokenUsage(
            input=told.input or 0,
            output=told.output or 0,
            cached=told.cached or 0,
            reasoning=told.reasoning or 0,
        )
        if told
        else None,
        cost_usd=answer.cost_usd,
        duration_ms=duration_ms if answer.duration_ms is None else answer.duration_ms,
        start_time=answer.start_time,
        end_time=answer.end_time,
        file_changes=answer.file_changes or "",
    )


def _told_by(said: bytes) -> list[str]:
    """Which keys of an answer it has, if it is an object at all."""
    with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found = msgspec.json.decode(said, type=dict[str, msgspec.Raw])
        return [key for key in _TELLING if key in found]
    return []


def _messages(answer: _Answer) -> tuple[TracedMessage, ...] | None:
    told = answer.output_messages if answer.output is None else answer.output
    if isinstance(told, str):
        return _spoken(told)
    if told is not None:
        return tuple(map(_message, told))
    return None if answer.text is None else _spoken(answer.text)


def _spoken(text: str) -> tuple[TracedMessage, ...]:
    return (TracedMessage(role="assistant", content=text),)


def _message(told: _Message) -> TracedMessage:
    return TracedMessage(
        role=told.role or "assistant",
        content="" if told.content is None else told.content,
        tool_calls=tuple(map(_call, told.tool_calls or ())),
        start_time=told.start_time,
        end_time=told.end_time,
        parent=told.parent or None,
    )


def _call(told: _Call) -> TracedCall:
    return TracedCall(
        tool=told.tool,
        id=told.id or "",
        input=told.input,
        output=told.output,
        status=_status(told.status),
        start_time=told.start_time,
        end_time=told.end_time,
        duration_ms=told.duration_ms,
    )


def _status(told: str | None) -> CallStatus:
    match told:
        case "ok" | "error" | "timeout" | "cancelled":
            return told
        case _:
            return "unknown"


def read_fixture(
    answer: Mapping[str, object] | Sequence[object] | str, warn: Warn = lambda _: None
) -> Trace:
    """The same, of an answer that stands in a file of targets or fixtures."""
    said = answer.encode() if isinstance(answer, str) else msgspec.json.encode(answer)
    return read_answer(said, warn=warn)
