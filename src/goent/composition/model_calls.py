"""Assembles a project's access to models, with ledger, budgets and provider health."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from goent.billing.call_accounts import Allowance, CallBookkeeper, CallerDirectory, CostListener
from goent.billing.price_list import PriceList
from goent.billing.token_estimate import TokenGauge
from goent.composition.live_project import Project
from goent.proc.process_table import is_owner_alive
from goent.providers.connections import Connections
from goent.providers.model_list import ModelLists
from goent.providers.provider_health import BreakerBounds, CircuitBreakers, repair_record
from goent.providers.track_record import SqliteCalibrations, SqliteHealths
from goent.providers.upstream import Upstream
from goent.store.ledger_store import SqliteLedger
from goent.system.project_folders import state_dir


@dataclass(frozen=True, slots=True, kw_only=True)
class UserRecords:
    """What all projects of a user share: costs, provider health, and token calibration."""

    ledger: SqliteLedger
    healths: SqliteHealths
    gauge: TokenGauge


@asynccontextmanager
async def open_records(environ: Mapping[str, str], owner: str) -> AsyncGenerator[UserRecords]:
    folder = state_dir(environ)
    async with (
        SqliteLedger.open(folder / "ledger.db", owner=owner, alive=is_owner_alive) as ledger,
        SqliteHealths.open(folder / "health.db", mend=repair_record) as healths,
        SqliteCalibrations.open(folder / "calibration.db") as calibrations,
    ):
        yield UserRecords(ledger=ledger, healths=healths, gauge=TokenGauge(calibrations))


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCalls:
    """A project's access to models, with everything that accounts for it."""

    upstream: Upstream
    prices: PriceList
    allowance: Allowance
    books: CallBookkeeper
    healths: CircuitBreakers
    servers: ModelLists


def model_calls(
    around: Project,
    connections: Connections,
    records: UserRecords,
    *,
    feed: CostListener,
    roster: CallerDirectory,
) -> ModelCalls:
    """`feed` receives the costs of calls, `roster` knows the callers."""
    prices = PriceList(lambda: around.settings().backends)
    allowance = Allowance(
        settings=around.settings,
        environ=around.environ,
        feed=feed,
        ledger=records.ledger,
        prices=prices,
    )
    books = CallBookkeeper(
        settings=around.settings,
        feed=feed,
        ledger=records.ledger,
        prices=prices,
        roster=roster,
        allowance=allowance,
    )
    healths = CircuitBreakers(
        records.healths,
        account=around.account,
        bounds=lambda: BreakerBounds.of(around.settings().health),
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
            on_update=around.set_listings,
        ),
    )
