"""What do OpenCode's messages say of an attempt? Texts and tool calls, as a trace has them."""

from datetime import UTC, datetime

import msgspec
from msgspec import UNSET, Raw, UnsetType

from goent.drivers.opencode.shapes import Message, Part, Reading
from goent.evals.targets.opencode.subagents import Spoken
from goent.evals.traces import CallStatus, TracedCall, TracedMessage

ABORTED = "Tool execution aborted"
MS = 1000.0


class _Span(Reading, frozen=True, kw_only=True):
    start: float | None = None
    end: float | None = None


class _State(Reading, frozen=True, kw_only=True):
    """How far a tool call has come, and what came out of it."""

    status: str = ""
    input: Raw | UnsetType = UNSET
    output: str = ""
    error: str = ""
    time: _Span = _Span()


def traced(spoken: Spoken) -> TracedMessage:
    """Its text parts joined, and its tool calls in order; what OpenCode itself put in is left out."""
    message = spoken.message
    texts = (part.text for part in message.parts if part.type == "text" and not part.synthetic)
    return TracedMessage(
        role=message.info.role,
        content="".join(texts),
        tool_calls=tuple(_call(part) for part in message.parts if part.type == "tool"),
        start_time=iso(message.info.time.created),
        end_time=iso(message.info.time.completed),
        parent=spoken.parent,
    )


def model_calls(message: Message) -> int:
    """How often a model was asked for it, retries apart."""
    return sum(part.type == "step-finish" for part in message.parts)


def iso(ms: float | None) -> str | None:
    """OpenCode's time, milliseconds since the epoch, as ISO 8601; None if there is none."""
    if not ms:
        return None
    return datetime.fromtimestamp(ms / MS, UTC).isoformat(timespec="milliseconds")


def _call(part: Part) -> TracedCall:
    state = _state(part)
    start, end = state.time.start, state.time.end
    return TracedCall(
        id=part.call,
        tool=part.tool,
        input=None if state.input is UNSET else msgspec.json.decode(state.input),
        output=_output(state),
        status=_status(state),
        start_time=iso(start),
        end_time=iso(end),
        duration_ms=end - start if start and end else None,
    )


def _output(state: _State) -> object:
    match state.status:
        case "completed":
            return state.output
        case "error":
            return {"error": state.error}
        case _:
            return None


def _status(state: _State) -> CallStatus:
    match state.status:
        case "completed":
            return "ok"
        case "error":
            return "cancelled" if state.error.startswith(ABORTED) else "error"
        case _:
            return "unknown"


def _state(part: Part) -> _State:
    try:
        return msgspec.json.decode(part.state, type=_State)
    except msgspec.DecodeError:
        return _State()
