"""Keeps the agent's sessions in one SQLite file, their records in order.

A record is bytes here; only the agent interprets them. Appending requires the number of records so far,
so that two processes with the same session open cannot mix their records.
"""

import sqlite3
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from goent.domain.errors import GoesOnElsewhere
from goent.domain.types import Value
from goent.store.redactor import Redactor
from goent.store.sqlite import Schema, Store, open_store

SCHEMA: Final = Schema(
    steps=(
        (
            """CREATE TABLE sessions (
                id TEXT PRIMARY KEY, cwd TEXT NOT NULL, title TEXT NOT NULL,
                updated_at REAL NOT NULL)""",
            "CREATE INDEX newest ON sessions (updated_at)",
            """CREATE TABLE records (
                session TEXT NOT NULL, number INTEGER NOT NULL, body BLOB NOT NULL,
                PRIMARY KEY (session, number)) WITHOUT ROWID""",
        ),
    ),
    probe="SELECT * FROM sessions JOIN records ON id = session ORDER BY updated_at DESC LIMIT 1",
)
PAGE: Final = 50


class KeptSession(Value, frozen=True, kw_only=True):
    """A session as a list shows it; `updated_at` is a POSIX time."""

    id: str
    cwd: str
    title: str
    updated_at: float


class SqliteSessions:
    """The sessions of a user."""

    def __init__(self, store: Store, redactor: Redactor) -> None:
        self.warnings = store.warnings
        self._store = store
        self._redactor = redactor

    @classmethod
    @asynccontextmanager
    async def open(
        cls, path: Path, *, secrets: Callable[[], Collection[str]] = tuple
    ) -> "AsyncGenerator[SqliteSessions]":
        """Open the file, or a new one if it is missing or damaged. `secrets` are the held keys."""
        async with open_store(path, SCHEMA) as store:
            yield cls(store, Redactor(secrets))

    async def append(self, session: KeptSession, before: int, records: Sequence[bytes]) -> None:
        """Keep the records, without keys, after the first `before`. Raises `GoesOnElsewhere`."""
        self._redactor.refresh()
        bodies = [self._redactor.redact(record) for record in records]
        title = self._redactor.redact(session.title.encode()).decode()
        session = replace(session, title=title)
        kept = await self._store.writer.run(
            partial(_append, session=session, before=before, records=bodies)
        )
        if not kept:
            raise GoesOnElsewhere(
                f"session {session.id!r} has gone on in another process: load it again to see how"
            )

    async def read(self, session: str) -> tuple[KeptSession, Sequence[bytes]] | None:
        """The session and its records; None if there is none."""
        return await self._store.reader.run(partial(_read, session=session))

    async def listed(self, *, cwd: str | None, after: int) -> Sequence[KeptSession]:
        """A page of the sessions with a title, newest first, without the first `after`."""
        return await self._store.reader.run(partial(_list_page, cwd=cwd, after=after))

    async def delete(self, session: str) -> None:
        await self._store.writer.run(partial(_delete, session=session))


def _append(
    sql: sqlite3.Connection, *, session: KeptSession, before: int, records: Sequence[bytes]
) -> bool:
    (known,) = sql.execute(
        "SELECT count(*) FROM records WHERE session = ?", (session.id,)
    ).fetchone()
    if known != before:
        return False
    sql.execute(
        "INSERT INTO sessions VALUES (?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET"
        " cwd = excluded.cwd, title = excluded.title, updated_at = excluded.updated_at",
        (session.id, session.cwd, session.title, session.updated_at),
    )
    sql.executemany(
        "INSERT INTO records VALUES (?, ?, ?)",
        ((session.id, before + index, body) for index, body in enumerate(records)),
    )
    return True


def _read(sql: sqlite3.Connection, *, session: str) -> tuple[KeptSession, Sequence[bytes]] | None:
    row = sql.execute(
        "SELECT id, cwd, title, updated_at FROM sessions WHERE id = ?", (session,)
    ).fetchone()
    if row is None:
        return None
    rows = sql.execute("SELECT body FROM records WHERE session = ? ORDER BY number", (session,))
    return _session_of(row), [bytes(body) for (body,) in rows]


def _list_page(sql: sqlite3.Connection, *, cwd: str | None, after: int) -> Sequence[KeptSession]:
    rows = sql.execute(
        "SELECT id, cwd, title, updated_at FROM sessions"
        " WHERE title != '' AND (:cwd IS NULL OR cwd = :cwd)"
        " ORDER BY updated_at DESC, id LIMIT :page OFFSET :after",
        {"cwd": cwd, "page": PAGE, "after": after},
    )
    return [_session_of(row) for row in rows]


def _delete(sql: sqlite3.Connection, *, session: str) -> None:
    sql.execute("DELETE FROM records WHERE session = ?", (session,))
    sql.execute("DELETE FROM sessions WHERE id = ?", (session,))


def _session_of(row: Sequence[object]) -> KeptSession:
    name, cwd, title, updated_at = row
    return KeptSession(
        id=str(name), cwd=str(cwd), title=str(title), updated_at=float(str(updated_at))
    )
