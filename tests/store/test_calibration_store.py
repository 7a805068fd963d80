"""Lessons about tokenizers outlive the daemon, are shared, and never break a call."""

import sqlite3
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from goent.billing.token_estimate import MIN_SAMPLES
from goent.providers.track_record import SqliteCalibrations

pytestmark = pytest.mark.anyio


def ask(path: Path, question: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path, timeout=5, isolation_level=None)) as sql:
        return sql.execute(question).fetchall()


async def teach(calibrations: SqliteCalibrations, times: int, model: str = "glm-4.7") -> None:
    for _ in range(times):
        await calibrations.learn("zai", model, estimated=1000, actual=1300)


async def test_a_lesson_is_kept_for_the_next_daemon(tmp_path: Path):
    path = tmp_path / "calibration.db"
    async with SqliteCalibrations.open(path) as calibrations:
        await teach(calibrations, MIN_SAMPLES)
        assert calibrations.corrected("zai", "glm-4.7", 1000) == 1300
    async with SqliteCalibrations.open(path) as calibrations:
        assert calibrations.corrected("zai", "glm-4.7", 1000) == 1300


async def test_each_model_is_learned_by_itself(tmp_path: Path):
    async with SqliteCalibrations.open(tmp_path / "calibration.db") as calibrations:
        await teach(calibrations, MIN_SAMPLES)
        assert calibrations.corrected("zai", "glm-5.3", 1000) == 1000
        assert calibrations.corrected("openrouter", "glm-4.7", 1000) == 1000


async def test_two_daemons_learn_together(tmp_path: Path):
    path = tmp_path / "calibration.db"
    async with (
        SqliteCalibrations.open(path) as one,
        SqliteCalibrations.open(path) as other,
        anyio.create_task_group() as group,
    ):
        group.start_soon(teach, one, 10)
        group.start_soon(teach, other, 10)
    assert ask(path, "SELECT samples FROM calibration") == [(20,)]


async def test_what_tells_nothing_is_not_written(tmp_path: Path):
    path = tmp_path / "calibration.db"
    async with SqliteCalibrations.open(path) as calibrations:
        await calibrations.learn("zai", "glm-4.7", estimated=1000, actual=10**9)
        await calibrations.learn("zai", "glm-4.7", estimated=3, actual=4)
    assert ask(path, "SELECT * FROM calibration") == []


async def test_a_file_that_refuses_keeps_the_lesson_in_memory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    path = tmp_path / "calibration.db"
    async with SqliteCalibrations.open(path) as calibrations:
        refusal = "BEFORE INSERT ON calibration BEGIN SELECT RAISE(ABORT, 'no'); END"
        ask(path, f"CREATE TRIGGER refusal {refusal}")
        await teach(calibrations, MIN_SAMPLES)
        assert calibrations.corrected("zai", "glm-4.7", 1000) == 1300
    assert "is not stored" in caplog.text


async def test_a_damaged_file_is_put_aside(tmp_path: Path):
    path = tmp_path / "calibration.db"
    path.write_bytes(b"no database at all" * 100)
    async with SqliteCalibrations.open(path) as calibrations:
        assert calibrations.warnings
        await teach(calibrations, MIN_SAMPLES)
        assert calibrations.corrected("zai", "glm-4.7", 1000) == 1300
