"""Starts and controls workers: spawn, prompt, answer, cancel, close, and recovery after a crash.

Frontends call these with the requests of `domain.requests`. Queries are in `worker_queries`.
"""

import secrets
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
from anyio.abc import TaskGroup
from msgspec.structs import replace

from goent.billing.call_accounts import Allowance, CallBookkeeper
from goent.domain.errors import (
    BudgetExceeded,
    Ending,
    EnvironmentTrouble,
    GoentError,
    RequestError,
    WorkerIsClosed,
)
from goent.domain.events import (
    FilesChanged,
    TurnEnded,
    TurnStarted,
    UsageReported,
    WorkerClosed,
    WorkerSpawned,
)
from goent.domain.ports import Driver, Meter, Verifier, WorkerSpec
from goent.domain.provider_condition import ProviderHealth
from goent.domain.requests import (
    MAX_WAIT_S,
    AnswerRequest,
    CancelRequest,
    PromptRequest,
    SpawnRequest,
)
from goent.domain.sandbox_port import SandboxLevel
from goent.domain.settings import Settings
from goent.domain.task_profile import Forecast, TaskHistory, TaskSample, history_place
from goent.domain.types import ENDED_STATES, Failure, Method, Pin, Prompt, Route
from goent.domain.workspace import WorkspaceManager
from goent.permissions.permission_rules import rules_for
from goent.routing.pins import choose_pinned
from goent.routing.router import Router
from goent.workers.feed import Feed
from goent.workers.folder_changes import BASELINE_LOST, SharedFolders, may_write
from goent.workers.task_intake import (
    NO_SWARM,
    SwarmMembership,
    WorkerFolders,
    accept_task,
    below_checkout,
    clip_value,
    existing_files,
    files_inside,
    route_request,
)
from goent.workers.views import FIRST_TURN, WorkerView, evidence
from goent.workers.worker import Roster, Worker
from goent.workers.worker_failover import FailoverPlanner
from goent.workers.worker_turn import WorkerServices, WorkerTerms

ID_ALPHABET = "23456789abcdefghjkmnpqrstuvwxyz"  # without 0, 1, i, l, o: people type ids
SHUTDOWN_S = 15.0  # seconds that workers have to end at shutdown
DIED_IN_TURN = Failure(
    kind="daemon_died",
    message="go-ent stopped during the turn; the work done so far is in place",
    retryable=True,
)
SESSION_RESUMES = ". The next prompt continues in the same session"
DIED_BEFORE_TURN = Failure(
    kind="daemon_died",
    message="go-ent stopped before the worker had begun: nothing was done. Spawn it again",
    retryable=True,
)


class OutcomeRecorder:
    """Adds finished tasks to the history, for forecasts and routing in all projects."""

    def __init__(self, feed: Feed, history: TaskHistory) -> None:
        self._feed = feed
        self._history = history

    async def record(self, worker: str) -> None:
        """Record the turn that has just ended."""
        with suppress(EnvironmentTrouble):  # a full disk: use the view as it is
            await self._feed.commit()
        if sample := outcome_sample(self._feed.view(worker)):
            await self._history.add(sample)


def outcome_sample(view: WorkerView) -> TaskSample | None:
    """The history's sample; None for an unclassified task, and for later turns."""
    spawned = view.spawned
    if view.turn != FIRST_TURN or view.state not in ENDED_STATES:
        return None
    if spawned.task_type is None or spawned.complexity is None:
        return None
    return TaskSample(
        at=view.updated_at,
        provider=spawned.provider,
        backend=spawned.backend,
        model=spawned.model,
        method=spawned.method,
        type=spawned.task_type,
        complexity=spawned.complexity,
        size=spawned.size or 0.0,
        cost_usd=view.cost_usd,
        usage=view.usage,
        seconds=round(view.updated_at - view.started_at, 3),
        state=view.state,
        evidence=None if view.moved_to else evidence(view),
        failure=view.failure.kind if view.failure and not view.moved_to else None,
        place=history_place(view.id, view.started_at),
    )


class Orchestrator:
    """All living workers of a project."""

    def __init__(  # noqa: PLR0913 (the ports, each by name)
        self,
        *,
        settings: Callable[[], Settings],
        check: Callable[[], None],
        environ: Callable[[], Mapping[str, str]],
        slots: int,
        feed: Feed,
        drivers: Mapping[Method, Driver],
        meter: Meter,
        roster: Roster,
        books: CallBookkeeper,
        allowance: Allowance,
        verifier: Verifier,
        healths: ProviderHealth,
        router: Router,
        outcomes: OutcomeRecorder,
        workspaces: WorkspaceManager,
        level: Callable[[], Awaitable[SandboxLevel]],
    ) -> None:
        self._settings = settings
        self._check = check
        self._environ = environ
        self._feed = feed
        self._drivers = drivers
        self._meter = meter
        self._verifier = verifier
        self._router = router
        self._outcomes = outcomes
        self._level = level
        self.worker_folders = WorkerFolders(workspaces)
        self._shared_folders = SharedFolders(
            feed=feed,
            observer=workspaces,
            project=lambda: settings().project,
            start=self._start_task,
        )
        self._roster = roster
        self._books = books
        self._allowance = allowance
        self._failover = FailoverPlanner(
            settings=settings, environ=environ, feed=feed, healths=healths, router=router
        )
        self._group: TaskGroup | None = None
        self._slots = anyio.CapacityLimiter(slots)
        self._is_shutting_down = False

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Run workers inside this context; leaving it ends them all."""
        async with anyio.create_task_group() as group:
            self._group = group
            await self._recover()
            group.start_soon(self.worker_folders.tidy, name="remove unused workspaces")
            try:
                yield
            finally:
                with anyio.CancelScope(shield=True):
                    await self.shut_down()
                group.cancel_scope.cancel()

    def refuse_new_work(self) -> None:
        """Refuse new work from now on."""
        self._is_shutting_down = True

    async def shut_down(self, *, handover: bool = False) -> None:
        """End every worker; with `handover`, idle ones stay open for the next daemon."""
        self.refuse_new_work()
        for living in self._roster.values():
            if handover:
                living.hand_over("go-ent stopped")
            else:
                living.close("go-ent stopped")
        with anyio.move_on_after(SHUTDOWN_S):
            for living in list(self._roster.values()):
                await living.ended.wait()
        with suppress(EnvironmentTrouble):  # a full disk: it is written as soon as it can be
            await self._feed.commit()

    def check_ready(self) -> None:
        """Raise if no work can begin: go-ent is shutting down, or its settings are invalid."""
        self._check_open()
        self._check()

    def _check_open(self) -> None:
        if self._is_shutting_down:
            raise Ending("go-ent is shutting down, and nothing was done: ask again")

    async def _recover(self) -> None:
        """Take over the workers of an earlier daemon: fail lost turns, resume sessions."""
        lost = await self._books.close_lost_calls()
        for view in list(self._feed.views.values()):
            if not view.open:
                continue
            if view.state not in ENDED_STATES:
                await end_lost_turn(view, lost.get(view.id, ()), self._feed, self.worker_folders)
            try:
                settings = self._settings()
                spec = resume_spec(view, settings, self._drivers.keys())
                self._start(spec, view.spawned, settings, turns_before=view.turn)
            except GoentError as error:
                reason = f"its daemon stopped, and it cannot resume: {error}"
                await self._feed.append(view.id, WorkerClosed(reason=reason))
        with suppress(EnvironmentTrouble):  # a full disk: it is written as soon as it can be
            await self._feed.commit()

    @property
    def living_workers(self) -> Mapping[str, Worker]:
        return self._roster

    async def spawn(
        self, request: SpawnRequest, base: Path, within: SwarmMembership = NO_SWARM
    ) -> tuple[str, WorkerSpawned, Forecast]:
        """Route and accept a task; its worker starts in the background."""
        self.check_ready()
        settings = self._settings()
        asked = route_request(request, base=base, settings=settings, within=within)
        routed = await self._router.route(asked)
        self._check_open()
        route, spawned = accept_task(
            request, asked, routed, settings=settings, environ=self._environ(), within=within
        )
        worker = within.worker or self.new_id()
        warnings = await self._allowance.allow(
            worker, route, spawned, routed.likely_usd, routed.certain_usd
        )
        level = await self._sandbox_of(spawned, settings)
        spawned = replace(
            spawned,
            warnings=(*spawned.warnings, *warnings, *_sandbox_warnings(level)),
            sandbox=level.name if level else None,
        )
        try:
            async with self.worker_folders.prepared(worker, spawned, request, within) as settled:
                self._check_open()
                living = await self._admit(worker, route, settled, settings)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._allowance.release(worker)
            raise
        living.prompt(Prompt(text=request.task, files=settled.files), queue=True)
        return worker, settled, routed.forecast

    async def _sandbox_of(self, spawned: WorkerSpawned, settings: Settings) -> SandboxLevel | None:
        """The sandbox of the worker's processes; None if it has no processes."""
        if spawned.method == "api":
            return None
        if spawned.method == "serve" and settings.opencode.serve_url:
            return SandboxLevel(name="none", reason="go-ent does not run the server at serve_url")
        return await self._level()

    async def _admit(
        self, worker: str, route: Route, spawned: WorkerSpawned, settings: Settings
    ) -> Worker:
        """Record the worker first, then start it."""
        spec = new_spec(worker, route, spawned, settings)
        await self._feed.append(worker, spawned)
        try:
            await self._feed.commit()
        except EnvironmentTrouble:  # the event stays queued, so the worker must be closed
            await self._feed.append(worker, WorkerClosed(reason="the journal could not be written"))
            raise
        return self._start(spec, spawned, settings)

    def _start(
        self,
        spec: WorkerSpec,
        spawned: WorkerSpawned,
        settings: Settings,
        *,
        turns_before: int = 0,
    ) -> Worker:
        terms = WorkerTerms(
            verify=spawned.verify,
            timeout_s=spawned.timeout_s,
            permission_timeout_s=settings.permissions.timeout_s,
            limits=settings.limits,
            workspace=spawned.workspace,
        )
        services = WorkerServices(
            feed=self._feed,
            meter=self._meter,
            verifier=self._verifier,
            slots=self._slots,
            on_usage=self._books.record_usage,
            on_turn_end=self._record_outcome,
            release_budget=self._allowance.release,
            failover=self._failover,
            worker_folders=self.worker_folders,
            shared_folders=self._shared_folders,
        )
        driver = self._drivers[spec.method]
        living = Worker(spec, terms, driver, services, turns_before=turns_before)
        self._roster[spec.id] = living
        assert self._group, "workers live inside `running`"
        self._group.start_soon(self._run_worker, living, name=f"worker {spec.id}")
        return living

    async def _run_worker(self, living: Worker) -> None:
        try:
            await living.run()
        finally:
            with anyio.CancelScope(shield=True):
                await self._allowance.release(living.spec.id)
                if not living.is_handed_over:
                    await self.worker_folders.release(living.workspace)
            self._roster.pop(living.spec.id, None)
            living.folder_released.set()

    def _start_task(self, run: Callable[[], Coroutine[None, None, None]]) -> None:
        assert self._group, "workers live inside `running`"
        self._group.start_soon(run, name="observe a shared folder")

    def _record_outcome(self, worker: str) -> None:
        """Record in the background: the turn's end must not wait for the disk."""
        assert self._group, "workers live inside `running`"
        self._group.start_soon(self._outcomes.record, worker, name=f"outcome of {worker}")

    def new_id(self) -> str:
        while True:
            name = "w-" + "".join(secrets.choice(ID_ALPHABET) for _ in range(5))
            if name not in self._feed.views:
                return name

    async def prompt(self, request: PromptRequest) -> int:
        """Queue a prompt and return the number of its turn."""
        self._check_open()
        living = self._living(request.worker_id)
        if not request.prompt.strip():
            raise RequestError("the prompt is empty: say what the worker is to do next")
        files = files_inside(living.workspace, existing_files(request.files, living.spec.cwd))
        if spent := await self._allowance.used_up_limit(request.worker_id):
            raise BudgetExceeded(spent)
        return living.prompt(Prompt(text=request.prompt, files=files), queue=request.queue)

    def last_turn_due(self, worker: str) -> int:
        """The number of the last requested turn; 0 for a worker that is not living."""
        living = self._roster.get(worker)
        return living.last_turn_due if living else 0

    async def answer(self, request: AnswerRequest, by: str) -> bool:
        """Answer a permission question; whether the model gets the message."""
        message = request.message.strip()
        if message and request.option != "reject":
            raise RequestError(
                f"message {clip_value(message)!r} cannot go with option {request.option!r}, only with "
                "'reject': leave the message out, or reject and say what to do instead"
            )
        view = self._feed.view(request.worker_id)
        living = self._roster.get(view.id)
        if living is None:
            raise RequestError(
                f"worker {view.id!r} is {view.state} and has no open question: "
                f"{request.permission_id!r} needs no answer"
            )
        passed = await living.answer(request.permission_id, request.option, by, message)
        await self._feed.commit()
        return passed

    async def cancel(self, request: CancelRequest, by: str) -> None:
        """Stop the running turn, and with `close` the worker; returns when that has ended."""
        view = self._feed.view(request.worker_id)
        living = self._roster.get(view.id)
        if living is None:
            return
        reason = request.reason or f"cancelled by {by}"
        turn = living.turn
        if request.close:
            living.close(reason)
        else:
            living.cancel(reason)
        with anyio.move_on_after(MAX_WAIT_S):
            while turn and living.turn == turn:
                await self._feed.wait_for_news(self._feed.seq)
            if request.close:
                await living.folder_released.wait()
            await self._feed.commit()

    def _living(self, worker: str) -> Worker:
        view = self._feed.view(worker)
        living = self._roster.get(worker)
        if living is None:
            raise WorkerIsClosed(
                f"worker {worker!r} is closed ({view.state}); spawn another one for further work"
            )
        return living


def _sandbox_warnings(level: SandboxLevel | None) -> tuple[str, ...]:
    if level is None or level.name != "none":
        return ()
    return (f"no sandbox: this worker's commands can do what your account can ({level.reason})",)


async def end_lost_turn(
    view: WorkerView, calls: Sequence[UsageReported], feed: Feed, places: WorkerFolders
) -> None:
    """Fail the turn that was running, or due, when the daemon died. `calls` were never settled."""
    failure = DIED_IN_TURN if view.turn else DIED_BEFORE_TURN
    if view.turn and view.token:
        failure = replace(failure, message=failure.message + SESSION_RESUMES)
    if not view.turn:
        await feed.append(view.id, TurnStarted(turn=1, prompt=view.spawned.task))
    for call in calls:
        await feed.append(view.id, call)
    if view.turn and (workspace := view.spawned.workspace):
        prompt = view.spawned.task
        for event in await places.keep_unfinished(workspace, prompt, view.id):
            await feed.append(view.id, event)
    elif view.turn and may_write(view):
        await feed.append(view.id, FilesChanged(unseen=BASELINE_LOST))
    ended = TurnEnded(
        turn=view.turn or 1,
        state="failed",
        evidence=evidence(replace(view, state="failed")),
        failure=failure,
    )
    await feed.append(view.id, ended)


def resume_spec(view: WorkerView, settings: Settings, methods: Collection[Method]) -> WorkerSpec:
    """The spec that reopens its session. Raises a `GoentError` if it cannot be reopened."""
    if not view.token:
        raise WorkerIsClosed("it has no session to resume")
    spawned = view.spawned
    pin = Pin(provider=spawned.backend, model=spawned.model, method=spawned.method)
    route = choose_pinned(pin, settings, tuple(methods))
    fallbacks = tuple(p for p in settings.providers if p.name in spawned.fallbacks)
    route = replace(route, fallbacks=fallbacks)
    return replace(new_spec(view.id, route, spawned, settings), resume=view.token, asked=view.asked)


def new_spec(worker: str, route: Route, spawned: WorkerSpawned, settings: Settings) -> WorkerSpec:
    cwd = Path(spawned.cwd)
    return WorkerSpec(
        id=worker,
        cwd=cwd,
        provider=route.provider,
        method=route.method,
        rules=rules_for(spawned.permissions, settings.permissions.rules, below_checkout(cwd)),
        dedicated=spawned.isolation == "dedicated",
        fallbacks=route.fallbacks,
        allowed_tools=spawned.allowed_tools,
        temperature=spawned.temperature,
    )
