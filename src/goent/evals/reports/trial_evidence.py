"""Reads why a trial did not pass from its row, its grades and its trace."""

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from goent.domain.types import Value
from goent.evals.eval_results import Assertion, CaseGrade, Grade, Row
from goent.evals.traces import Trace
from goent.system.plain_files import FileTooLarge, read_plain

GRADES_FILE = "grades.json"
MAX_BYTES = 32_000_000  # of a file that a report reads
T = TypeVar("T")


class TrialEvidence(Value, frozen=True, kw_only=True):
    """The files beside the row. `missing` says what is missing, and why."""

    trace: Trace | None = None
    graded: CaseGrade | None = None
    missing: tuple[str, ...] = ()


def read_evidence(row: Row, out: Path, graded_from: Path | None = None) -> TrialEvidence:
    """Reads what there is, only in the run's folder and in `graded_from`. Never raises."""
    if not row.trace_path:
        return TrialEvidence(missing=("no trace was kept",))
    missing: list[str] = []
    allowed = (out,) if graded_from is None else (out, graded_from)
    trace = _read(allowed, row.trace_path, Trace, missing)
    graded = _read(allowed, _grades_path(row), CaseGrade, missing if row.scored else [])
    return TrialEvidence(trace=trace, graded=graded, missing=tuple(missing))


def failure_reason(row: Row, out: Path) -> str:
    """The error, or the first failure of each failed grader, in one line."""
    if row.passed:
        return ""
    graded = (
        _read((out,), _grades_path(row), CaseGrade, []) if row.scored and row.trace_path else None
    )
    return reason_from_evidence(row, TrialEvidence(graded=graded))


def reason_from_evidence(row: Row, evidence: TrialEvidence) -> str:
    """As `failure_reason`, from evidence."""
    found = "; ".join(_first_failures(evidence.graded)) if evidence.graded and row.scored else ""
    return found or short_reason(row)


class _WorkspacePath(Value, frozen=True, kw_only=True):
    workspace_path: str | None = None


def kept_workspace(row: Row, out: Path, graded_from: Path | None = None) -> Path | None:
    """The attempt's directory, if it still exists and is not empty."""
    if not row.trace_path:
        return None
    allowed = (out,) if graded_from is None else (out, graded_from)
    told = _read(allowed, row.trace_path, _WorkspacePath, [])
    if told is None or not told.workspace_path:
        return None
    there = Path(told.workspace_path)
    try:
        return there if any(there.iterdir()) else None
    except (OSError, ValueError):
        return None


def _grades_path(row: Row) -> str:
    return row.grades_path or str(Path(row.trace_path).with_name(GRADES_FILE))


def short_reason(row: Row) -> str:
    """The error, or the failed graders with their scores, from the row alone."""
    if not row.scored or row.held_back_by:
        return row.error or "the attempt failed"
    failed = [score for score in row.scores if score.verdict in {"fail", "borderline"}]
    return ", ".join(f"{score.name} {score.score:.2f}" for score in failed)


def _first_failures(graded: CaseGrade) -> list[str]:
    found: list[str] = []
    for grade in graded.grades:
        if grade.verdict in {"fail", "borderline"}:
            first = _first_failed(grade)
            found.append(
                f"{grade.name}: {first.text}" if first else f"{grade.name} {grade.score:.2f}"
            )
    return found


def _first_failed(grade: Grade) -> Assertion | None:
    for assertion in grade.assertions:
        if not assertion.passed:
            return assertion
    return next((first for member in grade.members if (first := _first_failed(member))), None)


def _read(allowed: Sequence[Path], name: str, kind: type[T], missing: list[str]) -> T | None:
    """`name` is relative to the first folder."""
    path = allowed[0] / name
    try:
        if not any(path.resolve().is_relative_to(folder.resolve()) for folder in allowed):
            missing.append(f"{name!r} is not in the run's folder")
            return None
        return msgspec.json.decode(read_plain(path, MAX_BYTES), type=kind)
    except FileTooLarge:
        missing.append(f"{path.name} is larger than {MAX_BYTES // 1_000_000} MB")
    except OSError as error:
        missing.append(f"{path.name}: {error.strerror}")
    except (
        msgspec.DecodeError,
        ValueError,
        RecursionError,
    ) as error:  # ValueError: an invalid path
        missing.append(f"{path.name}: {error}")
    return None
