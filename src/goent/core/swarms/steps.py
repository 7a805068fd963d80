"""What is to be done next for a swarm? Pure: its events and its workers' in, the next steps out."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from goent.core.swarms.outcomes import Outcome, outcome
from goent.core.swarms.races import winner
from goent.core.swarms.view import SwarmView, TaskView
from goent.core.views import WorkerView
from goent.domain.events import TaskSettled
from goent.domain.types import Failure, Pin, Value

HOPELESS = frozenset({"budget_exceeded", "not_started", "not_trusted", "permission_denied"})
NEVER_WAS = Failure(kind="lost", message="no worker of it is left", retryable=True)


class Give(Value, frozen=True, kw_only=True):
    """A new worker for the task."""

    task: str
    pin: Pin
    avoid: tuple[str, ...] = ()


class GoOn(Value, frozen=True, kw_only=True):
    """The worker's go-ent ended in the middle of its turn: it shall go on."""

    worker: str


class Stop(Value, frozen=True, kw_only=True):
    """The worker is no longer needed."""

    worker: str
    reason: str


class Settle(Value, frozen=True, kw_only=True):
    """The task is over."""

    task: str
    state: Literal["completed", "failed", "cancelled", "blocked"]
    worker: str = ""
    failure: Failure | None = None


Step = Give | GoOn | Stop | Settle


@dataclass(slots=True, kw_only=True)
class Now:
    """The swarm's workers, those that are just being made, and how many more there may be."""

    workers: Mapping[str, WorkerView]
    beginning: frozenset[str] = frozenset()
    slots: int = field(default=0, init=False)


def next_steps(view: SwarmView, now: Now) -> list[Step]:
    """Empty if everything is as it should be, or over."""
    standings = {name: _outcomes(task, now) for name, task in view.tasks.items()}
    busy = sum(each.at_work for found in standings.values() for each in found)
    now.slots = view.spawned.concurrency - busy
    steps: list[Step] = []
    for name, task in view.tasks.items():
        if task.settled is None:
            steps += _for_task(view, task, standings[name], now)
        elif task.task.race:
            steps += _stragglers(task.settled, standings[name])
    return steps


def _stragglers(settled: TaskSettled, found: list[Outcome]) -> Iterator[Stop]:
    """Who was still being made when the race was won has not heard of it."""
    reason = f"the race for task {settled.task} is over"
    for each in found:
        if each.at_work and each.worker != settled.worker:
            yield Stop(worker=each.worker, reason=reason)


def _for_task(view: SwarmView, task: TaskView, found: list[Outcome], now: Now) -> Iterator[Step]:
    open_ones = [each for each in found if each.at_work]
    if task.cancelled:
        yield from (Stop(worker=each.worker, reason=task.cancelled) for each in open_ones)
        if not open_ones:
            yield _settled(task, "cancelled", found)
        return
    if not found:
        yield from _begin(view, task, now)
        return
    for each in found:
        if each.standing == "died":
            yield GoOn(worker=each.worker)
    yield from _race(view, task, found, now) if task.task.race else _alone(view, task, found, now)


def _begin(view: SwarmView, task: TaskView, now: Now) -> Iterator[Step]:
    before = [view.tasks[name] for name in task.task.after]
    broken = [each for each in before if each.settled and each.settled.state != "completed"]
    if broken:
        names = ", ".join(f"{each.task.id} ({_state(each)})" for each in broken)
        yield Settle(
            task=task.task.id,
            state="blocked",
            failure=Failure(
                kind="blocked",
                message=f"it comes after {names}; `swarm_retry` of that opens it again",
                retryable=True,
            ),
        )
    elif all(each.settled for each in before):
        for pin in _pins(task)[: 1 if task.task.staged else None]:
            yield from _given(task, pin, now)


def _alone(view: SwarmView, task: TaskView, found: list[Outcome], now: Now) -> Iterator[Step]:
    last = found[-1]
    if last.standing == "lost":
        yield from _given(task, task.attempts[-1].pin, now)
    elif last.standing == "failed" and _worth_another(view, task, found, last):
        yield from _given(task, _pins(task)[0], now, found)
    elif last.over:
        yield _settled(task, "completed" if last.standing == "completed" else None, found)


def _race(view: SwarmView, task: TaskView, found: list[Outcome], now: Now) -> Iterator[Step]:
    """Lost ones run again, in their own place."""
    running = [each for each in found if each.at_work]
    missing = _missing(task, found)
    provable = bool(view.spawned.request.verify or task.task.verify)
    all_in = task.task.staged or not (running or missing)
    best = winner(found, provable=provable, all_in=all_in)
    if best:
        reason = f"{best.provider} has won the race for task {task.task.id}"
        yield from (Stop(worker=each.worker, reason=reason) for each in running)
        yield Settle(task=task.task.id, state="completed", worker=best.worker)
    elif task.task.staged:
        if not running:
            yield from _given(task, missing[0], now) if missing else [_settled(task, None, found)]
    elif missing:
        for pin in missing:
            yield from _given(task, pin, now)
    elif not running:
        yield _settled(task, None, found)


def _missing(task: TaskView, found: list[Outcome]) -> list[Pin]:
    """Racers that have not begun, or whose worker is lost."""
    there = {
        attempt.pin
        for attempt, each in zip(task.attempts, found, strict=True)
        if each.standing != "lost"
    }
    return [pin for pin in _pins(task) if pin not in there]


def _given(
    task: TaskView, pin: Pin, now: Now, failed: list[Outcome] | None = None
) -> Iterator[Give]:
    if now.slots > 0:
        now.slots -= 1
        elsewhere = () if pin.provider or pin.model else tuple(o.provider for o in failed or ())
        yield Give(task=task.task.id, pin=pin, avoid=(*task.avoid, *filter(None, elsewhere)))


def _pins(task: TaskView) -> list[Pin]:
    asked = task.task
    if task.pin is not None and task.pin != Pin():
        return [task.pin]
    if asked.race:
        return [Pin(provider=name, method=asked.method) for name in asked.race]
    if task.avoid:  # it shall go elsewhere, so what it was bound to binds it no more
        return [Pin(method=asked.method)]
    return [Pin(provider=asked.provider, model=asked.model, method=asked.method)]


def _worth_another(view: SwarmView, task: TaskView, found: list[Outcome], last: Outcome) -> bool:
    tried = sum(each.standing == "failed" for each in found)
    hopeless = last.failure is not None and last.failure.kind in HOPELESS
    return tried <= view.spawned.request.retries and not hopeless and not task.cancelled


def _settled(
    task: TaskView, state: Literal["completed", "failed", "cancelled"] | None, found: list[Outcome]
) -> Settle:
    """By the last of its workers; without a state, as that one ended."""
    last = next((each for each in reversed(found) if each.standing != "lost"), None)
    if last is None:
        return Settle(
            task=task.task.id, state=state or "failed", failure=None if state else NEVER_WAS
        )
    ended = "cancelled" if last.standing == "cancelled" else "failed"
    return Settle(task=task.task.id, state=state or ended, worker=last.worker, failure=last.failure)


def _outcomes(task: TaskView, now: Now) -> list[Outcome]:
    return [
        outcome(attempt, now.workers.get(attempt.worker), beginning=attempt.worker in now.beginning)
        for attempt in task.attempts
    ]


def _state(task: TaskView) -> str:
    return task.settled.state if task.settled else "not over"
