"""Keeps a project's events in one SQLite file that is only ever appended to."""

import sqlite3
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import msgspec

from goent.domain.events import AnyEvent, EventEnvelope
from goent.store.redactor import Redactor
from goent.store.sqlite import Schema, Store, open_store

SCHEMA = Schema(
    steps=(
        (
            """CREATE TABLE events (
                seq INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, worker TEXT NOT NULL,
                type TEXT NOT NULL, body TEXT NOT NULL)""",
            "CREATE INDEX events_of_worker ON events (worker, seq)",
            "CREATE INDEX spawned ON events (seq, worker) WHERE type = 'WorkerSpawned'",
            "CREATE INDEX closed ON events (worker) WHERE type = 'WorkerClosed'",
        ),
        ("CREATE INDEX swarms ON events (seq, worker) WHERE type = 'SwarmSpawned'",),
    ),
    probe="SELECT * FROM events ORDER BY seq DESC LIMIT 1",
)
NEWEST_WORKERS = """
    SELECT CAST(worker AS BLOB) FROM events AS born WHERE type = 'WorkerSpawned' AND (
        seq IN (SELECT seq FROM events WHERE type = 'WorkerSpawned' ORDER BY seq DESC LIMIT ?)
        OR NOT EXISTS (
            SELECT 1 FROM events AS gone
            WHERE gone.type = 'WorkerClosed' AND gone.worker = born.worker))
    ORDER BY seq DESC"""
NEWEST_SWARMS = """
    SELECT CAST(worker AS BLOB) FROM events WHERE type = 'SwarmSpawned' ORDER BY seq DESC LIMIT ?"""

# As bytes: SQLite's text need not be UTF-8, and one bad row must not hide the others.
COLUMNS = "SELECT seq, at, CAST(worker AS BLOB), CAST(body AS BLOB)"
END_OF_TIME = 253402300800.0  # the year 10000, beyond Python's calendar

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(AnyEvent).decode

EventBatch = Sequence[tuple[str, float, AnyEvent]]


class SqliteJournal:
    """The port `Journal` on SQLite. `warnings` says what was repaired when it was opened."""

    def __init__(self, store: Store, redactor: Redactor) -> None:
        self.warnings = store.warnings
        self._store = store
        self._redactor = redactor

    @classmethod
    @asynccontextmanager
    async def open(
        cls, path: Path, *, secrets: Callable[[], Collection[str]] = tuple
    ) -> "AsyncGenerator[SqliteJournal]":
        """Open the file, or a new one if it is missing or damaged. `secrets` are the held keys."""
        async with open_store(path, SCHEMA) as store:
            yield cls(store, Redactor(secrets))

    @property
    def commits(self) -> int:
        """How often the file was written: appends that wait at the same time share a commit."""
        return self._store.writer.commits

    async def append(self, batch: EventBatch) -> list[EventEnvelope]:
        """Store (worker, at, event) in one commit; the stamped envelopes come back, redacted."""
        if not batch:
            return []
        self._redactor.refresh()
        return await self._store.writer.run(partial(_append, batch=batch, redactor=self._redactor))

    async def read(
        self, *, worker: str | None = None, after: int = 0, limit: int = 1000
    ) -> list[EventEnvelope]:
        """Envelopes with `seq > after`, in order.

        Events that a newer go-ent wrote, and damaged ones, are skipped.
        """
        return await self._store.reader.run(partial(_read, worker=worker, after=after, limit=limit))

    async def workers(self, *, limit: int = 200) -> list[str]:
        """The newest workers' ids, newest first, and every one that is not closed."""
        return await self._ids(NEWEST_WORKERS, limit)

    async def swarms(self, *, limit: int = 50) -> list[str]:
        """The newest swarms' ids, newest first."""
        return await self._ids(NEWEST_SWARMS, limit)

    async def _ids(self, query: str, limit: int) -> list[str]:
        rows = await self._store.reader.run(lambda sql: sql.execute(query, (limit,)).fetchall())
        return list(dict.fromkeys(bytes(worker).decode(errors="replace") for (worker,) in rows))


def _append(
    sql: sqlite3.Connection, *, batch: EventBatch, redactor: Redactor
) -> list[EventEnvelope]:
    # This process holds the lock, so it may choose the numbers; AUTOINCREMENT never reuses one.
    last = sql.execute(
        "SELECT CAST(seq AS INTEGER) FROM sqlite_sequence WHERE name = 'events'"
    ).fetchone()
    envelopes: list[EventEnvelope] = []
    rows: list[tuple[int, float, str, str, str]] = []
    for seq, (worker, at, event) in enumerate(batch, start=(last[0] if last else 0) + 1):
        body, shown = _without_keys(event, redactor)
        envelopes.append(EventEnvelope(seq=seq, at=at, worker=worker, event=shown))
        rows.append((seq, at, worker, type(event).__name__, body.decode()))
    sql.executemany("INSERT INTO events (seq, at, worker, type, body) VALUES (?, ?, ?, ?, ?)", rows)
    return envelopes


def _without_keys(event: AnyEvent, redactor: Redactor) -> tuple[bytes, AnyEvent]:
    body = _encode(event)
    redacted = redactor.redact(body)
    if redacted is body:
        return body, event
    try:
        return redacted, _decode(redacted)
    except msgspec.ValidationError:  # a "key" that is one of our own words, such as a state
        return body, event


def _read(
    sql: sqlite3.Connection, *, worker: str | None, after: int, limit: int
) -> list[EventEnvelope]:
    rows = sql.execute(
        f"{COLUMNS} FROM events WHERE seq > ? ORDER BY seq"
        if worker is None
        else f"{COLUMNS} FROM events WHERE seq > ? AND worker = ? ORDER BY seq",
        (after,) if worker is None else (after, worker),
    )
    found: list[EventEnvelope] = []
    if limit > 0:
        for envelope in _readable(rows):
            found.append(envelope)
            if len(found) == limit:
                break
    return found


def _readable(rows: sqlite3.Cursor) -> Iterator[EventEnvelope]:
    for seq, at, worker, body in rows:
        if not (isinstance(at, float) and 0 <= at < END_OF_TIME):
            continue
        try:
            event, name = _decode(body), worker.decode()
        except ValueError:
            continue
        yield EventEnvelope(seq=seq, at=at, worker=name, event=event)
