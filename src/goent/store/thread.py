"""How do we use SQLite without blocking anyone?

A connection belongs to one thread. Jobs that wait for the thread together share one commit.
"""

import asyncio
import contextlib
import logging
import sqlite3
import threading
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import anyio
from anyio import to_thread

from goent.domain.errors import EnvironmentTrouble
from goent.store.sqlite import NOT_TEXT, Damaged, Schema, connect, move_aside, trouble

T = TypeVar("T")
Begin = Literal["BEGIN", "BEGIN IMMEDIATE"]

logger = logging.getLogger(__name__)

CLOSE_S = 10.0
GROUP = 256  # jobs in one commit


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
        begin: Begin,
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
        begin: Begin,
    ) -> "AsyncGenerator[SqlThread]":
        """Connected on entry; on leaving, what was asked for is done and the thread is gone."""
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
        """The result of the work, once it is committed. A commit under way is not cancelled."""
        if self._closed:
            raise EnvironmentTrouble(f"{str(self._path)!r} is closed: go-ent is shutting down")
        job = _Job(work)
        self._jobs.put(job)
        try:
            with anyio.CancelScope(shield=True):
                await asyncio.wrap_future(job.future)
        except (sqlite3.Error, *NOT_TEXT) as error:
            raise trouble(self._path, error) from error
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
            if len(group) == GROUP:
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
        except Exception as error:  # noqa: BLE001 (it belongs to those who wait for the jobs)
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
    """An open file: who writes it, who reads it, and what had to be mended to open it."""

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
        except Damaged as damage:
            aside = await to_thread.run_sync(move_aside, path)
            warnings = (f"{damage}; it was kept as {str(aside)!r} and a new one was begun",)
            logger.warning("%s", warnings[0])
            writer = await enter(SqlThread.open(path, writing, begin="BEGIN IMMEDIATE"))
        reader = await enter(SqlThread.open(path, connect_to_read, begin="BEGIN"))
        yield Store(writer, reader, warnings)
