"""Reports the status and the result of a swarm, short enough for a model's context."""

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal

from msgspec.structs import replace

from goent.domain.replies import ModelUse
from goent.domain.swarm_messages import (
    ENDED_SWARM_STATES,
    LeftOver,
    MergePlan,
    SwarmResult,
    SwarmState,
    SwarmStatus,
    TaskLine,
    TaskState,
    Totals,
)
from goent.domain.types import ENDED_STATES, Evidence, FileChange, Usage, rounded_usd
from goent.domain.workspace import Conflict, Merge, UnmergedPiece
from goent.swarms.swarm_steps import attempt_outcome
from goent.workers.change_attribution import SharedWork
from goent.workers.views import (
    SwarmTaskView,
    SwarmView,
    TaskAttempt,
    WorkerView,
    evidence,
    shorten,
    timestamp,
    worker_status,
)
from goent.workers.worker_queries import WorkSummary

# Together these keep the result of 8 workers below 1,500 tokens.
LINES_LIMIT = 12
CONFLICTS_LIMIT = 4
HUNKS_LIMIT = 2
HUNK_LIMIT = 300
SENTENCE_LIMIT = 160
INSTRUCTIONS_LIMIT = 240
NAMES_LIMIT = 40

WorkerViews = Mapping[str, WorkerView]


def swarm_status(view: SwarmView, workers: WorkerViews, now: float) -> SwarmStatus:
    tasks = list(view.tasks.values())
    ended = view.ended_at if view.over else now
    budget = view.spawned.request.budget_usd
    state = swarm_state(view, workers)
    lines = tuple(line for task in tasks for line in task_lines(task, workers, now))
    return SwarmStatus(
        swarm_id=view.id,
        swarm=view.spawned.name,
        state=state,
        evidence=swarm_evidence(state, lines),
        done=sum(task.settled is not None for task in tasks),
        total=len(tasks),
        tasks=lines,
        cost_usd=rounded_usd(total_cost([w for task in tasks for w in workers_of(task, workers)])),
        budget_usd=budget,
        started_at=timestamp(view.started_at),
        seconds=round(ended - view.started_at, 1),
        warnings=view.spawned.warnings,
    )


def swarm_state(view: SwarmView, workers: WorkerViews) -> SwarmState:
    tasks = view.tasks.values()
    if not view.over:
        asking = any(w.questions for task in tasks for w in workers_of(task, workers))
        return "waiting" if asking else "running"
    states = {task.settled.state for task in tasks if task.settled}
    if states <= {"completed"}:
        return "completed"
    return "failed" if states & {"failed", "blocked"} else "cancelled"


def swarm_evidence(state: SwarmState, lines: Sequence[TaskLine]) -> Evidence | None:
    """The weakest evidence of its tasks. None until all are over."""
    if state not in ENDED_SWARM_STATES:
        return None
    found = {line.evidence for line in lines}
    if "refuted" in found:
        return "refuted"
    if state != "completed":
        return None
    return "verified" if found == {"verified"} else "claimed"


def workers_of(task: SwarmTaskView, workers: WorkerViews) -> list[WorkerView]:
    """All workers that ever had the task."""
    return [workers[name] for name in task.workers if name in workers]


def total_cost(workers: Sequence[WorkerView]) -> Decimal | None:
    """None if any call's price is unknown; a worker without calls has cost nothing."""
    if any(worker.unknown_calls for worker in workers):
        return None
    return sum((worker.known_usd for worker in workers), Decimal(0))


def task_lines(task: SwarmTaskView, workers: WorkerViews, now: float) -> Iterator[TaskLine]:
    """One line; while a race runs, one per running worker."""
    running = [] if task.settled else [a for a in task.attempts if _runs(a, workers)]
    if len(running) > 1:
        for attempt in running:
            yield _line(task, workers.get(attempt.worker), [attempt.worker], workers, now)
        return
    chosen = task.settled.worker if task.settled else ""
    name = chosen or next((a.worker for a in reversed(task.attempts)), "")
    yield _line(task, workers.get(name), task.workers, workers, now)


def _runs(attempt: TaskAttempt, workers: WorkerViews) -> bool:
    return not attempt_outcome(attempt, workers.get(attempt.worker), beginning=True).over


def _line(
    task: SwarmTaskView,
    view: WorkerView | None,
    who: Sequence[str],
    workers: WorkerViews,
    now: float,
) -> TaskLine:
    had = [workers[name] for name in who if name in workers]
    common = TaskLine(
        id=task.task.id,
        state=_state(task, view),
        attempts=len(task.workers),
        tokens=sum(worker.usage.total for worker in had),
        cost_usd=rounded_usd(total_cost(had)) if had else None,
        failure=task.settled.failure if task.settled else None,
    )
    if view is None:
        return common
    shown = worker_status(view)
    files = view.work.files if view.work else ()
    ended = view.ended_at or view.updated_at if view.state in ENDED_STATES else now
    return replace(
        common,
        worker_id=view.id,
        provider=view.provider,
        model=view.spawned.model,
        step="" if task.settled else shown.step,
        evidence=evidence(view) if task.settled else None,
        **_change_totals(files),
        seconds=round(ended - view.started_at, 1),
        permission=shown.permission.id if shown.permission else None,
        failure=common.failure or view.failure,
    )


def _state(task: SwarmTaskView, view: WorkerView | None) -> TaskState:
    if task.settled:
        return task.settled.state
    if view is None:
        return "starting" if task.attempts else "pending"
    return view.state if view.state not in ENDED_STATES else "running"


def swarm_result(  # noqa: PLR0913 (what it is made of, each by name)
    view: SwarmView,
    workers: WorkerViews,
    *,
    accounts: Mapping[str, WorkSummary],
    conflicts: Sequence[Conflict],
    merge: Merge,
    without: Mapping[str, str],
    now: float,
) -> SwarmResult:
    """The complete result. `accounts` are by worker id."""
    stands = swarm_status(view, workers, now)
    left = [left_over(each) for each in merge.left]
    left += [LeftOver(task=name, reason=why) for name, why in without.items()]
    return SwarmResult(
        swarm_id=view.id,
        swarm=view.spawned.name,
        state=stands.state,
        evidence=stands.evidence,
        tasks=tuple(_with_changes(line, accounts) for line in stands.tasks),
        totals=_totals([account.models for account in accounts.values()]),
        cost_usd=stands.cost_usd,
        conflicts=tuple(conflicts),
        plan=MergePlan(order=merge.merged, left=tuple(left)),
        notes=tuple(_notes(view)),
    )


def shared_work(
    view: SwarmView, workers: WorkerViews, accounts: Mapping[str, WorkSummary]
) -> tuple[SharedWork, ...]:
    """What the workers in the shared folder edited, and when they were working."""
    return tuple(
        SharedWork(
            task=task.task.id,
            edited=tuple(file.path for file in accounts[worker.id].files),
            began=worker.started_at,
            ended=worker.updated_at,
        )
        for task in view.tasks.values()
        for worker in workers_of(task, workers)
        if worker.spawned.workspace is None
    )


def left_over(left: UnmergedPiece) -> LeftOver:
    why = "; ".join(f"{each.kind}: {each.path or each.detail}" for each in left.conflicts[:3])
    return LeftOver(task=left.task, reason=why, instructions=left.instructions)


def _with_changes(line: TaskLine, accounts: Mapping[str, WorkSummary]) -> TaskLine:
    """Of who worked in a shared folder, only the edits are known."""
    account = accounts.get(line.worker_id or "")
    if line.files or account is None:
        return replace(line, step="")
    return replace(line, step="", **_change_totals(account.files))


def _change_totals(files: Sequence[FileChange]) -> dict[str, int]:
    return {
        "files": len(files),
        "added": sum(file.added or 0 for file in files),
        "removed": sum(file.removed or 0 for file in files),
    }


def _totals(uses: Sequence[Sequence[ModelUse]]) -> dict[str, Totals]:
    found: dict[str, Totals] = {}
    for models in uses:
        for provider in {use.provider for use in models}:
            own = [use for use in models if use.provider == provider]
            before = found.get(provider, Totals(workers=0, usage=Usage(), cost_usd=0.0))
            costs = [before.cost_usd, *(use.cost_usd for use in own)]
            known = [cost for cost in costs if cost is not None]
            found[provider] = Totals(
                workers=before.workers + 1,
                usage=sum((use.usage for use in own), before.usage),
                cost_usd=round(sum(known), 9) if len(known) == len(costs) else None,
            )
    return found


def _notes(view: SwarmView) -> Iterator[str]:
    yield from view.spawned.warnings
    for merged in view.merges[-1:]:
        proved = "" if not merged.checks else " and checked"
        yield f"merged{proved} on {merged.branch}: {', '.join(merged.merged)}"


def shorten_result(result: SwarmResult) -> SwarmResult:
    """The result cut for a model's context: below 1,500 tokens for 8 workers."""
    notes = list(result.notes)
    tasks = result.tasks
    if len(tasks) > LINES_LIMIT:
        tasks = tuple(sorted(tasks, key=lambda line: line.state == "completed"))[:LINES_LIMIT]
        notes.append(f"{len(tasks)} of {len(result.tasks)} tasks are listed, failed ones first")
    if len(result.conflicts) > CONFLICTS_LIMIT:
        notes.append(f"{CONFLICTS_LIMIT} of {len(result.conflicts)} conflicts are listed")
    if len(notes) > len(result.notes):
        notes.append(
            f"complete: swarm_result with whole: true, or swarm://{result.swarm_id}/result"
        )
    return replace(
        result,
        tasks=tuple(_short_line(line) for line in tasks),
        conflicts=tuple(_short_conflicts(result.conflicts)),
        plan=MergePlan(
            order=result.plan.order[:NAMES_LIMIT],
            left=tuple(
                replace(
                    left,
                    reason=shorten(left.reason, SENTENCE_LIMIT),
                    instructions=_cut(left.instructions, INSTRUCTIONS_LIMIT),
                )
                for left in result.plan.left[:LINES_LIMIT]
            ),
        ),
        notes=tuple(shorten(note, SENTENCE_LIMIT) for note in notes),
    )


def _short_line(line: TaskLine) -> TaskLine:
    if line.failure is None:
        return line
    message = shorten(line.failure.message, SENTENCE_LIMIT)
    return replace(line, failure=replace(line.failure, message=message))


def _short_conflicts(conflicts: Sequence[Conflict]) -> Iterator[Conflict]:
    """The worst first: overlaps that merge come last."""
    ordered = sorted(conflicts, key=lambda each: each.kind == "file_overlap")
    for number, each in enumerate(ordered[:CONFLICTS_LIMIT]):
        hunks = each.hunks[:1] if number < HUNKS_LIMIT else ()
        yield replace(
            each,
            tasks=each.tasks[:8],
            detail=shorten(each.detail, SENTENCE_LIMIT),
            hunks=tuple(_cut(hunk, HUNK_LIMIT) for hunk in hunks),
        )


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
