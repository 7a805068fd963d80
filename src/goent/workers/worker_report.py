"""Reports a worker's work from its events: a short result, and the output as text."""

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from pathlib import PurePath

from msgspec.structs import replace

from goent.domain.events import (
    AnyEvent,
    BudgetWarned,
    EventEnvelope,
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
    UsageReported,
    Verified,
)
from goent.domain.question_text import always_rule, excerpt, visible_text
from goent.domain.replies import Failover, ModelUse, Result
from goent.domain.requests import OutputFilter
from goent.domain.types import (
    AlsoChanged,
    Check,
    Command,
    Evidence,
    FileChange,
    GuardedChange,
    Overlap,
    Usage,
    WorkerState,
    rounded_usd,
)
from goent.domain.verification import outcome_mark, outcome_words, quote_worker_text
from goent.permissions.permission_rules import guard_reason
from goent.routing.route_facts import count_text
from goent.workers.views import WorkerView, evidence

# Together these keep a result below 1,500 tokens, whatever the worker did.
TEXT_LIMIT = 1500
TAIL_LIMIT = 350
LINE_LIMIT = 120
FILES_LIMIT = 12
SHARED_LIMIT = 5
COMMANDS_LIMIT = 8
CHECKS_LIMIT = 4
MODELS_LIMIT = 4
WARNINGS_LIMIT = 2
WARNING_LIMIT = 400
NO_SANDBOX = "no sandbox: its commands could do whatever your account can"
MORE_HINT = "a larger limit shows them"
EVENT_LIMIT = 400  # characters of an event without text
FILTER_EVENTS: dict[OutputFilter, tuple[type, ...]] = {
    "text": (TextDelta,),
    "thoughts": (Thought,),
    "tools": (ToolCall, PermissionAsked, PermissionAnswered, PermissionWithdrawn, Verified),
    "all": (object,),
}


def worker_result(
    view: WorkerView, events: Sequence[EventEnvelope], overlaps: Sequence[Overlap] = ()
) -> Result:
    """The result of all its turns; `text` is the last message. `overlaps` have absolute paths."""
    happened = [envelope.event for envelope in events]
    files = view.work.files if view.work else all_changed_files(happened)
    seen = [event for event in happened if isinstance(event, FilesChanged)]
    also = concurrent_changes(seen)
    commands = commands_run(e for e in happened if isinstance(e, ToolCall))
    text = last_message(events)
    return Result(
        worker_id=view.id,
        state=view.state,
        evidence=evidence(view),
        text=_cut(text, TEXT_LIMIT),
        files=files[:FILES_LIMIT],
        commands=tuple(
            Command(command=_cut(c.command, LINE_LIMIT), exit=c.exit)
            for c in commands[-COMMANDS_LIMIT:]
        ),
        verify=tuple(
            Check(command=_cut(c.command, LINE_LIMIT), exit=c.exit, tail=c.tail[-TAIL_LIMIT:])
            for c in failed_checks_first(view.checks)
        ),
        usage=view.usage,
        cost_usd=rounded_usd(view.cost_usd),
        models_used=models_used(e for e in happened if isinstance(e, UsageReported))[:MODELS_LIMIT],
        failovers=tuple(
            Failover(from_provider=e.from_provider, to_provider=e.to_provider, reason=e.reason)
            for e in happened
            if isinstance(e, FailedOver)
        ),
        failure=view.failure,
        output=f"worker://{view.id}/output",
        branch=view.spawned.workspace.branch if view.spawned.workspace and files else None,
        workspace=view.spawned.workspace.path if view.spawned.workspace else None,
        guarded_changes=guarded_changes(
            (e for e in happened if isinstance(e, GuardedFilesChanged)), files
        )[:FILES_LIMIT],
        sandbox=view.spawned.sandbox,
        also_changed=also[:SHARED_LIMIT],
        overlaps=tuple(
            replace(o, path=_path_from_cwd(o.path, view)) for o in overlaps[:SHARED_LIMIT]
        ),
        notes=(
            *(NO_SANDBOX,) * (view.spawned.sandbox == "none"),
            *_workspace_notes(view),
            *_notes(view, text, len(files), len(commands)),
            *_shared_folder_notes(seen, also, overlaps),
            *[_cut(e.message, WARNING_LIMIT) for e in happened if isinstance(e, BudgetWarned)][
                -WARNINGS_LIMIT:
            ],
        ),
    )


def last_message(events: Sequence[EventEnvelope]) -> str:
    """The worker's last message in its last turn."""
    pieces: list[TextDelta] = []
    for envelope in events:
        event = envelope.event
        if isinstance(event, TurnStarted):
            pieces = []
        elif isinstance(event, TextDelta):
            if pieces and pieces[-1].message != event.message:
                pieces = []
            pieces.append(event)
    return "".join(piece.text for piece in pieces).strip()


def changed_files(calls: Iterable[ToolCall]) -> tuple[FileChange, ...]:
    """The changes by the worker's edit tools, without those of shell commands."""
    latest = {call.id: call for call in calls if call.status == "completed"}
    sums: dict[str, FileChange] = {}
    for change in (change for call in latest.values() for change in call.changes):
        before = sums.get(change.path, FileChange(path=change.path, added=0, removed=0))
        sums[change.path] = FileChange(
            path=change.path,
            added=_add_known(before.added, change.added),
            removed=_add_known(before.removed, change.removed),
        )
    return tuple(sums.values())


def all_changed_files(events: Iterable[AnyEvent]) -> tuple[FileChange, ...]:
    """The changes by the worker's edit tools, and those only its commands can have made."""
    happened = list(events)
    sums = {
        change.path: change
        for change in changed_files(e for e in happened if isinstance(e, ToolCall))
    }
    edited = frozenset(sums)
    for change in (c for e in happened if isinstance(e, FilesChanged) for c in e.files):
        known = sums.get(change.path, FileChange(path=change.path, added=0, removed=0))
        both = change.path in edited  # the figures overlap
        sums[change.path] = FileChange(
            path=change.path,
            added=None if both else _add_known(known.added, change.added),
            removed=None if both else _add_known(known.removed, change.removed),
        )
    return tuple(sums.values())


def concurrent_changes(seen: Iterable[FilesChanged]) -> tuple[AlsoChanged, ...]:
    """Other changes during its turns, and their possible authors; some may be its own files."""
    found: dict[str, AlsoChanged] = {}
    for each in (also for event in seen for also in event.also):
        known = found.get(each.path, each)
        by = tuple(dict.fromkeys((*known.by, *each.by)))
        found[each.path] = AlsoChanged(path=each.path, by=by)
    return tuple(found.values())


def guarded_changes(
    events: Iterable[GuardedFilesChanged], files: Iterable[FileChange]
) -> tuple[GuardedChange, ...]:
    """The guarded files that changed during its turns, or are among its own files."""
    found = {change.path: change for event in events for change in event.changes}
    for file in files:
        if reason := guard_reason(PurePath(file.path)):
            found.setdefault(file.path, GuardedChange(path=file.path, reason=reason))
    return tuple(found.values())


def _add_known(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def commands_run(calls: Iterable[ToolCall]) -> tuple[Command, ...]:
    """The commands that began. A refused one failed without an exit code."""
    latest = {call.id: call for call in calls if call.command}
    return tuple(
        call.command
        for call in latest.values()
        if call.command and (call.status != "failed" or call.command.exit is not None)
    )


def failed_checks_first(checks: Sequence[Check]) -> Sequence[Check]:
    return sorted(checks, key=lambda check: check.exit == 0)[:CHECKS_LIMIT]


def models_used(reports: Iterable[UsageReported]) -> tuple[ModelUse, ...]:
    sums: dict[tuple[str, str], tuple[int, Usage, Decimal | None]] = {}
    for report in reports:
        key = (report.provider, report.model)
        calls, usage, cost = sums.get(key, (0, Usage(), Decimal(0)))
        known = None if cost is None or report.cost_usd is None else cost + report.cost_usd
        sums[key] = (calls + report.calls, usage + report.usage, known)
    return tuple(
        ModelUse(
            provider=provider, model=model, calls=calls, usage=usage, cost_usd=rounded_usd(cost)
        )
        for (provider, model), (calls, usage, cost) in sums.items()
    )


def _notes(view: WorkerView, text: str, files: int, commands: int) -> tuple[str, ...]:
    notes: list[str] = []
    if not view.checks and evidence(view) == "refuted":
        notes.append(
            f"refuted: the task asks for edits, and {view.provider} has neither edited a file nor "
            "used a tool; prompt it again, or give the task to another provider"
        )
    if len(text) > TEXT_LIMIT:
        notes.append(
            f"text cut from {len(text)} characters; all of it is in worker://{view.id}/output"
        )
    if files > FILES_LIMIT:
        notes.append(f"{count_text(files - FILES_LIMIT, 'more file')} changed")
    if len(view.checks) > CHECKS_LIMIT:
        notes.append(f"{len(view.checks)} checks ran, {CHECKS_LIMIT} are listed, failed ones first")
    if commands > COMMANDS_LIMIT:
        notes.append(f"{count_text(commands - COMMANDS_LIMIT, 'earlier command')} not listed")
    if view.unknown_calls:
        notes.append(
            f"the cost of {view.unknown_calls} of {view.calls} model calls is unknown (no price, or "
            f"cut off before the usage was reported): the known part is ${view.known_usd:.4f}"
        )
    return tuple(notes)


def _shared_folder_notes(
    seen: Sequence[FilesChanged], also: Sequence[AlsoChanged], overlaps: Sequence[Overlap]
) -> Iterator[str]:
    """Notes on other changes in a shared folder."""
    met = dict.fromkeys(overlap.worker_id for overlap in overlaps)
    if met:
        lost = sum(overlap.kind == "hunk_conflict" for overlap in overlaps)
        clash = f"; in {lost} of them, one overwrote lines of the other" if lost else ""
        yield (
            f"{', '.join(met)} changed {len(overlaps)} of the same files at the same time{clash}. "
            "Isolation 'worktree' keeps workers apart"
        )
    if len(also) > SHARED_LIMIT:
        yield f"{len(also)} files also changed meanwhile, of which {SHARED_LIMIT} are listed"
    if len(overlaps) > SHARED_LIMIT:
        yield f"{len(overlaps)} overlaps, of which {SHARED_LIMIT} are listed"
    more = sum(event.more for event in seen)
    if more:
        yield f"{count_text(more, 'more file')} changed in the folder, not listed"
    unseen = dict.fromkeys(event.unseen for event in seen if event.unseen)
    if unseen:
        yield _cut(f"changes by shell commands may be missing: {'; '.join(unseen)}", WARNING_LIMIT)


def _path_from_cwd(path: str, view: WorkerView) -> str:
    whole, cwd = PurePath(path), PurePath(view.spawned.cwd)
    return str(whole.relative_to(cwd)) if whole.is_relative_to(cwd) else path


def _workspace_notes(view: WorkerView) -> tuple[str, ...]:
    """Where the work of a worker with its own folder is."""
    space, work = view.spawned.workspace, view.work
    if space is None or work is None:
        return ()
    if not work.files:
        return ("it changed no files",)
    whose = "" if space.kind == "worktree" else f" of {space.repository}"
    return (f"its work is commit {work.commit[:12]} on branch {space.branch}{whose}",)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def transcript(
    events: Sequence[EventEnvelope],
    kind: OutputFilter,
    limit: int,
    previous: AnyEvent | None = None,
) -> tuple[str, int]:
    """The text of as many events as fit, and their number (at least one).

    `previous` is the event before: a page may begin in the middle of a message.
    """
    pieces: list[str] = []
    size = 0
    for taken, envelope in enumerate(events):
        event = envelope.event
        if not isinstance(event, FILTER_EVENTS[kind]):
            continue
        joint = _separator(previous, event)
        piece = _event_text(event, limit)
        if isinstance(event, TextDelta | Thought) and kind == "all":
            piece = quote_worker_text(piece, within_line=not joint and _is_within_line(previous))
        piece = joint + piece
        if pieces and size + len(piece) > limit:
            return "".join(pieces), taken
        previous = event if piece else previous
        pieces.append(piece)
        size += len(piece)
    return "".join(pieces), len(events)


def _event_text(event: AnyEvent, limit: int) -> str:
    """Like `render_event`, but a question longer than a page is cut in the middle."""
    if isinstance(event, PermissionAsked):
        return quote_worker_text(_question_text(event, limit), within_line=True)
    return render_event(event)


def _separator(previous: AnyEvent | None, event: AnyEvent) -> str:
    """A new line between two events, but nothing within a message."""
    if previous is None or not render_event(event):
        return ""
    return "" if _message_key(previous) == _message_key(event) is not None else "\n"


def _is_within_line(previous: AnyEvent | None) -> bool:
    return isinstance(previous, TextDelta | Thought) and not previous.text.endswith("\n")


def _message_key(event: AnyEvent) -> tuple[type, str] | None:
    return (type(event), event.message) if isinstance(event, TextDelta | Thought) else None


def render_event(event: AnyEvent) -> str:
    """One event as text; empty for internal events."""
    match event:
        case TextDelta() | Thought():
            return event.text
        case ToolCall():
            return _tool_line(event)
        case TurnStarted():
            return f"── turn {event.turn}"
        case TurnEnded():
            failure = f": {event.failure.message[:EVENT_LIMIT]}" if event.failure else ""
            return turn_end_line(event.state, event.evidence) + quote_worker_text(
                failure, within_line=True
            )
        case Verified():
            return "\n".join(
                f"✓ {c.command}" if c.exit == 0 else _failed_check(c.command, c.exit)
                for c in event.checks
            )
        case _:
            return quote_worker_text(_side_note(event), within_line=True)


def turn_end_line(state: WorkerState, evidence: Evidence | None) -> str:
    mark = outcome_mark(state, evidence)
    return f"── {mark} {outcome_words(state, evidence)}"


def _side_note(event: AnyEvent) -> str:
    match event:
        case PermissionAsked():
            return _question_text(event)
        case PermissionAnswered():
            words = f": {visible_text(event.message)}" if event.message else ""
            return f"  {event.option} by {event.by} [{event.id}]{words}"
        case PermissionWithdrawn():
            return f"  withdrawn: {event.reason[:EVENT_LIMIT]} [{event.id}]"
        case Noticed():
            return f"! {event.text}"
        case GuardedFilesChanged(changes=changes):
            names = ", ".join(change.path for change in changes)
            return (
                f"! changed during this turn, and obeyed by other programs: {names[:EVENT_LIMIT]}"
            )
        case FilesChanged():
            return _changes_text(event)
        case FailedOver():
            return f"! moved from {event.from_provider} to {event.to_provider}: {event.reason}"
        case BudgetWarned():
            return f"! {event.message}"
        case _:
            return ""


def _changes_text(event: FilesChanged) -> str:
    """What its commands changed, and the number of other changes, which the result lists."""
    names = ", ".join(change.path for change in event.files)
    lines = (
        f"  changed by its commands: {names[:EVENT_LIMIT]}" if names else "",
        f"! {count_text(len(event.also), 'other file')} changed meanwhile, perhaps not by this worker"
        if event.also
        else "",
        f"! changes may be missing: {event.unseen[:EVENT_LIMIT]}" if event.unseen else "",
    )
    return "\n".join(filter(None, lines))


def _question_text(event: PermissionAsked, limit: int | None = None) -> str:
    detail = visible_text(event.detail)
    if limit is not None:
        detail = excerpt(detail, limit, MORE_HINT)
    rule = always_rule(event.tool, event.always)
    lines = (
        f"? {event.tool}: {detail} [{event.id}]",
        f"  {event.reason}" if event.reason else "",
        f"  always: {rule}" if rule else "",
    )
    return "\n".join(filter(None, lines))


def _failed_check(command: str, code: int | None) -> str:
    return f"✗ {command} " + ("timed out" if code is None else f"exited {code}")


def _tool_line(call: ToolCall) -> str:
    """The end of a call; its beginning is status, not output."""
    if call.status not in ("completed", "failed"):
        return ""
    head = f"● {call.tool}: {(call.title or call.detail)[:EVENT_LIMIT]}".rstrip(": ")
    if call.command and call.command.exit:
        head += f" (exit {call.command.exit})"
    if call.status == "failed":
        head += f" failed: {call.output[:EVENT_LIMIT]}" if call.output else " failed"
    return quote_worker_text(head, within_line=True)
