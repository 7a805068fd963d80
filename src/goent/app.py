"""The composition root: the only place that joins the rooms."""

import logging
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio

from goent.config.reload import Configuration
from goent.core.enquiries import Enquiries
from goent.core.feed import Feed
from goent.core.operations import Operations
from goent.core.orchestrator import Orchestrator
from goent.domain.errors import ConfigError
from goent.domain.ports import CallMade
from goent.domain.settings import Limits, Settings
from goent.drivers.opencode.driver import OpenCodeDriver
from goent.drivers.opencode_run.driver import OpenCodeRunDriver
from goent.gateway.server import Gateway
from goent.proc.marks import new_owner, sweep_dead_owners
from goent.proc.verify import ShellVerifier
from goent.project import project_key, state_dir
from goent.store.journal import SqliteJournal
from goent.store.ledger import SqliteLedger

log = logging.getLogger(__name__)


class Project:
    """What is known of the project: its folder, its settings, and the keys that clients bring."""

    def __init__(self, project: Path, environ: Mapping[str, str]) -> None:
        self.folder = project
        self._own = dict(environ)
        self._configuration = Configuration(project)

    def environ(self) -> Mapping[str, str]:
        return self._own

    def settings(self) -> Settings:
        """As the files say now; the last good ones while a file has a mistake."""
        return self._configuration.current(self._own)

    def check(self) -> None:
        """Raise what is wrong with the files now: no new work on settings that nobody wrote."""
        self._configuration.check(self._own)

    def key_names(self) -> tuple[str, ...]:
        try:
            return self.settings().key_names
        except ConfigError:
            return ()

    def limits(self) -> Limits:
        try:
            return self.settings().limits
        except ConfigError:
            return Limits()

    def learn(self, keys: Mapping[str, str]) -> None:
        """A client's hello: only what the configuration names as a key is taken."""
        allowed = set(self.key_names())
        self._own.update({name: key for name, key in keys.items() if name in allowed})

    def secrets(self) -> Collection[str]:
        """What must never be written down."""
        try:
            backends = self.settings().backends.values()
        except ConfigError:
            return ()
        return [key for backend in backends if (key := backend.resolve_key(self._own))]


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
    key = project_key(project)
    state = state_dir(environ)
    around = Project(project, environ)
    swept = await anyio.to_thread.run_sync(sweep_dead_owners, key)
    if swept:
        log.warning("ended %d processes that a dead go-ent had left behind", len(swept))

    async def metered(call: CallMade) -> None:
        await orchestrator.metered(call)

    async with (
        SqliteJournal.open(
            state / "projects" / key / "journal.db", secrets=around.secrets
        ) as journal,
        SqliteLedger.open(state / "ledger.db") as ledger,
        _running_feed(journal) as feed,
        Gateway.open(
            backends=lambda: around.settings().backends, environ=around.environ, on_call=metered
        ) as gateway,
        OpenCodeDriver.running(
            settings=around.settings,
            gate=gateway,
            environ=around.environ,
            state_dir=state / "projects" / key,
            owner=new_owner(key),
        ) as driver,
        anyio.create_task_group() as background,
    ):
        by_run = OpenCodeRunDriver(
            settings=around.settings,
            gate=gateway,
            environ=around.environ,
            state_dir=state / "projects" / key,
            owner=new_owner(key),
        )
        orchestrator = Orchestrator(
            settings=around.settings,
            check=around.check,
            environ=around.environ,
            slots=around.limits().workers,
            feed=feed,
            drivers={"acp": driver, "cli": by_run},
            meter=gateway,
            ledger=ledger,
            verifier=ShellVerifier(environ=lambda: _without_keys(around)),
        )
        enquiries = Enquiries(
            settings=around.settings, environ=around.environ, feed=feed, ledger=ledger
        )
        async with orchestrator.running():
            yield App(
                project=around,
                feed=feed,
                orchestrator=orchestrator,
                enquiries=enquiries,
                operations=Operations(orchestrator, enquiries),
                warm_up=lambda: background.start_soon(_warm_up, driver, around),
                gateway_url=f"http://127.0.0.1:{gateway.port}",
            )
        background.cancel_scope.cancel()


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


def _without_keys(around: Project) -> Mapping[str, str]:
    hidden = set(around.key_names())
    return {name: value for name, value in around.environ().items() if name not in hidden}
