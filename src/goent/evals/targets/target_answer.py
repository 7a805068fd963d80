"""Reads the answer of a command, fixture or recording as a trace.

An object has `text`, or `output` (older: `output_messages`) as messages with tool calls, and usage.
Anything else is the assistant's answer itself. A null is the same as nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import msgspec
from msgspec import Struct

from goent.evals.traces import CallStatus, TokenUsage, Trace, TracedCall, TracedMessage

Warn = Callable[[str], None]
_ANSWER_KEYS: Final = ("output", "output_messages", "text")


class _AnswerCall(Struct, kw_only=True, frozen=True):
    tool: str
    id: str | None = None
    input: object = None
    output: object = None
    status: str | None = None
    start_time: str | None = None
    end_time: str | None = None
    duration_ms: float | None = None


class _AnswerMessage(Struct, kw_only=True, frozen=True):
    role: str | None = None
    content: object = None
    tool_calls: tuple[_AnswerCall, ...] | None = None
    start_time: str | None = None
    end_time: str | None = None
    parent: str | None = None


class _AnswerTokens(Struct, kw_only=True, frozen=True):
    input: int | None = None
    output: int | None = None
    cached: int | None = None
    reasoning: int | None = None


class _CommandAnswer(Struct, kw_only=True, frozen=True):
    text: str | None = None
    output: tuple[_AnswerMessage, ...] | str | None = None
    output_messages: tuple[_AnswerMessage, ...] | None = None
    token_usage: _AnswerTokens | None = None
    cost_usd: float | None = None
    duration_ms: float | None = None
    start_time: str | None = None
    end_time: str | None = None
    file_changes: str | None = None


def read_answer(
    said: bytes, *, duration_ms: float | None = None, warn: Warn = lambda _: None
) -> Trace:
    """The trace of an attempt with this answer; `duration_ms` where the answer has none.

    Warns about an answer that looks like an object of this form, and is not.
    """
    try:
        answer = msgspec.json.decode(said, type=_CommandAnswer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if keys := _answer_keys(said):
            names = " and ".join(f"`{key}`" for key in keys)
            warn(f"an answer with {names} is read as plain text, tool calls included: {error}")
        text = said.decode(errors="replace").strip()
        return Trace(messages=_assistant_message(text), duration_ms=duration_ms)
    messages = _traced_messages(answer)
    if messages is None:  # an object of some other kind: it is the answer itself
        return Trace(messages=_assistant_message(said.decode().strip()), duration_ms=duration_ms)
    return Trace(
        messages=messages,
        usage=_token_usage(answer.token_usage),
        cost_usd=answer.cost_usd,
        duration_ms=duration_ms if answer.duration_ms is None else answer.duration_ms,
        start_time=answer.start_time,
        end_time=answer.end_time,
        file_changes=answer.file_changes or "",
    )


def read_fixture(
    answer: Mapping[str, object] | Sequence[object] | str, warn: Warn = lambda _: None
) -> Trace:
    """The trace of an answer from a targets file or fixture."""
    said = answer.encode() if isinstance(answer, str) else msgspec.json.encode(answer)
    return read_answer(said, warn=warn)


def _answer_keys(said: bytes) -> list[str]:
    """The keys of an answer that it has, if it is an object at all."""
    with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found = msgspec.json.decode(said, type=dict[str, msgspec.Raw])
        return [key for key in _ANSWER_KEYS if key in found]
    return []


def _token_usage(given: _AnswerTokens | None) -> TokenUsage | None:
    if given is None:
        return None
    return TokenUsage(
        input=given.input or 0,
        output=given.output or 0,
        cached=given.cached or 0,
        reasoning=given.reasoning or 0,
    )


def _traced_messages(answer: _CommandAnswer) -> tuple[TracedMessage, ...] | None:
    told = answer.output_messages if answer.output is None else answer.output
    if isinstance(told, str):
        return _assistant_message(told)
    if told is not None:
        return tuple(map(_traced_message, told))
    return None if answer.text is None else _assistant_message(answer.text)


def _assistant_message(text: str) -> tuple[TracedMessage, ...]:
    return (TracedMessage(role="assistant", content=text),)


def _traced_message(told: _AnswerMessage) -> TracedMessage:
    return TracedMessage(
        role=told.role or "assistant",
        content="" if told.content is None else told.content,
        tool_calls=tuple(map(_traced_call, told.tool_calls or ())),
        start_time=told.start_time,
        end_time=told.end_time,
        parent=told.parent or None,
    )


def _traced_call(told: _AnswerCall) -> TracedCall:
    return TracedCall(
        tool=told.tool,
        id=told.id or "",
        input=told.input,
        output=told.output,
        status=_call_status(told.status),
        start_time=told.start_time,
        end_time=told.end_time,
        duration_ms=told.duration_ms,
    )


def _call_status(told: str | None) -> CallStatus:
    match told:
        case "ok" | "error" | "timeout" | "cancelled":
            return told
        case _:
            return "unknown"
