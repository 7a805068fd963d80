"""What does a worker's output look like? Its events as plain text, for people and models."""

from collections.abc import Sequence

from goent.domain.events import (
    AnyEvent,
    BudgetWarned,
    Envelope,
    FailedOver,
    FilesChanged,
    GuardedFilesChanged,
    Noticed,
    PermissionAnswered,
    PermissionAsked,
    PermissionWithdrawn,
    TextDelta,
    Thought,
    ToolCall,
    TurnEnded,
    TurnStarted,
    Verified,
)
from goent.domain.question_text import always_rule, excerpt, visible
from goent.domain.requests import OutputFilter
from goent.domain.types import Evidence, State
from goent.domain.verification import outcome_mark, outcome_words, quoted

MORE = "a larger limit shows them"
LINE = 400  # characters of one event that is not speech

WANTED: dict[OutputFilter, tuple[type, ...]] = {
    "text": (TextDelta,),
    "thoughts": (Thought,),
    "tools": (ToolCall, PermissionAsked, PermissionAnswered, PermissionWithdrawn, Verified),
    "all": (object,),
}


def transcript(
    events: Sequence[Envelope],
    kind: OutputFilter,
    limit: int,
    previous: AnyEvent | None = None,
) -> tuple[str, int]:
    """The text of as many events as fit, and how many those were (at least one).

    `previous` is what came before: a page may begin in the middle of a message.
    """
    pieces: list[str] = []
    size = 0
    for taken, envelope in enumerate(events):
        event = envelope.event
        if not isinstance(event, WANTED[kind]):
            continue
        joint = _joint(previous, event)
        piece = _within(event, limit)
        if isinstance(event, TextDelta | Thought) and kind == "all":
            piece = quoted(piece, within_line=not joint and _is_within_line(previous))
        piece = joint + piece
        if pieces and size + len(piece) > limit:
            return "".join(pieces), taken
        previous = event if piece else previous
        pieces.append(piece)
        size += len(piece)
    return "".join(pieces), len(events)


def _within(event: AnyEvent, limit: int) -> str:
    """A question that is longer than a page alone is shown with its head and its tail."""
    if isinstance(event, PermissionAsked):
        return quoted(_asked(event, limit), within_line=True)
    return render(event)


def _joint(previous: AnyEvent | None, event: AnyEvent) -> str:
    """What stands between two events: nothing within a message, else a new line."""
    if previous is None or not render(event):
        return ""
    return "" if _message(previous) == _message(event) is not None else "\n"


def _is_within_line(previous: AnyEvent | None) -> bool:
    return isinstance(previous, TextDelta | Thought) and not previous.text.endswith("\n")


def _message(event: AnyEvent) -> tuple[type, str] | None:
    return (type(event), event.message) if isinstance(event, TextDelta | Thought) else None


def render(event: AnyEvent) -> str:
    """One event as text; empty for what only the bookkeeping needs."""
    match event:
        case TextDelta() | Thought():
            return event.text
        case ToolCall():
            return _tool(event)
        case TurnStarted():
            return f"── turn {event.turn}"
        case TurnEnded():
            failure = f": {event.failure.message[:LINE]}" if event.failure else ""
            return turn_end(event.state, event.evidence) + quoted(failure, within_line=True)
        case Verified():
            return "\n".join(
                f"✓ {c.command}" if c.exit == 0 else _refuted(c.command, c.exit)
                for c in event.checks
            )
        case _:
            return quoted(_aside(event), within_line=True)


def turn_end(state: State, evidence: Evidence | None) -> str:
    """The line that ends a turn."""
    mark = outcome_mark(state, evidence)
    return f"── {mark} {outcome_words(state, evidence)}"


def _aside(event: AnyEvent) -> str:
    match event:
        case PermissionAsked():
            return _asked(event)
        case PermissionAnswered():
            words = f": {visible(event.message)}" if event.message else ""
            return f"  {event.option} by {event.by} [{event.id}]{words}"
        case PermissionWithdrawn():
            return f"  withdrawn: {event.reason[:LINE]} [{event.id}]"
        case Noticed():
            return f"! {event.text}"
        case GuardedFilesChanged(changes=changes):
            names = ", ".join(change.path for change in changes)
            return f"! changed while this worker worked, and other programs obey it: {names[:LINE]}"
        case FilesChanged():
            return _changed(event)
        case FailedOver():
            return f"! moved from {event.from_provider} to {event.to_provider}: {event.reason}"
        case BudgetWarned():
            return f"! {event.message}"
        case _:
            return ""


def _changed(event: FilesChanged) -> str:
    """What its commands changed; of the rest, only how much there is: the result names it."""
    names = ", ".join(change.path for change in event.files)
    lines = (
        f"  changed by its commands: {names[:LINE]}" if names else "",
        f"! {len(event.also)} more files changed meanwhile, not known to be its work"
        if event.also
        else "",
        f"! changes may be missing: {event.unseen[:LINE]}" if event.unseen else "",
    )
    return "\n".join(filter(None, lines))


def _asked(event: PermissionAsked, limit: int | None = None) -> str:
    detail = visible(event.detail)
    if limit is not None:
        detail = excerpt(detail, limit, MORE)
    rule = always_rule(event.tool, event.always)
    lines = (
        f"? {event.tool}: {detail} [{event.id}]",
        f"  {event.reason}" if event.reason else "",
        f"  always: {rule}" if rule else "",
    )
    return "\n".join(filter(None, lines))


def _refuted(command: str, code: int | None) -> str:
    return f"✗ {command} " + ("did not end in time" if code is None else f"exited {code}")


def _tool(call: ToolCall) -> str:
    """Only the end of a call is told: its beginnings are status, not output."""
    if call.status not in ("completed", "failed"):
        return ""
    head = f"● {call.tool}: {(call.title or call.detail)[:LINE]}".rstrip(": ")
    if call.command and call.command.exit:
        head += f" (exit {call.command.exit})"
    if call.status == "failed":
        head += f" failed: {call.output[:LINE]}" if call.output else " failed"
    return quoted(head, within_line=True)
