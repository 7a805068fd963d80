"""May a call go out, under limits that several go-ents share?"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path

import pytest

from goent.domain.money import Admission, BudgetLimit, CallHold, LedgerEntry, Spender
from goent.domain.types import RateLimits, Usage
from goent.store.ledger_store import SCHEMA, SqliteLedger
from goent.store.sqlite import Schema, connect

pytestmark = pytest.mark.anyio

NOON = 12 * 3600.0
DAY = BudgetLimit(scope="day", key="1970-01-01", usd=Decimal(1), hard=True)
SOFT = BudgetLimit(scope="day", key="1970-01-01", usd=Decimal(1))
TASK = BudgetLimit(scope="task", key="w1", usd=Decimal(1), hard=True)
PROJECT = BudgetLimit(scope="project", key="/a", usd=Decimal(1), hard=True)
GROUP = BudgetLimit(scope="group", key="s1", usd=Decimal(1), hard=True)


def entry(
    worker: str = "w1",
    *,
    project: str = "/a",
    cost: str | None = None,
    at: float = NOON,
    group: str = "",
    tokens: int = 0,
) -> LedgerEntry:
    return LedgerEntry(
        at=at,
        project=project,
        worker=worker,
        provider="glm",
        backend="zai",
        model="glm-4",
        usage=Usage(input=tokens),
        cost_usd=None if cost is None else Decimal(cost),
        source="gateway",
        group=group,
    )


def hold(usd: str, *limits: BudgetLimit) -> CallHold:
    return CallHold(usd=Decimal(usd), limits=limits)


@asynccontextmanager
async def two_daemons(
    path: Path, dead: set[str]
) -> AsyncGenerator[tuple[SqliteLedger, SqliteLedger]]:
    def alive(owner: str) -> bool:
        return owner not in dead

    async with (
        SqliteLedger.open(path, owner="one", alive=alive) as one,
        SqliteLedger.open(path, owner="two", alive=alive) as two,
    ):
        yield one, two


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncGenerator[SqliteLedger]:
    async with SqliteLedger.open(tmp_path / "ledger.db", owner="me") as ledger:
        yield ledger


@pytest.mark.spec("P35")
@pytest.mark.parametrize("limit", [DAY, TASK, PROJECT, GROUP], ids=lambda limit: limit.scope)
async def test_a_call_that_would_pass_a_hard_limit_does_not_begin(
    ledger: SqliteLedger, limit: BudgetLimit
):
    for call, cost in (("a", "0.5"), ("b", "0.3")):
        assert (await ledger.begin_call(call, entry(group="s1"), hold("0.1", limit))).admitted
        await ledger.settle_call(call, entry(cost=cost, group="s1"))
    fits = await ledger.begin_call("c", entry(group="s1"), hold("0.2", limit))
    assert fits.admitted and fits.standings[0].spent_usd == Decimal("0.8")
    await ledger.settle_call("c", None)
    refused = await ledger.begin_call("d", entry(group="s1"), hold("0.21", limit))
    assert not refused.admitted and not refused.wait_s
    assert refused.exceeded and refused.exceeded.left_usd == Decimal("0.2")
    await ledger.settle_call("d", None)
    assert sum(row.calls for row in await ledger.report(by="day")) == 2


@pytest.mark.spec("P35")
async def test_a_soft_limit_is_told_of_and_hinders_nobody(ledger: SqliteLedger):
    await ledger.add(entry(cost="5"))
    answer = await ledger.begin_call("a", entry(), hold("0.5", SOFT))
    assert answer.admitted and answer.standings[0].share_after(Decimal("0.5")) == Decimal("5.5")


@pytest.mark.spec("P35")
async def test_what_costs_nothing_passes_no_limit(ledger: SqliteLedger):
    await ledger.add(entry(cost="5"))
    assert (await ledger.begin_call("a", entry(), hold("0", DAY))).admitted


@pytest.mark.spec("P35")
async def test_others_of_the_scope_count_and_nobody_else(ledger: SqliteLedger):
    await ledger.add(entry("w2", project="/a", cost="0.9"))
    await ledger.add(entry("w1", project="/b", cost="0.9", at=NOON - 86_400))
    assert (await ledger.begin_call("task", entry(), hold("1", TASK))).admitted, "one's own only"
    await ledger.settle_call("task", None)
    assert (await ledger.begin_call("project", entry(), hold("0.1", PROJECT))).admitted
    await ledger.settle_call("project", None)
    assert (await ledger.begin_call("day", entry(), hold("0.1", DAY))).admitted, "not yesterday's"
    await ledger.settle_call("day", None)
    assert not (await ledger.begin_call("over", entry(), hold("0.2", DAY))).admitted


@pytest.mark.spec("P35")
async def test_calls_under_way_are_waited_for_before_anybody_is_refused(ledger: SqliteLedger):
    assert (await ledger.begin_call("a", entry(), hold("0.9", DAY))).admitted
    waits = await ledger.begin_call("b", entry("w2"), hold("0.2", DAY))
    assert not waits.admitted and waits.wait_s, "the call under way may cost less"
    never = await ledger.begin_call("c", entry("w2"), hold("1.2", DAY))
    assert not never.admitted and not never.wait_s
    await ledger.settle_call("a", entry(cost="0.1"))
    assert (await ledger.begin_call("b", entry("w2"), hold("0.2", DAY))).admitted


@pytest.mark.spec("P35")
async def test_a_call_that_nobody_told_the_cost_of_counts_with_what_was_held(ledger: SqliteLedger):
    await ledger.begin_call("a", entry(), hold("0.9", DAY))
    await ledger.settle_call("a", entry(cost=None))
    (day,) = await ledger.standings([DAY], "/a")
    assert (day.spent_usd, day.unknown_calls) == (Decimal("0.9"), 0)
    await ledger.add(entry(cost=None))
    (day,) = await ledger.standings([DAY], "/a")
    assert (day.spent_usd, day.unknown_calls) == (Decimal("0.9"), 1)
    (row,) = await ledger.report(by="day")
    assert row.cost_usd is None, "in a report it stays unknown"


@pytest.mark.spec("P35")
async def test_what_is_held_for_a_worker_is_its_forecast_or_its_calls(ledger: SqliteLedger):
    w1, w2 = (Spender(project="/a", worker=name) for name in ("w1", "w2"))
    assert (await ledger.hold_back(w1, Decimal("0.6"), [DAY])).admitted
    refused = await ledger.hold_back(w2, Decimal("0.5"), [DAY])
    assert refused.exceeded and refused.exceeded.held_usd == Decimal("0.6")

    async def held() -> Decimal:
        (day,) = await ledger.standings([DAY], "/a")
        return day.held_usd

    assert (await ledger.begin_call("a", entry(), hold("0.2", DAY))).admitted, "out of what is held"
    assert await held() == Decimal("0.6")
    await ledger.settle_call("a", entry(cost="0.25"))
    assert await held() == Decimal("0.35")
    assert (await ledger.begin_call("b", entry(), hold("0.5", DAY))).admitted
    assert await held() == Decimal("0.5"), "more than was foreseen"
    await ledger.settle_call("b", None)
    await ledger.release(w1)
    assert await held() == 0
    assert (await ledger.hold_back(w2, Decimal("0.5"), [DAY])).admitted


@pytest.mark.spec("P35")
async def test_others_cannot_take_what_is_held_for_a_worker(ledger: SqliteLedger):
    await ledger.hold_back(Spender(project="/a", worker="w1"), Decimal("0.6"), [DAY])
    assert (await ledger.begin_call("a", entry("w2"), hold("0.4", DAY))).admitted
    await ledger.settle_call("a", entry("w2", cost="0.4"))
    assert not (await ledger.begin_call("b", entry("w2"), hold("0.1", DAY))).admitted
    assert (await ledger.begin_call("c", entry("w1"), hold("0.6", DAY))).admitted


@pytest.mark.spec("P35")
async def test_children_draw_on_the_budget_of_their_group(ledger: SqliteLedger):
    one, two, other = (
        Spender(project="/a", worker="w1", group="s1"),
        Spender(project="/b", worker="w2", group="s1"),
        Spender(project="/a", worker="w3", group="s2"),
    )
    assert (await ledger.hold_back(other, Decimal(5), [])).admitted, "no matter of this group's"
    assert (await ledger.hold_back(one, Decimal("0.5"), [GROUP])).admitted
    assert (await ledger.hold_back(two, Decimal("0.6"), [GROUP])).exceeded
    assert (await ledger.hold_back(two, Decimal("0.5"), [GROUP])).admitted
    await ledger.begin_call("a", entry("w2", project="/b", group="s1"), hold("0.5", GROUP))
    await ledger.settle_call("a", entry("w2", project="/b", group="s1", cost="0.5"))
    (group,) = await ledger.standings([GROUP], "/a")
    assert (group.spent_usd, group.held_usd) == (Decimal("0.5"), Decimal("0.5"))


@pytest.mark.spec("P35")
async def test_the_dead_hold_nothing_back_but_what_they_sent_is_owed(tmp_path: Path):
    dead: set[str] = set()
    async with two_daemons(tmp_path / "ledger.db", dead) as (one, two):
        await one.hold_back(Spender(project="/a", worker="w1"), Decimal("0.9"), [DAY])
        await one.begin_call("a", entry(), hold("0.3", DAY))
        asked = (entry("w2", project="/b"), hold("0.2", DAY))
        assert not (await two.begin_call("b", *asked)).admitted
        dead.add("one")
        assert (await two.begin_call("b", *asked)).admitted
        (day,) = await two.standings([DAY], "/b")
        assert day.held_usd == Decimal("0.5"), "its call went out"
        refused = await two.begin_call("c", entry("w2", project="/b"), hold("0.6", DAY))
        assert refused.exceeded and refused.wait_s, "its own call may leave room"
        refused = await two.begin_call("c", entry("w2", project="/b"), hold("0.8", DAY))
        assert refused.exceeded and not refused.wait_s, "nobody waits for the dead"
        await two.settle_lost("/a")
        (day,) = await two.standings([DAY], "/b")
        assert (day.spent_usd, day.held_usd) == (Decimal("0.3"), Decimal("0.2"))


@pytest.mark.spec("P38")
async def test_calls_at_once_are_counted_across_daemons_without_the_dead(tmp_path: Path):
    dead: set[str] = set()
    pace = CallHold(pace=RateLimits(concurrency=2))
    async with two_daemons(tmp_path / "ledger.db", dead) as (one, two):
        assert (await one.begin_call("a", entry(), pace)).admitted
        assert (await two.begin_call("b", entry("w2"), pace)).admitted
        third = await two.begin_call("c", entry("w2"), pace)
        assert third.wait_s and "limits.concurrency" in third.reason
        await two.settle_call("b", None)
        assert (await two.begin_call("c", entry("w2"), pace)).admitted
        assert (await two.begin_call("d", entry("w2"), pace)).wait_s
        dead.add("one")
        assert (await two.begin_call("d", entry("w2"), pace)).admitted


@pytest.mark.spec("P38")
async def test_calls_a_minute_are_counted_from_their_start(tmp_path: Path):
    pace = CallHold(pace=RateLimits(rpm=2))
    async with two_daemons(tmp_path / "ledger.db", set()) as (one, two):
        assert (await one.begin_call("a", entry(at=NOON), pace)).admitted
        assert (await two.begin_call("b", entry(at=NOON + 10), pace)).admitted
        await one.settle_call("a", entry(cost="1", at=NOON + 50))
        third = await one.begin_call("c", entry(at=NOON + 20), pace)
        assert third.wait_s == 40 and "limits.rpm" in third.reason
        assert (await one.begin_call("c", entry(at=NOON + 60), pace)).admitted
        assert (await one.begin_call("d", entry(at=NOON + 61), pace)).wait_s == 9


@pytest.mark.spec("P38")
async def test_tokens_a_minute_are_those_that_were_counted(ledger: SqliteLedger):
    def asks(tokens: int) -> CallHold:
        return CallHold(usage=Usage(input=tokens), pace=RateLimits(tpm=1000))

    assert (await ledger.begin_call("a", entry(at=NOON), asks(900))).admitted
    assert (await ledger.begin_call("b", entry(at=NOON + 1), asks(200))).wait_s == 59
    await ledger.settle_call("a", entry(cost="1", tokens=700))
    assert (await ledger.begin_call("b", entry(at=NOON + 1), asks(200))).admitted
    await ledger.settle_call("b", None)
    late = await ledger.begin_call("c", entry(at=NOON + 61), asks(5000))
    assert late.admitted, "one that is larger than the limit goes alone"


async def test_another_model_has_a_pace_of_its_own(ledger: SqliteLedger):
    pace = CallHold(pace=RateLimits(concurrency=1))
    await ledger.begin_call("a", entry(), pace)
    other = LedgerEntry(
        at=NOON,
        project="/a",
        worker="w1",
        provider="glm",
        backend="zai",
        model="glm-5",
        usage=Usage(),
        cost_usd=None,
        source="gateway",
    )
    assert (await ledger.begin_call("b", other, pace)).admitted


@pytest.mark.parametrize("steps", [1, 2])
async def test_an_older_ledger_is_added_up_from_its_first_call(tmp_path: Path, steps: int):
    path = tmp_path / "ledger.db"
    old = connect(path, Schema(steps=SCHEMA.steps[:steps], probe="SELECT 1"))
    old.execute(
        "INSERT INTO calls (at, project, worker, provider, backend, model, input, output, cache_read,"
        " cache_write, reasoning, cost_usd, source, status)"
        " VALUES (?, '/a', 'w1', 'glm', 'zai', 'glm-4', 1, 1, 0, 0, 0, '0.75', 'gateway', 200)",
        (NOON,),
    )
    old.close()
    async with SqliteLedger.open(path) as ledger:
        assert ledger.warnings == ()
        for standing in await ledger.standings([DAY, TASK, PROJECT], "/a"):
            assert standing.spent_usd == Decimal("0.75")
        assert not (await ledger.begin_call("a", entry(), hold("0.3", DAY))).admitted
        assert await ledger.begin_call("a", entry()) == Admission()
