"""Did a run as a whole pass, and what stands in the way?"""

import math
from collections.abc import Iterable, Sequence
from typing import Final, Literal

from goent.domain.types import Value
from goent.evals.reports.summary import Spent, spent_on
from goent.evals.rows import Row, latest

Result = Literal["passed", "failed", "errors", "unfinished", "empty"]

_RESULTS: Final[dict[int | None, Result]] = {0: "passed", 1: "failed", 3: "errors"}


class Totals(Value, frozen=True, kw_only=True):
    """All trials of all targets; a case counts once, however many try it. `judging` is not part of `spent`."""

    trials: int
    passed: int
    failed: int
    errors: int
    cases: int
    targets: int
    spent: Spent
    judging: Spent
    skipped: int = 0

    def result(self, *, finished: bool = True, exit_code: int | None = None) -> Result:
        """What the run itself said, by the strategy of its suites; else what its trials say."""
        if not self.trials:
            return "empty"
        if not finished:
            return "unfinished"
        if exit_code in _RESULTS:
            return _RESULTS[exit_code]
        if self.errors:  # without them there is no result yet
            return "errors"
        if self.failed:
            return "failed"
        return "errors" if self.skipped else "passed"


def total(rows: Iterable[Row]) -> Totals:
    last = latest(rows)
    return Totals(
        trials=len(last),
        passed=sum(row.passed for row in last),
        failed=sum(row.execution_status == "quality_failure" for row in last),
        errors=sum(row.execution_status == "execution_error" for row in last),
        skipped=sum(row.skipped for row in last),
        cases=len({(row.suite, row.test_id) for row in last}),
        targets=len({row.target for row in last}),
        spent=spent_on(last),
        judging=_judging(last),
    )


def _judging(rows: Sequence[Row]) -> Spent:
    known = [row.judge_cost_usd for row in rows if row.judge_cost_usd is not None]
    return Spent(known_usd=math.fsum(known), unknown=len(rows) - len(known))
