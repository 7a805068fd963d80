"""Two processes spend at one hard limit, as `make bench` has it but smaller; one is killed."""

import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from decimal import Decimal
from pathlib import Path

import pytest
from bench.budget import Spender, a_round, passing
from bench.spenders import MODEL, SCRIPT, USAGES, Round, Spent

from goent.billing.budget_rules import day_of
from goent.domain.money import BudgetLimit
from goent.store.ledger_store import SqliteLedger
from goent.testing.scripted_server import ScriptedModels

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300), pytest.mark.spec("P35")]

LIMIT = Decimal("0.2")


@asynccontextmanager
async def two_projects() -> AsyncGenerator[tuple[ScriptedModels, list[Spender]]]:
    async with AsyncExitStack() as stack:
        models = await stack.enter_async_context(ScriptedModels(SCRIPT))
        spenders = [await stack.enter_async_context(Spender.running()) for _ in range(2)]
        yield models, spenders


def cost(usage: str) -> Decimal:
    assert MODEL.price
    return MODEL.price.cost(USAGES[usage])


async def test_twenty_workers_in_two_projects_pass_it_by_no_more_than_their_calls_in_flight():
    async with two_projects() as (models, spenders):
        for number in range(5):
            spent = await a_round(spenders, models, LIMIT, number)
            found = passing(LIMIT, spent)
            assert found.over <= found.in_flight
            assert sum(call.usd for call in spent) > LIMIT / 2, "it was spent at all"


async def test_a_project_that_is_killed_takes_its_reserves_along_but_not_what_it_sent(
    tmp_path: Path,
):
    project = str(tmp_path / "project-0")
    async with two_projects() as (models, (killed, other)):
        for number, spender, calls in ((1, other, 1), (0, killed, 12)):
            await spender.tell(
                Round(
                    source=models.base_url("scripted"),
                    folder=str(tmp_path),
                    project=str(tmp_path / f"project-{number}"),
                    workers=10,
                    limit_usd=LIMIT,
                    seed=7,
                )
            )
            await models.called(calls, timeout=60)
        killed.process.kill()
        survived = await other.heard()
        assert survived, "it went on, and was told when to stop"
        async with SqliteLedger.open(tmp_path / "ledger.db") as ledger:
            await ledger.settle_lost(project)
            day = BudgetLimit(scope="day", key=day_of(time.time()), usd=LIMIT, hard=True)
            (standing,) = await ledger.standings([day], project)
    assert standing.held_usd == 0
    assert standing.spent_usd >= sum(call.usd for call in survived)
    assert standing.spent_usd <= LIMIT + 20 * cost("much")


def test_what_is_spent_after_the_limit_was_passed_is_seen():
    calls = [
        Spent(began=0, ended=2, usd=Decimal("0.15")),
        Spent(began=1, ended=3, usd=Decimal("0.15")),
    ]
    kept = passing(LIMIT, calls)
    assert (kept.over, kept.in_flight) == (Decimal("0.1"), Decimal("0.15"))
    late = Spent(began=4, ended=5, usd=Decimal("0.15"))
    assert passing(LIMIT, [*calls, late]).share > 1
