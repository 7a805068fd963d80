"""A project whose workers are scripted: everything real but the driver and the meter."""

import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType

import anyio
from sandboxed import a_sandbox

from goent.billing.call_accounts import Allowance, CallBookkeeper
from goent.billing.price_list import PriceList
from goent.domain.evaluation_messages import (
    EvalCompareRequest,
    EvalComparison,
    EvalRunRequest,
    EvalStatus,
    EvalStatusRequest,
)
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
from goent.git.git_command import Git
from goent.git.git_merger import GitMerging
from goent.git.git_workspaces import GitWorkspaces
from goent.operations.operation_table import Caller, Operations
from goent.operations.provider_queries import ProviderQueries, Recommender
from goent.proc.child_process import ShellVerifier
from goent.providers.provider_health import CircuitBreakers
from goent.providers.track_record import SqliteHistory
from goent.routing.router import Router, TaskClassifier
from goent.store.journal_store import SqliteJournal
from goent.store.ledger_store import SqliteLedger
from goent.swarms.swarm_manager import SwarmManager
from goent.swarms.swarm_merge import SwarmMerger, WorkJoiner
from goent.testing.driver import ScriptedDriver
from goent.workers.feed import Feed
from goent.workers.orchestrator import Orchestrator, OutcomeRecorder
from goent.workers.worker import Roster
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


class NoEvaluations:
    """Nobody runs any here."""

    async def run(self, request: EvalRunRequest, base: Path) -> EvalStatus:
        raise AssertionError("no evaluation is begun here")

    async def status(self, request: EvalStatusRequest, base: Path) -> EvalStatus:
        raise AssertionError("no evaluation is begun here")

    async def compare(self, request: EvalCompareRequest, base: Path) -> EvalComparison:
        raise AssertionError("no evaluation is begun here")


@dataclass
class Project:
    folder: Path
    feed: Feed
    orchestrator: Orchestrator
    books: CallBookkeeper
    enquiries: WorkerQueries
    operations: Operations
    caller: Caller
    healths: CircuitBreakers
    workspaces: GitWorkspaces
    history: SqliteHistory

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
        environ = dict[str, str]()
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
        settings = amended(settings)
        async with (
            SqliteJournal.open(tmp_path / "journal.db") as journal,
            SqliteLedger.open(tmp_path / "ledger.db") as ledger,
            SqliteHistory.open(tmp_path / "history.db") as history,
            anyio.create_task_group() as group,
        ):
            feed = Feed(journal)
            await feed.load()
            group.start_soon(feed.run)
            roster = Roster(lambda: settings)
            prices = PriceList(lambda: settings.backends)
            allowance = Allowance(
                settings=lambda: settings,
                environ=lambda: environ,
                feed=feed,
                ledger=ledger,
                prices=prices,
            )
            healths = CircuitBreakers()
            books = CallBookkeeper(
                settings=lambda: settings,
                feed=feed,
                ledger=ledger,
                prices=prices,
                roster=roster,
                allowance=allowance,
            )
            router = Router(
                settings=lambda: settings,
                environ=dict[str, str],
                methods=("acp", "cli"),
                classifier=TaskClassifier(),
                history=history,
                prices=prices,
                condition=healths.condition,
                standings=allowance.standings,
            )
            workspaces = GitWorkspaces(
                tmp_path / "state",
                environ=lambda: {"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
                in_use=lambda worker: worker in roster,
            )
            verifier = ShellVerifier(
                environ=lambda: {"PATH": "/usr/bin:/bin"},
                sandbox=a_sandbox(tmp_path),
                time_limit=lambda: limits.verify_s,
            )
            orchestrator = Orchestrator(
                settings=lambda: settings,
                check=lambda: None,
                environ=lambda: environ,
                slots=limits.workers,
                feed=feed,
                drivers={"acp": driver, "cli": driver},
                meter=NoMeter(),
                roster=roster,
                books=books,
                allowance=allowance,
                verifier=verifier,
                healths=healths,
                router=router,
                outcomes=OutcomeRecorder(feed, history),
                level=a_sandbox(tmp_path).level,
                workspaces=workspaces,
            )
            enquiries = WorkerQueries(feed, orchestrator.last_turn_due)
            asked_about = ProviderQueries(
                settings=lambda: settings,
                environ=lambda: environ,
                feed=feed,
                ledger=ledger,
                prices=prices,
                allowance=allowance,
                healths=healths,
            )
            git = Git(folder, {"PATH": os.environ["PATH"], "HOME": str(tmp_path)})
            merging = GitMerging(git, tmp_path / "state" / "merging")
            joiner = WorkJoiner(feed=feed, merging=merging, verifier=verifier)
            swarms = SwarmManager(
                settings=lambda: settings,
                feed=feed,
                orchestrator=orchestrator,
                enquiries=enquiries,
                workspaces=workspaces,
                joiner=joiner,
            )
            async with orchestrator.running(), swarms.running():
                yield Project(
                    folder=folder,
                    feed=feed,
                    orchestrator=orchestrator,
                    books=books,
                    enquiries=enquiries,
                    operations=Operations(
                        orchestrator,
                        enquiries,
                        asked_about,
                        Recommender(router, lambda: settings),
                        swarms=swarms,
                        merger=SwarmMerger(feed=feed, orchestrator=orchestrator, joiner=joiner),
                        evaluations=NoEvaluations(),
                    ),
                    caller=Caller(name="test", cwd=folder),
                    healths=healths,
                    workspaces=workspaces,
                    history=history,
                )
            await feed.commit()
            group.cancel_scope.cancel()

    return open_


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
