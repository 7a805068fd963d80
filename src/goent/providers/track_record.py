"""Stores what calls and tasks showed: provider health, token calibration, task outcomes.

Decisions read memory. Changes are made inside a transaction, from what the file says then. Health
files are checked every second and read again if another process has changed them.
"""

import logging
import sqlite3
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import msgspec

from goent.billing.token_estimate import Calibration
from goent.domain.errors import EnvironmentTrouble
from goent.domain.provider_condition import HealthKey, HealthRecord
from goent.domain.task_profile import TaskGrade, TaskSample
from goent.store.sqlite import Schema, Store, connect, open_store

log = logging.getLogger(__name__)

LOOK_S = 1.0
HEALTH_KEPT_S = 30 * 24 * 3600.0  # an older record is about a former account

HEALTH_SCHEMA: Final = Schema(
    steps=(
        (
            """CREATE TABLE health (
                backend TEXT NOT NULL, model TEXT NOT NULL, account TEXT NOT NULL,
                state TEXT NOT NULL, failures INTEGER NOT NULL, since REAL NOT NULL, until REAL,
                told INTEGER NOT NULL, trial_until REAL, reason TEXT NOT NULL,
                PRIMARY KEY (backend, model, account)) WITHOUT ROWID""",
        ),
    ),
    probe="SELECT * FROM health LIMIT 1",
)
HEALTH_COLUMNS = ", ".join(HealthRecord.__struct_fields__)
KnownHealth = dict[HealthKey, HealthRecord]
HealthRepair = Callable[[HealthRecord, float], HealthRecord]
HealthStep = Callable[[HealthRecord], HealthRecord | None]


class SqliteHealths:
    """The port `HealthRecords` on SQLite. `warnings` names what was repaired on opening."""

    def __init__(self, store: Store, mend: HealthRepair, clock: Callable[[], float]) -> None:
        self.warnings = store.warnings
        self._store = store
        self._mend = mend
        self._clock = clock
        self._known: KnownHealth = {}
        self._version = -1
        self._changes = 0

    @classmethod
    @asynccontextmanager
    async def open(
        cls, path: Path, *, mend: HealthRepair, clock: Callable[[], float] = time.time
    ) -> "AsyncGenerator[SqliteHealths]":
        """`mend` corrects records that were written with another clock."""
        async with open_store(path, HEALTH_SCHEMA) as store, anyio.create_task_group() as group:
            healths = cls(store, mend, clock)
            await store.writer.run(partial(_prune_health, before=clock() - HEALTH_KEPT_S))
            await healths.refresh()
            group.start_soon(healths._keep_fresh)
            try:
                yield healths
            finally:
                group.cancel_scope.cancel()

    def known(self, key: HealthKey) -> HealthRecord:
        return self._known.get(key, HealthRecord())

    async def change(self, key: HealthKey, step: HealthStep) -> HealthRecord | None:
        """If the disk fails, the change is kept in memory only; the call goes on."""
        now = self._clock()
        try:
            after = await self._store.writer.run(
                partial(_change_health, key=key, step=lambda kept: step(self._mend(kept, now)))
            )
        except EnvironmentTrouble as trouble:
            log.warning("the health of %s/%s is not stored: %s", key.backend, key.model, trouble)
            after = step(self.known(key))
        self._changes += 1
        if after is not None:
            self._known[key] = after
        return after

    async def forget(self, backend: str, model: str) -> bool:
        gone = await self._store.writer.run(partial(_forget_health, backend=backend, model=model))
        kept = {k: v for k, v in self._known.items() if (k.backend, k.model) != (backend, model)}
        found = gone or len(kept) < len(self._known)
        self._known, self._changes = kept, self._changes + 1
        return found

    async def refresh(self) -> None:
        """Read the file again if another process has changed it."""
        changes = self._changes
        version, found = await self._store.reader.run(partial(_read_if_changed, seen=self._version))
        if changes != self._changes:
            return  # a change was made meanwhile
        self._version = version
        if found is not None:
            now = self._clock()
            self._known = {key: self._mend(record, now) for key, record in found.items()}

    async def _keep_fresh(self) -> None:
        while True:
            await anyio.sleep(LOOK_S)
            try:
                await self.refresh()
            except EnvironmentTrouble as trouble:
                log.warning("the health of providers is not refreshed: %s", trouble)


def read_health(path: Path) -> KnownHealth:
    """The records in the file; none if there is no file."""
    if not path.exists():
        return {}
    sql = connect(path, HEALTH_SCHEMA)
    try:
        return _read_health(sql)
    finally:
        sql.close()


def _read_if_changed(sql: sqlite3.Connection, *, seen: int) -> tuple[int, KnownHealth | None]:
    # Counts commits of other connections, this process's writer included.
    (version,) = sql.execute("PRAGMA data_version").fetchone()
    return int(version), None if version == seen else _read_health(sql)


def _read_health(sql: sqlite3.Connection) -> KnownHealth:
    rows = sql.execute(f"SELECT backend, model, account, {HEALTH_COLUMNS} FROM health")  # noqa: S608 (constants)
    return {HealthKey(*row[:3]): _health_record(row[3:]) for row in rows}


def _health_record(row: Sequence[object]) -> HealthRecord:
    fields = zip(HealthRecord.__struct_fields__, row, strict=True)
    with suppress(msgspec.ValidationError):  # written by a version that knows more states
        return msgspec.convert(dict(fields), HealthRecord, strict=False)
    return HealthRecord()


def _change_health(
    sql: sqlite3.Connection, *, key: HealthKey, step: HealthStep
) -> HealthRecord | None:
    found = sql.execute(
        f"SELECT {HEALTH_COLUMNS} FROM health WHERE backend = ? AND model = ? AND account = ?",  # noqa: S608 (constants)
        key,
    ).fetchone()
    before = _health_record(found) if found else HealthRecord()
    after = step(before)
    if after is not None and after != before:
        sql.execute(
            f"INSERT OR REPLACE INTO health (backend, model, account, {HEALTH_COLUMNS}) "  # noqa: S608 (constants)
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*key, *msgspec.structs.astuple(after)),
        )
    return after


def _forget_health(sql: sqlite3.Connection, *, backend: str, model: str) -> bool:
    done = sql.execute("DELETE FROM health WHERE backend = ? AND model = ?", (backend, model))
    return done.rowcount > 0


def _prune_health(sql: sqlite3.Connection, *, before: float) -> None:
    sql.execute("DELETE FROM health WHERE since < ?", (before,))


CALIBRATION_SCHEMA: Final = Schema(
    steps=(
        (
            """CREATE TABLE calibration (
                backend TEXT NOT NULL, model TEXT NOT NULL, factor REAL NOT NULL,
                samples INTEGER NOT NULL, PRIMARY KEY (backend, model)) WITHOUT ROWID""",
        ),
    ),
    probe="SELECT * FROM calibration LIMIT 1",
)
CalibrationKey = tuple[str, str]


class SqliteCalibrations:
    """The port `Calibrations` on SQLite. `warnings` names what was repaired on opening."""

    def __init__(self, store: Store, known: dict[CalibrationKey, Calibration]) -> None:
        self.warnings = store.warnings
        self._store = store
        self._known = known

    @classmethod
    @asynccontextmanager
    async def open(cls, path: Path) -> "AsyncGenerator[SqliteCalibrations]":
        """Open the file, or a new one if it is missing or damaged."""
        async with open_store(path, CALIBRATION_SCHEMA) as store:
            yield cls(store, await store.reader.run(_read_calibrations))

    def corrected(self, backend: str, model: str, estimated: int) -> int:
        return self._known.get((backend, model), Calibration()).corrected(estimated)

    async def learn(self, backend: str, model: str, *, estimated: int, actual: int) -> None:
        """If the disk fails, what was learned is kept in memory only; the call goes on."""
        key = (backend, model)
        before = self._known.get(key, Calibration())
        if before.after(estimated=estimated, actual=actual) == before:
            return
        try:
            learned = await self._store.writer.run(
                partial(_learn_calibration, key=key, estimated=estimated, actual=actual)
            )
        except EnvironmentTrouble as trouble:
            log.warning("the calibration of %s/%s is not stored: %s", backend, model, trouble)
            learned = before.after(estimated=estimated, actual=actual)
        self._known[key] = learned


def _read_calibrations(sql: sqlite3.Connection) -> dict[CalibrationKey, Calibration]:
    rows = sql.execute("SELECT backend, model, factor, samples FROM calibration")
    return {
        (backend, model): Calibration(factor=factor, samples=samples)
        for backend, model, factor, samples in rows
    }


def _learn_calibration(
    sql: sqlite3.Connection, *, key: CalibrationKey, estimated: int, actual: int
) -> Calibration:
    """Learn from what the file says now: other daemons learn too."""
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


HISTORY_SCHEMA: Final = Schema(
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
RECENT_TASKS: Final = 2_000  # that forecasts use: prices and models change
KEPT_TASKS: Final = 20_000


class SqliteHistory:
    """The port `TaskHistory` on SQLite. `warnings` names what was repaired on opening."""

    def __init__(self, store: Store) -> None:
        self.warnings = store.warnings
        self._store = store
        self._last = -1
        self._recent: Sequence[TaskSample] = ()

    @classmethod
    @asynccontextmanager
    async def open(cls, path: Path) -> "AsyncGenerator[SqliteHistory]":
        """Open the file, or a new one if it is missing or damaged."""
        async with open_store(path, HISTORY_SCHEMA) as store:
            yield cls(store)

    async def add(self, sample: TaskSample) -> None:
        await self._write(partial(_add_sample, sample=sample), "what a task took")

    async def grade(self, sample: TaskSample) -> None:
        await self._write(partial(_grade_sample, sample=sample), "a grade")

    async def regrade(self, judged: TaskGrade) -> None:
        await self._write(partial(_regrade_sample, judged=judged), "a corrected grade")

    async def _write(self, step: Callable[[sqlite3.Connection], None], what: str) -> None:
        try:
            await self._store.writer.run(step)
        except EnvironmentTrouble as trouble:
            log.warning("%s is not stored for forecasts and routing: %s", what, trouble)

    async def recent(self) -> Sequence[TaskSample]:
        try:
            self._last, self._recent = await self._store.reader.run(
                partial(_read_samples, last=self._last, before=self._recent)
            )
        except EnvironmentTrouble as trouble:
            log.warning("forecasts do not use new tasks: %s", trouble)
        return self._recent


def _add_sample(sql: sqlite3.Connection, *, sample: TaskSample) -> None:
    usage = sample.usage
    cost = None if sample.cost_usd is None else str(sample.cost_usd)
    sql.execute(
        # One that was graded meanwhile keeps its grade.
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
        (KEPT_TASKS,),
    )


def _grade_sample(sql: sqlite3.Connection, *, sample: TaskSample) -> None:
    """Add the sample, or replace the grade alone of one that its worker has added already."""
    _add_sample(sql, sample=sample)
    _regrade_sample(sql, judged=sample)


def _regrade_sample(sql: sqlite3.Connection, *, judged: TaskGrade | TaskSample) -> None:
    """The row keeps its id, which is its place in time."""
    verdict = (judged.state, judged.evidence, judged.failure)
    sql.execute(
        "UPDATE tasks SET state = ?, evidence = ?, failure = ?, graded = 1"
        " WHERE place = ? AND (state, evidence, failure, graded) IS NOT (?, ?, ?, 1)",
        (*verdict, judged.place, *verdict),
    )


def _read_samples(
    sql: sqlite3.Connection, *, last: int, before: Sequence[TaskSample]
) -> tuple[int, Sequence[TaskSample]]:
    # Another number whenever another connection has changed the file; this one only reads.
    (newest,) = sql.execute("PRAGMA data_version").fetchone()
    if newest == last:
        return last, before
    rows = sql.execute(
        "SELECT at, provider, backend, model, method, type, complexity, size, cost_usd, seconds,"
        " state, evidence, failure, place, graded, input, output, cache_read, cache_write, reasoning"
        " FROM tasks ORDER BY id DESC LIMIT ?",
        (RECENT_TASKS,),
    )
    return newest, tuple(_samples(rows))


def _samples(rows: Iterable[Sequence[object]]) -> Iterator[TaskSample]:
    for row in rows:
        with suppress(msgspec.ValidationError):  # written by a version that knows more kinds
            yield _sample(row)


def _sample(row: Sequence[object]) -> TaskSample:
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
        TaskSample,
    )
