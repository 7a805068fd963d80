"""A disk that refuses, a file that another process holds, a death in mid-commit: nothing is lost."""

import os
import resource
import signal
import sqlite3
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path

import anyio
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream
from samples import SPAWNED

from goent.domain.errors import EnvironmentTrouble
from goent.domain.events import AnyEvent, EventEnvelope, TextDelta, WorkerClosed
from goent.domain.money import LedgerEntry
from goent.domain.types import Usage
from goent.store import sqlite
from goent.store.journal_store import SqliteJournal
from goent.store.ledger_store import SqliteLedger
from goent.workers.feed import Feed

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

BATCH = 7
WRITER = f"""
import sys, anyio
from pathlib import Path
from goent.domain.events import TextDelta
from goent.store.journal_store import SqliteJournal
async def main():
    async with SqliteJournal.open(Path(sys.argv[1])) as journal:
        while True:
            batch = [("w", 1.0, TextDelta(text="x" * 3000))] * {BATCH}
            last = (await journal.append(batch))[-1]
            print(last.seq, flush=True)
anyio.run(main)
"""


@contextmanager
def a_full_disk(path: Path) -> Generator[None]:
    """No file of this process may grow beyond what the log of the database has now."""
    size = path.with_name(f"{path.name}-wal").stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_the_feed_keeps_what_a_full_disk_refuses_and_says_so(tmp_path: Path):
    path = tmp_path / "journal.db"
    words = [f"word {n}" for n in range(100)]
    async with SqliteJournal.open(path) as journal, anyio.create_task_group() as group:
        feed = Feed(journal)
        group.start_soon(feed.run)
        await feed.append("w", SPAWNED)
        await feed.commit()
        with a_full_disk(path):
            for number, word in enumerate(words):
                await feed.append("w", TextDelta(text=word, message=str(number)))
            with pytest.raises(EnvironmentTrouble, match=r"journal\.db.*full"):
                await feed.commit()
            assert len(await feed.events()) == 1, "what is not stored is not shown"
        await feed.append("w", WorkerClosed(reason="done"))
        with anyio.fail_after(10):
            await feed.commit()
        said = [envelope.event for envelope in await feed.events()]
        assert [event.text for event in said if isinstance(event, TextDelta)] == words
        group.cancel_scope.cancel()


class _Lagging:
    """A journal whose commit is on the disk a while before its writer hears of it."""

    def __init__(self, journal: SqliteJournal) -> None:
        self._journal = journal
        self.committed = anyio.Event()
        self.heard = anyio.Event()
        self.read, self.workers, self.swarms = journal.read, journal.workers, journal.swarms

    async def append(self, batch: Sequence[tuple[str, float, AnyEvent]]) -> list[EventEnvelope]:
        stored = await self._journal.append(batch)
        self.committed.set()
        await self.heard.wait()
        return stored


async def test_no_reader_knows_more_than_the_views(tmp_path: Path):
    """A client that sees an event may ask for the result at once, and must get what it saw."""
    async with SqliteJournal.open(tmp_path / "journal.db") as real:
        journal = _Lagging(real)
        feed = Feed(journal)
        seen: list[str] = []
        told = anyio.Event()

        async def read() -> None:
            await feed.events(worker="w")
            seen.append(feed.view("w").state)
            told.set()

        async with anyio.create_task_group() as group:
            group.start_soon(feed.run)
            await feed.append("w", SPAWNED)
            await journal.committed.wait()
            group.start_soon(read)
            await anyio.wait_all_tasks_blocked()
            assert seen == []
            journal.heard.set()
            with anyio.fail_after(10):
                await told.wait()
            group.cancel_scope.cancel()
        assert seen == ["starting"]


def a_call(number: int) -> LedgerEntry:
    return LedgerEntry(
        at=float(number),
        project="p",
        worker="w",
        provider="glm",
        backend="moonshot",
        model="glm-4",
        usage=Usage(input=1),
        cost_usd=Decimal(1),
        source="gateway",
        status=200,
    )


async def test_the_ledger_keeps_what_a_full_disk_refuses(tmp_path: Path):
    path = tmp_path / "ledger.db"
    async with SqliteLedger.open(path) as ledger:
        await ledger.add(a_call(1))
        with a_full_disk(path):
            await ledger.add(a_call(2))
            await ledger.add(a_call(3))
            assert [row.calls for row in await ledger.report(by="model")] == [1]
        with anyio.fail_after(10):
            while _calls(path) < 3:  # noqa: ASYNC110 (it is stored without being asked again)
                await anyio.sleep(0.05)
        (row,) = await ledger.report(by="model")
        assert (row.calls, row.cost_usd) == (3, Decimal(3))


async def test_what_waits_for_the_ledger_is_stored_at_the_end(tmp_path: Path):
    path = tmp_path / "ledger.db"
    async with SqliteLedger.open(path) as ledger:
        await ledger.add(a_call(1))
        with a_full_disk(path):
            await ledger.add(a_call(2))
    assert _calls(path) == 2


def _calls(path: Path) -> int:
    with sqlite3.connect(path) as other:
        (calls,) = other.execute("SELECT count(*) FROM calls").fetchone()
    other.close()
    return int(calls)


async def test_a_file_that_another_process_holds_is_named_and_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sqlite, "BUSY_S", 0.2)
    path = tmp_path / "journal.db"
    async with SqliteJournal.open(path) as journal:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(EnvironmentTrouble, match=r"journal\.db.*another process"):
            await journal.append([("w", 1.0, TextDelta(text="a"))])
        assert await journal.read() == [], "and it can still be read"
        other.execute("ROLLBACK")
        other.close()
        await journal.append([("w", 1.0, TextDelta(text="a"))])
        assert len(await journal.read()) == 1


@pytest.mark.parametrize("commits", [1, 20])
async def test_a_death_in_mid_commit_leaves_whole_batches(tmp_path: Path, commits: int):
    path = tmp_path / "journal.db"
    async with await anyio.open_process(
        [sys.executable, "-c", WRITER, str(path)], stdout=-1, stderr=None
    ) as writer:
        assert writer.stdout
        output = BufferedByteReceiveStream(writer.stdout)
        told = 0
        with anyio.fail_after(30):
            for _ in range(commits):
                told = int(await output.receive_until(b"\n", 100))
        os.kill(writer.pid, signal.SIGKILL)  # it is at the next one
        await writer.wait()
    async with SqliteJournal.open(path) as journal:
        kept = await journal.read(limit=100_000)
        assert journal.warnings == ()
    assert [envelope.seq for envelope in kept] == list(range(1, len(kept) + 1))
    assert len(kept) >= told and len(kept) % BATCH == 0
