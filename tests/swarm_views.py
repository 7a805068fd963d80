"""Swarms and workers as values, for what decides about them."""

from collections.abc import Sequence
from decimal import Decimal

from msgspec.structs import replace

from goent.domain.events import EventEnvelope, SwarmEvent, SwarmSpawned, TaskGiven, WorkerSpawned
from goent.domain.swarm_messages import SwarmSpawnRequest, SwarmTask
from goent.domain.types import Check, Failure, FileChange, Pin
from goent.domain.workspace import Work, Workspace
from goent.swarms.swarm_steps import SwarmSituation, SwarmStep, next_steps
from goent.workers.views import SwarmView, WorkerView, fold_swarm

SPACE = Workspace(
    kind="worktree",
    path="/spaces/w",
    cwd="/spaces/w",
    origin="/project",
    repository="/project/.git",
    branch="go-ent/s/w",
    base="base",
)
DIED = Failure(kind="daemon_died", message="", retryable=True)
PASSED = Check(command="true", exit=0, tail="")


def swarm(*tasks: SwarmTask, concurrency: int = 8, **request: object) -> SwarmView:
    asked = SwarmSpawnRequest(tasks=tasks, **request)  # pyright: ignore[reportArgumentType]
    spawned = SwarmSpawned(
        request=asked,
        name="tidy",
        cwd="/project",
        concurrency=concurrency,
        repository="/project/.git",
        base="base",
    )
    return after(None, spawned)


def after(view: SwarmView | None, *events: SwarmEvent) -> SwarmView:
    for event in events:
        seq = view.seq + 1 if view else 1
        view = fold_swarm(view, EventEnvelope(seq=seq, at=float(seq), worker="s-1", event=event))
    assert view
    return view


def given(view: SwarmView, **workers: str) -> SwarmView:
    """Each task to the worker of that name."""
    for task, worker in workers.items():
        asked = view.tasks[task].task
        pin = Pin(provider=asked.provider, model=asked.model, method=asked.method)
        view = after(view, TaskGiven(task=task, worker=worker, pin=pin))
    return view


def worker(  # noqa: PLR0913 (all that a race looks at)
    name: str,
    state: str = "running",
    *,
    provider: str = "glm",
    lines: int = 3,
    cost: str = "0.01",
    seconds: float = 10.0,
    verified: bool = False,
    failure: Failure | None = None,
    **more: object,
) -> WorkerView:
    spawned = WorkerSpawned(
        task="t",
        cwd="/spaces/w",
        provider=provider,
        backend="b",
        model="m",
        method="acp",
        reason="",
        permissions="edit",
        isolation="worktree",
        workspace=SPACE,
    )
    view = WorkerView(
        id=name,
        spawned=spawned,
        turn=1,
        tools=1,
        token="ses_1",
        calls=1,
        known_usd=Decimal(cost),
        checks=(PASSED,) if verified else (),
        failure=failure,
        work=Work(
            commit=f"commit-{name}",
            base="base",
            files=(FileChange(path="a.py", added=lines, removed=0),) if lines else (),
        ),
        started_at=0.0,
        updated_at=seconds,
        seq=1,
    )
    return replace(view, state=state, **more)


def steps(
    view: SwarmView, workers: Sequence[WorkerView] = (), beginning: Sequence[str] = ()
) -> list[SwarmStep]:
    return next_steps(
        view, SwarmSituation(workers={w.id: w for w in workers}, beginning=frozenset(beginning))
    )
