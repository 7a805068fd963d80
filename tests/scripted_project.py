"""A project whose workers are scripted: everything real but the driver and the meter."""

import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType

import anyio

from goent.billing.token_estimate import TokenGauge
from goent.composition.app import App, Methods, running_app
from goent.composition.live_project import Project as LiveProject
from goent.composition.model_calls import ModelCalls, UserRecords
from goent.domain.events import AnyEvent, TurnEnded, TurnStarted, WorkerClosed, WorkerSpawned
from goent.domain.replies import Result, SpawnReply, WaitReply
from goent.domain.settings import (
    Backend,
    BudgetSettings,
    LimitSettings,
    PermissionSettings,
    Settings,
)
from goent.domain.types import Isolation, Price, Provider, Secret
from goent.git.git_workspaces import GitWorkspaces
from goent.operations.operation_table import Caller, Operations
from goent.providers.provider_health import repair_record
from goent.providers.track_record import SqliteHealths, SqliteHistory
from goent.store.ledger_store import SqliteLedger
from goent.testing.driver import ScriptedDriver
from goent.workers.feed import Feed
from goent.workers.orchestrator import Orchestrator
from goent.workers.worker_queries import WorkerQueries

GLM = Provider(
    name="glm",
    backend="moonshot",
    model="glm-4",
    price=Price(input=Decimal(1), output=Decimal(2), cache_read=Decimal("0.1")),
)
CODER = Provider(name="deepseek/deepseek-coder", backend="deepseek", model="deepseek-coder")

DEFAULT_LIMITS = LimitSettings()


class NoMeter:
    """Nothing is ever under way."""

    async def settle(self, worker: str) -> None:
        pass


class FixedSettings(LiveProject):
    """A project whose settings come from the test, not from files."""

    def __init__(self, settings: Settings, home: Path) -> None:
        super().__init__(settings.project, {"HOME": str(home), "PATH": os.environ["PATH"]})
        self.state = home / "state"
        self._settings = settings

    def settings(self) -> Settings:
        return self._settings

    def check(self) -> None:
        pass

    def notices(self) -> tuple[str, ...]:
        return ()


@dataclass
class Project:
    app: App
    caller: Caller

    @property
    def folder(self) -> Path:
        return self.app.project.folder

    @property
    def feed(self) -> Feed:
        return self.app.feed

    @property
    def orchestrator(self) -> Orchestrator:
        return self.app.orchestrator

    @property
    def queries(self) -> WorkerQueries:
        return self.app.queries

    @property
    def operations(self) -> Operations:
        return self.app.operations

    @property
    def workspaces(self) -> GitWorkspaces:
        return self.app.workspaces

    @property
    def calls(self) -> ModelCalls:
        return self.app.calls

    async def ask(self, name: str, **arguments: object):
        return await self.operations.table[name].call(arguments, self.caller)

    async def events(self, worker: str) -> list[AnyEvent]:
        await self.feed.commit()
        return [envelope.event for envelope in await self.feed.events(worker=worker)]

    async def closed(self, worker: str) -> None:
        with anyio.fail_after(10):
            while self.feed.view(worker).open:
                await self.feed.wait_for_news(self.feed.seq)


OpenProject = Callable[..., AbstractAsyncContextManager[Project]]


def project_opener(tmp_path: Path) -> OpenProject:
    folder = tmp_path / "project"
    folder.mkdir()

    @asynccontextmanager
    async def open_(  # noqa: PLR0913 (all that tests vary)
        driver: ScriptedDriver,
        *,
        limits: LimitSettings = DEFAULT_LIMITS,
        permission_timeout_s: float = 300.0,
        budget: BudgetSettings = BudgetSettings(),  # noqa: B008 (frozen)
        providers: Sequence[Provider] = (GLM, CODER),
        keys: Mapping[str, str] = MappingProxyType({}),
        isolation: Isolation = "auto",
        amended: Callable[[Settings], Settings] = lambda settings: settings,
    ) -> AsyncGenerator[Project]:
        """`keys`: of backends whose calls would pass the gateway; the others go direct."""
        settings = Settings(
            project=folder,
            providers=tuple(providers),
            backends={
                name: Backend(id=name, key=Secret(keys[name]) if name in keys else None)
                for name in dict.fromkeys(p.backend for p in providers)
            },
            default_provider="glm",
            default_chosen=True,
            permissions=PermissionSettings(timeout_s=permission_timeout_s),
            limits=limits,
            budget=budget,
            isolation=isolation,
        )

        @asynccontextmanager
        async def scripted(*_: object) -> AsyncGenerator[Methods]:
            yield Methods(drivers={"acp": driver, "cli": driver}, meter=NoMeter(), warm_up=_nothing)

        project = FixedSettings(amended(settings), tmp_path)
        async with (
            SqliteLedger.open(tmp_path / "ledger.db") as ledger,
            SqliteHealths.open(tmp_path / "health.db", mend=repair_record) as healths,
            SqliteHistory.open(tmp_path / "history.db") as history,
            running_app(
                project,
                UserRecords(ledger=ledger, healths=healths, gauge=TokenGauge()),
                history,
                scripted,
            ) as app,
        ):
            yield Project(app=app, caller=Caller(name="test", cwd=folder))

    return open_


async def _nothing(*_: object) -> None:
    pass


async def spawn(project: Project, task: str = "do it", **more: object) -> str:
    spawned = await project.ask("worker_spawn", task=task, **more)
    assert isinstance(spawned, SpawnReply)
    return spawned.worker_id


async def wait(project: Project, *workers: str, timeout_s: float = 10) -> WaitReply:
    waited = await project.ask("worker_wait", worker_ids=workers, timeout_s=timeout_s)
    assert isinstance(waited, WaitReply)
    return waited


async def result(project: Project, worker: str) -> Result:
    told = await project.ask("worker_result", worker_id=worker)
    assert isinstance(told, Result)
    return told


def assert_grammar(events: Sequence[AnyEvent]) -> None:
    """WorkerSpawned (TurnStarted … TurnEnded)* WorkerClosed."""
    assert isinstance(events[0], WorkerSpawned), events[0]
    assert isinstance(events[-1], WorkerClosed), events[-1]
    in_turn, turns = False, 0
    for event in events[1:-1]:
        if isinstance(event, TurnStarted):
            assert not in_turn
            in_turn, turns = True, turns + 1
            assert event.turn == turns
        elif isinstance(event, TurnEnded):
            assert in_turn and event.turn == turns
            in_turn = False
        else:
            assert in_turn, f"{event!r} outside a turn"
            assert not isinstance(event, WorkerSpawned | WorkerClosed)
    assert not in_turn
