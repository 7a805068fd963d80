import os
import signal
import sqlite3
import stat
import sys
from decimal import Decimal
from pathlib import Path

import anyio
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream
from samples import SPAWNED

from goent.domain.errors import EnvironmentTrouble
from goent.domain.events import TextDelta, TurnStarted, UsageReported, WorkerClosed
from goent.domain.ports import Journal
from goent.domain.types import Usage
from goent.store.journal_store import SqliteJournal

pytestmark = pytest.mark.anyio

USED = UsageReported(
    provider="glm",
    model="glm-4.7",
    usage=Usage(input=3, output=4),
    cost_usd=Decimal("0.000362"),
    source="gateway",
)
WRITER = """
import sys, anyio
from pathlib import Path
from goent.domain.events import TextDelta
from goent.store.journal_store import SqliteJournal

async def main():
    async with SqliteJournal.open(Path(sys.argv[1])) as journal:
        for n in range(5):
            await journal.append([("w", float(n), TextDelta(text=f"{n}-{i}")) for i in range(100)])
        print("committed", flush=True)
        await anyio.sleep(60)

anyio.run(main)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "journal.db"


async def test_what_was_appended_comes_back_stamped_and_in_order(path: Path):
    async with SqliteJournal.open(path) as opened:
        journal: Journal = opened
        stamped = await journal.append([("w1", 1.5, SPAWNED), ("w2", 2.5, USED)])
        assert [(e.seq, e.at, e.worker) for e in stamped] == [(1, 1.5, "w1"), (2, 2.5, "w2")]
        assert await journal.read() == stamped
        assert await journal.append([]) == []
    async with SqliteJournal.open(path) as journal:
        assert await journal.read() == stamped
        (later,) = await journal.append([("w1", 3.0, WorkerClosed(reason="done"))])
        assert later.seq == 3


async def test_a_reader_goes_on_from_its_cursor(path: Path):
    async with SqliteJournal.open(path) as journal:
        batch = [(f"w{n % 2}", float(n), TextDelta(text=str(n))) for n in range(10)]
        await journal.append(batch)
        first = await journal.read(worker="w1", limit=2)
        assert [e.seq for e in first] == [2, 4]
        rest = await journal.read(worker="w1", after=first[-1].seq)
        assert [e.seq for e in rest] == [6, 8, 10]
        assert await journal.read(after=10) == []
        assert await journal.read(limit=0) == []


async def test_appends_that_wait_together_share_a_commit(path: Path):
    async with SqliteJournal.open(path) as journal:
        before = journal.commits
        async with anyio.create_task_group() as tasks:
            for n in range(200):
                tasks.start_soon(journal.append, [("w", float(n), TextDelta(text=str(n)))])
        assert journal.commits - before < 50
        envelopes = await journal.read()
    assert [e.seq for e in envelopes] == list(range(1, 201))
    assert len({e.at for e in envelopes}) == 200


async def test_a_cancelled_append_is_stored_whole_or_not_at_all(path: Path):
    async with SqliteJournal.open(path) as journal:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await journal.append([("w", 1.0, TextDelta(text="a")), ("w", 1.0, TextDelta(text="b"))])
        assert len(await journal.read()) in (0, 2)
        await journal.append([("w", 2.0, TextDelta(text="c"))])


async def test_what_was_committed_survives_kill_9(path: Path):
    async with await anyio.open_process(
        [sys.executable, "-c", WRITER, str(path)], stdout=-1, stderr=None
    ) as writer:
        assert writer.stdout
        with anyio.fail_after(20):
            await BufferedByteReceiveStream(writer.stdout).receive_until(b"committed", 100)
        os.kill(writer.pid, signal.SIGKILL)
        await writer.wait()
    async with SqliteJournal.open(path) as journal:
        assert len(await journal.read()) == 500
        assert journal.warnings == ()


async def test_an_event_of_a_newer_version_is_passed_over(path: Path):
    async with SqliteJournal.open(path) as journal:
        await journal.append([("w", 1.0, TextDelta(text="old"))])
    _execute(path, "INSERT INTO events (at, worker, type, body) VALUES (2, 'w', 'New', ?)")
    async with SqliteJournal.open(path) as journal:
        await journal.append([("w", 3.0, TextDelta(text="after"))])
        assert [e.seq for e in await journal.read(limit=2)] == [1, 3]


async def test_the_newest_workers_and_all_that_are_open_are_listed(path: Path):
    async with SqliteJournal.open(path) as journal:
        for n in range(6):
            await journal.append([(f"w{n}", float(n), SPAWNED)])
        closed = WorkerClosed(reason="done")
        await journal.append([(f"w{n}", 9.0, closed) for n in (1, 2, 4, 5)])
        assert await journal.workers(limit=2) == ["w5", "w4", "w3", "w0"]
        assert await journal.workers() == ["w5", "w4", "w3", "w2", "w1", "w0"]


async def test_only_the_user_can_read_it(path: Path):
    async with SqliteJournal.open(path) as journal:
        await journal.append([("w", 1.0, TextDelta(text="x"))])
        for file in path.parent.iterdir():
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("damage", [b"this is no database, but long enough" * 200, None])
async def test_a_damaged_file_is_moved_aside(path: Path, damage: bytes | None):
    async with SqliteJournal.open(path) as journal:
        await journal.append([("w", float(n), TextDelta(text="x" * 500)) for n in range(100)])
    content = _damage(path, damage)
    async with SqliteJournal.open(path) as journal:
        (warning,) = journal.warnings
        await journal.append([("w", 1.0, TextDelta(text="new"))])
        assert len(await journal.read()) == 1
    (aside,) = path.parent.glob("journal.db.corrupt-*")
    assert str(aside) in warning
    assert aside.read_bytes() == content


async def test_a_newer_schema_is_refused_with_the_remedy(path: Path):
    async with SqliteJournal.open(path):
        pass
    _execute(path, "PRAGMA user_version = 99")
    with pytest.raises(EnvironmentTrouble, match=r"schema 99.*upgrade"):
        async with SqliteJournal.open(path):
            pass


async def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentTrouble, match=r"file/sub/journal\.db"):
        async with SqliteJournal.open(tmp_path / "file" / "sub" / "journal.db"):
            pass


async def test_held_keys_are_neither_stored_nor_shown(path: Path):
    key = 'held"key\\0123456789'
    async with SqliteJournal.open(path, secrets=lambda: [key]) as journal:
        shown = await journal.append([("w", 1.0, TurnStarted(turn=1, prompt=f"use {key} now"))])
        assert shown[0].event == TurnStarted(turn=1, prompt="use [redacted] now")
        assert await journal.read() == shown
        assert b"0123456789" not in b"".join(f.read_bytes() for f in path.parent.iterdir())


async def test_a_key_that_is_one_of_our_words_does_not_spoil_the_grammar(path: Path):
    async with SqliteJournal.open(path, secrets=lambda: ["WorkerSpawned"]) as journal:
        stored = await journal.append([("w", 1.0, SPAWNED)])
        assert await journal.read() == stored


async def test_a_closed_journal_says_so(path: Path):
    async with SqliteJournal.open(path) as journal:
        pass
    with pytest.raises(EnvironmentTrouble, match="closed"):
        await journal.append([("w", 1.0, USED)])


def _damage(path: Path, content: bytes | None) -> bytes:
    content = content or path.read_bytes()[:4096] + b"\0" * 40_000
    path.write_bytes(content)
    return content


def _execute(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path)
    values = ('{"type":"New","x":1}',) if "?" in statement else ()
    with connection:
        connection.execute(statement, values)
    connection.close()
