"""What earlier tasks took, in a file that daemons share."""

import sqlite3
from decimal import Decimal
from pathlib import Path

import pytest
from msgspec.structs import replace

from goent.domain.task_profile import TaskGrade, TaskSample
from goent.domain.types import Usage
from goent.providers.track_record import HISTORY_SCHEMA, KEPT_TASKS, SqliteHistory
from goent.store.sqlite import Schema, connect

pytestmark = pytest.mark.anyio

SAMPLE = TaskSample(
    at=1.5,
    provider="glm",
    backend="moonshot",
    model="glm-4",
    method="acp",
    type="fix",
    complexity="simple",
    size=12.5,
    cost_usd=Decimal("0.0123"),
    usage=Usage(input=1, output=2, cache_read=3, cache_write=4, reasoning=5),
    seconds=7.25,
    state="completed",
    evidence="verified",
    failure="verify_failed",
)
OLD = (
    "at, provider, backend, model, method, type, complexity, size, cost_usd, input, output,"
    " cache_read, cache_write, reasoning, seconds, state"
)


async def test_what_one_daemon_adds_another_reads(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    async with SqliteHistory.open(path) as one, SqliteHistory.open(path) as other:
        assert await other.recent() == ()
        await one.add(SAMPLE)
        first = await other.recent()
        assert first == (SAMPLE,)
        assert await other.recent() is first, "nothing new: nothing is read"
        await one.add(replace(SAMPLE, cost_usd=None))
        newest, _ = await other.recent()
        assert newest.cost_usd is None


async def test_a_file_of_an_older_version_is_read_and_written_on_by_both(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    older = connect(path, Schema(steps=HISTORY_SCHEMA.steps[:1], probe=HISTORY_SCHEMA.probe))
    row = "2.5, 'glm', 'moonshot', 'glm-4', 'acp', 'fix', 'simple', 1, '0.5', 1, 2, 3, 4, 5, 9, 'failed'"
    older.execute(f"INSERT INTO tasks ({OLD}) VALUES ({row})")
    async with SqliteHistory.open(path) as history:
        await history.add(SAMPLE)
        older.execute(f"INSERT INTO tasks ({OLD}) VALUES ({row})")  # it is still running
        newest, middle, oldest = await history.recent()
    older.close()
    assert middle == SAMPLE
    assert newest == oldest and (oldest.state, oldest.at) == ("failed", 2.5)
    assert (oldest.evidence, oldest.failure) == (None, None)


async def test_a_verdict_that_changes_is_read_and_keeps_its_place_in_time(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    older, newer = (replace(SAMPLE, place=place, graded=True) for place in ("older", "newer"))
    refuted = replace(older, state="failed", evidence="refuted", failure=None)
    async with SqliteHistory.open(path) as one, SqliteHistory.open(path) as other:
        await one.grade(older)
        await one.grade(newer)
        assert await other.recent() == (newer, older)
        await one.grade(refuted)
        assert await other.recent() == (newer, refuted)
        again = TaskGrade(
            place="older", state="completed", evidence="verified", failure=older.failure
        )
        await one.regrade(again)
        assert await other.recent() == (newer, older)
        await one.regrade(replace(again, place="nobody's"))
        assert await other.recent() == (newer, older)


async def test_verdicts_that_change_often_push_no_task_out(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    judged = replace(SAMPLE, place="often", graded=True)
    async with SqliteHistory.open(path) as history:
        await history.grade(judged)
        with sqlite3.connect(path) as sql:
            sql.execute(
                f"INSERT INTO tasks ({OLD}) WITH RECURSIVE n(i) AS (VALUES (2) UNION ALL"
                f" SELECT i + 1 FROM n WHERE i < {KEPT_TASKS}) SELECT {OLD} FROM n, tasks WHERE id = 1"
            )
        for evidence in ("refuted", "verified") * 5:
            await history.grade(replace(judged, evidence=evidence))
        await history.add(SAMPLE)
        counted = sql.execute("SELECT count(*), min(id) FROM tasks").fetchone()
        sql.close()
    assert counted == (KEPT_TASKS, 2), "the oldest alone is gone"


async def test_a_row_of_a_kind_that_is_not_known_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    async with SqliteHistory.open(path) as history:
        await history.add(SAMPLE)
        await history.add(SAMPLE)
        with sqlite3.connect(path) as sql:
            sql.execute("UPDATE tasks SET type = 'dream' WHERE id = 1")
        sql.close()
        assert await history.recent() == (SAMPLE,)


async def test_a_damaged_file_is_put_aside(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    path.write_bytes(b"no database at all, but long enough to be read as one" * 40)
    async with SqliteHistory.open(path) as history:
        assert history.warnings and await history.recent() == ()
