"""Creates, opens and repairs SQLite files, and uses them without blocking the event loop.

A connection belongs to one thread. Jobs that wait for that thread at the same time share one commit.
"""

import asyncio
import contextlib
import logging
import os
import sqlite3
import threading
import time
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import anyio
from anyio import to_thread

from goent.domain.errors import EnvironmentTrouble
from goent.domain.types import Value

BUSY_S = 5.0  # how long another process may hold the lock

# What Python's module raises for text that is not UTF-8, besides an error of its own without a code.
NOT_TEXT_ERRORS = (UnicodeDecodeError, SystemError)
# The statements here are few and correct, so one that fails by its text or by a constraint means that the
# file is damaged.
DAMAGED_CODES = frozenset(
    {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR}
    | {sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH}
)
REMEDIES = {
    sqlite3.SQLITE_FULL: "the disk is full: free some space",
    sqlite3.SQLITE_READONLY: "it cannot be written: check the owner and mode of file and folder",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened: check the owner and mode of the folder",
    sqlite3.SQLITE_IOERR: "the disk fails or is full: check it",
    sqlite3.SQLITE_BUSY: f"another process held it for {BUSY_S:g} s: end that process",
    **dict.fromkeys(
        DAMAGED_CODES, "it is damaged: stop go-ent, move the file away and start again"
    ),
}


class DamagedFile(EnvironmentTrouble):
    """The file is not a SQLite database, or is damaged."""


class Schema(Value, frozen=True, kw_only=True):
    """The statements that create the tables, version by version; an old file gets those it lacks.

    `probe` reads a little of each table, to detect damage.
    """

    steps: tuple[tuple[str, ...], ...]
    probe: str

    @property
    def version(self) -> int:
        return len(self.steps)


def connect(path: Path, schema: Schema) -> sqlite3.Connection:
    """A connection to a file with the schema; a new file is readable by the user only."""
    try:
        _create(path)
    except OSError as error:
        raise EnvironmentTrouble(
            f"cannot create {str(path)!r}: {error.strerror}; check the folder's owner, mode and disk"
        ) from error
    connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
    try:
        _switch_to_wal(connection)
        connection.execute("PRAGMA synchronous = NORMAL")
        _apply(connection, schema, path)
        connection.execute(schema.probe).fetchall()
    except BaseException:
        connection.close()
        raise
    return connection


def _create(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # An existing file is not opened: closing a descriptor of it would drop the locks that
    # other connections of this process hold (POSIX).
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    if path.stat().st_mode & 0o077:
        path.chmod(0o600)


def _switch_to_wal(connection: sqlite3.Connection) -> None:
    # Two processes that create the same file collide here, and SQLite calls no busy handler.
    deadline = time.monotonic() + BUSY_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return


def _apply(connection: sqlite3.Connection, schema: Schema, path: Path) -> None:
    if _version(connection) == schema.version:
        return
    connection.execute("BEGIN IMMEDIATE")
    found = _version(connection)
    if found > schema.version:
        raise EnvironmentTrouble(
            f"{str(path)!r} has schema {found}, this go-ent knows {schema.version}: a newer go-ent "
            "wrote it; upgrade this one, or move the file away"
        )
    for statement in (statement for step in schema.steps[found:] for statement in step):
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {schema.version:d}")
    connection.execute("COMMIT")


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def sqlite_trouble(path: Path, error: Exception) -> EnvironmentTrouble:
    """SQLite's error with a remedy."""
    code = _code(error)
    kind = DamagedFile if code in DAMAGED_CODES else EnvironmentTrouble
    remedy = REMEDIES.get(code, "this is a bug in go-ent: please report it")
    return kind(f"cannot use {str(path)!r} ({error}): {remedy}")


def _code(error: Exception) -> int:
    # The lower byte; the rest is SQLite's finer distinction. Errors of the module have none.
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    not_text = isinstance(error, NOT_TEXT_ERRORS) or "decode to UTF-8" in str(error)
    return sqlite3.SQLITE_CORRUPT if not_text else code


def move_aside(path: Path) -> Path:
    """Rename a damaged file and its companions; nothing is deleted."""
    aside = path.with_name(f"{path.name}.corrupt-{time.time_ns() // 1_000_000}")
    for suffix in ("-wal", "-shm", ""):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(aside.with_name(aside.name + suffix))
    return aside


T = TypeVar("T")
BeginStatement = Literal["BEGIN", "BEGIN IMMEDIATE"]

log = logging.getLogger(__name__)

CLOSE_S = 10.0
GROUP_LIMIT = 256  # jobs in one commit


class _Job(Generic[T]):
    __slots__ = ("future", "work")

    def __init__(self, work: Callable[[sqlite3.Connection], T]) -> None:
        self.work = work
        self.future: Future[T] = Future()


class SqlThread:
    """One connection and the one thread that uses it."""

    def __init__(
        self,
        path: Path,
        connect: Callable[[], sqlite3.Connection],
        *,
        begin: BeginStatement,
    ) -> None:
        self.commits = 0
        self._path = path
        self._connect = connect
        self._begin = begin
        self._connection: sqlite3.Connection | None = None
        self._closed = False
        # Any: every job in the queue has a result type of its own.
        self._jobs: SimpleQueue[_Job[Any] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=f"sqlite {path.name}", daemon=True)

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls,
        path: Path,
        connect: Callable[[], sqlite3.Connection],
        *,
        begin: BeginStatement,
    ) -> "AsyncGenerator[SqlThread]":
        """Connected on entry; on leaving, all jobs are done and the thread has ended."""
        sql = cls(path, connect, begin=begin)
        sql._thread.start()
        try:
            await sql.run(lambda _: None)
            yield sql
        finally:
            sql._closed = True
            sql._jobs.put(None)
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(sql._thread.join, CLOSE_S)

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """The result of the work, once it is committed. A commit in progress is not cancelled."""
        if self._closed:
            raise EnvironmentTrouble(f"{str(self._path)!r} is closed: go-ent is shutting down")
        job = _Job(work)
        self._jobs.put(job)
        try:
            with anyio.CancelScope(shield=True):
                await asyncio.wrap_future(job.future)
        except (sqlite3.Error, *NOT_TEXT_ERRORS) as error:
            raise sqlite_trouble(self._path, error) from error
        return job.future.result()

    def _work(self) -> None:
        more = True
        while more:
            group, more = self._take()
            if group:
                self._commit(group)
        if self._connection:
            self._connection.close()

    def _take(self) -> tuple[list[_Job[Any]], bool]:
        job = self._jobs.get()
        group: list[_Job[Any]] = []
        while job:
            if job.future.set_running_or_notify_cancel():
                group.append(job)
            if len(group) == GROUP_LIMIT:
                return group, True
            try:
                job = self._jobs.get_nowait()
            except Empty:
                return group, True
        return group, False

    def _commit(self, group: list[_Job[Any]]) -> None:
        try:
            connection = self._connection = self._connection or self._connect()
            connection.execute(self._begin)
            results = [job.work(connection) for job in group]
            connection.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 (raised by the jobs' futures)
            self._roll_back()
            for job in group:
                job.future.set_exception(error)
        else:
            self.commits += 1
            for job, result in zip(group, results, strict=True):
                job.future.set_result(result)

    def _roll_back(self) -> None:
        if self._connection and self._connection.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                self._connection.rollback()


class Store(NamedTuple):
    """An open file: its writing and its reading thread, and what was repaired when it was opened."""

    writer: SqlThread
    reader: SqlThread
    warnings: tuple[str, ...]


@contextlib.asynccontextmanager
async def open_store(
    path: Path,
    schema: Schema,
    *,
    prepare: Callable[[sqlite3.Connection], object] = lambda _: None,
) -> AsyncGenerator[Store]:
    """Open the file, or a new one if it is missing or damaged. `prepare` readies the reader."""

    def connect_to_read() -> sqlite3.Connection:
        connection = connect(path, schema)
        connection.execute("PRAGMA query_only = ON")
        prepare(connection)
        return connection

    warnings: tuple[str, ...] = ()
    writing = partial(connect, path, schema)
    async with contextlib.AsyncExitStack() as stack:
        enter = stack.enter_async_context
        try:
            writer = await enter(SqlThread.open(path, writing, begin="BEGIN IMMEDIATE"))
        except DamagedFile as damage:
            aside = await to_thread.run_sync(move_aside, path)
            warnings = (f"{damage}; it was kept as {str(aside)!r} and a new one was begun",)
            log.warning("%s", warnings[0])
            writer = await enter(SqlThread.open(path, writing, begin="BEGIN IMMEDIATE"))
        reader = await enter(SqlThread.open(path, connect_to_read, begin="BEGIN"))
        yield Store(writer, reader, warnings)
