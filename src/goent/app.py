"""The composition root: the only place that joins the rooms."""

import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

import anyio

from goent.core.allowance import Allowance
from goent.core.books import Books
from goent.core.classifier import TaskClassifier
from goent.core.enquiries import Enquiries
from goent.core.feed import Feed
from goent.core.lessons import Lessons
from goent.core.operations import Operations
from goent.core.orchestrator import Orchestrator
from goent.core.recommending import Recommending
from goent.core.roster import Roster
from goent.core.router import Router
from goent.core.swarms.joining import Joiner
from goent.core.swarms.merging import SwarmMerger
from goent.core.swarms.swarms import Swarms
from goent.domain.ports import Driver, Gate, Healths
from goent.domain.settings import Settings
from goent.domain.types import Method
from goent.drivers.agent.driver import AgentDriver
from goent.drivers.api.driver import ApiDriver
from goent.drivers.opencode.driver import OpenCodeDriver
from goent.drivers.opencode_run.driver import OpenCodeRunDriver
from goent.drivers.opencode_serve.driver import OpenCodeServeDriver
from goent.gateway.server import Gateway
from goent.git.command import Git
from goent.git.merging import GitMerging
from goent.git.spaces import GitWorkspaces
from goent.live_project import Project
from goent.llm.prices import PriceList
from goent.policy.health import Bounds, mended
from goent.proc.marks import lives, new_owner, sweep_dead_owners
from goent.proc.verify import ShellVerifier
from goent.project import project_key, seal, state_dir
from goent.store.calibration import SqliteCalibrations
from goent.store.health import SqliteHealths
from goent.store.history import SqliteHistory
from goent.store.journal import SqliteJournal
from goent.store.ledger import SqliteLedger
from goent.upstream.ask import Upstream
from goent.upstream.course import Course, plan_course
from goent.upstream.forward import Connections
from goent.upstream.gauge import Gauge
from goent.upstream.health import Breakers
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
    warm_up: Callable[[], object]
    gateway_url: str


@asynccontextmanager
async def open_app(project: Path, environ: Mapping[str, str]) -> AsyncGenerator[App]:
    """Everything started in the order it needs, and ended in the reverse."""
    around = Project(project, environ)
    for folder in (state_dir(environ), around.state.parent, around.state):
        with suppress(OSError):  # whoever needs to write there will say why it cannot
            seal(folder)
    swept = await anyio.to_thread.run_sync(sweep_dead_owners, project_key(project))
    if swept:
        log.warning("ended %d processes that a dead go-ent had left behind", len(swept))

    async with (
        SqliteJournal.open(around.state / "journal.db", secrets=around.secrets) as journal,
        SqliteLedger.open(
            state_dir(environ) / "ledger.db", owner=new_owner(project_key(project)), alive=lives
        ) as ledger,
        SqliteHealths.open(state_dir(environ) / "health.db", mend=mended) as kept,
        SqliteHistory.open(state_dir(environ) / "history.db") as history,
        _running_feed(journal) as feed,
        anyio.create_task_group() as background,
    ):
        roster = Roster(around.settings)
        prices = PriceList(lambda: around.settings().backends)
        allowance = Allowance(
            settings=around.settings,
            environ=around.environ,
            feed=feed,
            ledger=ledger,
            prices=prices,
        )
        books = Books(
            settings=around.settings,
            feed=feed,
            ledger=ledger,
            prices=prices,
            roster=roster,
            allowance=allowance,
        )
        healths = Breakers(
            kept,
            account=around.account,
            bounds=lambda: Bounds.of(around.settings().health),
        )
        async with _running_methods(around, books, roster, healths) as methods:
            router = Router(
                settings=around.settings,
                environ=around.environ,
                methods=tuple(methods.drivers),
                classifier=TaskClassifier(),
                history=history,
                prices=prices,
                condition=healths.condition,
                standings=allowance.standings,
                notices=around.notices,
            )
            workspaces = GitWorkspaces(
                around.state,
                environ=around.without_keys,
                in_use=lambda worker: worker in roster,
            )
            verifier = ShellVerifier(
                environ=around.without_keys,
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
                books=books,
                allowance=allowance,
                verifier=verifier,
                healths=healths,
                router=router,
                lessons=Lessons(feed, history),
                workspaces=workspaces,
            )
            enquiries = Enquiries(
                settings=around.settings,
                environ=around.environ,
                feed=feed,
                ledger=ledger,
                prices=prices,
                allowance=allowance,
                healths=healths,
            )
            merging = GitMerging(Git(project, around.without_keys()), around.state / "merging")
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
            background.start_soon(methods.probe.run)
            background.start_soon(merging.sweep)
            async with orchestrator.running(), swarms.running():
                yield App(
                    project=around,
                    feed=feed,
                    orchestrator=orchestrator,
                    enquiries=enquiries,
                    operations=Operations(
                        orchestrator,
                        enquiries,
                        Recommending(router, around.settings),
                        swarms=swarms,
                        merger=merger,
                    ),
                    warm_up=lambda: background.start_soon(_warm_up, methods.opencode, around),
                    gateway_url=f"http://127.0.0.1:{methods.gateway.port}",
                )
            background.cancel_scope.cancel()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Methods:
    """The ways to run a worker, and the gateway that their model calls pass."""

    gateway: Gateway
    opencode: OpenCodeDriver
    drivers: Mapping[Method, Driver]
    probe: Probe


@asynccontextmanager
async def _running_methods(
    around: Project, books: Books, roster: Roster, healths: Healths
) -> AsyncGenerator[_Methods]:
    def course(worker: str, backend: str, model: str) -> Course:
        named, *fallbacks = roster.serving(worker, backend, model)
        return plan_course(named, fallbacks, around.settings().backends, around.environ())

    async with (
        Connections.open() as connections,
        SqliteCalibrations.open(state_dir(around.environ()) / "calibration.db") as calibrations,
    ):
        upstream = Upstream(connections, books, gauge=Gauge(calibrations), healths=healths)
        probe = Probe(connections, healths, settings=around.settings, environ=around.environ)
        async with (
            Gateway.open(upstream, course) as gateway,
            OpenCodeDriver.running(**_means(around, gateway)) as opencode,
            OpenCodeServeDriver.running(**_means(around, gateway)) as serving,
            AgentDriver.running(**_means(around, gateway)) as agents,
        ):
            drivers: Mapping[Method, Driver] = {
                "acp": opencode,
                "cli": OpenCodeRunDriver(**_means(around, gateway)),
                "serve": serving,
                "api": ApiDriver(upstream, course),
                "agent": agents,
            }
            yield _Methods(gateway=gateway, opencode=opencode, drivers=drivers, probe=probe)


class _Means(TypedDict):
    """What every driver that starts processes is given."""

    settings: Callable[[], Settings]
    gate: Gate
    environ: Callable[[], Mapping[str, str]]
    state_dir: Path
    owner: str


def _means(around: Project, gateway: Gateway) -> _Means:
    return _Means(
        settings=around.settings,
        gate=gateway,
        environ=around.environ,
        state_dir=around.state,
        owner=new_owner(project_key(around.folder)),
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


async def _warm_up(driver: OpenCodeDriver, around: Project) -> None:
    """A client has come: have OpenCode ready before it asks. A failure shows when it does."""
    try:
        if around.settings().opencode.warm:
            await driver.warm_up(around.folder)
    except Exception as error:  # noqa: BLE001 (a head start is never worth an end)
        log.info("no warm start: %s", error)
