"""Collects what OpenCode and its subagents say during an attempt: stream log and trace messages.

A `task` call names the session that it began. A call that resumes a subagent names the same session
again, so a message belongs to the last of these calls that had begun.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Final
from uuid import uuid4

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from goent.domain.types import Value
from goent.evals.eval_ports import AttemptObserver, CaseAttempt, StreamLogFile
from goent.evals.traces import CallStatus, TracedCall, TracedMessage
from goent.opencode.event_stream import MessageUpdated, PartDelta, PartUpdated, ServerEvent
from goent.opencode.opencode_translator import SUBAGENT_TOOL
from goent.opencode.server_api import MessageInfo, MessagePart, ServerMessage, ToolState
from goent.store.redactor import Redactor


class Delegation(Value, frozen=True, kw_only=True):
    """A call that began or resumed a subagent. Call ids may repeat between messages, part ids do not."""

    part: str
    call: str
    session: str
    start: float


class SessionMessage(Value, frozen=True, kw_only=True):
    """A message and the id of the call whose subagent wrote it; None for the agent's own."""

    message: ServerMessage
    parent: str | None = None


def delegations(messages: Sequence[ServerMessage]) -> Iterator[Delegation]:
    for message in messages:
        for part in message.parts:
            state = part.call_state
            if part.type == "tool" and part.tool == SUBAGENT_TOOL and state.subagent:
                yield Delegation(
                    part=part.id,
                    call=part.call,
                    session=state.subagent,
                    start=state.time.start or 0,
                )


def ordered_messages(
    own: str, sessions: Mapping[str, Sequence[ServerMessage]]
) -> tuple[SessionMessage, ...]:
    """The messages of session `own`, with a subagent's after the message that has its call."""
    calls: dict[str, list[Delegation]] = {}
    for messages in sessions.values():
        for each in delegations(messages):
            calls.setdefault(each.session, []).append(each)
    by_part: dict[str, list[SessionMessage]] = {
        "": [SessionMessage(message=one) for one in sessions.get(own, ())]
    }
    for session in calls.keys() & sessions.keys() - {own}:
        for message in sessions[session]:
            by = _delegation_of(calls[session], message)
            by_part.setdefault(by.part, []).append(SessionMessage(message=message, parent=by.call))
    return tuple(_walk(by_part, ""))


def _walk(by_part: dict[str, list[SessionMessage]], part: str) -> Iterator[SessionMessage]:
    for spoken in by_part.pop(part, ()):
        yield spoken
        for inner in spoken.message.parts:
            yield from _walk(by_part, inner.id)


def _delegation_of(calls: Sequence[Delegation], message: ServerMessage) -> Delegation:
    begun = [call for call in calls if call.start <= message.info.time.created]
    return max(begun or calls[:1], key=lambda call: call.start)


ABORTED_PREFIX = "Tool execution aborted"
MS_PER_SECOND = 1000.0
_STATUS: Final[Mapping[str, CallStatus]] = {"completed": "ok", "error": "error"}


def traced_message(spoken: SessionMessage) -> TracedMessage:
    """The message with its texts joined and its tool calls in order, without OpenCode's own texts."""
    message = spoken.message
    texts = (part.text for part in message.parts if part.type == "text" and not part.synthetic)
    return TracedMessage(
        role=message.info.role,
        content="".join(texts),
        tool_calls=tuple(_traced_call(part) for part in message.parts if part.type == "tool"),
        start_time=iso_from_ms(message.info.time.created),
        end_time=iso_from_ms(message.info.time.completed),
        parent=spoken.parent,
    )


def count_model_calls(message: ServerMessage) -> int:
    """How many model calls it took, without retries."""
    return sum(part.type == "step-finish" for part in message.parts)


def iso_from_ms(ms: float | None) -> str | None:
    """OpenCode's time, milliseconds since the epoch, as ISO 8601; None if there is none."""
    if not ms:
        return None
    return datetime.fromtimestamp(ms / MS_PER_SECOND, UTC).isoformat(timespec="milliseconds")


def _traced_call(part: MessagePart) -> TracedCall:
    state = part.call_state
    start, end = state.time.start, state.time.end
    outputs = {"completed": state.output, "error": {"error": state.error}}
    return TracedCall(
        id=part.call,
        tool=part.tool,
        input=None if state.input is UNSET else msgspec.json.decode(state.input),
        output=outputs.get(state.status),
        status=_call_status(state),
        start_time=iso_from_ms(start),
        end_time=iso_from_ms(end),
        duration_ms=end - start if start and end else None,
    )


def _call_status(state: ToolState) -> CallStatus:
    if state.status == "error" and state.error.startswith(ABORTED_PREFIX):
        return "cancelled"
    return _STATUS.get(state.status, "unknown")


class LiveTranscript:
    """The messages of a session and its subagents so far, each in the order in which they began.

    Those in `seen` belong to an earlier turn.
    """

    def __init__(self, session: str, observer: AttemptObserver, seen: Collection[str] = ()) -> None:
        self._session = session
        self._observer = observer
        self._seen = frozenset(seen)
        self._infos: dict[str, dict[str, MessageInfo]] = {}
        self._parts: dict[str, dict[str, MessagePart]] = {}
        self._changed = False
        self._reported: dict[str, SessionMessage] = {}
        self._numbers: dict[str, int] = {}
        self._order: list[str] = []

    def apply(self, event: ServerEvent) -> None:
        match event:
            case MessageUpdated(info=info) if (
                info.role == "assistant" and info.id not in self._seen
            ):
                self._infos.setdefault(info.session, {})[info.id] = info
                self._changed = True
            case PartUpdated(part=part):
                self._put(part)
            case PartDelta(field="text"):
                begun = self._parts.get(event.message, {}).get(event.part)
                if begun:
                    self._put(replace(begun, text=begun.text + event.delta))
            case _:
                pass

    def replace_session(self, session: str, messages: Iterable[ServerMessage]) -> None:
        """Set the final messages of a session and their order, whatever the stream reported."""
        earlier = self._infos.get(session, {})
        final = self._infos[session] = {}
        for message in messages:
            if message.info.role == "assistant":
                final[message.info.id] = message.info
                self._parts[message.info.id] = {part.id: part for part in message.parts}
        for name, info in earlier.items():
            final.setdefault(name, info)
        self._changed = True

    def report_changes(self) -> None:
        """Report the messages that have changed or moved since the last time."""
        if not self._changed:
            return
        self._changed = False
        for place, spoken in enumerate(self.messages):
            name = spoken.message.info.id
            before = self._put_at(place, name)
            if before is not None or spoken != self._reported.get(name):
                self._reported[name] = spoken
                number = self._numbers.setdefault(name, len(self._numbers))
                self._observer.message(number, traced_message(spoken), before=before)

    def _put_at(self, place: int, name: str) -> int | None:
        """The number of the message that it has moved in front of; None if it has not."""
        there = self._order[place] if place < len(self._order) else None
        if there == name:
            return None
        if name in self._reported:
            self._order.remove(name)
        self._order.insert(place, name)
        return None if there is None else self._numbers[there]

    @property
    def messages(self) -> tuple[SessionMessage, ...]:
        sessions = {
            session: [self._message(info) for info in infos.values()]
            for session, infos in self._infos.items()
        }
        return ordered_messages(self._session, sessions)

    def _message(self, info: MessageInfo) -> ServerMessage:
        return ServerMessage(info=info, parts=tuple(self._parts.get(info.id, {}).values()))

    def _put(self, part: MessagePart) -> None:
        self._parts.setdefault(part.message, {})[part.id] = part
        self._changed = True


LOG_FOLDER: Final = Path(".goent", "logs", "opencode")
LOG_SWITCH: Final = "GOENT_OPENCODE_STREAM_LOGS"
OFF_VALUES: Final = ("0", "false", "off", "no")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")


class StreamLogHeader(Value, frozen=True, kw_only=True):
    """The first line of a stream log."""

    type: str = "goent.header"
    target: str
    eval: str
    attempt: int
    trial: int
    started: str


class StreamLog:
    """The events of one attempt, in a file. A write error costs the log, never the attempt."""

    def __init__(self, secrets: Callable[[], Collection[str]] = tuple) -> None:
        self.path: Path | None = None
        self._redactor = Redactor(secrets)
        self._file: BinaryIO | None = None
        self._warn: Callable[[str], None] = lambda _: None

    def begin(self, folder: Path, attempt: CaseAttempt, observer: AttemptObserver) -> None:
        """Choose a file, report it, and write the header."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        path = folder / _log_name(attempt, now)
        header = StreamLogHeader(
            target=attempt.target,
            eval=attempt.case.id,
            attempt=attempt.number + 1,
            trial=attempt.trial,
            started=now,
        )
        self._warn = observer.warn
        try:
            _make_log_folder(folder)
            self._file = path.open("xb", buffering=0)
        except OSError as error:
            self._warn(f"no stream log: {str(path)!r} cannot be written: {error.strerror}")
            return
        self.path = path
        observer.log_started(
            StreamLogFile(
                file_path=str(path),
                target_name=attempt.target,
                eval_case_id=attempt.case.id,
                attempt=attempt.number,
            )
        )
        self._redactor.refresh()
        self.write(msgspec.json.encode(header))

    def write(self, event: bytes) -> None:
        """Write one line, on disk before the next event is handled."""
        if self._file is None:
            return
        try:
            self._file.write(self._redactor.redact(event) + b"\n")
        except OSError as error:
            self._warn(f"the stream log {str(self.path)!r} ends early: {error.strerror}")
            self.end()

    def end(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
            self._file = None


def is_log_wanted(setting: bool, environ: Mapping[str, str]) -> bool:  # noqa: FBT001 (the one thing asked about)
    return setting and environ.get(LOG_SWITCH, "").strip().lower() not in OFF_VALUES


def _make_log_folder(folder: Path) -> None:
    """Our own folder is kept out of the user's repository."""
    folder.mkdir(parents=True, exist_ok=True)
    ignoring = folder.parent / ".gitignore"
    if folder.parts[-len(LOG_FOLDER.parts) :] == LOG_FOLDER.parts and not ignoring.exists():
        ignoring.write_text("*\n")


def _log_name(attempt: CaseAttempt, now: str) -> str:
    when = re.sub(r"[:.+]", "-", now)
    again = (f"attempt-{attempt.number + 1}",) if attempt.number else ()
    parts = (when, attempt.target, attempt.case.id, *again, uuid4().hex[:8])
    return "_".join(_UNSAFE.sub("_", part)[:80] for part in parts) + ".jsonl"
