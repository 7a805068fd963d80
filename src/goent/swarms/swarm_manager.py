"""Runs the swarms of a project: checks, starts, supervises, retries and cancels them.

All decisions come from the journal, so that the next daemon continues with the same result; in
memory is only what prevents this one from doing something twice.
"""

import logging
import secrets
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from decimal import Decimal
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import TaskGroup
from msgspec.structs import replace

from goent.domain.errors import BudgetExceeded, EnvironmentTrouble, GoentError, RequestError
from goent.domain.events import (
    SwarmCancelled,
    SwarmSpawned,
    TaskGiven,
    TaskRefused,
    TaskReopened,
    TaskSettled,
)
from goent.domain.requests import CancelRequest, PromptRequest, SpawnRequest
from goent.domain.settings import Settings
from goent.domain.swarm_messages import (
    SwarmCancelRequest,
    SwarmLine,
    SwarmList,
    SwarmResult,
    SwarmResultRequest,
    SwarmRetryRequest,
    SwarmSpawnRequest,
    SwarmStatus,
    SwarmTask,
    SwarmWaitRequest,
)
from goent.domain.types import Failure, Isolation, Pin
from goent.domain.verification import blank_commands
from goent.domain.workspace import Conflict, WorkspaceManager
from goent.routing.route_facts import count_text
from goent.swarms.swarm_merge import WorkJoiner
from goent.swarms.swarm_report import (
    shared_work,
    shorten_result,
    swarm_result,
    swarm_state,
    swarm_status,
)
from goent.swarms.swarm_steps import (
    GiveTask,
    ResumeWorker,
    SettleTask,
    StopWorker,
    SwarmSituation,
    SwarmStep,
    attempt_outcome,
    next_steps,
)
from goent.workers.change_attribution import SharedWork, shared_overlaps
from goent.workers.feed import Feed
from goent.workers.orchestrator import ID_ALPHABET, Orchestrator
from goent.workers.task_intake import SwarmMembership, working_directory
from goent.workers.views import SwarmTaskView, SwarmView, WorkerView
from goent.workers.worker_failover import INTERNAL_ERROR, as_failure
from goent.workers.worker_queries import (
    HEARTBEAT_S,
    OnProgress,
    ProgressReports,
    StateMark,
    WorkerQueries,
)

log = logging.getLogger(__name__)

MAX_TASKS: Final = 100
RETRY_S = 1.0  # seconds between attempts to write to a disk that refuses
CONTINUE_PROMPT = """\
You were interrupted in the middle of your task. Look at what is already there, and continue until \
it is done. The task was:

"""
UNCOMMITTED_WARNING = (
    "the workers do not see {files} that are changed or new but not committed: commit them, or "
    "pass uncommitted: true"
)
DEFAULT_CONCURRENCY = 8  # workers of a swarm
CANCEL_TIMEOUT_S = 60.0  # seconds that a cancelled swarm has to stop


def check_tasks(request: SwarmSpawnRequest, settings: Settings) -> None:
    """Raise a `RequestError` with all mistakes."""
    mistakes = [*_blank_verify(request), *_mistakes(request.tasks, settings)]
    if mistakes:
        raise RequestError("; ".join(mistakes))


def _blank_verify(request: SwarmSpawnRequest) -> Iterator[str]:
    for index, reason in blank_commands(request.verify):
        yield f"verify[{index}]: {reason}"
    for task in request.tasks:
        for index, reason in blank_commands(task.verify):
            yield f"task {task.id!r}: verify[{index}]: {reason}"


def _mistakes(tasks: Sequence[SwarmTask], settings: Settings) -> Iterator[str]:
    if len(tasks) > MAX_TASKS:
        yield f"{len(tasks)} tasks are more than {MAX_TASKS}: split them into several swarms"
    for name, count in Counter(task.id for task in tasks).items():
        if count > 1:
            yield f"{count} tasks have the id {name!r}: give each its own"
    known = {task.id for task in tasks}
    for task in tasks:
        yield from _mistakes_of(task, known, settings)
    yield from _cycle({task.id: task.after for task in tasks})


def _mistakes_of(task: SwarmTask, known: set[str], settings: Settings) -> Iterator[str]:
    where = f"task {task.id!r}"
    if not task.prompt.strip():
        yield f"{where} has an empty `task`: say what is to be done"
    for name in task.after:
        if name == task.id:
            yield f"{where} comes after itself"
        elif name not in known:
            yield f"{where} comes after {name!r}, which does not exist"
    names = {p.name for p in settings.providers} | set(settings.backends) | set(settings.agents)
    for name in (*((task.provider,) if task.provider else ()), *task.race):
        if name not in names:
            there = ", ".join(sorted(p.name for p in settings.providers)) or "none"
            yield f"{where} names provider {name!r}, which is not configured (there are: {there})"
    if task.race and (task.provider or task.model):
        yield f"{where} has both a race and a pin: name the providers in `race` alone"
    if len(task.race) != len(set(task.race)):
        yield f"{where} names a provider twice in its race"
    if task.staged and not task.race:
        yield f"{where} is staged but has no `race`: name the providers, the cheap one first"


def _cycle(after: Mapping[str, Sequence[str]]) -> Iterator[str]:
    graph = {name: [each for each in names if each != name] for name, names in after.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        round_: Sequence[str] = error.args[1]
        yield f"tasks wait for each other in a cycle: {' after '.join(round_)}"


class SwarmRunner:
    """Runs one swarm to its end."""

    def __init__(
        self, swarm: str, *, feed: Feed, orchestrator: Orchestrator, joiner: WorkJoiner
    ) -> None:
        self.swarm = swarm
        self._feed = feed
        self._workers = orchestrator
        self._joiner = joiner
        self._beginning: set[str] = set()
        self._notified: set[tuple[str, int]] = set()  # workers resumed or stopped, by turn

    async def run(self) -> None:
        """Run until every task is over and every unneeded worker has stopped."""
        async with anyio.create_task_group() as group:
            while True:
                seq, view = self._feed.seq, self._feed.swarm(self.swarm)
                now = SwarmSituation(workers=self._feed.views, beginning=frozenset(self._beginning))
                steps = next_steps(view, now)
                changed = [await self._take_step(step, view, group) for step in steps]
                if any(changed):
                    await self._commit()
                elif view.over and not steps:
                    return
                else:
                    await self._feed.wait_for_news(seq)

    async def _take_step(self, step: SwarmStep, view: SwarmView, group: TaskGroup) -> bool:
        """Take the step; returns whether the swarm has a new event."""
        match step:
            case GiveTask():
                worker = self._workers.new_id()
                self._beginning.add(worker)
                given = TaskGiven(task=step.task, worker=worker, pin=step.pin)
                await self._feed.append(view.id, given)
                group.start_soon(self._begin, view, step, worker)
                return True
            case SettleTask():
                settled = TaskSettled(
                    task=step.task, state=step.state, worker=step.worker, failure=step.failure
                )
                await self._feed.append(view.id, settled)
                return True
            case ResumeWorker() | StopWorker():
                if self._is_news(step.worker):
                    group.start_soon(self._notify, step)
                return False

    def _is_news(self, worker: str) -> bool:
        view = self._feed.views.get(worker)
        key = (worker, view.turn if view else 0)
        if key in self._notified:
            return False
        self._notified.add(key)
        return True

    async def _notify(self, step: ResumeWorker | StopWorker) -> None:
        """Resume or stop a worker, unless it has closed meanwhile."""
        try:
            if isinstance(step, ResumeWorker):
                words = CONTINUE_PROMPT + self._feed.view(step.worker).spawned.task
                await self._workers.prompt(PromptRequest(worker_id=step.worker, prompt=words))
            elif step.worker in self._feed.views:
                stop = CancelRequest(worker_id=step.worker, reason=step.reason, close=True)
                await self._workers.cancel(stop, "its swarm")
        except GoentError as error:
            if isinstance(step, ResumeWorker):
                stop = CancelRequest(worker_id=step.worker, reason=str(error), close=True)
                await self._workers.cancel(stop, "its swarm")

    async def _begin(self, view: SwarmView, step: GiveTask, worker: str) -> None:
        task = view.tasks[step.task].task
        try:
            isolation = isolation_of(task, view.spawned)
            own = isolation in ("worktree", "copy")
            within = SwarmMembership(
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
            refused = TaskRefused(task=task.id, worker=worker, failure=_spawn_failure(error))
            await self._feed.append(view.id, refused)
            await self._commit()
        finally:
            self._beginning.discard(worker)

    async def _commit(self) -> None:
        """Wait until the events are stored: the next decision depends on them."""
        while True:
            try:
                return await self._feed.commit()
            except EnvironmentTrouble:
                await anyio.sleep(RETRY_S)


def isolation_of(task: SwarmTask, spawned: SwarmSpawned) -> Isolation:
    """The requested isolation; by default, a folder of its own for workers that may write."""
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


def _spawn_failure(error: GoentError) -> Failure:
    if isinstance(error, BudgetExceeded):
        return Failure(kind="budget_exceeded", message=str(error))
    if isinstance(error, RequestError):
        return Failure(kind="not_started", message=str(error))
    return as_failure(error)


def _decimal(amount: float | None) -> Decimal | None:
    return None if amount is None else Decimal(str(amount))


class SwarmManager:
    """All swarms of a project."""

    def __init__(
        self,
        *,
        settings: Callable[[], Settings],
        feed: Feed,
        orchestrator: Orchestrator,
        queries: WorkerQueries,
        workspaces: WorkspaceManager,
        joiner: WorkJoiner,
    ) -> None:
        self._settings = settings
        self._feed = feed
        self._workers = orchestrator
        self._queries = queries
        self._workspaces = workspaces
        self._joiner = joiner
        self._group: TaskGroup | None = None
        self._living: set[str] = set()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Run swarms inside this context, also those of an earlier daemon."""
        async with anyio.create_task_group() as group:
            self._group = group
            for view in list(self._feed.swarms.values()):
                if not view.over:
                    self._supervise(view.id)
            try:
                yield
            finally:
                group.cancel_scope.cancel()

    def _supervise(self, swarm: str) -> None:
        assert self._group, "swarms live inside `running`"
        if swarm not in self._living:
            self._living.add(swarm)
            self._group.start_soon(self._run, swarm, name=f"swarm {swarm}")

    async def _run(self, swarm: str) -> None:
        runner = SwarmRunner(
            swarm, feed=self._feed, orchestrator=self._workers, joiner=self._joiner
        )
        try:
            await runner.run()
        except Exception as bug:
            log.exception("swarm %s: %s", swarm, INTERNAL_ERROR)
            await self._give_up(swarm, bug)
        finally:
            self._living.discard(swarm)
        if not self._feed.swarm(swarm).over:  # reopened just now
            self._supervise(swarm)

    async def _give_up(self, swarm: str, bug: Exception) -> None:
        """Fail the open tasks, so that nobody waits for ever; their workers continue."""
        for name, task in self._feed.swarm(swarm).tasks.items():
            if not task.settled:
                failed = TaskSettled(task=name, state="failed", failure=as_failure(bug))
                await self._feed.append(swarm, failed)
        await self._feed.commit()

    # Operations

    async def spawn(self, request: SwarmSpawnRequest, base: Path) -> str:
        """Accept the tasks; the workers start in the background."""
        self._workers.check_ready()
        settings = self._settings()
        check_tasks(request, settings)
        if request.isolation == "auto":
            request = replace(request, isolation=settings.isolation)
        cwd, swarm = working_directory(request.cwd, base), self._new_id()
        spawned = SwarmSpawned(
            request=request,
            name=self._name(request.swarm or swarm),
            cwd=str(cwd),
            concurrency=request.concurrency or min(DEFAULT_CONCURRENCY, settings.limits.workers),
            kind=await self._workspaces.default_kind(cwd),
        )
        await self._feed.append(swarm, await self._with_base(spawned))
        await self._feed.commit()
        self._supervise(swarm)
        return swarm

    async def _with_base(self, spawned: SwarmSpawned) -> SwarmSpawned:
        """With the commit that all tasks start from, whatever happens to the checkout."""
        request, cwd = spawned.request, Path(spawned.cwd)
        kinds = {isolation_of(task, spawned) for task in request.tasks}
        if "copy" in kinds:
            await self._workspaces.check(cwd, "copy")
        if "worktree" not in kinds:
            return spawned
        await self._workspaces.check(cwd, "worktree")
        repository, base = await self._workspaces.head(cwd, uncommitted=request.uncommitted)
        unseen = 0 if request.uncommitted else await self._workspaces.uncommitted(cwd)
        warnings = (UNCOMMITTED_WARNING.format(files=count_text(unseen, "file")),) if unseen else ()
        return replace(spawned, repository=repository, base=base, warnings=warnings)

    def status(self, swarm: str) -> SwarmStatus:
        return swarm_status(self._feed.swarm(swarm), self._feed.views, time.time())

    async def wait(self, request: SwarmWaitRequest, on_progress: OnProgress) -> SwarmStatus:
        """Wait until every task is over, or a worker asks a question, which needs the caller."""
        reports = ProgressReports()
        with anyio.move_on_after(request.timeout_s):
            while not self._is_idle(request.swarm_id):
                seq = self._feed.seq
                await reports.report(self._at_work(request.swarm_id).values(), on_progress)
                with anyio.move_on_after(HEARTBEAT_S):
                    await self._feed.wait_for_news(seq)
        return self.status(request.swarm_id)

    def _at_work(self, swarm: str) -> dict[str, WorkerView]:
        names = (name for name in self._members(swarm) if name in self._feed.views)
        return {name: self._feed.views[name] for name in names}

    def _is_idle(self, swarm: str) -> bool:
        view = self._feed.swarm(swarm)
        return view.over or swarm_state(view, self._feed.views) == "waiting"

    def _members(self, swarm: str) -> tuple[str, ...]:
        return tuple(w for task in self._feed.swarm(swarm).tasks.values() for w in task.workers)

    async def result(self, request: SwarmResultRequest) -> SwarmResult:
        view = self._feed.swarm(request.swarm_id)
        pieces = self._joiner.pieces(view, tuple(view.tasks.values()))
        accounts = {name: await self._queries.account(name) for name in self._members(view.id)}
        shared = shared_work(view, self._feed.views, accounts)
        whole = swarm_result(
            view,
            self._feed.views,
            accounts=accounts,
            conflicts=(
                *await self._joiner.conflicts(pieces),
                *await self._overlaps(view.spawned.cwd, shared),
            ),
            merge=await self._joiner.merge(pieces, f"go-ent: {view.spawned.name}"),
            without=pieces.left_out,
            now=time.time(),
        )
        return whole if request.whole else shorten_result(whole)

    async def _overlaps(self, cwd: str, shared: Sequence[SharedWork]) -> tuple[Conflict, ...]:
        """The conflicts of tasks that worked in one shared folder."""
        if len(shared) < 2:  # noqa: PLR2004 (it takes two)
            return ()
        return shared_overlaps(cwd, shared, {}, await self._workspaces.file_states(Path(cwd)))

    async def retry(self, request: SwarmRetryRequest) -> None:
        """Reopen tasks that did not complete, and those that they blocked."""
        self._workers.check_ready()
        view = self._feed.swarm(request.swarm_id)
        meant = [task for task in view.named(request.tasks) if _can_retry(task)]
        if not meant:
            raise RequestError(
                f"swarm {view.id!r} has nothing to retry: only failed, cancelled and blocked tasks "
                "can be retried"
            )
        pin = Pin(provider=request.provider, model=request.model, method=request.method)
        for task in (*meant, *self._blocked_by(view.id, meant)):
            avoid = self._failed_with(task) if request.elsewhere else ()
            given = pin if task in meant else Pin()
            reopened = TaskReopened(task=task.task.id, pin=given, avoid=avoid)
            await self._feed.append(view.id, reopened)
        await self._feed.commit()
        self._supervise(view.id)

    def _blocked_by(self, swarm: str, reopened: list[SwarmTaskView]) -> list[SwarmTaskView]:
        names, found = {task.task.id for task in reopened}, list[SwarmTaskView]()
        tasks = list(self._feed.swarm(swarm).tasks.values())
        for _ in tasks:
            for task in tasks:
                waits = names & set(task.task.after)
                blocked = task.settled and task.settled.state == "blocked"
                if waits and blocked and task.task.id not in names:
                    names.add(task.task.id)
                    found.append(task)
        return found

    def _failed_with(self, task: SwarmTaskView) -> tuple[str, ...]:
        tried = (*task.earlier, *task.attempts)
        known = [attempt_outcome(a, self._feed.views.get(a.worker), beginning=False) for a in tried]
        return tuple(dict.fromkeys(each.provider for each in known if each.provider))

    async def cancel(self, request: SwarmCancelRequest, by: str) -> None:
        """Cancel tasks; returns when they have stopped, or the time is up."""
        view = self._feed.swarm(request.swarm_id)
        meant = tuple(task.task.id for task in view.named(request.tasks) if not task.settled)
        if not meant:
            return
        reason = request.reason or f"cancelled by {by}"
        await self._feed.append(view.id, SwarmCancelled(reason=reason, tasks=meant))
        await self._feed.commit()
        with anyio.move_on_after(CANCEL_TIMEOUT_S):
            while any(not self._feed.swarm(view.id).tasks[name].settled for name in meant):
                await self._feed.wait_for_news(self._feed.seq)

    def state_marks(self) -> dict[str, StateMark]:
        """A comparable mark per swarm: equal marks mean that nothing has changed."""
        return {swarm: self.state_mark(swarm) for swarm in self._feed.swarms}

    def state_mark(self, swarm: str) -> StateMark:
        view = self._feed.swarm(swarm)
        workers = self._at_work(swarm).values()
        seq = max([view.seq, *(worker.seq for worker in workers)])
        return StateMark(state=swarm_state(view, self._feed.views), seq=seq)

    def list(self) -> SwarmList:
        """Newest first."""
        views = sorted(self._feed.swarms.values(), key=lambda view: -view.started_at)
        told = [swarm_status(view, self._feed.views, time.time()) for view in views]
        return SwarmList(
            swarms=tuple(
                SwarmLine(
                    swarm_id=each.swarm_id,
                    swarm=each.swarm,
                    state=each.state,
                    evidence=each.evidence,
                    done=each.done,
                    total=each.total,
                    cost_usd=each.cost_usd,
                    started_at=each.started_at,
                )
                for each in told
            )
        )

    def _name(self, wanted: str) -> str:
        """A name that no other swarm of the project has: branches are named after it."""
        taken = {view.spawned.name for view in self._feed.swarms.values()}
        numbered = (f"{wanted}-{number}" for number in range(2, len(taken) + 3))
        return next(name for name in (wanted, *numbered) if name not in taken)

    def _new_id(self) -> str:
        while True:
            name = "s-" + "".join(secrets.choice(ID_ALPHABET) for _ in range(5))
            if name not in self._feed.swarms:
                return name


def _can_retry(task: SwarmTaskView) -> bool:
    return task.settled is not None and task.settled.state != "completed"
