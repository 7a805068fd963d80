"""How are this user's providers? One SQLite file that daemons share, and that outlives them.

Decisions read the memory. Somebody looks after the file every second: if another process has changed
it, it is read again. A step is taken inside a transaction, from what the file says then.
"""

import logging
import sqlite3
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import anyio

from goent.domain.errors import EnvironmentTrouble
from goent.domain.health import HealthKey, HealthRecord, HealthState
from goent.store.sqlite import Schema, connect
from goent.store.thread import Store, open_store

log = logging.getLogger(__name__)

LOOK_S = 1.0
KEPT_S = 30 * 24 * 3600.0  # what nobody has changed for longer is about an account of the past

SCHEMA: Final = Schema(
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
COLUMNS = "state, failures, since, until, told, trial_until, reason"
Known = dict[HealthKey, HealthRecord]
Mend = Callable[[HealthRecord, float], HealthRecord]
Step = Callable[[HealthRecord], HealthRecord | None]


class SqliteHealths:
    """The port `HealthRecords` on SQLite. `warnings` tells what opening it had to mend."""

    def __init__(self, store: Store, mend: Mend, clock: Callable[[], float]) -> None:
        self.warnings = store.warnings
        self._store = store
        self._mend = mend
        self._clock = clock
        self._known: Known = {}
        self._version = -1
        self._changes = 0

    @classmethod
    @asynccontextmanager
    async def open(
        cls, path: Path, *, mend: Mend, clock: Callable[[], float] = time.time
    ) -> "AsyncGenerator[SqliteHealths]":
        """`mend` sets right what was kept by another clock."""
        async with open_store(path, SCHEMA) as store, anyio.create_task_group() as group:
            healths = cls(store, mend, clock)
            await store.writer.run(partial(_prune, before=clock() - KEPT_S))
            await healths.look()
            group.start_soon(healths._keep_looking)
            try:
                yield healths
            finally:
                group.cancel_scope.cancel()

    def known(self, key: HealthKey) -> HealthRecord:
        return self._known.get(key, HealthRecord())

    async def change(self, key: HealthKey, step: Step) -> HealthRecord | None:
        """A disk that refuses costs the permanence of what was learned, never the call."""
        now = self._clock()
        try:
            after = await self._store.writer.run(
                partial(_change, key=key, step=lambda kept: step(self._mend(kept, now)))
            )
        except EnvironmentTrouble as trouble:
            log.warning("the health of %s/%s is not kept: %s", key.backend, key.model, trouble)
            after = step(self.known(key))
        self._changes += 1
        if after is not None:
            self._known[key] = after
        return after

    async def forget(self, backend: str, model: str) -> bool:
        gone = await self._store.writer.run(partial(_forget, backend=backend, model=model))
        kept = {k: v for k, v in self._known.items() if (k.backend, k.model) != (backend, model)}
        found = gone or len(kept) < len(self._known)
        self._known, self._changes = kept, self._changes + 1
        return found

    async def look(self) -> None:
        """Read the file again if another process has changed it."""
        changes = self._changes
        version, found = await self._store.reader.run(partial(_look, seen=self._version))
        if changes != self._changes:
            return  # what was read may be older than what is known by now
        self._version = version
        if found is not None:
            now = self._clock()
            self._known = {key: self._mend(record, now) for key, record in found.items()}

    async def _keep_looking(self) -> None:
        while True:
            await anyio.sleep(LOOK_S)
            try:
                await self.look()
            except EnvironmentTrouble as trouble:
                log.warning("the health of providers is as it was: %s", trouble)


def read_health(path: Path) -> Known:
    """What the file says, for who needs it once; nothing where there is no file."""
    if not path.exists():
        return {}
    sql = connect(path, SCHEMA)
    try:
        return _read_all(sql)
    finally:
        sql.close()


def _look(sql: sqlite3.Connection, *, seen: int) -> tuple[int, Known | None]:
    # Counts the commits of other connections, our own writer's too: those rows are read again.
    (version,) = sql.execute("PRAGMA data_version").fetchone()
    return int(version), None if version == seen else _read_all(sql)


def _read_all(sql: sqlite3.Connection) -> Known:
    rows = sql.execute(f"SELECT backend, model, account, {COLUMNS} FROM health")  # noqa: S608 (constants)
    return {HealthKey(*row[:3]): _record(row[3:]) for row in rows}


def _record(
    row: tuple[HealthState, int, float, float | None, int, float | None, str],
) -> HealthRecord:
    state, failures, since, until, told, trial_until, reason = row
    return HealthRecord(
        state=state,
        failures=failures,
        since=since,
        until=until,
        told=bool(told),
        trial_until=trial_until,
        reason=reason,
    )


def _change(sql: sqlite3.Connection, *, key: HealthKey, step: Step) -> HealthRecord | None:
    found = sql.execute(
        f"SELECT {COLUMNS} FROM health WHERE backend = ? AND model = ? AND account = ?",  # noqa: S608 (constants)
        key,
    ).fetchone()
    before = _record(found) if found else HealthRecord()
    after = step(before)
    if after is not None and after != before:
        sql.execute(
            f"INSERT OR REPLACE INTO health (backend, model, account, {COLUMNS}) "  # noqa: S608 (constants)
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *key,
                after.state,
                after.failures,
                after.since,
                after.until,
                after.told,
                after.trial_until,
                after.reason,
            ),
        )
    return after


def _forget(sql: sqlite3.Connection, *, backend: str, model: str) -> bool:
    done = sql.execute("DELETE FROM health WHERE backend = ? AND model = ?", (backend, model))
    return done.rowcount > 0


def _prune(sql: sqlite3.Connection, *, before: float) -> None:
    sql.execute("DELETE FROM health WHERE since < ?", (before,))
