"""What did this user's model calls cost, in all projects? One SQLite file that daemons share."""

import logging
import sqlite3
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Literal

import anyio

from goent.domain.errors import EnvironmentTrouble
from goent.domain.ports import CostRow, LedgerEntry
from goent.domain.types import Usage
from goent.store.sqlite import Schema
from goent.store.thread import Store, open_store

RETRY = 1.0  # seconds between attempts when the disk refuses

log = logging.getLogger(__name__)

SCHEMA = Schema(
    steps=(
        (
            """CREATE TABLE calls (
                id INTEGER PRIMARY KEY, at REAL NOT NULL, project TEXT NOT NULL,
                worker TEXT NOT NULL, provider TEXT NOT NULL, backend TEXT NOT NULL,
                model TEXT NOT NULL, input INTEGER NOT NULL, output INTEGER NOT NULL,
                cache_read INTEGER NOT NULL, cache_write INTEGER NOT NULL,
                reasoning INTEGER NOT NULL, cost_usd TEXT, source TEXT NOT NULL,
                status INTEGER NOT NULL)""",
            "CREATE INDEX calls_of_project ON calls (project, at)",
        ),
        (
            """CREATE TABLE under_way (
                id TEXT PRIMARY KEY, at REAL NOT NULL, project TEXT NOT NULL,
                worker TEXT NOT NULL, provider TEXT NOT NULL, backend TEXT NOT NULL,
                model TEXT NOT NULL) WITHOUT ROWID""",
        ),
    ),
    probe="SELECT *, (SELECT max(id) FROM under_way) FROM calls ORDER BY id DESC LIMIT 1",
)
Job = Callable[[sqlite3.Connection], object]
KEYS = {
    "provider": "provider",
    "model": "model",
    "worker": "worker",
    "day": "strftime('%Y-%m-%d', at, 'unixepoch')",
}


class SqliteLedger:
    """The port `Ledger` on SQLite. `warnings` tells what opening it had to mend."""

    def __init__(self, store: Store) -> None:
        self.warnings = store.warnings
        self._store = store
        self._waiting: list[Job] = []
        self._storing = anyio.Lock()
        self._behind = anyio.Event()

    @classmethod
    @asynccontextmanager
    async def open(cls, path: Path) -> "AsyncGenerator[SqliteLedger]":
        """Open the file, or a new one if it is missing or damaged."""
        async with (
            open_store(path, SCHEMA, prepare=_teach_sums) as store,
            anyio.create_task_group() as group,
        ):
            ledger = cls(store)
            group.start_soon(ledger._catch_up)
            try:
                yield ledger
            finally:
                group.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    await ledger._store_waiting()

    async def begin(self, call: str, entry: LedgerEntry) -> None:
        """Note that a call goes out.

        Like all that is kept, it is committed on return, or when a disk that refuses lets us.
        """
        await self._keep(partial(_begin, call=call, entry=entry))

    async def settle(self, call: str, entry: LedgerEntry | None) -> None:
        """The call is over: what it took, or None if nothing can be owed for it."""
        await self._keep(partial(_settle, call=call, entry=entry))

    async def add(self, entry: LedgerEntry) -> None:
        """Keep a call that nobody saw begin."""
        await self._keep(partial(_add, entry=entry))

    async def lost(self, project: str) -> list[LedgerEntry]:
        """Enter what a dead go-ent of the project never settled, as calls of unknown cost.

        A project has one go-ent at a time, so the caller knows that the other one is dead.
        """
        return await self._store.writer.run(partial(_close_unsettled, project=project))

    async def _keep(self, job: Job) -> None:
        self._waiting.append(job)
        await self._store_waiting()

    async def report(
        self, *, by: Literal["provider", "model", "worker", "day"], project: str | None = None
    ) -> list[CostRow]:
        """A row for each key, in the order of the keys; days are UTC."""
        await self._store_waiting()
        return await self._store.reader.run(partial(_report, key=KEYS[by], project=project))

    async def _store_waiting(self) -> None:
        async with self._storing:
            taken = tuple(self._waiting)
            if not taken:
                return
            try:
                await self._store.writer.run(partial(_do, jobs=taken))
            except EnvironmentTrouble as trouble:
                self._fall_behind(trouble)
                return
            del self._waiting[: len(taken)]
            if self._behind.is_set():
                self._behind = anyio.Event()

    def _fall_behind(self, trouble: EnvironmentTrouble) -> None:
        if not self._behind.is_set():
            log.error("the ledger cannot be written, trying again and again: %s", trouble)
        self._behind.set()

    async def _catch_up(self) -> None:
        while True:
            await self._behind.wait()
            await anyio.sleep(RETRY)
            await self._store_waiting()


class _DecimalSum:
    """SQLite would add money as floats."""

    def __init__(self) -> None:
        self._sum = Decimal(0)

    def step(self, amount: str | None) -> None:
        if amount is not None:
            self._sum += Decimal(amount)

    def finalize(self) -> str:
        return str(self._sum)


def _teach_sums(sql: sqlite3.Connection) -> None:
    sql.create_aggregate("decimal_sum", 1, _DecimalSum)  # pyright: ignore[reportArgumentType] (typeshed knows integers only)


def _do(sql: sqlite3.Connection, *, jobs: Sequence[Job]) -> None:
    for job in jobs:
        job(sql)


def _begin(sql: sqlite3.Connection, *, call: str, entry: LedgerEntry) -> None:
    whose = (entry.at, entry.project, entry.worker, entry.provider, entry.backend, entry.model)
    sql.execute("INSERT INTO under_way VALUES (?, ?, ?, ?, ?, ?, ?)", (call, *whose))


def _settle(sql: sqlite3.Connection, *, call: str, entry: LedgerEntry | None) -> None:
    sql.execute("DELETE FROM under_way WHERE id = ?", (call,))
    if entry:
        _add(sql, entry=entry)


def _close_unsettled(sql: sqlite3.Connection, *, project: str) -> list[LedgerEntry]:
    rows = sql.execute(
        "SELECT at, worker, provider, backend, model FROM under_way WHERE project = ? ORDER BY at",
        (project,),
    )
    lost = [
        LedgerEntry(
            at=at,
            project=project,
            worker=worker,
            provider=provider,
            backend=backend,
            model=model,
            usage=Usage(),
            cost_usd=None,
            source="unknown",
            status=0,
        )
        for at, worker, provider, backend, model in rows
    ]
    for entry in lost:
        _add(sql, entry=entry)
    sql.execute("DELETE FROM under_way WHERE project = ?", (project,))
    return lost


def _add(sql: sqlite3.Connection, *, entry: LedgerEntry) -> None:
    sql.execute(
        "INSERT INTO calls (at, project, worker, provider, backend, model, input, output,"
        " cache_read, cache_write, reasoning, cost_usd, source, status)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        _row(entry),
    )


def _row(entry: LedgerEntry) -> tuple[object, ...]:
    usage = entry.usage
    return (
        *(entry.at, entry.project, entry.worker, entry.provider, entry.backend, entry.model),
        *(usage.input, usage.output, usage.cache_read, usage.cache_write, usage.reasoning),
        None if entry.cost_usd is None else str(entry.cost_usd),
        *(entry.source, entry.status),
    )


def _report(sql: sqlite3.Connection, *, key: str, project: str | None) -> list[CostRow]:
    rows = sql.execute(
        f"SELECT {key}, count(*), count(*) - count(cost_usd), decimal_sum(cost_usd), sum(input),"  # noqa: S608 (one of KEYS)
        " sum(output), sum(cache_read), sum(cache_write), sum(reasoning) FROM calls"
        " WHERE ?1 IS NULL OR project = ?1 GROUP BY 1 ORDER BY 1",
        (project,),
    )
    return [
        CostRow(
            key=name,
            calls=calls,
            usage=Usage(input=i, output=o, cache_read=read, cache_write=write, reasoning=thought),
            cost_usd=None if unknown else Decimal(known),
            known_usd=Decimal(known),
            unknown_calls=unknown,
        )
        for name, calls, unknown, known, i, o, read, write, thought in rows
    ]
