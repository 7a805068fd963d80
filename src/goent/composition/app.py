"""Assembles the daemon: journal, models, methods, workers, swarms and operations."""

import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import anyio

from goent.agents.driver import AgentDriver
from goent.api.driver import ApiDriver
from goent.composition.live_project import Project
from goent.composition.model_calls import model_calls, open_records
from goent.domain.ports import Driver
from goent.domain.types import Method
from goent.evals.attended.attended_runs import EvalRuns
from goent.gateway.gateway import Gateway
from goent.git.git_command import Git
from goent.git.git_merger import GitMerging
from goent.git.git_workspaces import GitWorkspaces
from goent.git.repository_config import trust_check
from goent.opencode.driver import OpenCodeDriver, OpenCodeRunDriver
from goent.opencode.server import OpenCodeServeDriver
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
    orchestrator: Orchestrator
    enquiries: WorkerQueries
    operations: Operations
    evaluations: EvalRuns
    head_start: HeadStart
    gateway_url: str


@asynccontextmanager
async def open_app(project: Path, environ: Mapping[str, str]) -> AsyncGenerator[App]:
    """Everything started in the order it needs, and ended in the reverse."""
    around = Project(project, environ)
    for folder in (state_dir(environ), around.state.parent, around.state):
        with suppress(OSError):  # whoever needs to write there will say why it cannot
            restrict_permissions(folder)
    swept = await anyio.to_thread.run_sync(sweep_dead_owners, project_key(project))
    await anyio.to_thread.run_sync(remove_leftovers, around.state)
    if swept:
        log.warning("ended %d processes that a dead go-ent had left behind", len(swept))

    async with (
        SqliteJournal.open(around.state / "journal.db", secrets=around.secrets) as journal,
        open_records(environ, new_owner(project_key(project))) as records,
        Connections.open() as connections,
        SqliteHistory.open(state_dir(environ) / "history.db") as history,
        _running_feed(journal) as feed,
        anyio.create_task_group() as background,
    ):
        roster = Roster(around.settings)
        calls = model_calls(around, connections, records, feed=feed, roster=roster)
        probe = HealthProbe(
            connections, calls.healths, settings=around.settings, environ=around.environ
        )
        async with _running_methods(around, calls.upstream, roster, feed) as methods:
            router = Router(
                settings=around.settings,
                environ=around.environ,
                methods=tuple(methods.drivers),
                classifier=TaskClassifier(),
                history=history,
                prices=calls.prices,
                condition=calls.healths.condition,
                standings=calls.allowance.standings,
                notices=around.notices,
                servers=calls.servers,
            )
            workspaces = GitWorkspaces(
                around.state,
                environ=around.git_environ,
                in_use=lambda worker: worker in roster,
                trusted=trust_check(around.allows),
            )
            verifier = ShellVerifier(
                environ=around.environ_without_keys,
                sandbox=around.surroundings.sandbox,
                time_limit=lambda: around.settings().limits.verify_s,
            )
            orchestrator = Orchestrator(
                settings=around.settings,
                check=around.check,
                environ=around.environ,
                slots=around.limits().workers,
                feed=feed,
                drivers=methods.drivers,
                meter=methods.gateway,
                roster=roster,
                books=calls.books,
                allowance=calls.allowance,
                verifier=verifier,
                healths=calls.healths,
                router=router,
                outcomes=OutcomeRecorder(feed, history),
                workspaces=workspaces,
                level=around.surroundings.sandbox.level,
            )
            enquiries = WorkerQueries(feed, orchestrator.last_turn_due)
            providers = ProviderQueries(
                settings=around.settings,
                environ=around.environ,
                feed=feed,
                ledger=records.ledger,
                prices=calls.prices,
                allowance=calls.allowance,
                healths=calls.healths,
                servers=calls.servers,
            )
            git = Git(project, around.git_environ(), trusted=trust_check(around.allows))
            merging = GitMerging(git, around.state / "merging")
            joiner = WorkJoiner(feed=feed, merging=merging, verifier=verifier)
            swarms = SwarmManager(
                settings=around.settings,
                feed=feed,
                orchestrator=orchestrator,
                enquiries=enquiries,
                workspaces=workspaces,
                joiner=joiner,
            )
            merger = SwarmMerger(feed=feed, orchestrator=orchestrator, joiner=joiner)
            background.start_soon(probe.run)
            background.start_soon(merging.sweep)
            evaluations = EvalRuns(
                project, environ=around.environ, owner=new_owner(project_key(project))
            )
            head_start = HeadStart(
                feed,
                lambda: background.start_soon(_warm_up, methods.opencode, around, calls.servers),
            )
            async with orchestrator.running(), swarms.running(), evaluations.running():
                yield App(
                    project=around,
                    feed=feed,
                    orchestrator=orchestrator,
                    enquiries=enquiries,
                    operations=Operations(
                        orchestrator,
                        enquiries,
                        providers,
                        Recommender(router, around.settings),
                        swarms=swarms,
                        merger=merger,
                        evaluations=evaluations,
                        head_start=head_start,
                    ),
                    evaluations=evaluations,
                    head_start=head_start,
                    gateway_url=f"http://127.0.0.1:{methods.gateway.port}",
                )
            background.cancel_scope.cancel()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Methods:
    """The ways to run a worker, and the gateway that their model calls pass."""

    gateway: Gateway
    opencode: OpenCodeDriver
    drivers: Mapping[Method, Driver]


@asynccontextmanager
async def _running_methods(
    around: Project, upstream: Upstream, roster: Roster, feed: Feed
) -> AsyncGenerator[_Methods]:
    def course(worker: str, backend: str, model: str) -> CallPlan:
        named, *fallbacks = roster.serving(worker, backend, model)
        planned = plan_call(named, fallbacks, around.settings().backends, around.environ())
        if reason := roster.why_not(worker, backend):
            raise ForeignBackend(reason)
        return planned

    def owner() -> str:
        return new_owner(project_key(around.folder))

    def shared(worker: str, since: float) -> bool:
        return shares_directory(feed.views.values(), worker, since)

    async with (
        Gateway.open(upstream, course) as gateway,
        OpenCodeDriver.running(around.surroundings, gateway, owner=owner()) as opencode,
        OpenCodeServeDriver.running(around.surroundings, gateway, owner=owner()) as serving,
        AgentDriver.running(around.surroundings, gateway, owner=owner(), shared=shared) as agents,
    ):
        drivers: Mapping[Method, Driver] = {
            "acp": opencode,
            "cli": OpenCodeRunDriver(around.surroundings, gateway, owner=owner()),
            "serve": serving,
            "api": ApiDriver(upstream, course),
            "agent": agents,
        }
        yield _Methods(gateway=gateway, opencode=opencode, drivers=drivers)


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


async def _warm_up(driver: OpenCodeDriver, around: Project, servers: ModelLists) -> None:
    """Have OpenCode ready before a worker asks for it. A failure shows when one does."""
    try:
        await servers.refresh()  # OpenCode is told of the models at its start
        if around.settings().opencode.warm:
            await driver.warm_up(around.folder)
    except Exception as error:  # noqa: BLE001 (a head start is never worth an end)
        log.info("no warm start: %s", error)
