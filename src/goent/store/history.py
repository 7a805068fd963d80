"""What did this user's earlier tasks take and come to, in all projects? One SQLite file that daemons share."""

import logging
import sqlite3
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from goent.domain.errors import EnvironmentTrouble
from goent.domain.forecasts import Judged, Sample
from goent.store.sqlite import Schema
from goent.store.thread import Store, open_store

log = logging.getLogger(__name__)

SCHEMA: Final = Schema(
    steps=(
        (
            """CREATE TABLE tasks (
                id INTEGER PRIMARY KEY, at REAL NOT NULL, provider TEXT NOT NULL,
                backend TEXT NOT NULL, model TEXT NOT NULL, method TEXT NOT NULL,
                type TEXT NOT NULL, complexity TEXT NOT NULL, size REAL NOT NULL,
                cost_usd TEXT, input INTEGER NOT NULL, output INTEGER NOT NULL,
                cache_read INTEGER NOT NULL, cache_write INTEGER NOT NULL,
                reasoning INTEGER NOT NULL, seconds REAL NOT NULL, state TEXT NOT NULL)""",
        ),
        (
            "ALTER TABLE tasks ADD COLUMN evidence TEXT",
            "ALTER TABLE tasks ADD COLUMN failure TEXT",
        ),
        (
            "ALTER TABLE tasks ADD COLUMN place TEXT",
            "ALTER TABLE tasks ADD COLUMN graded INTEGER NOT NULL DEFAULT 0",
            "CREATE UNIQUE INDEX tasks_place ON tasks (place)",
        ),
    ),
    probe="SELECT * FROM tasks ORDER BY id DESC LIMIT 1",
)
RECENT: Final = 2_000  # tasks that a forecast looks at: prices and models change
KEPT: Final = 20_000


class SqliteHistory:
    """The port `History` on SQLite. `warnings` tells what opening it had to mend."""

    def __init__(self, store: Store) -> None:
        self.warnings = store.warnings
        self._store = store
        self._last = -1
        self._recent: Sequence[Sample] = ()

    @classmethod
    @asynccontextmanager
    async def open(cls, path: Path) -> "AsyncGenerator[SqliteHistory]":
        """Open the file, or a new one if it is missing or damaged."""
        async with open_store(path, SCHEMA) as store:
            yield cls(store)

    async def add(self, sample: Sample) -> None:
        try:
            await self._store.writer.run(partial(_add, sample=sample))
        except EnvironmentTrouble as trouble:
            log.warning("what a task took is not kept for forecasts: %s", trouble)

    async def judge(self, sample: Sample) -> None:
        try:
            await self._store.writer.run(partial(_judge, sample=sample))
        except EnvironmentTrouble as trouble:
            log.warning("what an evaluation showed is not kept for routing: %s", trouble)

    async def correct(self, judged: Judged) -> None:
        try:
            await self._store.writer.run(partial(_correct, judged=judged))
        except EnvironmentTrouble as trouble:
            log.warning("what an evaluation showed is not corrected for routing: %s", trouble)

    async def recent(self) -> Sequence[Sample]:
        try:
            self._last, self._recent = await self._store.reader.run(
                partial(_read, last=self._last, before=self._recent)
            )
        except EnvironmentTrouble as trouble:
            log.warning("forecasts do without new tasks: %s", trouble)
        return self._recent


def _add(sql: sqlite3.Connection, *, sample: Sample) -> None:
    usage = sample.usage
    cost = None if sample.cost_usd is None else str(sample.cost_usd)
    sql.execute(
        # One that was graded meanwhile stays as it was graded.
        "INSERT OR IGNORE INTO tasks (at, provider, backend, model, method, type, complexity, size, cost_usd,"
        " input, output, cache_read, cache_write, reasoning, seconds, state, evidence, failure, place,"
        " graded) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *(sample.at, sample.provider, sample.backend, sample.model, sample.method),
            *(sample.type, sample.complexity, sample.size, cost),
            *(usage.input, usage.output, usage.cache_read, usage.cache_write, usage.reasoning),
            *(sample.seconds, sample.state, sample.evidence, sample.failure),
            *(sample.place or None, sample.graded),
        ),
    )
    sql.execute(
        "DELETE FROM tasks WHERE id <= (SELECT id FROM tasks ORDER BY id DESC LIMIT 1 OFFSET ?)",
        (KEPT,),
    )


def _judge(sql: sqlite3.Connection, *, sample: Sample) -> None:
    """What the worker took is known better by whoever ran it: only the judgement is exchanged."""
    _add(sql, sample=sample)
    _correct(sql, judged=sample)


def _correct(sql: sqlite3.Connection, *, judged: Judged | Sample) -> None:
    """It keeps its number, for that is its place in time."""
    verdict = (judged.state, judged.evidence, judged.failure)
    sql.execute(
        "UPDATE tasks SET state = ?, evidence = ?, failure = ?, graded = 1"
        " WHERE place = ? AND (state, evidence, failure, graded) IS NOT (?, ?, ?, 1)",
        (*verdict, judged.place, *verdict),
    )


def _read(
    sql: sqlite3.Connection, *, last: int, before: Sequence[Sample]
) -> tuple[int, Sequence[Sample]]:
    # Another number whenever another connection has changed the file; this one only reads.
    (newest,) = sql.execute("PRAGMA data_version").fetchone()
    if newest == last:
        return last, before
    rows = sql.execute(
        "SELECT at, provider, backend, model, method, type, complexity, size, cost_usd, seconds,"
        " state, evidence, failure, place, graded, input, output, cache_read, cache_write, reasoning"
        " FROM tasks ORDER BY id DESC LIMIT ?",
        (RECENT,),
    )
    return newest, tuple(_samples(rows))


def _samples(rows: Iterable[Sequence[object]]) -> Iterator[Sample]:
    for row in rows:
        with suppress(msgspec.ValidationError):  # written by a version that knows more kinds
            yield _sample(row)


def _sample(row: Sequence[object]) -> Sample:
    names = ("at", "provider", "backend", "model", "method", "type", "complexity", "size")
    counts = ("input", "output", "cache_read", "cache_write", "reasoning")
    return msgspec.convert(
        {
            **dict(zip(names, row[:8], strict=True)),
            "cost_usd": None if row[8] is None else Decimal(str(row[8])),
            "seconds": row[9],
            "state": row[10],
            "evidence": row[11],
            "failure": row[12],
            "place": row[13] or "",
            "graded": bool(row[14]),
            "usage": dict(zip(counts, row[15:], strict=True)),
        },
        Sample,
    )
