"""Which tool call made a subagent, and what did that one say?

A `task` call names the session that it began. One that goes on with an earlier subagent names its session
again, so that of several calls the last that had begun made the message.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from goent.domain.types import Value
from goent.drivers.opencode.shapes import Message, Part, Reading

TOOL = "task"


class Delegation(Value, frozen=True, kw_only=True):
    """A part that is such a call. Calls of different messages may have the same id, parts do not."""

    part: str
    call: str
    session: str
    start: float


class Spoken(Value, frozen=True, kw_only=True):
    """A message, and the id of the call whose subagent says it; None if it is the agent's own."""

    message: Message
    parent: str | None = None


class _Metadata(Reading, frozen=True, kw_only=True, rename={"session": "sessionId"}):
    session: str = ""


class _Time(Reading, frozen=True, kw_only=True):
    start: float = 0


class _State(Reading, frozen=True, kw_only=True):
    metadata: _Metadata = _Metadata()
    time: _Time = _Time()


def delegations(messages: Sequence[Message]) -> Iterator[Delegation]:
    for message in messages:
        for part in message.parts:
            if part.type == "tool" and part.tool == TOOL:
                yield from _delegation(part)


def in_order(own: str, sessions: Mapping[str, Sequence[Message]]) -> tuple[Spoken, ...]:
    """What the agent said in the session `own`; what a subagent said is after the message that has its call."""
    calls: dict[str, list[Delegation]] = {}
    for messages in sessions.values():
        for each in delegations(messages):
            calls.setdefault(each.session, []).append(each)
    said: dict[str, list[Spoken]] = {"": [Spoken(message=one) for one in sessions.get(own, ())]}
    for session in calls.keys() & sessions.keys() - {own}:
        for message in sessions[session]:
            by = _maker(calls[session], message)
            said.setdefault(by.part, []).append(Spoken(message=message, parent=by.call))
    return tuple(_walk(said, ""))


def _walk(said: dict[str, list[Spoken]], part: str) -> Iterator[Spoken]:
    for spoken in said.pop(part, ()):
        yield spoken
        for inner in spoken.message.parts:
            yield from _walk(said, inner.id)


def _maker(calls: Sequence[Delegation], message: Message) -> Delegation:
    begun = [call for call in calls if call.start <= message.info.time.created]
    return max(begun or calls[:1], key=lambda call: call.start)


def _delegation(part: Part) -> Iterator[Delegation]:
    try:
        state = msgspec.json.decode(part.state, type=_State)
    except msgspec.DecodeError:
        return
    if state.metadata.session:
        yield Delegation(
            part=part.id,
            call=part.call,
            session=state.metadata.session,
            start=state.time.start,
        )
