"""Defines grades and result rows, and keeps `index.jsonl` so that a kill loses at most one row."""

import json
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta

from goent.domain.errors import RequestError
from goent.domain.types import Value
from goent.evals.traces import TokenUsage
from goent.system.plain_files import LARGE_FILE, read_plain

GradeVerdict = Literal["pass", "fail", "skip", "borderline"]
CaseStatus = Literal["ok", "quality_failure", "execution_error", "skipped"]


class Assertion(Value, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that a grader checked."""

    text: str
    passed: bool
    evidence: str = ""


class JudgeUsage(Value, frozen=True, kw_only=True, omit_defaults=True):
    """The usage of a judge that was asked `times`. What is unknown is None."""

    by: str
    times: int = 1
    usage: TokenUsage | None = None
    cost_usd: float | None = None


class Grade(Value, frozen=True, kw_only=True, omit_defaults=True):
    """The result of one grader. A skipped one does not count.

    `error`: a script or judge was unavailable, which says nothing about the attempt.
    `broken`: the grader could not grade, which `negate` does not turn into a pass.
    """

    name: str
    type: str
    score: float
    verdict: GradeVerdict
    weight: float = 1.0
    assertions: tuple[Assertion, ...] = ()
    details: object = None
    error: str = ""
    broken: bool = False
    judging: JudgeUsage | None = None
    members: tuple["Grade", ...] = ()


class CaseGrade(Value, frozen=True, kw_only=True):
    """The result of a case: the weighted mean of its grades, or 0 if a required one failed.

    `error` says why there is no score. `judge_cost_usd` is the cost of judges: 0 without any, None if
    unknown. `spoilt`: a required grader failed. A conversation has a grade per turn, and one for the whole.
    """

    score: float
    status: CaseStatus
    grades: tuple[Grade, ...] = ()
    error: str | None = None
    judge_cost_usd: float | None = 0.0
    spoilt: bool = False


Share = Annotated[float, Meta(ge=0, le=1)]
Amount = Annotated[float, Meta(ge=0)]


class CaseKey(NamedTuple):
    """Identifies a case and a target."""

    suite: str
    test_id: str
    target: str


class Score(Value, frozen=True, kw_only=True):
    """The score of one grader."""

    name: str
    type: str
    score: Share
    verdict: GradeVerdict
    weight: Amount = 1.0


class Row(Value, frozen=True, kw_only=True):
    """The outcome of one trial. What is unknown is None, and null in the file.

    `trial` counts from 1 up to `trials`, `attempt` from 0: the number of retries. `answered_by` is a
    fallback that answered for the target. Paths are relative to the run's folder. `judge_cost_usd` is not
    part of `cost_usd`; `known_cost_usd` is the known part of both, over all attempts. `held_back_by` are
    dependencies that did not pass, so that there was no attempt.
    """

    test_id: str
    target: str
    score: Share
    execution_status: CaseStatus
    scores: tuple[Score, ...] = ()
    token_usage: TokenUsage | None = None
    cost_usd: Amount | None = None
    duration_ms: Amount | None = None
    suite: str = ""
    trial: int = 1
    trials: int = 1
    attempt: int = 0
    error: str | None = None
    answered_by: str = ""
    trace_path: str = ""
    grades_path: str = ""
    judge_cost_usd: Amount | None = 0.0
    known_cost_usd: Amount = 0.0
    held_back_by: tuple[str, ...] = ()

    @property
    def key(self) -> CaseKey:
        return CaseKey(self.suite, self.test_id, self.target)

    @property
    def costs(self) -> tuple[float | None, float | None]:
        return self.cost_usd, self.judge_cost_usd

    @property
    def passed(self) -> bool:
        return self.execution_status == "ok"

    @property
    def scored(self) -> bool:
        """Whether there was an answer to grade; a failed attempt says nothing about quality."""
        return self.execution_status in ("ok", "quality_failure")

    @property
    def ungraded(self) -> bool:
        """The attempt succeeded, but a grader was unavailable; a failed attempt has no scores."""
        return self.execution_status == "execution_error" and bool(self.scores)

    @property
    def skipped(self) -> bool:
        return self.execution_status == "skipped"


class Rows(Value, frozen=True, kw_only=True):
    """The rows of a file. `damaged` are the numbers of unreadable lines; `cut`: the last line is incomplete.

    `dropped` counts rows of trials that the run no longer has; `remade` trials had failed and were made again.
    """

    rows: tuple[Row, ...] = ()
    damaged: tuple[int, ...] = ()
    cut: bool = False
    dropped: int = 0
    remade: frozenset[tuple[CaseKey, int]] = frozenset()


_decode = msgspec.json.Decoder(Row).decode
_encode = msgspec.json.Encoder().encode


def read_rows(path: Path) -> Rows:
    """All rows that can be read. Raises `RequestError` if the file cannot be."""
    try:
        lines = read_plain(path, LARGE_FILE).split(b"\n")
    except OSError as error:
        raise RequestError(
            f"the rows of a run cannot be read from {str(path)!r}: {error.strerror}; "
            "name the folder that a run has written"
        ) from error
    rows: list[Row] = []
    damaged: list[int] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        row = _decode_row(line)
        if row is None:
            damaged.append(number)
        else:
            rows.append(row)
    cut = bool(damaged) and damaged[-1] == len(lines)
    return Rows(rows=tuple(rows), damaged=tuple(damaged[:-1] if cut else damaged), cut=cut)


def row_line(row: Row) -> bytes:
    """As a file of rows has it. Raises `ValueError` for a number that is none."""
    numbers = (row.score, *row.costs, row.duration_ms, *(score.score for score in row.scores))
    if not all(number is None or (math.isfinite(number) and number >= 0) for number in numbers):
        raise ValueError(f"a row of {row.test_id!r} holds a number that is none: {numbers!r}")
    return to_json(row) + b"\n"


def to_json(value: Value) -> bytes:
    """Also of a text with a path, or a variable, that is in another encoding than UTF-8."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        told = json.dumps(msgspec.to_builtins(value), ensure_ascii=False, allow_nan=False)
        return told.encode(errors="replace")


class RowFile:
    """A file that rows are added to. A cut last line is mended first."""

    def __init__(self, path: Path) -> None:
        is_new = not path.exists()
        self._descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        _repair_last_line(self._descriptor)
        if is_new:
            _sync_folder(path.parent)

    def append(self, lines: Iterable[bytes]) -> None:
        """They are on disk when this returns; if it raises, none of them is there."""
        size = os.fstat(self._descriptor).st_size
        left = memoryview(b"".join(lines))
        try:
            while left:
                left = left[os.write(self._descriptor, left) :]
            os.fsync(self._descriptor)
        except OSError:
            os.ftruncate(self._descriptor, size)
            raise

    def close(self) -> None:
        os.close(self._descriptor)


def latest_rows(rows: Iterable[Row]) -> tuple[Row, ...]:
    """Of each trial the row that was written last, in the order of the first: a run may be resumed."""
    newest: dict[tuple[CaseKey, int], Row] = {}
    for row in rows:
        newest[row.key, row.trial] = row
    return tuple(newest.values())


def remade_trials(rows: Iterable[Row]) -> frozenset[tuple[CaseKey, int]]:
    """The trials that had failed before their last row was written. What could not be judged says nothing, and is none."""
    failed: set[tuple[CaseKey, int]] = set()
    again: set[tuple[CaseKey, int]] = set()
    for row in rows:
        which = (row.key, row.trial)
        if which in failed:
            again.add(which)
        if row.execution_status == "quality_failure" and not row.held_back_by:
            failed.add(which)
    return frozenset(again)


def rows_by_case(rows: Iterable[Row]) -> dict[CaseKey, tuple[Row, ...]]:
    """The trials of each case."""
    cases: dict[CaseKey, list[Row]] = {}
    for row in latest_rows(rows):
        cases.setdefault(row.key, []).append(row)
    return {key: tuple(trials) for key, trials in cases.items()}


def _decode_row(line: bytes) -> Row | None:
    try:
        return _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _repair_last_line(descriptor: int) -> None:
    """End a last line that is a whole row, and take away one that is not."""
    size = os.fstat(descriptor).st_size
    if size == 0 or os.pread(descriptor, 1, size - 1) == b"\n":
        return
    content = os.pread(descriptor, size, 0)
    start = content.rfind(b"\n") + 1
    if _decode_row(content[start:]) is None:
        os.ftruncate(descriptor, start)
    else:
        os.write(descriptor, b"\n")


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
