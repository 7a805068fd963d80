import sys
from decimal import Decimal
from pathlib import Path

import anyio
import pytest

from goent.domain.money import CostRow, Ledger, LedgerEntry
from goent.domain.types import Usage
from goent.store.ledger_store import SCHEMA, SqliteLedger
from goent.store.sqlite import Schema, connect

pytestmark = pytest.mark.anyio

DAY = 86_400.0
WRITER = """
import sys, anyio
from decimal import Decimal
from pathlib import Path
from goent.domain.money import LedgerEntry
from goent.domain.types import Usage
from goent.store.ledger_store import SqliteLedger

async def main():
    async with SqliteLedger.open(Path(sys.argv[1])) as ledger:
        for n in range(200):
            await ledger.add(LedgerEntry(
                at=float(n), project="p", worker=sys.argv[2], provider="glm", backend="zai",
                model="m", usage=Usage(input=1), cost_usd=Decimal("0.1"), source="gateway"))

anyio.run(main)
"""


def entry(
    *, at: float = 0.0, worker: str = "w1", provider: str = "glm", cost: str | None = "0.1"
) -> LedgerEntry:
    return LedgerEntry(
        at=at,
        project="/a" if worker == "w1" else "/b",
        worker=worker,
        provider=provider,
        backend="zai",
        model=f"{provider}-model",
        usage=Usage(input=1, output=2, cache_read=3, cache_write=4, reasoning=5),
        cost_usd=None if cost is None else Decimal(cost),
        source="gateway",
    )


@pytest.mark.spec("P34")
async def test_money_is_added_exactly(tmp_path: Path):
    async with SqliteLedger.open(tmp_path / "ledger.db") as opened:
        ledger: Ledger = opened
        for _ in range(3):
            await ledger.add(entry())
        assert await ledger.report(by="provider") == [
            CostRow(
                key="glm",
                calls=3,
                usage=Usage(input=3, output=6, cache_read=9, cache_write=12, reasoning=15),
                cost_usd=Decimal("0.3"),
                known_usd=Decimal("0.3"),
            )
        ]


@pytest.mark.spec("P33", "P34")
async def test_one_unknown_price_makes_the_sum_unknown_but_not_the_known_part(tmp_path: Path):
    async with SqliteLedger.open(tmp_path / "ledger.db") as ledger:
        await ledger.add(entry(cost="0.25"))
        await ledger.add(entry(cost=None))
        await ledger.add(entry(provider="kimi", cost="0"))
        glm, kimi = await ledger.report(by="provider")
    assert (glm.cost_usd, glm.known_usd, glm.unknown_calls) == (None, Decimal("0.25"), 1)
    assert (kimi.cost_usd, kimi.unknown_calls) == (Decimal(0), 0)


@pytest.mark.spec("P34")
async def test_it_reports_by_model_worker_and_utc_day_and_for_one_project(tmp_path: Path):
    async with SqliteLedger.open(tmp_path / "ledger.db") as ledger:
        await ledger.add(entry(at=DAY - 0.5))
        await ledger.add(entry(at=DAY, worker="w2", provider="kimi"))
        assert [r.key for r in await ledger.report(by="day")] == ["1970-01-01", "1970-01-02"]
        assert [r.key for r in await ledger.report(by="model")] == ["glm-model", "kimi-model"]
        assert [r.key for r in await ledger.report(by="worker")] == ["w1", "w2"]
        assert [r.key for r in await ledger.report(by="worker", project="/b")] == ["w2"]
        assert await ledger.report(by="day", project="/nowhere") == []


@pytest.mark.spec("P34")
async def test_daemons_that_write_at_once_lose_nothing(tmp_path: Path):
    path = tmp_path / "state" / "ledger.db"
    async with anyio.create_task_group() as tasks:
        for worker in ("w1", "w2"):
            tasks.start_soon(_write, path, worker)
    async with SqliteLedger.open(path) as ledger:
        rows = await ledger.report(by="worker")
    assert [(r.key, r.calls, r.cost_usd) for r in rows] == [
        ("w1", 200, Decimal("20.0")),
        ("w2", 200, Decimal("20.0")),
    ]


@pytest.mark.spec("P34")
async def test_a_call_under_way_is_in_no_report_until_it_is_settled(tmp_path: Path):
    async with SqliteLedger.open(tmp_path / "ledger.db") as ledger:
        await ledger.begin_call("call-1", entry(cost=None))
        await ledger.begin_call("call-2", entry(cost=None))
        assert await ledger.report(by="worker") == []
        await ledger.settle_call("call-1", entry(cost="0.25"))
        await ledger.settle_call("call-2", None)
        (row,) = await ledger.report(by="worker")
        assert (row.calls, row.cost_usd) == (1, Decimal("0.25"))
        assert await ledger.settle_lost("/a") == []


@pytest.mark.spec("P25", "P34")
async def test_what_a_dead_project_never_settled_is_of_unknown_cost(tmp_path: Path):
    path = tmp_path / "ledger.db"
    async with SqliteLedger.open(path) as ledger:
        await ledger.begin_call("call-1", entry(at=7.0, cost=None))
        await ledger.begin_call("call-2", entry(worker="w2", cost=None))
    async with SqliteLedger.open(path) as ledger:
        (lost,) = await ledger.settle_lost("/a")
        assert (lost.at, lost.worker, lost.source, lost.cost_usd) == (7.0, "w1", "unknown", None)
        assert await ledger.settle_lost("/a") == [], "entered once"
        (row,) = await ledger.report(by="worker")
        assert (row.key, row.calls, row.cost_usd, row.unknown_calls) == ("w1", 1, None, 1)
        await ledger.settle_call("call-2", entry(worker="w2"))
        assert [row.key for row in await ledger.report(by="worker")] == ["w1", "w2"]


async def test_a_ledger_of_the_first_version_is_kept_and_goes_on(tmp_path: Path):
    path = tmp_path / "ledger.db"
    first = Schema(steps=SCHEMA.steps[:1], probe="SELECT 1")
    connect(path, first).close()
    async with SqliteLedger.open(path) as ledger:
        assert ledger.warnings == ()
        await ledger.begin_call("call-1", entry())
        await ledger.settle_call("call-1", entry())
        assert len(await ledger.report(by="day")) == 1


async def test_a_damaged_ledger_is_moved_aside(tmp_path: Path):
    path = tmp_path / "ledger.db"
    path.write_bytes(b"no database at all" * 100)
    async with SqliteLedger.open(path) as ledger:
        assert "a new one was begun" in ledger.warnings[0]
        await ledger.add(entry())
        assert len(await ledger.report(by="day")) == 1


async def _write(path: Path, worker: str) -> None:
    command = [sys.executable, "-c", WRITER, str(path), worker]
    with anyio.fail_after(30):
        await anyio.run_process(command, stderr=None)
