import sqlite3
from functools import partial
from pathlib import Path

import pytest

from goent.domain.errors import EnvironmentTrouble
from goent.store.sqlite import Schema, SqlThread, connect

pytestmark = pytest.mark.anyio

SCHEMA = Schema(steps=(("CREATE TABLE t (x)",),), probe="SELECT * FROM t LIMIT 1")


async def test_a_full_disk_is_named_and_what_was_there_stays(tmp_path: Path):
    path = tmp_path / "full.db"

    def small() -> sqlite3.Connection:
        connection = connect(path, SCHEMA)
        connection.execute("PRAGMA max_page_count = 3")
        return connection

    async with SqlThread.open(path, small, begin="BEGIN IMMEDIATE") as sql:
        await sql.run(partial(_insert, text="kept"))
        with pytest.raises(EnvironmentTrouble, match=r"full\.db.*free some space"):
            await sql.run(partial(_insert, text="x" * 20_000))
        await sql.run(partial(_insert, text="also kept"))
        assert await sql.run(_read) == ["kept", "also kept"]


async def test_a_file_that_cannot_be_written_is_named(tmp_path: Path):
    path = tmp_path / "ro.db"

    def read_only() -> sqlite3.Connection:
        connect(path, SCHEMA).close()
        return sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)

    async with SqlThread.open(path, read_only, begin="BEGIN") as sql:
        with pytest.raises(EnvironmentTrouble, match=r"ro\.db.*owner and mode"):
            await sql.run(partial(_insert, text="x"))


async def test_a_fault_in_one_job_leaves_the_thread_at_work(tmp_path: Path):
    path = tmp_path / "t.db"
    async with SqlThread.open(path, partial(connect, path, SCHEMA), begin="BEGIN") as sql:
        with pytest.raises(ZeroDivisionError):
            await sql.run(lambda _: 1 // 0)
        with pytest.raises(EnvironmentTrouble, match="no such table"):
            await sql.run(lambda c: c.execute("SELECT * FROM nowhere"))
        assert await sql.run(_read) == []


def _insert(sql: sqlite3.Connection, *, text: str) -> None:
    sql.execute("INSERT INTO t VALUES (?)", (text,))


def _read(sql: sqlite3.Connection) -> list[str]:
    return [str(x) for (x,) in sql.execute("SELECT x FROM t")]
