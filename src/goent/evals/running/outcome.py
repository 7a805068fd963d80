"""What did a run come to, in one number for who started it?

0 all pass · 1 a case fails · 3 a case could not be judged, or was skipped though none failed. (2 is a mistake in the files: then there is no run.)
"""

from collections.abc import Collection, Iterable, Sequence
from statistics import fmean

from goent.domain.types import Value
from goent.evals.reports.statistics import t_interval
from goent.evals.rows import CaseKey, Row, by_case
from goent.evals.running.plan import Trial
from goent.evals.suites import Trials

QUALITY = 1
EXECUTION = 3


class Outcome(Value, frozen=True, kw_only=True):
    """In cases: `unrun` have trials that were not made, `left_out` of them in all; `stopped` says why."""

    passed: int = 0
    failed: int = 0
    errors: int = 0
    unrun: int = 0
    left_out: int = 0
    stopped: str = ""
    skipped: int = 0

    @property
    def exit_code(self) -> int:
        if self.errors or self.unrun:
            return EXECUTION
        if self.failed:
            return QUALITY
        return EXECUTION if self.skipped else 0


def outcome(
    trials: Iterable[Trial],
    rows: Iterable[Row],
    *,
    stopped: str = "",
    enough: Collection[CaseKey] = (),
) -> Outcome:
    """Of the cases that were to be tried, by the rows that there are; `enough` need no more of them."""
    made = by_case(rows)
    every = tuple(trials)
    planned = {trial.key: trial for trial in every}
    wanted = sum(trial.key not in enough for trial in every)
    there = sum(len(rows) for key, rows in made.items() if key in planned and key not in enough)
    counts = {"passed": 0, "failed": 0, "errors": 0, "unrun": 0, "skipped": 0}
    for key, trial in planned.items():
        counts[of_case(trial, made.get(key, ()), has_enough=key in enough)] += 1
    return Outcome(**counts, left_out=max(0, wanted - there), stopped=stopped)


def case_score(rows: Sequence[Row], trials: Trials) -> float:
    """The trials of a case as one score, in the way that its suite wants."""
    scores = [row.score for row in rows if row.scored]
    if not scores:
        return 0.0
    match trials.strategy:
        case "pass_at_k":
            return max(scores)
        case "confidence_interval":
            interval = t_interval(scores)
            return fmean(scores) if interval is None else max(0.0, interval.low)
        case "mean":
            return fmean(scores)


def of_case(trial: Trial, rows: Sequence[Row], *, has_enough: bool) -> str:
    """The field of `Outcome` in which the case counts."""
    if any(not row.scored and not row.skipped for row in rows):
        return "errors"
    if any(row.skipped for row in rows):
        return "skipped"
    if not rows or (len(rows) < trial.trials.count and not has_enough):
        return "unrun"
    if len(rows) == 1:
        return "passed" if rows[0].passed else "failed"
    reached = case_score(rows, trial.trials) >= trial.threshold - 1e-9
    # A threshold of 0 is reached by nothing at all, and so by trials that lack what was required.
    return "passed" if reached and any(row.passed for row in rows) else "failed"
