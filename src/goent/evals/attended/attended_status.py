"""Reports the status of a run from its files, and compares two runs."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from goent.domain.errors import RequestError
from goent.domain.evaluation_messages import (
    EvalChange,
    EvalComparison,
    EvalState,
    EvalStatus,
    EvalTrouble,
)
from goent.domain.types import Value
from goent.evals.attended.project_runs import NOTE_FILE, RESUME_REMEDY, AttendedNote
from goent.evals.eval_results import CaseStatus, Row, read_rows
from goent.evals.reports.comparison import RunComparison, compare_runs
from goent.evals.runner.run_folder import (
    INDEX_FILE,
    LOCK_FILE,
    MANIFEST_FILE,
    RunManifest,
    current_rows,
)
from goent.system.plain_files import LARGE_FILE, read_plain
from goent.system.project_lock import take_lock

SHOWN_CHANGES: Final = 8


def compare_stored_runs(
    before: Path, after: Path, *, targets: tuple[str, str] | None
) -> EvalComparison:
    """Raises `RequestError`."""
    first, second = (
        current_rows(read_rows(folder / INDEX_FILE), folder).rows for folder in (before, after)
    )
    found = compare_runs(first, second, targets=targets)
    if found.delta is None:
        raise RequestError(
            f"{found.text} Name one target of each run by targets, or see with eval_status what failed"
        )
    return _comparison_reply(found)


def _comparison_reply(found: RunComparison) -> EvalComparison:
    return EvalComparison(
        conclusion=found.conclusion,
        words=found.text,
        cases=len(found.pairs),
        delta=found.delta,
        interval=(found.interval.low, found.interval.high) if found.interval else None,
        p=found.p_score,
        wins=found.wins,
        losses=found.losses,
        ties=found.ties,
        gained=found.gained,
        lost=found.lost,
        p_pass=found.p_pass,
        left_out=found.unpaired.count,
        changed=tuple(
            EvalChange(
                test_id=pair.key.test_id,
                target=pair.key.target,
                before=round(pair.before, 4),
                after=round(pair.after, 4),
            )
            for pair in found.changed[:SHOWN_CHANGES]
        ),
    )


SHOWN_TROUBLES: Final = 5
LONGEST_REASON: Final = 160
UNRUN_EXIT: Final = 3  # some trials may not have been made

T = TypeVar("T", bound=Value)


def run_status(folder: Path, name: str, *, under_way: bool) -> EvalStatus:
    """`under_way`: this daemon is running it."""
    attended = _read(folder / NOTE_FILE, AttendedNote) or AttendedNote()
    manifest = _read(folder / MANIFEST_FILE, RunManifest)
    index = folder / INDEX_FILE
    rows = current_rows(read_rows(index), folder).rows if index.exists() else ()
    state, code, message = _run_state(folder, name, attended, manifest, under_way=under_way)
    costs = [row.cost_usd for row in rows]
    known = [cost for cost in costs if cost is not None]
    return EvalStatus(
        run_id=name,
        state=state,
        out=str(folder),
        done=len(rows),
        total=len(rows) if state == "finished" and code != UNRUN_EXIT else attended.total,
        passed=sum(row.passed for row in rows),
        failed=_count(rows, "quality_failure"),
        errors=_count(rows, "execution_error"),
        skipped=_count(rows, "skipped"),
        cost_usd=round(sum(known), 6) if len(known) == len(costs) else None,
        known_usd=round(sum(known), 6),
        exit_code=code,
        message=message,
        troubles=tuple(_latest_troubles(rows)),
    )


def _run_state(
    folder: Path,
    name: str,
    attended: AttendedNote,
    manifest: RunManifest | None,
    *,
    under_way: bool,
) -> tuple[EvalState, int | None, str]:
    if under_way or _is_locked(folder):
        return "running", None, ""
    ended = manifest is not None and manifest.ended is not None
    noted = attended.state in ("cancelled", "failed")
    if manifest and ended and (not noted or _is_newer(folder / MANIFEST_FILE, folder / NOTE_FILE)):
        return "finished", manifest.exit_code, ""
    if noted:
        return attended.state, attended.exit_code, attended.message
    cut = "it was cut off: its process ended early"
    return "failed", None, f"{cut}; {RESUME_REMEDY.format(name=name)}"


def _is_newer(path: Path, other: Path) -> bool:
    """Whether the run was resumed at a terminal after the daemon's note."""
    try:
        return path.stat().st_mtime_ns > other.stat().st_mtime_ns
    except OSError:
        return False


def _is_locked(folder: Path) -> bool:
    """Whether a process writes there, such as one at a terminal."""
    if not (folder / LOCK_FILE).exists():
        return False
    lock = take_lock(folder, LOCK_FILE)
    if lock is None:
        return True
    os.close(lock)
    return False


def _count(rows: Sequence[Row], status: CaseStatus) -> int:
    return sum(row.execution_status == status for row in rows)


def _latest_troubles(rows: Sequence[Row]) -> Iterator[EvalTrouble]:
    for row in [row for row in rows if not row.passed][-SHOWN_TROUBLES:]:
        if row.execution_status == "ok":
            continue
        failing = [
            f"{score.name}: {score.score:g}"
            for score in row.scores
            if score.verdict not in ("pass", "skip")
        ]
        why = row.error or ", ".join(failing)
        yield EvalTrouble(
            test_id=row.test_id,
            target=row.target,
            status=row.execution_status,
            score=row.score,
            why=why if len(why) <= LONGEST_REASON else why[: LONGEST_REASON - 1] + "…",
        )


def _read(path: Path, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(read_plain(path, LARGE_FILE), type=kind)
    except (OSError, msgspec.DecodeError):
        return None
