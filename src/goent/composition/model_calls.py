"""How are model calls made, counted and paid for? The same for workers, for the agent and for evaluations."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from goent.composition.live_project import Project
from goent.core.allowance import Allowance
from goent.core.books import Books
from goent.core.payers import Payers, Serving
from goent.llm.prices import PriceList
from goent.policy.health import Bounds, mended
from goent.proc.marks import lives
from goent.project import state_dir
from goent.store.calibration import SqliteCalibrations
from goent.store.health import SqliteHealths
from goent.store.ledger import SqliteLedger
from goent.upstream.ask import Upstream
from goent.upstream.forward import Connections
from goent.upstream.gauge import Gauge
from goent.upstream.health import Breakers
from goent.upstream.model_list import ModelLists


@dataclass(frozen=True, slots=True, kw_only=True)
class UserRecords:
    """What all projects of a user share: what was spent, who answers, how each model counts."""

    ledger: SqliteLedger
    healths: SqliteHealths
    gauge: Gauge


@asynccontextmanager
async def open_records(environ: Mapping[str, str], owner: str) -> AsyncGenerator[UserRecords]:
    folder = state_dir(environ)
    async with (
        SqliteLedger.open(folder / "ledger.db", owner=owner, alive=lives) as ledger,
        SqliteHealths.open(folder / "health.db", mend=mended) as healths,
        SqliteCalibrations.open(folder / "calibration.db") as calibrations,
    ):
        yield UserRecords(ledger=ledger, healths=healths, gauge=Gauge(calibrations))


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCalls:
    """The way out to the models for one project, and what watches it."""

    upstream: Upstream
    prices: PriceList
    allowance: Allowance
    books: Books
    healths: Breakers
    servers: ModelLists


def model_calls(
    around: Project,
    connections: Connections,
    records: UserRecords,
    *,
    feed: Payers,
    roster: Serving,
) -> ModelCalls:
    """`feed` is told what calls cost, `roster` knows who makes them."""
    prices = PriceList(lambda: around.settings().backends)
    allowance = Allowance(
        settings=around.settings,
        environ=around.environ,
        feed=feed,
        ledger=records.ledger,
        prices=prices,
    )
    books = Books(
        settings=around.settings,
        feed=feed,
        ledger=records.ledger,
        prices=prices,
        roster=roster,
        allowance=allowance,
    )
    healths = Breakers(
        records.healths,
        account=around.account,
        bounds=lambda: Bounds.of(around.settings().health),
    )
    return ModelCalls(
        upstream=Upstream(
            connections,
            books,
            gauge=records.gauge,
            healths=healths,
            silence=lambda: around.settings().health.silence_timeout,
        ),
        prices=prices,
        allowance=allowance,
        books=books,
        healths=healths,
        servers=ModelLists(
            connections,
            settings=around.settings,
            environ=around.environ,
            heard=around.hear_servers,
        ),
    )
