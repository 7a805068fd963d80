"""What came of a worker's task? Told from its events, short enough for a model's context."""

from collections.abc import Iterable, Sequence
from decimal import Decimal
from pathlib import PurePath

from goent.core.views import WorkerView, evidence, usd
from goent.domain.events import (
    BudgetWarned,
    Envelope,
    FailedOver,
    GuardedFilesChanged,
    TextDelta,
    ToolCall,
    TurnStarted,
    UsageReported,
)
from goent.domain.replies import Failover, ModelUse, Result
from goent.domain.types import Check, Command, FileChange, GuardedChange, Usage
from goent.policy.guarded import guard_reason

# Together these keep a result below 1,500 tokens, whatever the worker did.
TEXT_LIMIT = 1500
TAIL_LIMIT = 350
LINE_LIMIT = 120
FILES_LIMIT = 12
COMMANDS_LIMIT = 8
CHECKS_LIMIT = 4
MODELS_LIMIT = 4
WARNINGS_LIMIT = 2
WARNING_LIMIT = 400


def result(view: WorkerView, events: Sequence[Envelope]) -> Result:
    """The whole worker's work; `text` is the last message of its last turn."""
    happened = [envelope.event for envelope in events]
    edited = changed_files(e for e in happened if isinstance(e, ToolCall))
    files = view.work.files if view.work else edited
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
        cost_usd=usd(view.cost_usd),
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
        notes=(
            *_unconfined(view),
            *_place(view),
            *_notes(view, text, len(files), len(commands)),
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
        ModelUse(provider=provider, model=model, calls=calls, usage=usage, cost_usd=usd(cost))
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
