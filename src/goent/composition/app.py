"""Assembles the daemon: journal, models, methods, workers, swarms and operations."""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import anyio

from goent.agents.driver import AgentDriver
from goent.api.driver import ApiDriver
from goent.composition.live_project import Project
from goent.composition.model_calls import ModelCalls, UserRecords, model_calls, open_records
from goent.domain.ports import Driver, Meter
from goent.domain.types import Method
from goent.evals.attended.attended_runs import EvalRuns
from goent.gateway.gateway import Gateway
from goent.git.git_command import Git
from goent.git.git_merger import GitMerging
from goent.git.git_workspaces import GitWorkspaces
from goent.git.repository_config import trust_check
from goent.opencode.driver import OpenCodeDriver, OpenCodeRunDriver, OpenCodeServeDriver
from goent.operations.operation_table import HeadStart, Operations
from goent.operations.provider_queries import ProviderQueries, Recommender
from goent.proc.child_process import ShellVerifier
from goent.proc.process_table import new_owner, sweep_dead_owners
from goent.providers.call_plan import CallPlan, ForeignBackend, plan_call
from goent.providers.connections import Connections
from goent.providers.model_list import ModelLists
from goent.providers.provider_health import HealthProbe
from goent.providers.track_record import SqliteHistory
from goent.providers.upstream import Upstream
from goent.routing.router import Router, TaskClassifier
from goent.sandbox.confinement import remove_leftovers
from goent.store.journal_store import SqliteJournal
from goent.swarms.swarm_manager import SwarmManager
from goent.swarms.swarm_merge import SwarmMerger, WorkJoiner
from goent.system.project_folders import project_key, restrict_permissions, state_dir
from goent.workers.feed import Feed
from goent.workers.folder_changes import shares_directory
from goent.workers.orchestrator import Orchestrator, OutcomeRecorder
from goent.workers.worker import Roster
from goent.workers.worker_queries import WorkerQueries

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class App:
    """go-ent for one project, running."""

    project: Project
    feed: Feed
    calls: ModelCalls
    history: SqliteHistory
    workspaces: GitWorkspaces
    orchestrator: Orchestrator
    queries: WorkerQueries
    operations: Operations
    evaluations: EvalRuns
    head_start: HeadStart
    gateway_url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Methods:
    """The ways to run a worker. `meter` settles the calls that they make through the gateway."""

    drivers: Mapping[Method, Driver]
    meter: Meter
    warm_up: Callable[[Path], Awaitable[None]]
    gateway_url: str = ""


OpenMethods = Callable[[Project, Upstream, Roster, Feed], AbstractAsyncContextManager[Methods]]


@asynccontextmanager
async def open_app(folder: Path, environ: Mapping[str, str]) -> AsyncGenerator[App]:
    """Everything, started in the order it needs and ended in reverse."""
    project = Project(folder, environ)
    for private in (state_dir(environ), project.state.parent, project.state):
        with suppress(OSError):  # whoever needs to write there reports it
            restrict_permissions(private)
    swept = await anyio.to_thread.run_sync(sweep_dead_owners, project_key(folder))
    await anyio.to_thread.run_sync(remove_leftovers, project.state)
    if swept:
        log.warning("ended %d processes of an earlier go-ent that died", len(swept))
    async with (
        open_records(environ, new_owner(project_key(folder))) as records,
        SqliteHistory.open(state_dir(environ) / "history.db") as history,
        running_app(project, records, history, _running_methods) as app,
    ):
        yield app


@asynccontextmanager
async def running_app(
    project: Project, records: UserRecords, history: SqliteHistory, open_methods: OpenMethods
) -> AsyncGenerator[App]:
    """The app over open records. Tests bring their own settings, records and methods."""
    async with (
        SqliteJournal.open(project.state / "journal.db", secrets=project.secrets) as journal,
        Connections.open() as connections,
        _running_feed(journal) as feed,
        anyio.create_task_group() as background,
    ):
        roster = Roster(project.settings)
        calls = model_calls(project, connections, records, feed=feed, roster=roster)
        probe = HealthProbe(
            connections, calls.healths, settings=project.settings, environ=project.environ
        )
        async with open_methods(project, calls.upstream, roster, feed) as methods:
            router = Router(
                settings=project.settings,
                environ=project.environ,
                methods=tuple(methods.drivers),
                classifier=TaskClassifier(),
                history=history,
                prices=calls.prices,
                condition=calls.healths.condition,
                standings=calls.allowance.standings,
                notices=project.notices,
                servers=calls.servers,
            )
            trusted = trust_check(project.allows)
            workspaces = GitWorkspaces(
                project.state,
                environ=project.git_environ,
                in_use=lambda worker: worker in roster,
                trusted=trusted,
            )
            verifier = ShellVerifier(
                environ=project.environ_without_keys,
                sandbox=project.surroundings.sandbox,
                time_limit=lambda: project.settings().limits.verify_s,
            )
            orchestrator = Orchestrator(
                settings=project.settings,
                check=project.check,
                environ=project.environ,
                slots=project.limits().workers,
                feed=feed,
                drivers=methods.drivers,
                meter=methods.meter,
                roster=roster,
                books=calls.books,
                allowance=calls.allowance,
                verifier=verifier,
                healths=calls.healths,
                router=router,
                outcomes=OutcomeRecorder(feed, history),
                workspaces=workspaces,
                level=project.surroundings.sandbox.level,
            )
            queries = WorkerQueries(feed, orchestrator.last_turn_due)
            providers = ProviderQueries(
                settings=project.settings,
                environ=project.environ,
                feed=feed,
                ledger=records.ledger,
                prices=calls.prices,
                allowance=calls.allowance,
                healths=calls.healths,
                servers=calls.servers,
            )
            git = Git(project.folder, project.git_environ(), trusted=trusted)
            merging = GitMerging(git, project.state / "merging")
            joiner = WorkJoiner(feed=feed, merging=merging, verifier=verifier)
            swarms = SwarmManager(
                settings=project.settings,
                feed=feed,
                orchestrator=orchestrator,
                queries=queries,
                workspaces=workspaces,
                joiner=joiner,
            )
            evaluations = EvalRuns(
                project.folder,
                environ=project.environ,
                owner=new_owner(project_key(project.folder)),
            )
            head_start = HeadStart(
                feed, lambda: background.start_soon(_warm_up, methods, project, calls.servers)
            )
            background.start_soon(probe.run)
            background.start_soon(merging.sweep)
            async with orchestrator.running(), swarms.running(), evaluations.running():
                yield App(
                    project=project,
                    feed=feed,
                    calls=calls,
                    history=history,
                    workspaces=workspaces,
                    orchestrator=orchestrator,
                    queries=queries,
                    operations=Operations(
                        orchestrator,
                        queries,
                        providers,
                        Recommender(router, project.settings),
                        swarms=swarms,
                        merger=SwarmMerger(feed=feed, orchestrator=orchestrator, joiner=joiner),
                        evaluations=evaluations,
                        head_start=head_start,
                    ),
                    evaluations=evaluations,
                    head_start=head_start,
                    gateway_url=methods.gateway_url,
                )
            background.cancel_scope.cancel()


@asynccontextmanager
async def _running_methods(
    project: Project, upstream: Upstream, roster: Roster, feed: Feed
) -> AsyncGenerator[Methods]:
    def plan(worker: str, backend: str, model: str) -> CallPlan:
        named, *fallbacks = roster.serving(worker, backend, model)
        planned = plan_call(named, fallbacks, project.settings().backends, project.environ())
        if reason := roster.why_not(worker, backend):
            raise ForeignBackend(reason)
        return planned

    def owner() -> str:
        return new_owner(project_key(project.folder))

    def shared(worker: str, since: float) -> bool:
        return shares_directory(feed.views.values(), worker, since)

    context = project.surroundings
    async with (
        Gateway.open(upstream, plan) as gateway,
        OpenCodeDriver.running(context, gateway, owner=owner()) as opencode,
        OpenCodeServeDriver.running(context, gateway, owner=owner()) as serving,
        AgentDriver.running(context, gateway, owner=owner(), shared=shared) as agents,
    ):
        yield Methods(
            drivers={
                "acp": opencode,
                "cli": OpenCodeRunDriver(context, gateway, owner=owner()),
                "serve": serving,
                "api": ApiDriver(upstream, plan),
                "agent": agents,
            },
            meter=gateway,
            warm_up=opencode.warm_up,
            gateway_url=f"http://127.0.0.1:{gateway.port}",
        )


@asynccontextmanager
async def _running_feed(journal: SqliteJournal) -> AsyncGenerator[Feed]:
    feed = Feed(journal)
    await feed.load()
    async with anyio.create_task_group() as group:
        group.start_soon(feed.run)
        try:
            yield feed
        finally:
            group.cancel_scope.cancel()
    with anyio.CancelScope(shield=True):
        await feed.drain()


async def _warm_up(methods: Methods, project: Project, servers: ModelLists) -> None:
    """Start OpenCode before a worker needs it. A failure shows up when a worker does."""
    try:
        await servers.refresh()  # OpenCode reads the list of models when it starts
        if project.settings().opencode.warm:
            await methods.warm_up(project.folder)
    except Exception as error:  # noqa: BLE001 (a head start must never end the daemon)
        log.info("no warm start: %s", error)
