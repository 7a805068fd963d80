"""Decides what a swarm needs next, from its events and those of its workers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal

from goent.domain.events import TaskSettled
from goent.domain.types import ENDED_STATES, Evidence, Failure, FileChange, Pin, Value
from goent.workers.views import SwarmTaskView, SwarmView, TaskAttempt, WorkerView, evidence

# After the daemon died: `died` resumes in its session; `lost` has none, or never began.
AttemptState = Literal["under_way", "died", "lost", "completed", "failed", "cancelled"]

DID_NOTHING = "it claims to be done, but has changed nothing and used no tool"
FOLDER_REMOVED = "its folder was removed while it worked, together with its work"
UNKNOWN_COST = Decimal("Infinity")
FINAL_FAILURES = frozenset({"budget_exceeded", "not_started", "not_trusted", "permission_denied"})
NO_WORKER_LEFT = Failure(kind="lost", message="its workers are gone", retryable=True)


class AttemptOutcome(Value, frozen=True, kw_only=True):
    """The state of an attempt, and its size, cost and time for comparison."""

    worker: str
    standing: AttemptState
    provider: str = ""
    evidence: Evidence | None = None
    failure: Failure | None = None
    lines: int = 0
    cost_usd: Decimal | None = None
    seconds: float = 0.0

    @property
    def over(self) -> bool:
        return self.standing in ("completed", "failed", "cancelled")

    @property
    def at_work(self) -> bool:
        return self.standing in ("under_way", "died")


def attempt_outcome(
    attempt: TaskAttempt, view: WorkerView | None, *, beginning: bool
) -> AttemptOutcome:
    """The outcome so far. `beginning`: its worker is being spawned right now."""
    name = attempt.worker
    if attempt.refused:
        return AttemptOutcome(worker=name, standing="failed", failure=attempt.refused)
    if view is None:
        return AttemptOutcome(worker=name, standing="under_way" if beginning else "lost")
    standing, failure = _attempt_state(view)
    return AttemptOutcome(
        worker=name,
        standing=standing,
        provider=view.provider,
        evidence=evidence(view),
        failure=failure,
        lines=changed_lines(view.work.files) if view.work else 0,
        cost_usd=view.cost_usd,
        seconds=view.updated_at - view.started_at,
    )


def changed_lines(files: tuple[FileChange, ...]) -> int:
    """The number of changed lines; a file without a line count counts as one."""
    return sum((file.added or 0) + (file.removed or 0) or 1 for file in files)


def _attempt_state(view: WorkerView) -> tuple[AttemptState, Failure | None]:
    if view.state not in ENDED_STATES:
        return "under_way", None
    if view.state == "cancelled":
        return "cancelled", None
    if view.failure and view.failure.kind == "daemon_died":
        return ("died" if view.open and view.token else "lost"), view.failure
    if view.state == "failed":
        return "failed", view.failure
    if evidence(view) == "refuted":
        return "failed", Failure(kind="refuted", message=DID_NOTHING, retryable=True)
    if view.spawned.workspace and view.work is None:
        return "failed", Failure(kind="workspace_lost", message=FOLDER_REMOVED, retryable=True)
    return "completed", None


def race_winner(
    outcomes: Sequence[AttemptOutcome], *, provable: bool, all_in: bool
) -> AttemptOutcome | None:
    """The first verified attempt; of several, the one with the least change, cost and time.

    `provable`: there are verify commands. Without any, claims are compared once `all_in`; one that
    changed nothing comes last.
    """
    done = [each for each in outcomes if each.standing == "completed"]
    if provable:
        done = [each for each in done if each.evidence == "verified"]
    elif not all_in:
        return None
    return min(done, key=_rank, default=None)


def _rank(each: AttemptOutcome) -> tuple[bool, int, Decimal, float]:
    cost = UNKNOWN_COST if each.cost_usd is None else each.cost_usd
    return each.lines == 0, each.lines, cost, each.seconds


class GiveTask(Value, frozen=True, kw_only=True):
    """Spawn a new worker for the task."""

    task: str
    pin: Pin
    avoid: tuple[str, ...] = ()


class ResumeWorker(Value, frozen=True, kw_only=True):
    """Resume a worker whose daemon died during its turn."""

    worker: str


class StopWorker(Value, frozen=True, kw_only=True):
    """Stop a worker that is no longer needed."""

    worker: str
    reason: str


class SettleTask(Value, frozen=True, kw_only=True):
    """End the task."""

    task: str
    state: Literal["completed", "failed", "cancelled", "blocked"]
    worker: str = ""
    failure: Failure | None = None


SwarmStep = GiveTask | ResumeWorker | StopWorker | SettleTask


@dataclass(slots=True, kw_only=True)
class SwarmSituation:
    """The swarm's workers, those being spawned, and the free slots."""

    workers: Mapping[str, WorkerView]
    beginning: frozenset[str] = frozenset()
    slots: int = field(default=0, init=False)


def next_steps(view: SwarmView, now: SwarmSituation) -> list[SwarmStep]:
    """The steps to take now; empty if there is nothing to do."""
    standings = {name: _outcomes(task, now) for name, task in view.tasks.items()}
    busy = sum(each.at_work for found in standings.values() for each in found)
    now.slots = view.spawned.concurrency - busy
    steps: list[SwarmStep] = []
    for name, task in view.tasks.items():
        if task.settled is None:
            steps += _for_task(view, task, standings[name], now)
        elif task.task.race:
            steps += _stragglers(task.settled, standings[name])
    return steps


def _stragglers(settled: TaskSettled, found: list[AttemptOutcome]) -> Iterator[StopWorker]:
    """Stop workers that were still being spawned when the race was won."""
    reason = f"the race for task {settled.task} is over"
    for each in found:
        if each.at_work and each.worker != settled.worker:
            yield StopWorker(worker=each.worker, reason=reason)


def _for_task(
    view: SwarmView, task: SwarmTaskView, found: list[AttemptOutcome], now: SwarmSituation
) -> Iterator[SwarmStep]:
    open_ones = [each for each in found if each.at_work]
    if task.cancelled:
        yield from (StopWorker(worker=each.worker, reason=task.cancelled) for each in open_ones)
        if not open_ones:
            yield _settle(task, "cancelled", found)
        return
    if not found:
        yield from _begin(view, task, now)
        return
    for each in found:
        if each.standing == "died":
            yield ResumeWorker(worker=each.worker)
    yield from _race(view, task, found, now) if task.task.race else _single(view, task, found, now)


def _begin(view: SwarmView, task: SwarmTaskView, now: SwarmSituation) -> Iterator[SwarmStep]:
    before = [view.tasks[name] for name in task.task.after]
    broken = [each for each in before if each.settled and each.settled.state != "completed"]
    if broken:
        names = ", ".join(f"{each.task.id} ({_state_text(each)})" for each in broken)
        yield SettleTask(
            task=task.task.id,
            state="blocked",
            failure=Failure(
                kind="blocked",
                message=f"it comes after {names}; `swarm_retry` of that reopens it",
                retryable=True,
            ),
        )
    elif all(each.settled for each in before):
        for pin in _pins(task)[: 1 if task.task.staged else None]:
            yield from _give(task, pin, now)


def _single(
    view: SwarmView, task: SwarmTaskView, found: list[AttemptOutcome], now: SwarmSituation
) -> Iterator[SwarmStep]:
    last = found[-1]
    if last.standing == "lost":
        yield from _give(task, task.attempts[-1].pin, now)
    elif last.standing == "failed" and _worth_another(view, task, found, last):
        yield from _give(task, _pins(task)[0], now, found)
    elif last.over:
        yield _settle(task, "completed" if last.standing == "completed" else None, found)


def _race(
    view: SwarmView, task: SwarmTaskView, found: list[AttemptOutcome], now: SwarmSituation
) -> Iterator[SwarmStep]:
    """Continue a race; lost racers start again."""
    running = [each for each in found if each.at_work]
    missing = _missing_racers(task, found)
    provable = bool(view.spawned.request.verify or task.task.verify)
    all_in = task.task.staged or not (running or missing)
    best = race_winner(found, provable=provable, all_in=all_in)
    if best:
        reason = f"{best.provider} has won the race for task {task.task.id}"
        yield from (StopWorker(worker=each.worker, reason=reason) for each in running)
        yield SettleTask(task=task.task.id, state="completed", worker=best.worker)
    elif task.task.staged:
        if not running:
            yield from _give(task, missing[0], now) if missing else [_settle(task, None, found)]
    elif missing:
        for pin in missing:
            yield from _give(task, pin, now)
    elif not running:
        yield _settle(task, None, found)


def _missing_racers(task: SwarmTaskView, found: list[AttemptOutcome]) -> list[Pin]:
    """The racers that have not begun, or whose worker is lost."""
    there = {
        attempt.pin
        for attempt, each in zip(task.attempts, found, strict=True)
        if each.standing != "lost"
    }
    return [pin for pin in _pins(task) if pin not in there]


def _give(
    task: SwarmTaskView, pin: Pin, now: SwarmSituation, failed: list[AttemptOutcome] | None = None
) -> Iterator[GiveTask]:
    if now.slots > 0:
        now.slots -= 1
        elsewhere = () if pin.provider or pin.model else tuple(o.provider for o in failed or ())
        yield GiveTask(task=task.task.id, pin=pin, avoid=(*task.avoid, *filter(None, elsewhere)))


def _pins(task: SwarmTaskView) -> list[Pin]:
    asked = task.task
    if task.pin is not None and task.pin != Pin():
        return [task.pin]
    if asked.race:
        return [Pin(provider=name, method=asked.method) for name in asked.race]
    if task.avoid:  # it must go elsewhere, so its own pin no longer applies
        return [Pin(method=asked.method)]
    return [Pin(provider=asked.provider, model=asked.model, method=asked.method)]


def _worth_another(
    view: SwarmView, task: SwarmTaskView, found: list[AttemptOutcome], last: AttemptOutcome
) -> bool:
    tried = sum(each.standing == "failed" for each in found)
    hopeless = last.failure is not None and last.failure.kind in FINAL_FAILURES
    return tried <= view.spawned.request.retries and not hopeless and not task.cancelled


def _settle(
    task: SwarmTaskView,
    state: Literal["completed", "failed", "cancelled"] | None,
    found: list[AttemptOutcome],
) -> SettleTask:
    """End the task with the last worker's outcome, unless a state is given."""
    last = next((each for each in reversed(found) if each.standing != "lost"), None)
    if last is None:
        return SettleTask(
            task=task.task.id, state=state or "failed", failure=None if state else NO_WORKER_LEFT
        )
    ended = "cancelled" if last.standing == "cancelled" else "failed"
    return SettleTask(
        task=task.task.id, state=state or ended, worker=last.worker, failure=last.failure
    )


def _outcomes(task: SwarmTaskView, now: SwarmSituation) -> list[AttemptOutcome]:
    return [
        attempt_outcome(
            attempt, now.workers.get(attempt.worker), beginning=attempt.worker in now.beginning
        )
        for attempt in task.attempts
    ]


def _state_text(task: SwarmTaskView) -> str:
    return task.settled.state if task.settled else "not over"
