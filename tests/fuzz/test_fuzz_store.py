"""Journal and ledger, when the disk gives back other bytes than it was given."""

import logging
import random
import sqlite3
from collections.abc import Callable, Coroutine
from decimal import Decimal
from pathlib import Path

import anyio
import pytest
from mutation import rounds
from samples import SPAWNED

from goent.domain.errors import EnvironmentTrouble
from goent.domain.events import (
    AnyEvent,
    TextDelta,
    TurnEnded,
    TurnStarted,
    UsageReported,
    WorkerClosed,
)
from goent.domain.money import LedgerEntry
from goent.domain.types import Usage
from goent.store.journal_store import SqliteJournal
from goent.store.ledger_store import SqliteLedger
from goent.workers.feed import Feed
from goent.workers.views import worker_line, worker_status
from goent.workers.worker_report import worker_result

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

SPENT = UsageReported(
    provider="glm", model="glm-4", usage=Usage(input=5), cost_usd=Decimal("0.1"), source="gateway"
)
LIFE: list[AnyEvent] = [
    SPAWNED,
    TurnStarted(turn=1, prompt="t"),
    *(TextDelta(text=f"word {n} " * 20, message="m") for n in range(20)),
    SPENT,
    TurnEnded(turn=1, state="completed"),
    WorkerClosed(reason="done"),
]


async def write_journal(path: Path) -> None:
    async with SqliteJournal.open(path) as journal:
        for worker in ("w-1", "w-2", "w-3"):
            await journal.append([(worker, 1000.0, event) for event in LIFE])


async def read_journal(path: Path) -> None:
    """As a daemon does when it starts, and when it is asked."""
    async with SqliteJournal.open(path) as journal, anyio.create_task_group() as tasks:
        feed = Feed(journal)
        await feed.load()
        for worker, view in feed.views.items():
            assert (worker_status(view).worker_id, worker_line(view).worker_id) == (worker, worker)
            worker_result(view, await feed.events(worker=worker))
        tasks.start_soon(feed.run)
        await feed.append("w-new", SPAWNED)
        await feed.commit()
        assert feed.view("w-new").seq == feed.seq
        tasks.cancel_scope.cancel()


async def write_ledger(path: Path) -> None:
    entry = LedgerEntry(
        at=1000.0,
        project="p",
        worker="w-1",
        provider="glm",
        backend="moonshot",
        model="glm-4",
        usage=Usage(input=5),
        cost_usd=Decimal("0.1"),
        source="gateway",
        status=200,
    )
    async with SqliteLedger.open(path) as ledger:
        for _ in range(50):
            await ledger.add(entry)


async def read_ledger(path: Path) -> None:
    async with SqliteLedger.open(path) as ledger:
        await ledger.report(by="model")
        await ledger.report(by="day", project="p")


def damaged(sound: bytes, chance: random.Random) -> bytes:
    changed = bytearray(sound)
    match chance.randrange(5):
        case 0:
            return bytes(changed[: chance.randrange(len(changed))])
        case 1:
            start = chance.randrange(len(changed))
            changed[start : start + 4096] = chance.randbytes(4096)
        case _:
            used = [place for place, byte in enumerate(changed) if byte]
            for place in chance.sample(used, chance.choice((1, 1, 5, 50))):
                changed[place] ^= 1 << chance.randrange(8)
    return bytes(changed)


async def trouble_with(reading: Coroutine[None, None, None]) -> str:
    """What was said about the file; nothing if it could be read."""
    said = ""
    try:
        with anyio.fail_after(10):
            await reading
    except* EnvironmentTrouble as troubles:
        said = f"{troubles.exceptions[0]} {getattr(troubles.exceptions[0], 'exceptions', '')}"
    return said


@pytest.mark.parametrize(
    ("write", "read"), [(write_journal, read_journal), (write_ledger, read_ledger)]
)
async def test_a_damaged_file_is_read_or_its_trouble_is_named(
    write: Callable[[Path], Coroutine[None, None, None]],
    read: Callable[[Path], Coroutine[None, None, None]],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    good = tmp_path / "good.db"
    await write(good)
    sound = good.read_bytes()
    for number, chance in enumerate(rounds(write.__name__)):
        path = tmp_path / f"{number}.db"
        path.write_bytes(damaged(sound, chance))
        said = await trouble_with(read(path))
        assert not said or (str(path) in said and "bug in go-ent" not in said), said
        for left in tmp_path.glob(f"{number}.db*"):
            left.unlink()
    assert not [record for record in caplog.records if record.exc_info], caplog.text[-3000:]


async def changed_row(path: Path, change: str) -> None:
    await write_journal(path)
    with sqlite3.connect(path) as sql:
        sql.execute(change)
    sql.close()


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE events SET body = '{' WHERE seq = 1",
        "UPDATE events SET body = CAST(x'ff' AS TEXT) WHERE seq = 1",
        "UPDATE events SET body = 5 WHERE seq = 1",
        "UPDATE events SET body = x'7b7d' WHERE seq = 1",
        "UPDATE events SET at = 'never' WHERE worker = 'w-1'",
        "UPDATE events SET at = 1e300 WHERE worker = 'w-1'",
        "UPDATE events SET worker = 7 WHERE seq = 1",
    ],
)
async def test_a_worker_whose_record_is_damaged_keeps_no_other_from_being_read(
    tmp_path: Path, change: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    path = tmp_path / "journal.db"
    await changed_row(path, change)
    await read_journal(path)
    async with SqliteJournal.open(path) as journal:
        feed = Feed(journal)
        await feed.load()
        assert {"w-2", "w-3"} <= feed.views.keys()
