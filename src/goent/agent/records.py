"""What is kept of a session, and how does it become what a model and a client see?

A session is its records, in order. The conversation that a model is sent, and the events that a
client which loads the session is told, are both read from them; so what a killed process had
begun is there again, and a call that it never finished is told as one that was cut off.
"""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Literal

import msgspec
from msgspec import Struct

from goent.agent.content import Document, Given, Link, Picture, Words
from goent.agent.events import (
    AnyAgentEvent,
    Asked,
    Noticed,
    PlanChanged,
    Said,
    ToolCalled,
)
from goent.domain.types import PlanEntry, Usage
from goent.llm.talk import Image, Message, Part, Reasoning, Text, ToolResult, ToolUse, merged

CUT_OFF = "This call was cut off before it ended; it may or may not have had an effect."
SUMMARY = "Summary of the conversation so far (older messages are left out):\n\n"


class Record(Struct, frozen=True, kw_only=True, tag=True, tag_field="type", omit_defaults=True):
    """Tagged with its class name."""


class Piece(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of what a model said."""

    kind: Literal["text", "reasoning", "tool"]
    text: str = ""
    signature: str = ""
    redacted: str = ""
    id: str = ""
    name: str = ""


class Prompted(Record, frozen=True, kw_only=True):
    """The user spoke."""

    message: str
    given: tuple[Given, ...]


class Answered(Record, frozen=True, kw_only=True):
    """The model spoke: one answer, tool calls included."""

    message: str
    pieces: tuple[Piece, ...]
    model: str = ""


class Ran(Record, frozen=True, kw_only=True):
    """A tool call ended. `text` is what the model is told, `call` what people see."""

    call: ToolCalled
    text: str
    pictures: tuple[Picture, ...] = ()


class Planned(Record, frozen=True, kw_only=True):
    """The todo list changed."""

    entries: tuple[PlanEntry, ...]


class Spent(Record, frozen=True, kw_only=True):
    """A model call was counted."""

    usage: Usage
    cost_usd: Decimal | None


class Set(Record, frozen=True, kw_only=True):
    """Mode and model, from here on."""

    mode: str
    model: str


class Titled(Record, frozen=True, kw_only=True):
    """The session's title."""

    title: str


class Told(Record, frozen=True, kw_only=True):
    """Something that the user was told beside the conversation."""

    text: str


class Compacted(Record, frozen=True, kw_only=True):
    """What was said before is, for the model, this summary."""

    summary: str


AnyRecord = Prompted | Answered | Ran | Planned | Spent | Set | Titled | Told | Compacted

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(AnyRecord).decode


def pieces_of(parts: Sequence[Part]) -> tuple[Piece, ...]:
    """What a model said, as it is kept."""
    return tuple(piece for part in parts if (piece := _piece(part)))


def _piece(part: Part) -> Piece | None:
    match part:
        case Text(text=text):
            return Piece(kind="text", text=text)
        case Reasoning():
            return Piece(
                kind="reasoning",
                text=part.text,
                signature=part.signature,
                redacted=part.redacted,
            )
        case ToolUse():
            return Piece(kind="tool", id=part.id, name=part.name, text=part.arguments)
        case _:
            return None


def conversation(records: Sequence[AnyRecord]) -> tuple[Message, ...]:
    """What a model is sent: the two sides take turns, and every call has its result."""
    start = max((n for n, r in enumerate(records) if isinstance(r, Compacted)), default=0)
    results = {r.call.id: r for r in records if isinstance(r, Ran)}
    return merged(message for r in records[start:] for message in _messages(r, results))


def _messages(record: AnyRecord, results: dict[str, Ran]) -> Iterator[Message]:
    match record:
        case Compacted():
            yield Message(role="user", parts=(Text(text=SUMMARY + record.summary),))
        case Prompted():
            yield Message(role="user", parts=parts_of(record.given))
        case Answered() if record.pieces:
            yield Message(role="assistant", parts=tuple(map(_part, record.pieces)))
            calls = [piece.id for piece in record.pieces if piece.kind == "tool"]
            if calls:
                yield Message(role="user", parts=tuple(_result(c, results.get(c)) for c in calls))
        case _:
            pass


def _part(piece: Piece) -> Part:
    match piece.kind:
        case "text":
            return Text(text=piece.text)
        case "reasoning":
            return Reasoning(text=piece.text, signature=piece.signature, redacted=piece.redacted)
        case "tool":
            return ToolUse(id=piece.id, name=piece.name, arguments=piece.text)


def _result(call: str, ran: Ran | None) -> ToolResult:
    if ran is None:
        return ToolResult(id=call, parts=(Text(text=CUT_OFF),), is_error=True)
    images = tuple(Image(media_type=p.media_type, data=p.data) for p in ran.pictures)
    return ToolResult(
        id=call,
        parts=(Text(text=ran.text), *images),
        is_error=ran.call.status == "failed",
    )


def parts_of(given: Sequence[Given]) -> tuple[Part, ...]:
    """A prompt as a model reads it."""
    return tuple(_given(each) for each in given)


def _given(given: Given) -> Part:
    match given:
        case Words(text=text):
            return Text(text=text)
        case Picture():
            return Image(media_type=given.media_type, data=given.data)
        case Link():
            return Text(text=f"[{given.name or given.uri}]({given.uri})")
        case Document(text=None):
            return Text(text=f"[{given.uri}: not text, open it with a tool]")
        case Document():
            return Text(text=f'<file path="{given.uri}">\n{given.text}\n</file>')


def history(records: Sequence[AnyRecord]) -> Iterator[AnyAgentEvent]:
    """What a client that loads the session is told, in the order in which it happened."""
    finished = {r.call.id for r in records if isinstance(r, Ran)}
    for record in records:
        yield from _events(record, finished)


def _events(record: AnyRecord, finished: set[str]) -> Iterator[AnyAgentEvent]:
    match record:
        case Prompted():
            yield Asked(message=record.message, given=record.given)
        case Answered():
            for piece in record.pieces:
                if piece.kind != "tool" and piece.text:
                    role = "agent" if piece.kind == "text" else "thought"
                    yield Said(message=record.message, role=role, text=piece.text)
                elif piece.kind == "tool" and piece.id not in finished:
                    yield ToolCalled(
                        id=piece.id,
                        tool=piece.name,
                        kind="other",
                        title=piece.name,
                        status="failed",
                        output=CUT_OFF,
                    )
        case Ran():
            yield record.call
        case Planned():
            yield PlanChanged(entries=record.entries)
        case Told():
            yield Noticed(text=record.text)
        case _:
            pass
