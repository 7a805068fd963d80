"""What can be asked of swarms, and who sees them through."""

import logging
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from anyio.abc import TaskGroup
from msgspec.structs import replace

from goent.core.enquiries import Enquiries, Head
from goent.core.failing import as_failure
from goent.core.feed import Feed
from goent.core.intake import directory
from goent.core.orchestrator import ALPHABET, Orchestrator
from goent.core.progress_reports import HEARTBEAT, OnProgress, ProgressReports
from goent.core.swarms.checks import check
from goent.core.swarms.engine import Engine, isolation_of
from goent.core.swarms.joining import Joiner
from goent.core.swarms.outcomes import outcome
from goent.core.swarms.telling import (
    in_short,
    shared_work,
    swarm_result,
    swarm_state,
    swarm_status,
)
from goent.core.swarms.view import TaskView
from goent.core.views import WorkerView
from goent.domain.errors import RequestError
from goent.domain.events import SwarmCancelled, SwarmSpawned, TaskReopened, TaskSettled
from goent.domain.settings import Settings
from goent.domain.swarms import (
    SwarmCancelRequest,
    SwarmLine,
    SwarmList,
    SwarmResult,
    SwarmResultRequest,
    SwarmRetryRequest,
    SwarmSpawnRequest,
    SwarmStatus,
    SwarmWaitRequest,
)
from goent.domain.types import Pin
from goent.domain.workspaces import Conflict, Workspaces
from goent.policy.overlaps import SharedWork, shared_overlaps

log = logging.getLogger(__name__)

UNSEEN = (
    "the workers do not see {files} changed or new files that are not committed: commit them, or pass "
    "uncommitted: true"
)
AT_ONCE = 8  # workers of a swarm, where nobody says otherwise
STOPPING = 60.0  # seconds that a cancelled swarm has to come to rest


class Swarms:
    """All swarms of a project."""

    def __init__(
        self,
        *,
        settings: Callable[[], Settings],
        feed: Feed,
        orchestrator: Orchestrator,
        enquiries: Enquiries,
        workspaces: Workspaces,
        joiner: Joiner,
    ) -> None:
        self._settings = settings
        self._feed = feed
        self._workers = orchestrator
        self._ask = enquiries
        self._workspaces = workspaces
        self._joiner = joiner
        self._group: TaskGroup | None = None
        self._living: set[str] = set()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Swarms of a go-ent that ended go on; leaving the context leaves them to the next."""
        async with anyio.create_task_group() as group:
            self._group = group
            for view in list(self._feed.swarms.values()):
                if not view.over:
                    self._see_through(view.id)
            try:
                yield
            finally:
                group.cancel_scope.cancel()

    def _see_through(self, swarm: str) -> None:
        assert self._group, "swarms live inside `running`"
        if swarm not in self._living:
            self._living.add(swarm)
            self._group.start_soon(self._run, swarm, name=f"swarm {swarm}")

    async def _run(self, swarm: str) -> None:
        engine = Engine(swarm, feed=self._feed, orchestrator=self._workers, joiner=self._joiner)
        try:
            await engine.run()
        except Exception as bug:
            log.exception("swarm %s met a fault of go-ent's own", swarm)
            await self._give_up(swarm, bug)
        finally:
            self._living.discard(swarm)
        if not self._feed.swarm(swarm).over:  # reopened in the last moment
            self._see_through(swarm)

    async def _give_up(self, swarm: str, bug: Exception) -> None:
        """Whoever waits for it hears of the fault; its workers go on by themselves."""
        for name, task in self._feed.swarm(swarm).tasks.items():
            if not task.settled:
                failed = TaskSettled(task=name, state="failed", failure=as_failure(bug))
                await self._feed.append(swarm, failed)
        await self._feed.commit()

    # What can be asked

    async def spawn(self, request: SwarmSpawnRequest, base: Path) -> str:
        """Accept the tasks; the workers start on their own."""
        self._workers.check_ready()
        settings = self._settings()
        check(request, settings)
        if request.isolation == "auto":
            request = replace(request, isolation=settings.isolation)
        cwd, swarm = directory(request.cwd, base), self._new_id()
        spawned = SwarmSpawned(
            request=request,
            name=self._name(request.swarm or swarm),
            cwd=str(cwd),
            concurrency=request.concurrency or min(AT_ONCE, settings.limits.workers),
            kind=await self._workspaces.kind_for(cwd),
        )
        await self._feed.append(swarm, await self._with_base(spawned))
        await self._feed.commit()
        self._see_through(swarm)
        return swarm

    async def _with_base(self, spawned: SwarmSpawned) -> SwarmSpawned:
        """All begin with one commit, whatever becomes of the checkout meanwhile."""
        request, cwd = spawned.request, Path(spawned.cwd)
        kinds = {isolation_of(task, spawned) for task in request.tasks}
        if "copy" in kinds:
            await self._workspaces.check(cwd, "copy")
        if "worktree" not in kinds:
            return spawned
        await self._workspaces.check(cwd, "worktree")
        repository, base = await self._workspaces.head(cwd, uncommitted=request.uncommitted)
        unseen = 0 if request.uncommitted else await self._workspaces.uncommitted(cwd)
        warnings = (UNSEEN.format(files=unseen),) if unseen else ()
        return replace(spawned, repository=repository, base=base, warnings=warnings)

    def status(self, swarm: str) -> SwarmStatus:
        return swarm_status(self._feed.swarm(swarm), self._feed.views, time.time())

    async def wait(self, request: SwarmWaitRequest, on_progress: OnProgress) -> SwarmStatus:
        """Until every task is over, or a worker asks something: that needs the caller."""
        reports = ProgressReports()
        with anyio.move_on_after(request.timeout_s):
            while not self._rests(request.swarm_id):
                seq = self._feed.seq
                await reports.tell(self._at_work(request.swarm_id).values(), on_progress)
                with anyio.move_on_after(HEARTBEAT):
                    await self._feed.news(seq)
        return self.status(request.swarm_id)

    def _at_work(self, swarm: str) -> dict[str, WorkerView]:
        names = (name for name in self._members(swarm) if name in self._feed.views)
        return {name: self._feed.views[name] for name in names}

    def _rests(self, swarm: str) -> bool:
        view = self._feed.swarm(swarm)
        return view.over or swarm_state(view, self._feed.views) == "waiting"

    def _members(self, swarm: str) -> tuple[str, ...]:
        return tuple(w for task in self._feed.swarm(swarm).tasks.values() for w in task.workers)

    async def result(self, request: SwarmResultRequest) -> SwarmResult:
        view = self._feed.swarm(request.swarm_id)
        pieces = self._joiner.pieces(view, tuple(view.tasks.values()))
        accounts = {name: await self._ask.account(name) for name in self._members(view.id)}
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
            without=pieces.without,
            now=time.time(),
        )
        return whole if request.whole else in_short(whole)

    async def _overlaps(self, cwd: str, shared: Sequence[SharedWork]) -> tuple[Conflict, ...]:
        """Where several worked in one folder, nothing but the files and their edits tells."""
        if len(shared) < 2:  # noqa: PLR2004 (it takes two)
            return ()
        return shared_overlaps(cwd, shared, {}, await self._workspaces.states(Path(cwd)))

    async def retry(self, request: SwarmRetryRequest) -> None:
        """Open tasks that did not complete again, and those that were blocked by them."""
        self._workers.check_ready()
        view = self._feed.swarm(request.swarm_id)
        meant = [task for task in view.named(request.tasks) if _can_retry(task)]
        if not meant:
            raise RequestError(
                f"swarm {view.id!r} has nothing to retry: only what failed, was cancelled or is "
                "blocked can be tried again"
            )
        pin = Pin(provider=request.provider, model=request.model, method=request.method)
        for task in (*meant, *self._blocked_by(view.id, meant)):
            avoid = self._failed_with(task) if request.elsewhere else ()
            given = pin if task in meant else Pin()
            reopened = TaskReopened(task=task.task.id, pin=given, avoid=avoid)
            await self._feed.append(view.id, reopened)
        await self._feed.commit()
        self._see_through(view.id)

    def _blocked_by(self, swarm: str, reopened: list[TaskView]) -> list[TaskView]:
        names, found = {task.task.id for task in reopened}, list[TaskView]()
        tasks = list(self._feed.swarm(swarm).tasks.values())
        for _ in tasks:
            for task in tasks:
                waits = names & set(task.task.after)
                blocked = task.settled and task.settled.state == "blocked"
                if waits and blocked and task.task.id not in names:
                    names.add(task.task.id)
                    found.append(task)
        return found

    def _failed_with(self, task: TaskView) -> tuple[str, ...]:
        tried = (*task.earlier, *task.attempts)
        known = [outcome(a, self._feed.views.get(a.worker), beginning=False) for a in tried]
        return tuple(dict.fromkeys(each.provider for each in known if each.provider))

    async def cancel(self, request: SwarmCancelRequest, by: str) -> None:
        """Returns when what was meant has stopped, or the time is up."""
        view = self._feed.swarm(request.swarm_id)
        meant = tuple(task.task.id for task in view.named(request.tasks) if not task.settled)
        if not meant:
            return
        reason = request.reason or f"cancelled by {by}"
        await self._feed.append(view.id, SwarmCancelled(reason=reason, tasks=meant))
        await self._feed.commit()
        with anyio.move_on_after(STOPPING):
            while any(not self._feed.swarm(view.id).tasks[name].settled for name in meant):
                await self._feed.news(self._feed.seq)

    def heads(self) -> dict[str, Head]:
        """How each swarm and its workers stand, in short: what is equal has not changed."""
        return {swarm: self.head(swarm) for swarm in self._feed.swarms}

    def head(self, swarm: str) -> Head:
        view = self._feed.swarm(swarm)
        workers = self._at_work(swarm).values()
        seq = max([view.seq, *(worker.seq for worker in workers)])
        return Head(state=swarm_state(view, self._feed.views), seq=seq)

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
        """Branches are called after it, so that no other swarm of the project may have it."""
        taken = {view.spawned.name for view in self._feed.swarms.values()}
        numbered = (f"{wanted}-{number}" for number in range(2, len(taken) + 3))
        return next(name for name in (wanted, *numbered) if name not in taken)

    def _new_id(self) -> str:
        while True:
            name = "s-" + "".join(secrets.choice(ALPHABET) for _ in range(5))
            if name not in self._feed.swarms:
                return name


def _can_retry(task: TaskView) -> bool:
    return task.settled is not None and task.settled.state != "completed"
