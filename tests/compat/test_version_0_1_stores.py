"""Every row, record and trace that version 0.1 wrote is decoded, and nothing of it is lost."""

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from recorded_script import SCRIPT
from recorded_state import ROOT
from sql_dump import content, dump, restore
from version_0_1 import CLOSED, FOLDER, LEFT, RECORDED, SESSION, TIDY, WORKERS, Worker, lacks

from goent.agent import session_records
from goent.domain.events import AnyEvent, EventEnvelope, SwarmEvent, WorkerSpawned
from goent.domain.provider_condition import HealthKey
from goent.domain.replies import Result
from goent.evals.eval_results import read_rows
from goent.evals.traces import Trace
from goent.providers.track_record import SqliteCalibrations, SqliteHealths, SqliteHistory
from goent.routing.experience import Experience
from goent.store.journal_store import SqliteJournal
from goent.store.ledger_store import SqliteLedger
from goent.store.session_store import SqliteSessions
from goent.workers.views import SwarmView, WorkerView, fold_swarm, fold_worker
from goent.workers.worker_report import worker_result

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

THEN = 1794990700.0  # shortly after the recording
DATABASES = (
    *("journal-project", "journal-killed", "ledger", "history", "health", "calibration"),
    *("sessions", "sessions-project", "sessions-killed"),
)


@pytest.mark.parametrize("name", DATABASES)
def test_a_dump_is_the_whole_file(name: str, tmp_path: Path) -> None:
    restored = RECORDED.database(name, tmp_path)
    again = tmp_path / "again.db"
    restore(dump(restored), again)
    assert content(again) == content(restored)


def rows_of(database: Path, columns: str, table: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(database)) as sql:
        return sql.execute(f"SELECT {columns} FROM {table}").fetchall()


@pytest.mark.parametrize("name", ["journal-project", "journal-killed"])
async def test_every_event_is_decoded_and_nothing_of_it_is_lost(name: str, tmp_path: Path) -> None:
    path = RECORDED.database(name, tmp_path)
    rows = rows_of(path, "seq, at, worker, type, body", "events")
    async with SqliteJournal.open(path) as journal:
        envelopes = await journal.read(limit=100_000)
        assert not journal.warnings
    assert len(rows) == {"journal-project": 521, "journal-killed": 9}[name]
    stamps = [(e.seq, e.at, e.worker, type(e.event).__name__) for e in envelopes]
    assert stamps == [row[:4] for row in rows], "no row is passed over"
    for *_, body in rows:
        event = msgspec.json.decode(body, type=AnyEvent)
        again = msgspec.json.decode(msgspec.json.encode(event))
        assert not lacks(json.loads(body), again), body


def test_the_journal_has_every_event_that_version_0_1_knew(tmp_path: Path) -> None:
    path = RECORDED.database("journal-project", tmp_path)
    assert {kind for (kind,) in rows_of(path, "DISTINCT type", "events")} == {
        *("TextDelta", "Thought", "ToolCall", "PlanUpdated", "PermissionAsked", "Noticed"),
        *("PermissionWithdrawn", "PermissionAnswered", "UsageReported", "WorkerSpawned"),
        *("TurnStarted", "SessionOpened", "Verified", "WorkKept", "FailedOver", "BudgetWarned"),
        *("TurnEnded", "WorkerClosed", "SwarmSpawned", "TaskGiven", "TaskRefused"),
        *("TaskSettled", "TaskReopened", "SwarmCancelled", "WorkMerged"),
    }


async def journal_of(name: str, folder: Path) -> list[EventEnvelope]:
    async with SqliteJournal.open(RECORDED.database(name, folder)) as journal:
        return await journal.read(limit=100_000)


def folded(envelopes: Sequence[EventEnvelope]) -> dict[str, tuple[WorkerView, Result]]:
    found: dict[str, tuple[WorkerView, Result]] = {}
    for name in [e.worker for e in envelopes if isinstance(e.event, WorkerSpawned)]:
        view: WorkerView | None = None
        own = [e for e in envelopes if e.worker == name]
        for envelope in own:
            view = fold_worker(view, envelope)
        assert view
        found[name] = view, worker_result(view, own)
    return found


async def test_every_worker_is_folded_to_what_it_was(tmp_path: Path) -> None:
    workers = folded(await journal_of("journal-project", tmp_path))
    assert len(workers) == 41
    for name, worker in WORKERS.items():
        view, came = workers[worker.id]
        told_of = Worker(
            id=came.worker_id,
            method=view.spawned.method,
            provider=view.spawned.provider,
            state=came.state,
            evidence=came.evidence,
            failure=came.failure and came.failure.kind,
            cost_usd=came.cost_usd,
            tokens=came.usage.total,
            files=tuple(file.path for file in came.files),
        )
        assert told_of == worker, name
        assert view.open == (name not in CLOSED), name


async def test_results_have_their_particulars(tmp_path: Path) -> None:
    workers = folded(await journal_of("journal-project", tmp_path))

    def came(name: str) -> Result:
        return workers[WORKERS[name].id][1]

    assert [check.exit for check in came("verified").verify] == [0, 0]
    (refuted,) = came("refuted").verify
    assert (refuted.exit, refuted.tail) == (1, "looks")
    for name, providers in (("moved", ("mine", "spare")), ("call moved", ("away", "spare"))):
        (failover,) = came(name).failovers
        assert (failover.from_provider, failover.to_provider) == providers
    assert [used.provider for used in came("moved").models_used] == ["mine", "spare"]
    failure = came("stayed").failure
    assert failure and (failure.retryable, failure.retry_with) == (True, "spare")
    assert [(c.command, c.exit) for c in came("allowed").commands] == [("echo ran > ran.txt", 0)]
    assert came("in a worktree").branch == "go-ent/solo/w-jxbt9"
    assert any("$0.10" in note for note in came("warned").notes)
    two_turns, _ = workers[WORKERS["two turns"].id]
    assert (two_turns.turn, two_turns.token[:4]) == (2, "ses_")
    assert workers[WORKERS["many turns"].id][0].turn == 17


async def test_swarms_are_folded_to_what_they_were(tmp_path: Path) -> None:
    views: dict[str, SwarmView | None] = {}
    for envelope in await journal_of("journal-project", tmp_path):
        if isinstance(envelope.event, get_args(SwarmEvent)):
            views[envelope.worker] = fold_swarm(views.get(envelope.worker), envelope)
    tidy, left = views[TIDY], views[LEFT]
    assert tidy and left and len(views) == 2
    assert tidy.over and left.over
    states = {name: task.settled and task.settled.state for name, task in tidy.tasks.items()}
    assert states == dict.fromkeys(("polite", "loud", "bye", "notes", "sign", "count"), "completed")
    assert len(tidy.tasks["count"].workers) == 2
    (merge,) = tidy.merges
    assert (merge.branch, len(merge.merged)) == ("go-ent/tidy/merged", 5)
    assert tidy.spawned.repository == str(ROOT / "project" / ".git")
    ends = {name: task.settled and task.settled.state for name, task in left.tasks.items()}
    assert ends == {"stuck": "cancelled", "poor": "failed", "later": "cancelled"}
    (refused,) = left.tasks["poor"].attempts
    assert refused.refused and refused.refused.kind == "budget_exceeded"


async def test_the_ledger_adds_up(tmp_path: Path) -> None:
    path = RECORDED.database("ledger", tmp_path)
    async with SqliteLedger.open(path) as ledger:
        rows = await ledger.report(by="provider", project=str(ROOT / "project"))
        lost = await ledger.settle_lost(str(ROOT / "killed"))
        assert not ledger.warnings
    assert {row.key: (row.calls, row.known_usd, row.unknown_calls) for row in rows} == {
        "actor": (5, Decimal("0.25"), 3),
        "glm": (73, Decimal("2.10998"), 2),
        "haiku": (21, Decimal("0.01525"), 0),
        "mine": (1, Decimal("0.00014"), 0),
        "spare": (7, Decimal("0.00098"), 0),
    }
    (unsettled,) = lost
    assert (unsettled.worker, unsettled.model) == ("w-rxymy", "glm-4")


async def test_the_ledger_agrees_with_the_journal(tmp_path: Path) -> None:
    workers = folded(await journal_of("journal-project", tmp_path))
    async with SqliteLedger.open(RECORDED.database("ledger", tmp_path)) as ledger:
        rows = await ledger.report(by="worker", project=str(ROOT / "project"))
    spent = {row.key: (row.known_usd, row.usage) for row in rows if row.key in workers}
    for name, (view, _) in workers.items():
        if view.calls:
            assert spent[name] == (view.known_usd, view.usage), name


async def test_the_history_is_learned_from(tmp_path: Path) -> None:
    path = RECORDED.database("history", tmp_path)
    async with SqliteHistory.open(path) as history:
        samples = await history.recent()
    assert len(samples) == len(rows_of(path, "id", "tasks")) == 49, "no row is passed over"
    assert sum(sample.graded for sample in samples) == 16
    outlook = Experience(samples, now=THEN).outlooks("documentation", "simple")
    glm = outlook["moonshot", "glm-4"]
    assert (glm.seen, glm.good, glm.graded, glm.enough) == (8, 8, 8, True)


async def test_the_health_of_providers_is_known(tmp_path: Path) -> None:
    path = RECORDED.database("health", tmp_path)
    async with SqliteHealths.open(path, mend=lambda r, _: r, clock=lambda: THEN) as healths:
        local = healths.known(HealthKey("local", "small", "direct"))
        gone = healths.known(HealthKey("gone", "away", "c562b997d98d"))
    assert (local.state, local.failures, local.until) == ("no_credit", 1, 1794991205.2486541)
    assert (gone.state, gone.failures, "503" in gone.reason) == ("down", 5, True)


async def test_what_calls_taught_about_tokens_is_known(tmp_path: Path) -> None:
    async with SqliteCalibrations.open(RECORDED.database("calibration", tmp_path)) as known:
        assert known.corrected("claude", "claude-haiku", 1000) == 1250
        assert known.corrected("moonshot", "glm-4", 1000) == 1000


@pytest.mark.parametrize("name", ["sessions", "sessions-project", "sessions-killed"])
async def test_every_record_of_a_session_is_decoded(name: str, tmp_path: Path) -> None:
    path = RECORDED.database(name, tmp_path)
    async with SqliteSessions.open(path) as sessions:
        listed = await sessions.listed(cwd=None, after=0)
        kept = {each.id: await sessions.read(each.id) for each in listed}
    bodies = [body for found in kept.values() if found for body in found[1]]
    assert len(bodies) == len(rows_of(path, "number", "records"))
    for body in bodies:
        again = msgspec.json.decode(
            session_records.encode_record(session_records.decode_record(body))
        )
        assert not lacks(json.loads(body), again), body


async def test_a_session_has_every_record_that_version_0_1_knew(tmp_path: Path) -> None:
    async with SqliteSessions.open(RECORDED.database("sessions", tmp_path)) as sessions:
        found = await sessions.read(SESSION)
    assert found
    session, bodies = found
    assert (session.title, session.cwd) == ("Mend part in app.py.", str(ROOT / "project"))
    kept = [session_records.decode_record(body) for body in bodies]
    assert {type(record).__name__ for record in kept} == {
        *("Set", "Prompted", "Titled", "Spent", "Answered", "Ran", "Planned", "Compacted", "Told")
    }
    conversation = session_records.conversation(kept)
    assert [message.role for message in conversation] == ["user", "assistant", "user", "assistant"]


def test_every_row_and_trace_of_an_evaluation_is_decoded() -> None:
    for run in ("first", "second"):
        out = FOLDER / "project" / ".goent" / "evals" / run
        kept = (out / "index.jsonl").read_text().splitlines()
        rows = read_rows(out / "index.jsonl").rows
        assert len(rows) == len(kept) == 12
        for line, row in zip(kept, rows, strict=True):
            assert not lacks(json.loads(line), json.loads(msgspec.json.encode(row))), line
            body = (out / row.trace_path).read_bytes()
            trace = msgspec.json.decode(body, type=Trace)
            assert not lacks(json.loads(body), json.loads(msgspec.json.encode(trace))), body


def test_what_was_recorded_has_no_keys_and_is_small() -> None:
    paths = [path for path in FOLDER.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in paths) < 1_500_000
    keys = [provider.key for provider in SCRIPT.providers.values() if provider.key]
    for path in paths:
        kept = path.read_bytes()
        for key in keys:
            assert key.encode() not in kept and key.encode().hex().upper().encode() not in kept
