"""What have this user's calls taught about each model's tokenizer? One file that daemons share."""

import logging
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

from goent.domain.errors import EnvironmentTrouble
from goent.llm.calibration import Calibration
from goent.store.sqlite import Schema
from goent.store.thread import Store, open_store

log = logging.getLogger(__name__)

SCHEMA: Final = Schema(
    steps=(
        (
            """CREATE TABLE calibration (
                backend TEXT NOT NULL, model TEXT NOT NULL, factor REAL NOT NULL,
                samples INTEGER NOT NULL, PRIMARY KEY (backend, model)) WITHOUT ROWID""",
        ),
    ),
    probe="SELECT * FROM calibration LIMIT 1",
)
Key = tuple[str, str]


class SqliteCalibrations:
    """The port `Calibrations` on SQLite. `warnings` tells what opening it had to mend."""

    def __init__(self, store: Store, known: dict[Key, Calibration]) -> None:
        self.warnings = store.warnings
        self._store = store
        self._known = known

    @classmethod
    @asynccontextmanager
    async def open(cls, path: Path) -> "AsyncGenerator[SqliteCalibrations]":
        """Open the file, or a new one if it is missing or damaged."""
        async with open_store(path, SCHEMA) as store:
            yield cls(store, await store.reader.run(_read_all))

    def corrected(self, backend: str, model: str, estimated: int) -> int:
        return self._known.get((backend, model), Calibration()).corrected(estimated)

    async def learn(self, backend: str, model: str, *, estimated: int, actual: int) -> None:
        """A disk that refuses costs the lesson's permanence, never the call."""
        key = (backend, model)
        before = self._known.get(key, Calibration())
        if before.after(estimated=estimated, actual=actual) == before:
            return
        try:
            learned = await self._store.writer.run(
                partial(_learn, key=key, estimated=estimated, actual=actual)
            )
        except EnvironmentTrouble as trouble:
            log.warning("what a call taught about %s/%s is not kept: %s", backend, model, trouble)
            learned = before.after(estimated=estimated, actual=actual)
        self._known[key] = learned


def _read_all(sql: sqlite3.Connection) -> dict[Key, Calibration]:
    rows = sql.execute("SELECT backend, model, factor, samples FROM calibration")
    return {
        (backend, model): Calibration(factor=factor, samples=samples)
        for backend, model, factor, samples in rows
    }


def _learn(sql: sqlite3.Connection, *, key: Key, estimated: int, actual: int) -> Calibration:
    """From what the file says now: other daemons learn too."""
    row = sql.execute(
        "SELECT factor, samples FROM calibration WHERE backend = ? AND model = ?", key
    ).fetchone()
    before = Calibration(factor=row[0], samples=row[1]) if row else Calibration()
    learned = before.after(estimated=estimated, actual=actual)
    sql.execute(
        "INSERT OR REPLACE INTO calibration (backend, model, factor, samples) VALUES (?, ?, ?, ?)",
        (*key, learned.factor, learned.samples),
    )
    return learned
