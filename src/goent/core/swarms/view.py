"""What is a swarm now? The fold of its events, as a worker is the fold of its own."""

from collections.abc import Mapping

from msgspec.structs import replace

from goent.domain.errors import RequestError
from goent.domain.events import (
    Envelope,
    SwarmCancelled,
    SwarmSpawned,
    TaskGiven,
    TaskRefused,
    TaskReopened,
    TaskSettled,
    WorkMerged,
)
from goent.domain.swarms import SwarmTask
from goent.domain.types import Failure, Pin, Value


class Attempt(Value, frozen=True, kw_only=True):
    """A worker that was given a task. `refused`: it could not even begin."""

    worker: str
    pin: Pin = Pin()
    refused: Failure | None = None


class TaskView(Value, frozen=True, kw_only=True):
    """A task of the swarm. `attempts` are those since it was opened, `earlier` those before.

    `pin` and `avoid` are what whoever reopened it wants.
    """

    task: SwarmTask
    attempts: tuple[Attempt, ...] = ()
    earlier: tuple[Attempt, ...] = ()
    pin: Pin | None = None
    avoid: tuple[str, ...] = ()
    settled: TaskSettled | None = None
    cancelled: str = ""

    @property
    def workers(self) -> tuple[str, ...]:
        """All that ever had it, in order."""
        return tuple(attempt.worker for attempt in (*self.earlier, *self.attempts))


class SwarmView(Value, frozen=True, kw_only=True):
    """A swarm as its events tell it; the tasks by id, in their order.

    `ended_at` is when the last thing happened to a task.
    """

    id: str
    spawned: SwarmSpawned
    tasks: Mapping[str, TaskView]
    merges: tuple[WorkMerged, ...] = ()
    started_at: float
    ended_at: float
    seq: int

    @property
    def over(self) -> bool:
        return all(view.settled for view in self.tasks.values())

    def named(self, tasks: tuple[str, ...]) -> tuple[TaskView, ...]:
        """These tasks, or all if none is named."""
        unknown = [name for name in tasks if name not in self.tasks]
        if unknown:
            raise RequestError(
                f"swarm {self.id!r} has no task {unknown[0]!r}; it has {', '.join(self.tasks)}"
            )
        return tuple(self.tasks[name] for name in tasks or self.tasks)


def fold_swarm(view: SwarmView | None, envelope: Envelope) -> SwarmView | None:
    """The view after the event; None if there is none because its beginning cannot be read."""
    event, seq = envelope.event, envelope.seq
    if isinstance(event, SwarmSpawned):
        tasks = {task.id: TaskView(task=task) for task in event.request.tasks}
        return SwarmView(
            id=envelope.worker,
            spawned=event,
            tasks=tasks,
            started_at=envelope.at,
            ended_at=envelope.at,
            seq=seq,
        )
    if view is None:
        return None
    view = replace(view, seq=seq)
    match event:
        case TaskGiven() | TaskRefused() | TaskSettled() | TaskReopened():
            before = view.tasks.get(event.task)
            if before is None:  # written by who knows more tasks than we can read
                return view
            tasks = {**view.tasks, event.task: _task_after(before, event)}
            return replace(view, tasks=tasks, ended_at=envelope.at)
        case SwarmCancelled():
            return replace(view, tasks=_cancelled(view, event))
        case WorkMerged():
            return replace(view, merges=(*view.merges, event))
        case _:
            return view


def _task_after(
    view: TaskView, event: TaskGiven | TaskRefused | TaskSettled | TaskReopened
) -> TaskView:
    match event:
        case TaskGiven():
            attempt = Attempt(worker=event.worker, pin=event.pin)
            return replace(view, attempts=(*view.attempts, attempt))
        case TaskRefused():
            return replace(
                view,
                attempts=tuple(
                    replace(each, refused=event.failure) if each.worker == event.worker else each
                    for each in view.attempts
                ),
            )
        case TaskSettled():
            return replace(view, settled=event)
        case TaskReopened():
            return TaskView(
                task=view.task,
                earlier=(*view.earlier, *view.attempts),
                pin=event.pin,
                avoid=event.avoid,
            )


def _cancelled(view: SwarmView, event: SwarmCancelled) -> dict[str, TaskView]:
    meant = event.tasks or tuple(view.tasks)
    return {
        name: replace(task, cancelled=event.reason) if name in meant and not task.settled else task
        for name, task in view.tasks.items()
    }
