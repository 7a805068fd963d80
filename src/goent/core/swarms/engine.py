"""Who does what a swarm needs next? One task sees one swarm through; its events are all it knows.

What it gave and stopped in this life of go-ent it remembers only so as not to do it twice: a next
go-ent decides anew from the journal, and comes to the same end.
"""

from decimal import Decimal
from pathlib import Path

import anyio
from anyio.abc import TaskGroup

from goent.core.failing import as_failure
from goent.core.feed import Feed
from goent.core.intake import Within
from goent.core.orchestrator import Orchestrator
from goent.core.swarms.joining import Joiner
from goent.core.swarms.steps import Give, GoOn, Now, Settle, Step, Stop, next_steps
from goent.core.swarms.view import SwarmView
from goent.domain.errors import BudgetExceeded, EnvironmentTrouble, GoentError, RequestError
from goent.domain.events import SwarmSpawned, TaskGiven, TaskRefused, TaskSettled
from goent.domain.requests import CancelRequest, PromptRequest, SpawnRequest
from goent.domain.swarms import SwarmTask
from goent.domain.types import Failure, Isolation, Pin

AGAIN = 1.0  # seconds between attempts to write to a disk that refuses
GO_ON = """\
You were interrupted in the middle of your task. Look at what is there already, and go on until it \
is done. The task was:

"""


class Engine:
    """Sees one swarm through."""

    def __init__(
        self, swarm: str, *, feed: Feed, orchestrator: Orchestrator, joiner: Joiner
    ) -> None:
        self.swarm = swarm
        self._feed = feed
        self._workers = orchestrator
        self._joiner = joiner
        self._beginning: set[str] = set()
        self._told: set[tuple[str, int]] = set()  # who was asked to go on or to stop, in which turn

    async def run(self) -> None:
        """Until every task is over, and whoever is not needed has stopped."""
        async with anyio.create_task_group() as group:
            while True:
                seq, view = self._feed.seq, self._feed.swarm(self.swarm)
                now = Now(workers=self._feed.views, beginning=frozenset(self._beginning))
                steps = next_steps(view, now)
                changed = [await self._take(step, view, group) for step in steps]
                if any(changed):
                    await self._stored()
                elif view.over and not steps:
                    return
                else:
                    await self._feed.news(seq)

    async def _take(self, step: Step, view: SwarmView, group: TaskGroup) -> bool:
        """Whether the swarm has a new event."""
        match step:
            case Give():
                worker = self._workers.new_id()
                self._beginning.add(worker)
                given = TaskGiven(task=step.task, worker=worker, pin=step.pin)
                await self._feed.append(view.id, given)
                group.start_soon(self._begin, view, step, worker)
                return True
            case Settle():
                settled = TaskSettled(
                    task=step.task, state=step.state, worker=step.worker, failure=step.failure
                )
                await self._feed.append(view.id, settled)
                return True
            case GoOn() | Stop():
                if self._is_news(step.worker):
                    group.start_soon(self._tell, step)
                return False

    def _is_news(self, worker: str) -> bool:
        view = self._feed.views.get(worker)
        key = (worker, view.turn if view else 0)
        if key in self._told:
            return False
        self._told.add(key)
        return True

    async def _tell(self, step: GoOn | Stop) -> None:
        """A worker that has closed meanwhile needs neither."""
        try:
            if isinstance(step, GoOn):
                words = GO_ON + self._feed.view(step.worker).spawned.task
                await self._workers.prompt(PromptRequest(worker_id=step.worker, prompt=words))
            elif step.worker in self._feed.views:
                stop = CancelRequest(worker_id=step.worker, reason=step.reason, close=True)
                await self._workers.cancel(stop, "its swarm")
        except GoentError as error:
            if isinstance(step, GoOn):
                stop = CancelRequest(worker_id=step.worker, reason=str(error), close=True)
                await self._workers.cancel(stop, "its swarm")

    async def _begin(self, view: SwarmView, step: Give, worker: str) -> None:
        task = view.tasks[step.task].task
        try:
            isolation = isolation_of(task, view.spawned)
            own = isolation in ("worktree", "copy")
            within = Within(
                worker=worker,
                group=view.id,
                label=view.spawned.name,
                group_budget_usd=_decimal(view.spawned.request.budget_usd),
                task_id=task.id,
                start=await self._joiner.start_of(self._feed.swarm(view.id), task) if own else None,
                avoid=step.avoid,
            )
            asked = _spawn_request(task, step.pin, view, isolation)
            await self._workers.spawn(asked, Path(view.spawned.cwd), within)
        except GoentError as error:
            refused = TaskRefused(task=task.id, worker=worker, failure=_refusal(error))
            await self._feed.append(view.id, refused)
            await self._stored()
        finally:
            self._beginning.discard(worker)

    async def _stored(self) -> None:
        """What is decided next rests on it; a full disk makes the swarm wait, nothing worse."""
        while True:
            try:
                return await self._feed.commit()
            except EnvironmentTrouble:
                await anyio.sleep(AGAIN)


def isolation_of(task: SwarmTask, spawned: SwarmSpawned) -> Isolation:
    """As asked; by itself, a folder of its own for who may write."""
    asked = spawned.request
    wanted = task.isolation or asked.isolation
    if wanted != "auto":
        return wanted
    readonly = (task.permissions or asked.permissions) == "readonly" or task.method == "api"
    return "shared" if readonly else spawned.kind


def _spawn_request(
    task: SwarmTask, pin: Pin, view: SwarmView, isolation: Isolation
) -> SpawnRequest:
    asked = view.spawned.request
    own = isolation in ("worktree", "copy")
    return SpawnRequest(
        task=task.prompt,
        provider=pin.provider,
        model=pin.model,
        method=pin.method,
        cwd=view.spawned.cwd,
        files=task.files,
        isolation=isolation,
        uncommitted=own and asked.uncommitted,
        carry=asked.carry if own else (),
        permissions=task.permissions or asked.permissions,
        budget_usd=task.budget_usd,
        timeout_s=task.timeout_s,
        verify=(*asked.verify, *task.verify),
        allow_fallback=task.allow_fallback,
        allowed_tools=task.allowed_tools,
    )


def _refusal(error: GoentError) -> Failure:
    if isinstance(error, BudgetExceeded):
        return Failure(kind="budget_exceeded", message=str(error))
    if isinstance(error, RequestError):
        return Failure(kind="not_started", message=str(error))
    return as_failure(error)


def _decimal(amount: float | None) -> Decimal | None:
    return None if amount is None else Decimal(str(amount))
