"""Keeps the cost of model calls in one SQLite file, for all projects of a user."""

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
from goent.domain.money import (
    Admission,
    BudgetLimit,
    BudgetStatus,
    CallHold,
    CostRow,
    LedgerEntry,
    Spender,
)
from goent.domain.types import Usage
from goent.store.ledger_admission import (
    ADMISSION_STEP,
    IsAlive,
    admit_call,
    limit_standings,
    release_reservation,
    reserve,
    settle_admission,
)
from goent.store.sqlite import Schema, Store, open_store

RETRY_S = 1.0  # seconds between attempts when the disk refuses

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
        ADMISSION_STEP,
    ),
    probe="SELECT *, (SELECT max(id) FROM under_way), (SELECT max(held_usd) FROM admitted),"
    " (SELECT max(at) FROM starts), (SELECT max(usd) FROM reservations), (SELECT max(usd) FROM sums)"
    " FROM calls ORDER BY id DESC LIMIT 1",
)
LedgerJob = Callable[[sqlite3.Connection], object]
AdmissionCheck = Callable[[sqlite3.Connection], Admission]
REPORT_KEYS = {
    "provider": "provider",
    "model": "model",
    "worker": "worker",
    "day": "strftime('%Y-%m-%d', at, 'unixepoch')",
}


class SqliteLedger:
    """The port `Ledger` on SQLite. `warnings` says what was repaired when it was opened.

    Its reservations are its `owner`'s, and count as long as that process is `alive`.
    """

    def __init__(self, store: Store, owner: str, alive: IsAlive) -> None:
        self.warnings = store.warnings
        self._store = store
        self._owner = owner
        self._alive = alive
        self._waiting: list[LedgerJob] = []
        self._storing = anyio.Lock()
        self._is_behind = anyio.Event()

    @classmethod
    @asynccontextmanager
    async def open(
        cls, path: Path, *, owner: str = "", alive: IsAlive = lambda _: True
    ) -> "AsyncGenerator[SqliteLedger]":
        """Open the file, or a new one if it is missing or damaged."""
        async with (
            open_store(path, SCHEMA, prepare=_add_decimal_sum) as store,
            anyio.create_task_group() as group,
        ):
            ledger = cls(store, owner, alive)
            group.start_soon(ledger._catch_up)
            try:
                yield ledger
            finally:
                group.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    await ledger._store_waiting()

    async def begin_call(
        self, call: str, entry: LedgerEntry, hold: CallHold | None = None
    ) -> Admission:
        """Admit a call, and record it as in flight if it may be sent.

        The record is committed on return, or later if the disk refuses; under a hard limit the error is
        raised instead, because then it is unknown whether the call may be sent.
        """
        hold = hold or CallHold()
        work = partial(_begin, call=call, entry=entry)
        ask = partial(
            admit_call, call=call, entry=entry, hold=hold, owner=self._owner, alive=self._alive
        )
        try:
            return await self._store.writer.run(partial(_begin_if, ask=ask, work=work))
        except EnvironmentTrouble:
            if any(limit.hard for limit in hold.limits):
                raise
        await self._keep(work)
        return Admission()

    async def hold_back(
        self, spender: Spender, usd: Decimal, limits: Sequence[BudgetLimit]
    ) -> Admission:
        """Reserve the amount for a worker, if the hard limits have room for it."""
        return await self._store.writer.run(
            partial(
                reserve,
                spender=spender,
                usd=usd,
                limits=limits,
                owner=self._owner,
                alive=self._alive,
            )
        )

    async def release(self, spender: Spender) -> None:
        """Release the worker's reservation."""
        await self._keep(partial(release_reservation, spender=spender))

    async def standings(self, limits: Sequence[BudgetLimit], project: str) -> list[BudgetStatus]:
        await self._store_waiting()
        return await self._store.writer.run(
            partial(limit_standings, limits=limits, project=project, alive=self._alive)
        )

    async def settle_call(self, call: str, entry: LedgerEntry | None) -> None:
        """Record what a call cost; None if it cannot be charged."""
        await self._keep(partial(_settle, call=call, entry=entry))

    async def add(self, entry: LedgerEntry) -> None:
        """Record a call whose start was not recorded."""
        await self._keep(partial(_add, entry=entry))

    async def settle_lost(self, project: str) -> list[LedgerEntry]:
        """Record the calls that a dead go-ent of the project left in flight, with unknown cost.

        A project has one go-ent at a time, so the caller knows that the earlier one is dead.
        """
        return await self._store.writer.run(partial(_close_unsettled, project=project))

    async def _keep(self, job: LedgerJob) -> None:
        self._waiting.append(job)
        await self._store_waiting()

    async def report(
        self, *, by: Literal["provider", "model", "worker", "day"], project: str | None = None
    ) -> list[CostRow]:
        """A row for each key, in the order of the keys; days are UTC."""
        await self._store_waiting()
        return await self._store.reader.run(partial(_report, key=REPORT_KEYS[by], project=project))

    async def _store_waiting(self) -> None:
        async with self._storing:
            taken = tuple(self._waiting)
            if not taken:
                return
            try:
                await self._store.writer.run(partial(_run_jobs, jobs=taken))
            except EnvironmentTrouble as trouble:
                self._fall_behind(trouble)
                return
            del self._waiting[: len(taken)]
            if self._is_behind.is_set():
                self._is_behind = anyio.Event()

    def _fall_behind(self, trouble: EnvironmentTrouble) -> None:
        if not self._is_behind.is_set():
            log.error("the ledger cannot be written, retrying: %s", trouble)
        self._is_behind.set()

    async def _catch_up(self) -> None:
        while True:
            await self._is_behind.wait()
            await anyio.sleep(RETRY_S)
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


def _add_decimal_sum(sql: sqlite3.Connection) -> None:
    sql.create_aggregate("decimal_sum", 1, _DecimalSum)  # pyright: ignore[reportArgumentType] (typeshed knows integers only)


def _run_jobs(sql: sqlite3.Connection, *, jobs: Sequence[LedgerJob]) -> None:
    for job in jobs:
        job(sql)


def _begin_if(sql: sqlite3.Connection, *, ask: AdmissionCheck, work: LedgerJob) -> Admission:
    answer = ask(sql)
    if answer.admitted:
        work(sql)
    return answer


def _begin(sql: sqlite3.Connection, *, call: str, entry: LedgerEntry) -> None:
    whose = (entry.at, entry.project, entry.worker, entry.provider, entry.backend, entry.model)
    sql.execute("INSERT OR IGNORE INTO under_way VALUES (?, ?, ?, ?, ?, ?, ?)", (call, *whose))


def _settle(sql: sqlite3.Connection, *, call: str, entry: LedgerEntry | None) -> None:
    sql.execute("DELETE FROM under_way WHERE id = ?", (call,))
    tokens = entry.usage.total if entry else 0
    held = settle_admission(sql, call=call, tokens=tokens)
    if entry:
        _add(sql, entry=entry, held=held)


def _close_unsettled(sql: sqlite3.Connection, *, project: str) -> list[LedgerEntry]:
    rows = sql.execute(
        "SELECT id, at, worker, provider, backend, model, coalesce(team, '') FROM under_way"
        " LEFT JOIN admitted USING (id) WHERE project = ? ORDER BY at",
        (project,),
    )
    lost = {
        call: LedgerEntry(
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
            group=team,
        )
        for call, at, worker, provider, backend, model, team in rows
    }
    for call, entry in lost.items():
        _settle(sql, call=call, entry=entry)
    return list(lost.values())


def _add(sql: sqlite3.Connection, *, entry: LedgerEntry, held: str | None = None) -> None:
    sql.execute(
        "INSERT INTO calls (at, project, worker, provider, backend, model, input, output,"
        " cache_read, cache_write, reasoning, cost_usd, source, status, team, held_usd)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (*_row(entry), entry.group, held),
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
        f"SELECT {key}, count(*), count(*) - count(cost_usd), decimal_sum(cost_usd), sum(input),"  # noqa: S608 (one of REPORT_KEYS)
        " sum(output), sum(cache_read), sum(cache_write), sum(reasoning) FROM calls"
        " WHERE :project IS NULL OR project = :project GROUP BY 1 ORDER BY 1",
        {"project": project},
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
