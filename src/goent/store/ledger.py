"""What did this user's model calls cost, in all projects? One SQLite file that daemons share."""

import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Literal

from goent.domain.ports import CostRow, LedgerEntry
from goent.domain.types import Usage
from goent.store.sqlite import Schema
from goent.store.thread import Store, open_store

SCHEMA = Schema(
    version=1,
    statements=(
        """CREATE TABLE calls (
            id INTEGER PRIMARY KEY, at REAL NOT NULL, project TEXT NOT NULL, worker TEXT NOT NULL,
            provider TEXT NOT NULL, backend TEXT NOT NULL, model TEXT NOT NULL,
            input INTEGER NOT NULL, output INTEGER NOT NULL, cache_read INTEGER NOT NULL,
            cache_write INTEGER NOT NULL, reasoning INTEGER NOT NULL,
            cost_usd TEXT, source TEXT NOT NULL, status INTEGER NOT NULL)""",
        "CREATE INDEX calls_of_project ON calls (project, at)",
    ),
    probe="SELECT * FROM calls ORDER BY id DESC LIMIT 1",
)
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

    @classmethod
    @asynccontextmanager
    async def open(cls, path: Path) -> "AsyncGenerator[SqliteLedger]":
        """Open the file, or a new one if it is missing or damaged."""
        async with open_store(path, SCHEMA, prepare=_teach_sums) as store:
            yield cls(store)

    async def add(self, entry: LedgerEntry) -> None:
        """Keep one call; it is committed on return."""
        await self._store.writer.run(partial(_add, entry=entry))

    async def report(
        self, *, by: Literal["provider", "model", "worker", "day"], project: str | None = None
    ) -> list[CostRow]:
        """A row for each key, in the order of the keys; days are UTC."""
        return await self._store.reader.run(partial(_report, key=KEYS[by], project=project))


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


def _add(sql: sqlite3.Connection, *, entry: LedgerEntry) -> None:
    usage = entry.usage
    sql.execute(
        "INSERT INTO calls (at, project, worker, provider, backend, model, input, output,"
        " cache_read, cache_write, reasoning, cost_usd, source, status)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *(entry.at, entry.project, entry.worker, entry.provider, entry.backend, entry.model),
            *(usage.input, usage.output, usage.cache_read, usage.cache_write, usage.reasoning),
            None if entry.cost_usd is None else str(entry.cost_usd),
            *(entry.source, entry.status),
        ),
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
