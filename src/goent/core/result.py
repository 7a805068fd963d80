"""What came of a worker's task? Told from its events, short enough for a model's context."""

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from pathlib import PurePath

from msgspec.structs import replace

from goent.core.views import WorkerView, evidence
from goent.domain.events import (
    AnyEvent,
    BudgetWarned,
    Envelope,
    FailedOver,
    FilesChanged,
    GuardedFilesChanged,
    TextDelta,
    ToolCall,
    TurnStarted,
    UsageReported,
)
from goent.domain.replies import Failover, ModelUse, Result
from goent.domain.types import (
    AlsoChanged,
    Check,
    Command,
    FileChange,
    GuardedChange,
    Overlap,
    Usage,
    rounded_usd,
)
from goent.policy.guarded import guard_reason

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


def result(
    view: WorkerView, events: Sequence[Envelope], overlaps: Sequence[Overlap] = ()
) -> Result:
    """The whole worker's work; `text` is the last message of its last turn. `overlaps` have whole paths."""
    happened = [envelope.event for envelope in events]
    files = view.work.files if view.work else files_of(happened)
    seen = [event for event in happened if isinstance(event, FilesChanged)]
    also = also_changed(seen)
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
            for c in telling_checks(view.checks)
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
        overlaps=tuple(replace(o, path=_shown(o.path, view)) for o in overlaps[:SHARED_LIMIT]),
        notes=(
            *_unconfined(view),
            *_place(view),
            *_notes(view, text, len(files), len(commands)),
            *_shared(seen, also, overlaps),
            *[_cut(e.message, WARNING_LIMIT) for e in happened if isinstance(e, BudgetWarned)][
                -WARNINGS_LIMIT:
            ],
        ),
    )


def _unconfined(view: WorkerView) -> tuple[str, ...]:
    return ("no sandbox: its commands could do what your account can",) * (
        view.spawned.sandbox == "none"
    )


def last_message(events: Sequence[Envelope]) -> str:
    """The pieces of the last message the worker said in its last turn."""
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
    """What the worker's own edit tools changed; what a shell command changed is not seen here."""
    latest = {call.id: call for call in calls if call.status == "completed"}
    sums: dict[str, FileChange] = {}
    for change in (change for call in latest.values() for change in call.changes):
        before = sums.get(change.path, FileChange(path=change.path, added=0, removed=0))
        sums[change.path] = FileChange(
            path=change.path,
            added=_plus(before.added, change.added),
            removed=_plus(before.removed, change.removed),
        )
    return tuple(sums.values())


def files_of(events: Iterable[AnyEvent]) -> tuple[FileChange, ...]:
    """What the worker's edit tools changed, and what only its commands can have changed."""
    happened = list(events)
    sums = {
        change.path: change
        for change in changed_files(e for e in happened if isinstance(e, ToolCall))
    }
    edited = frozenset(sums)
    for change in (c for e in happened if isinstance(e, FilesChanged) for c in e.files):
        known = sums.get(change.path, FileChange(path=change.path, added=0, removed=0))
        both = change.path in edited  # the lines of its edits are in the other figure, too
        sums[change.path] = FileChange(
            path=change.path,
            added=None if both else _plus(known.added, change.added),
            removed=None if both else _plus(known.removed, change.removed),
        )
    return tuple(sums.values())


def also_changed(seen: Iterable[FilesChanged]) -> tuple[AlsoChanged, ...]:
    """What changed meanwhile, and who can have done it; some of it may be among its own files, too."""
    found: dict[str, AlsoChanged] = {}
    for each in (also for event in seen for also in event.also):
        known = found.get(each.path, each)
        by = tuple(dict.fromkeys((*known.by, *each.by)))
        found[each.path] = AlsoChanged(path=each.path, by=by)
    return tuple(found.values())


def guarded_changes(
    told: Iterable[GuardedFilesChanged], files: Iterable[FileChange]
) -> tuple[GuardedChange, ...]:
    """What changed during its turns, and what is among its own files."""
    found = {change.path: change for event in told for change in event.changes}
    for file in files:
        if reason := guard_reason(PurePath(file.path)):
            found.setdefault(file.path, GuardedChange(path=file.path, reason=reason))
    return tuple(found.values())


def _plus(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def commands_run(calls: Iterable[ToolCall]) -> tuple[Command, ...]:
    """What was begun at least. A command that was refused failed without an exit code."""
    latest = {call.id: call for call in calls if call.command}
    ran = (c for c in latest.values() if c.status != "failed" or _exit_of(c) is not None)
    return tuple(c.command for c in ran if c.command)


def _exit_of(call: ToolCall) -> int | None:
    return call.command.exit if call.command else None


def telling_checks(checks: Sequence[Check]) -> Sequence[Check]:
    """The failed ones first: they are what the caller has to know."""
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
            f"text cut from {len(text)} characters; the whole is worker://{view.id}/output"
        )
    if files > FILES_LIMIT:
        notes.append(f"{files - FILES_LIMIT} more files were changed")
    if len(view.checks) > CHECKS_LIMIT:
        notes.append(f"{len(view.checks)} checks ran, {CHECKS_LIMIT} are listed, failed ones first")
    if commands > COMMANDS_LIMIT:
        notes.append(f"{commands - COMMANDS_LIMIT} earlier commands are not listed")
    if view.unknown_calls:
        notes.append(
            f"the cost of {view.unknown_calls} of {view.calls} model calls is not known (no price, "
            f"or cut off before its usage was told): the known part is ${view.known_usd:.4f}"
        )
    return tuple(notes)


def _shared(
    seen: Sequence[FilesChanged], also: Sequence[AlsoChanged], overlaps: Sequence[Overlap]
) -> Iterator[str]:
    """What is to be known of a folder that others share."""
    met = dict.fromkeys(overlap.worker_id for overlap in overlaps)
    if met:
        lost = sum(overlap.kind == "hunk_conflict" for overlap in overlaps)
        clash = f"; in {lost} of them one overwrote lines of the other" if lost else ""
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
        yield f"{more} more files changed in the folder; they are not listed"
    unseen = dict.fromkeys(event.unseen for event in seen if event.unseen)
    if unseen:
        yield _cut(f"changes by shell commands may be missing: {'; '.join(unseen)}", WARNING_LIMIT)


def _shown(path: str, view: WorkerView) -> str:
    whole, cwd = PurePath(path), PurePath(view.spawned.cwd)
    return str(whole.relative_to(cwd)) if whole.is_relative_to(cwd) else path


def _place(view: WorkerView) -> tuple[str, ...]:
    """Where the work is, of a worker that has a folder of its own."""
    space, work = view.spawned.workspace, view.work
    if space is None or work is None:
        return ()
    if not work.files:
        return ("it changed no file",)
    whose = "" if space.kind == "worktree" else f" of {space.repository}"
    return (f"its work is commit {work.commit[:12]} on branch {space.branch}{whose}",)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
