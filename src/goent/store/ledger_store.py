"""Keeps what model calls cost in one SQLite file, and admits calls within the limits.

Everything here happens inside one transaction that excludes every other writer. What was spent is
added up from where the last look ended. Held for each worker is what is left of its reservation, or
what its calls in flight may cost if that is more.
"""

import logging
import sqlite3
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
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
from goent.domain.types import RateLimits, Usage
from goent.store.sqlite import Schema, Store, open_store

MINUTE_S = 60.0


LOOK_AGAIN_S = 0.25  # if it is unknown when there will be room


DAY_S = 86_400.0


IsAlive = Callable[[str], bool]


Amounts = defaultdict[Spender, Decimal]


ADMISSION_STEP = (
    "ALTER TABLE calls ADD COLUMN team TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE calls ADD COLUMN held_usd TEXT",
    "CREATE INDEX calls_of_worker ON calls (worker)",
    "CREATE INDEX calls_of_team ON calls (team) WHERE team != ''",
    # Not new columns of `under_way`, because an older go-ent that is still running writes that table.
    """CREATE TABLE admitted (
        id TEXT PRIMARY KEY, owner TEXT NOT NULL, team TEXT NOT NULL, held_usd TEXT) WITHOUT ROWID""",
    """CREATE TABLE starts (
        id TEXT PRIMARY KEY, at REAL NOT NULL, backend TEXT NOT NULL, model TEXT NOT NULL,
        tokens INTEGER NOT NULL) WITHOUT ROWID""",
    "CREATE INDEX starts_of_model ON starts (backend, model, at)",
    """CREATE TABLE reservations (
        project TEXT NOT NULL, worker TEXT NOT NULL, team TEXT NOT NULL, owner TEXT NOT NULL,
        usd TEXT NOT NULL, since INTEGER NOT NULL, PRIMARY KEY (project, worker)) WITHOUT ROWID""",
    """CREATE TABLE sums (
        scope TEXT NOT NULL, key TEXT NOT NULL, usd TEXT NOT NULL, unknown INTEGER NOT NULL,
        upto INTEGER NOT NULL, PRIMARY KEY (scope, key)) WITHOUT ROWID""",
)


def admit_call(
    sql: sqlite3.Connection,
    *,
    call: str,
    entry: LedgerEntry,
    hold: CallHold,
    owner: str,
    alive: IsAlive,
) -> Admission:
    """Admit a call if it may be sent now; otherwise return the limit in its way, or how long to wait."""
    pace = _check_pace(sql, entry, hold, alive)
    if pace.wait_s:
        return pace
    standings = tuple(limit_standings(sql, hold.limits, entry.project, alive, asking=entry.spender))
    verdict = _verdict(standings, hold.usd or Decimal(0))
    if verdict.admitted:
        sql.execute(
            "INSERT OR IGNORE INTO admitted VALUES (?, ?, ?, ?)",
            (call, owner, entry.group, None if hold.usd is None else str(hold.usd)),
        )
        sql.execute(
            "INSERT OR IGNORE INTO starts VALUES (?, ?, ?, ?, ?)",
            (call, entry.at, entry.backend, entry.model, hold.usage.total),
        )
    return verdict


def reserve(
    sql: sqlite3.Connection,
    *,
    spender: Spender,
    usd: Decimal,
    limits: Iterable[BudgetLimit],
    owner: str,
    alive: IsAlive,
) -> Admission:
    """Reserve the amount for the worker, unless a hard limit has no room for it."""
    verdict = _verdict(tuple(limit_standings(sql, limits, spender.project, alive)), usd)
    if verdict.exceeded:  # a worker does not wait: calls in flight are likely to be charged
        return Admission(standings=verdict.standings, exceeded=verdict.exceeded)
    (last,) = sql.execute("SELECT coalesce(max(id), 0) FROM calls").fetchone()
    sql.execute(
        "INSERT OR REPLACE INTO reservations VALUES (?, ?, ?, ?, ?, ?)",
        (spender.project, spender.worker, spender.group, owner, str(usd), last),
    )
    return verdict


def release_reservation(sql: sqlite3.Connection, *, spender: Spender) -> None:
    sql.execute(
        "DELETE FROM reservations WHERE project = ? AND worker = ?",
        (spender.project, spender.worker),
    )


def limit_standings(
    sql: sqlite3.Connection,
    limits: Iterable[BudgetLimit],
    project: str,
    alive: IsAlive,
    *,
    asking: Spender | None = None,
) -> list[BudgetStatus]:
    """The state of the limits. For the spender that is `asking`, only its calls in flight count as held."""
    wanted = tuple(limits)
    if not wanted:
        return []
    _forget_dead_owners(sql, alive)
    sent, flying = _in_flight(sql, alive)
    left = _reservations_left(sql)
    if asking:
        left.pop(asking, None)
    held = {who: max(left.get(who, Decimal(0)), sent[who]) for who in {*left, *sent}}
    standings: list[BudgetStatus] = []
    for limit in wanted:
        mine = [who for who in held if who.counts_for(limit, project)]
        spent, unknown = _spent(sql, limit, project)
        standings.append(
            BudgetStatus(
                limit=limit,
                spent_usd=spent,
                held_usd=sum((held[who] for who in mine), Decimal(0)),
                in_flight_usd=sum(
                    (flying[who] for who in mine if left.get(who, Decimal(0)) <= sent[who]),
                    Decimal(0),
                ),
                unknown_calls=unknown,
            )
        )
    return standings


def settle_admission(sql: sqlite3.Connection, *, call: str, tokens: int) -> str | None:
    """End a call; returns the amount that was held for it."""
    row = sql.execute("SELECT held_usd FROM admitted WHERE id = ?", (call,)).fetchone()
    sql.execute("DELETE FROM admitted WHERE id = ?", (call,))
    if tokens:
        sql.execute("UPDATE starts SET tokens = ? WHERE id = ?", (tokens, call))
    return row[0] if row else None


def _verdict(standings: tuple[BudgetStatus, ...], needed: Decimal) -> Admission:
    full = [s for s in standings if s.limit.hard and not s.has_room_for(needed)]
    # A limit that will not have room later either is reported first.
    full.sort(key=lambda s: s.may_soon_have_room_for(needed))
    if not full:
        return Admission(standings=standings)
    wait = LOOK_AGAIN_S if full[0].may_soon_have_room_for(needed) else 0.0
    return Admission(standings=standings, exceeded=full[0], wait_s=wait)


def _spent(sql: sqlite3.Connection, limit: BudgetLimit, project: str) -> tuple[Decimal, int]:
    """What calls cost, or if that is unknown what was held for them; and how many calls have neither."""
    key = f"{project}\n{limit.key}" if limit.scope == "task" else limit.key
    row = sql.execute(
        "SELECT usd, unknown, upto FROM sums WHERE scope = ? AND key = ?", (limit.scope, key)
    ).fetchone()
    usd, unknown, upto = (Decimal(row[0]), row[1], row[2]) if row else (Decimal(0), 0, 0)
    where, values = _calls_of(limit, project)
    new = sql.execute(
        f"SELECT id, coalesce(cost_usd, held_usd) FROM calls WHERE id > ? AND {where}",  # noqa: S608 (ours)
        (upto, *values),
    ).fetchall()
    for _, amount in new:
        unknown += amount is None
        usd += Decimal(amount or 0)
    (last,) = sql.execute("SELECT coalesce(max(id), 0) FROM calls").fetchone()
    if last > upto:
        sql.execute(
            "INSERT OR REPLACE INTO sums VALUES (?, ?, ?, ?, ?)",
            (limit.scope, key, str(usd), unknown, last),
        )
    return usd, unknown


def _calls_of(limit: BudgetLimit, project: str) -> tuple[str, tuple[object, ...]]:
    # The plus keeps SQLite from an index over all rows, where only the last few are wanted.
    match limit.scope:
        case "task":
            return "worker = ? AND +project = ?", (limit.key, project)
        case "group":
            return "team = ? AND team != ''", (limit.key,)
        case "project":
            return "+project = ?", (limit.key,)
        case "day":
            begins = datetime.fromisoformat(limit.key).replace(tzinfo=UTC).timestamp()
            return "at >= ? AND at < ?", (begins, begins + DAY_S)


def _in_flight(sql: sqlite3.Connection, alive: IsAlive) -> tuple[Amounts, Amounts]:
    """What calls in flight may cost, and the part of it that a living go-ent will settle.

    A dead go-ent's calls are charged as well, but are not settled before its project has another go-ent.
    """
    sent, flying = Amounts(Decimal), Amounts(Decimal)
    rows = sql.execute(
        "SELECT project, worker, team, owner, held_usd FROM under_way JOIN admitted USING (id)"
    ).fetchall()
    living = {owner: alive(owner) for owner in {row[3] for row in rows}}
    for project, worker, team, owner, usd in rows:
        spender = Spender(project=project, worker=worker, group=team)
        sent[spender] += Decimal(usd or 0)
        flying[spender] += Decimal(usd or 0) if living[owner] else Decimal(0)
    return sent, flying


def _reservations_left(sql: sqlite3.Connection) -> dict[Spender, Decimal]:
    """What is left of each worker's reservation."""
    left: dict[Spender, Decimal] = {}
    rows = sql.execute("SELECT project, worker, team, usd, since FROM reservations").fetchall()
    for project, worker, team, usd, since in rows:
        taken = sql.execute(
            "SELECT coalesce(cost_usd, held_usd) FROM calls"
            " WHERE worker = ? AND +project = ? AND id > ?",
            (worker, project, since),
        )
        spent = sum((Decimal(amount or 0) for (amount,) in taken), Decimal(0))
        spender = Spender(project=project, worker=worker, group=team)
        left[spender] = max(Decimal(usd) - spent, Decimal(0))
    return left


def _forget_dead_owners(sql: sqlite3.Connection, alive: IsAlive) -> None:
    for (owner,) in sql.execute("SELECT DISTINCT owner FROM reservations").fetchall():
        if not alive(owner):
            sql.execute("DELETE FROM reservations WHERE owner = ?", (owner,))


def _check_pace(
    sql: sqlite3.Connection, entry: LedgerEntry, hold: CallHold, alive: IsAlive
) -> Admission:
    """Check the provider's rate limits: parallel calls, and calls and tokens per minute."""
    since = entry.at - MINUTE_S
    sql.execute("DELETE FROM starts WHERE at <= ?", (since,))
    pace, model = hold.pace, (entry.backend, entry.model)
    if pace == RateLimits():
        return Admission()
    name = "/".join(model)
    if pace.concurrency is not None and _concurrent_calls(sql, model, alive) >= pace.concurrency:
        reason = f"{name} may have {pace.concurrency} calls in parallel (limits.concurrency)"
        return Admission(wait_s=LOOK_AGAIN_S, reason=reason)
    starts: list[tuple[float, int]] = sql.execute(
        "SELECT at, tokens FROM starts WHERE backend = ? AND model = ? ORDER BY at DESC", model
    ).fetchall()
    if pace.rpm is not None and len(starts) >= pace.rpm:
        reason = f"{name} may have {pace.rpm} calls a minute (limits.rpm)"
        return Admission(wait_s=_until(starts[pace.rpm - 1][0], entry.at), reason=reason)
    taken = hold.usage.total
    for at, tokens in starts:
        taken += tokens
        if pace.tpm is not None and taken > pace.tpm:
            reason = f"{name} may have {pace.tpm} tokens a minute (limits.tpm)"
            return Admission(wait_s=_until(at, entry.at), reason=reason)
    return Admission()


def _concurrent_calls(sql: sqlite3.Connection, model: tuple[str, str], alive: IsAlive) -> int:
    rows = sql.execute(
        "SELECT owner, count(*) FROM under_way JOIN admitted USING (id)"
        " WHERE backend = ? AND model = ? GROUP BY owner",
        model,
    )
    return sum(calls for owner, calls in rows.fetchall() if alive(owner))


def _until(started: float, now: float) -> float:
    """Seconds until the start is more than a minute ago."""
    return max(started + MINUTE_S - now, LOOK_AGAIN_S)


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
