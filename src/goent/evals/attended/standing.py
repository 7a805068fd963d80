"""How does a run stand, by what is on disk? Whoever wrote it, and whether or not it still goes on."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from goent.domain.evaluations import EvalState, EvalStatus, EvalTrouble
from goent.domain.types import Value
from goent.evals.attended.notes import ATTENDED, RESUME, Attended
from goent.evals.grades import Status
from goent.evals.rows import Row, read_rows
from goent.evals.running.folder import INDEX, LOCK, MANIFEST, Manifest, counting
from goent.lock import take_lock
from goent.plain_files import LARGE, read_plain

TROUBLES: Final = 5
WHY: Final = 160
UNRUN: Final = 3  # some trials may not have been made

T = TypeVar("T", bound=Value)


def standing(folder: Path, name: str, *, under_way: bool) -> EvalStatus:
    """`under_way`: we know that it goes on, for it is our own."""
    attended = _read(folder / ATTENDED, Attended) or Attended()
    manifest = _read(folder / MANIFEST, Manifest)
    index = folder / INDEX
    rows = counting(read_rows(index), folder).rows if index.exists() else ()
    state, code, message = _state(folder, name, attended, manifest, under_way=under_way)
    costs = [row.cost_usd for row in rows]
    known = [cost for cost in costs if cost is not None]
    return EvalStatus(
        run_id=name,
        state=state,
        out=str(folder),
        done=len(rows),
        total=len(rows) if state == "finished" and code != UNRUN else attended.total,
        passed=sum(row.passed for row in rows),
        failed=_count(rows, "quality_failure"),
        errors=_count(rows, "execution_error"),
        skipped=_count(rows, "skipped"),
        cost_usd=round(sum(known), 6) if len(known) == len(costs) else None,
        known_usd=round(sum(known), 6),
        exit_code=code,
        message=message,
        troubles=tuple(_troubles(rows)),
    )


def _state(
    folder: Path, name: str, attended: Attended, manifest: Manifest | None, *, under_way: bool
) -> tuple[EvalState, int | None, str]:
    if under_way or _is_held(folder):
        return "running", None, ""
    ended = manifest is not None and manifest.ended is not None
    noted = attended.state in ("cancelled", "failed")
    if manifest and ended and (not noted or _is_newer(folder / MANIFEST, folder / ATTENDED)):
        return "finished", manifest.exit_code, ""
    if noted:
        return attended.state, attended.exit_code, attended.message
    cut = "it was cut off: whoever ran it ended in the middle"
    return "failed", None, f"{cut}; {RESUME.format(name=name)}"


def _is_newer(path: Path, other: Path) -> bool:
    """Somebody has gone on with the run at a terminal since we noted how it ended for us."""
    try:
        return path.stat().st_mtime_ns > other.stat().st_mtime_ns
    except OSError:
        return False


def _is_held(folder: Path) -> bool:
    """Somebody writes there, at a terminal perhaps."""
    if not (folder / LOCK).exists():
        return False
    lock = take_lock(folder, LOCK)
    if lock is None:
        return True
    os.close(lock)
    return False


def _count(rows: Sequence[Row], status: Status) -> int:
    return sum(row.execution_status == status for row in rows)


def _troubles(rows: Sequence[Row]) -> Iterator[EvalTrouble]:
    """The latest ones."""
    for row in [row for row in rows if not row.passed][-TROUBLES:]:
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
            why=why if len(why) <= WHY else why[: WHY - 1] + "…",
        )


def _read(path: Path, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(read_plain(path, LARGE), type=kind)
    except (OSError, msgspec.DecodeError):
        return None
