"""Stores the records of a session, rebuilds its conversation from them, and reports to the client.

A session is its records, in order. Both the conversation for a model and the events for a client
that loads the session are derived from them. So the work of a killed process is restored, and a
call that it never finished appears as interrupted.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from itertools import chain, count
from typing import Literal

import anyio
import msgspec
from msgspec import Struct

from goent.agent.agent_events import (
    AnyAgentEvent,
    Asked,
    FilePart,
    ImagePart,
    LinkPart,
    Noticed,
    OptionsChanged,
    PlanChanged,
    PromptPart,
    Retitled,
    Said,
    TextPart,
    ToolCalled,
    UsageChanged,
)
from goent.agent.agent_ports import AgentClient, Rejection, ToolQuestion
from goent.billing.token_estimate import estimate_tokens
from goent.domain.errors import EnvironmentTrouble
from goent.domain.types import PermissionAnswer, PlanEntry, Usage
from goent.providers.model_messages import (
    ChatMessage,
    MessageImage,
    MessagePart,
    MessageReasoning,
    MessageText,
    MessageToolResult,
    MessageToolUse,
    merge_turns,
)
from goent.store.session_store import KeptSession, SqliteSessions

DEFAULT_CONTEXT_WINDOW = 128_000

CUT_OFF_TEXT = "This call was cut off before it ended; it may or may not have had an effect."
SUMMARY_PREFIX = "Summary of the conversation so far (older messages are left out):\n\n"


class SessionRecord(
    Struct, frozen=True, kw_only=True, tag=True, tag_field="type", omit_defaults=True
):
    """Tagged with its class name."""


class AnswerPiece(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of a model's answer."""

    kind: Literal["text", "reasoning", "tool"]
    text: str = ""
    signature: str = ""
    redacted: str = ""
    id: str = ""
    name: str = ""


class Prompted(SessionRecord, frozen=True, kw_only=True):
    """A prompt of the user."""

    message: str
    given: tuple[PromptPart, ...]


class Answered(SessionRecord, frozen=True, kw_only=True):
    """One answer of the model, tool calls included."""

    message: str
    pieces: tuple[AnswerPiece, ...]
    model: str = ""


class Ran(SessionRecord, frozen=True, kw_only=True):
    """An ended tool call. `text` is for the model, `call` for people."""

    call: ToolCalled
    text: str
    pictures: tuple[ImagePart, ...] = ()


class Planned(SessionRecord, frozen=True, kw_only=True):
    """A new version of the todo list."""

    entries: tuple[PlanEntry, ...]


class Spent(SessionRecord, frozen=True, kw_only=True):
    """The usage of a model call."""

    usage: Usage
    cost_usd: Decimal | None


class Set(SessionRecord, frozen=True, kw_only=True):
    """Mode and model, from here on."""

    mode: str
    model: str


class Titled(SessionRecord, frozen=True, kw_only=True):
    """The session's title."""

    title: str


class Told(SessionRecord, frozen=True, kw_only=True):
    """A notice to the user beside the conversation."""

    text: str


class Compacted(SessionRecord, frozen=True, kw_only=True):
    """A summary that replaces, for the model, all records before it."""

    summary: str


AnyRecord = Prompted | Answered | Ran | Planned | Spent | Set | Titled | Told | Compacted

encode_record = msgspec.json.Encoder().encode
decode_record = msgspec.json.Decoder(AnyRecord).decode


def answer_pieces(parts: Sequence[MessagePart]) -> tuple[AnswerPiece, ...]:
    return tuple(piece for part in parts if (piece := _piece(part)))


def _piece(part: MessagePart) -> AnswerPiece | None:
    match part:
        case MessageText(text=text):
            return AnswerPiece(kind="text", text=text)
        case MessageReasoning():
            return AnswerPiece(
                kind="reasoning",
                text=part.text,
                signature=part.signature,
                redacted=part.redacted,
            )
        case MessageToolUse():
            return AnswerPiece(kind="tool", id=part.id, name=part.name, text=part.arguments)
        case _:
            return None


def conversation(records: Sequence[AnyRecord]) -> tuple[ChatMessage, ...]:
    """The messages for a model: the two sides take turns, and every call has its result."""
    start = max((n for n, r in enumerate(records) if isinstance(r, Compacted)), default=0)
    results = {r.call.id: r for r in records if isinstance(r, Ran)}
    return merge_turns(message for r in records[start:] for message in _messages(r, results))


def _messages(record: AnyRecord, results: dict[str, Ran]) -> Iterator[ChatMessage]:
    match record:
        case Compacted():
            yield ChatMessage(
                role="user", parts=(MessageText(text=SUMMARY_PREFIX + record.summary),)
            )
        case Prompted():
            yield ChatMessage(role="user", parts=prompt_parts(record.given))
        case Answered() if record.pieces:
            yield ChatMessage(role="assistant", parts=tuple(map(_part, record.pieces)))
            calls = [piece.id for piece in record.pieces if piece.kind == "tool"]
            if calls:
                yield ChatMessage(
                    role="user", parts=tuple(_result(c, results.get(c)) for c in calls)
                )
        case _:
            pass


def _part(piece: AnswerPiece) -> MessagePart:
    match piece.kind:
        case "text":
            return MessageText(text=piece.text)
        case "reasoning":
            return MessageReasoning(
                text=piece.text, signature=piece.signature, redacted=piece.redacted
            )
        case "tool":
            return MessageToolUse(id=piece.id, name=piece.name, arguments=piece.text)


def _result(call: str, ran: Ran | None) -> MessageToolResult:
    if ran is None:
        return MessageToolResult(id=call, parts=(MessageText(text=CUT_OFF_TEXT),), is_error=True)
    images = tuple(MessageImage(media_type=p.media_type, data=p.data) for p in ran.pictures)
    return MessageToolResult(
        id=call,
        parts=(MessageText(text=ran.text), *images),
        is_error=ran.call.status == "failed",
    )


def prompt_parts(given: Sequence[PromptPart]) -> tuple[MessagePart, ...]:
    """A prompt as a model reads it."""
    return tuple(map(_prompt_part, given))


def prompt_text(given: Sequence[PromptPart]) -> str:
    return "\n".join(part.text for part in prompt_parts(given) if isinstance(part, MessageText))


def _prompt_part(given: PromptPart) -> MessagePart:
    match given:
        case TextPart(text=text):
            return MessageText(text=text)
        case ImagePart():
            return MessageImage(media_type=given.media_type, data=given.data)
        case LinkPart():
            return MessageText(text=f"[{given.name or given.uri}]({given.uri})")
        case FilePart(text=None):
            return MessageText(text=f"[{given.uri}: not text, open it with a tool]")
        case FilePart():
            return MessageText(text=f'<file path="{given.uri}">\n{given.text}\n</file>')


def history(records: Sequence[AnyRecord]) -> Iterator[AnyAgentEvent]:
    """The events for a client that loads the session, in their original order."""
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
                        output=CUT_OFF_TEXT,
                    )
        case Ran():
            yield record.call
        case Planned():
            yield PlanChanged(entries=record.entries)
        case Told():
            yield Noticed(text=record.text)
        case _:
            pass


class SessionMemory:
    """The records of one session, and the state derived from them."""

    def __init__(
        self,
        shelf: SqliteSessions,
        session: str,
        cwd: str,
        *,
        records: Sequence[bytes] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.id = session
        self.cwd = cwd
        self.title = ""
        self.settings: Set | None = None
        self.usage = Usage()
        self.context_tokens = 0
        self.has_prompt = False
        self.cost_usd: Decimal | None = Decimal(0)
        self.updated_at = clock()
        self._store = shelf
        self._clock = clock
        self._writing = anyio.Lock()
        self._records: list[AnyRecord] = []
        self._ids: set[str] = set()
        self._answers = 0
        self._counted_by_provider = False
        for body in records:
            self._apply(decode_record(body))
        self._stored = len(self._records)

    async def keep(self, records: Sequence[AnyRecord]) -> None:
        """Applies the records immediately, and has stored them when it returns.

        Records that could not be stored are stored with the next ones.
        """
        for record in records:
            self._apply(record)
        self.updated_at = self._clock()
        async with self._writing:
            fresh = self._records[self._stored :]
            kept = KeptSession(
                id=self.id, cwd=self.cwd, title=self.title, updated_at=self.updated_at
            )
            await self._store.append(
                kept, self._stored, [encode_record(record) for record in fresh]
            )
            self._stored += len(fresh)

    def conversation(self) -> tuple[ChatMessage, ...]:
        return conversation(self._records)

    def history(self) -> Iterator[AnyAgentEvent]:
        return history(self._records)

    def unique_call_id(self, call: str) -> str:
        """An id that the session has not used yet: a vendor may use one twice."""
        candidates = chain([call], (f"{call or 'call'}_{number}" for number in count(2)))
        unique = next(each for each in candidates if each and each not in self._ids)
        self._ids.add(unique)
        return unique

    def new_message(self) -> str:
        return f"m{len(self._records)}"

    @property
    def last_prompt(self) -> str:
        prompts = (record for record in reversed(self._records) if isinstance(record, Prompted))
        prompt = next(prompts, None)
        return prompt_text(prompt.given) if prompt else ""

    @property
    def can_compact(self) -> bool:
        """There is an answer since the last summary."""
        return self._answers > 0

    def _apply(self, record: AnyRecord) -> None:
        self._records.append(record)
        match record:
            case Titled(title=title):
                self.title = title
            case Set():
                self.settings = record
            case Spent():
                self._spend(record)
            case Answered():
                self._answers += 1
                self._ids.update(piece.id for piece in record.pieces)
                if not self._counted_by_provider:
                    self.context_tokens += sum(
                        estimate_tokens(piece.text) for piece in record.pieces
                    )
                self._counted_by_provider = False
            case Prompted():
                self.has_prompt = True
                self.context_tokens += estimate_tokens(self.last_prompt)
            case Ran():
                self.context_tokens += estimate_tokens(record.text)
            case Compacted():
                self._answers, self.context_tokens = 0, estimate_tokens(record.summary)
            case _:
                pass

    def _spend(self, spent: Spent) -> None:
        self.usage += spent.usage
        if self.cost_usd is None or spent.cost_usd is None:
            self.cost_usd = None
        else:
            self.cost_usd += spent.cost_usd
        if spent.usage.total:  # the whole context, as counted by the provider
            self.context_tokens, self._counted_by_provider = spent.usage.total, True


class SessionReporter:
    """Sends one session's events to its client. `window` is that of the session's model."""

    def __init__(self, memory: SessionMemory, client: AgentClient) -> None:
        self.window = DEFAULT_CONTEXT_WINDOW
        self.memory = memory
        self._client = client
        self._disk_failed = False

    async def send(self, event: AnyAgentEvent) -> None:
        await self._client.send(self.memory.id, event)

    async def ask(self, question: ToolQuestion) -> PermissionAnswer | Rejection | None:
        return await self._client.ask(self.memory.id, question)

    async def keep(self, records: Sequence[AnyRecord]) -> None:
        """Stores records and reports them. If they cannot be stored, the user is notified once."""
        try:
            await self.memory.keep(records)
        except EnvironmentTrouble as trouble:
            if not self._disk_failed:
                await self.send(Noticed(text=f"this session cannot be saved: {trouble}"))
            self._disk_failed = True
        else:
            self._disk_failed = False
        for record in records:
            await self._send_for_record(record)

    async def greet(self) -> None:
        """Sends the title and usage of a reopened session."""
        if self.memory.has_prompt:
            await self._send_title()
            await self._send_usage()

    async def _send_for_record(self, record: AnyRecord) -> None:
        match record:
            case Ran(call=call):
                await self.send(call)
            case Planned(entries=entries):
                await self.send(PlanChanged(entries=entries))
            case Told(text=text):
                await self.send(Noticed(text=text))
            case Titled():
                await self._send_title()
            case Spent():
                await self._send_usage()
            case Set():
                await self.send(OptionsChanged())
            case _:
                pass

    async def _send_title(self) -> None:
        at = datetime.fromtimestamp(self.memory.updated_at, UTC)
        await self.send(Retitled(title=self.memory.title, updated_at=at.isoformat()))

    async def _send_usage(self) -> None:
        memory = self.memory
        await self.send(
            UsageChanged(used=memory.context_tokens, size=self.window, cost_usd=memory.cost_usd)
        )
