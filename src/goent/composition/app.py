"""The composition root of the daemon: joins journal, models, methods and the core."""

import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import anyio

from goent.composition.live_project import Project
from goent.composition.model_calls import model_calls, open_records
from goent.core.classifier import TaskClassifier
from goent.core.enquiries import Enquiries
from goent.core.feed import Feed
from goent.core.head_start import HeadStart
from goent.core.lessons import Lessons
from goent.core.neighbours import shares_its_place
from goent.core.operations import Operations
from goent.core.orchestrator import Orchestrator
from goent.core.providers import Providers
from goent.core.recommending import Recommending
from goent.core.roster import Roster
from goent.core.router import Router
from goent.core.swarms.joining import Joiner
from goent.core.swarms.merging import SwarmMerger
from goent.core.swarms.swarms import Swarms
from goent.domain.ports import Driver
from goent.domain.types import Method
from goent.drivers.agent.driver import AgentDriver
from goent.drivers.api.driver import ApiDriver
from goent.drivers.opencode.driver import OpenCodeDriver
from goent.drivers.opencode_run.driver import OpenCodeRunDriver
from goent.drivers.opencode_serve.driver import OpenCodeServeDriver
from goent.evals.attended.runs import EvalRuns
from goent.gateway.server import Gateway
from goent.git.command import Git
from goent.git.merging import GitMerging
from goent.git.spaces import GitWorkspaces
from goent.git.trust import trusted_by
from goent.proc.marks import new_owner, sweep_dead_owners
from goent.proc.verify import ShellVerifier
from goent.project import project_key, seal, state_dir
from goent.sandbox.temporary import remove_leftovers
from goent.store.history import SqliteHistory
from goent.store.journal import SqliteJournal
from goent.upstream.ask import Upstream
from goent.upstream.course import Course, ForeignBackend, plan_course
from goent.upstream.forward import Connections
from goent.upstream.model_list import ModelLists
from goent.upstream.probe import Probe

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class App:
    """go-ent for one project, running."""

    project: Project
    feed: Feed
    orchestrator: Orchestrator
    enquiries: Enquiries
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
            seal(folder)
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
        probe = Probe(connections, calls.healths, settings=around.settings, environ=around.environ)
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
                environ=around.for_git,
                in_use=lambda worker: worker in roster,
                trusted=trusted_by(around.allows),
            )
            verifier = ShellVerifier(
                environ=around.without_keys,
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
                lessons=Lessons(feed, history),
                workspaces=workspaces,
                level=around.surroundings.sandbox.level,
            )
            enquiries = Enquiries(feed, orchestrator.due)
            providers = Providers(
                settings=around.settings,
                environ=around.environ,
                feed=feed,
                ledger=records.ledger,
                prices=calls.prices,
                allowance=calls.allowance,
                healths=calls.healths,
                servers=calls.servers,
            )
            git = Git(project, around.for_git(), trusted=trusted_by(around.allows))
            merging = GitMerging(git, around.state / "merging")
            joiner = Joiner(feed=feed, merging=merging, verifier=verifier)
            swarms = Swarms(
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
                        Recommending(router, around.settings),
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
    def course(worker: str, backend: str, model: str) -> Course:
        named, *fallbacks = roster.serving(worker, backend, model)
        planned = plan_course(named, fallbacks, around.settings().backends, around.environ())
        if reason := roster.why_not(worker, backend):
            raise ForeignBackend(reason)
        return planned

    def owner() -> str:
        return new_owner(project_key(around.folder))

    def shared(worker: str, since: float) -> bool:
        return shares_its_place(feed.views.values(), worker, since)

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
