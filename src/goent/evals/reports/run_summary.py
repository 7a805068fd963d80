"""Summarizes a run by target and as a whole: pass rates, scores, costs and durations."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median
from typing import Final, Literal

from goent.domain.types import Value
from goent.evals.eval_results import CaseKey, Row, latest_rows, rows_by_case
from goent.evals.reports.statistics import (
    Interval,
    flip_rate,
    pass_at_k,
    pass_hat_k,
    t_interval,
    wilson,
)
from goent.evals.traces import TokenUsage, sum_usage

MAX_WEAK_CASES = 5


class IntervalEstimate(Value, frozen=True, kw_only=True):
    """A value with its interval; a mean has none if all cases are equal, or there is only one."""

    value: float
    interval: Interval | None = None


class CostSummary(Value, frozen=True, kw_only=True):
    """Known costs. `unknown` counts trials without one: with any, there is no total."""

    known_usd: float = 0.0
    unknown: int = 0

    @property
    def total_usd(self) -> float | None:
        return None if self.unknown else self.known_usd


class TokenSummary(Value, frozen=True, kw_only=True):
    """Known tokens, and the number of trials without any."""

    known: TokenUsage = TokenUsage()
    unknown: int = 0


class DurationSummary(Value, frozen=True, kw_only=True):
    """Known durations, in milliseconds."""

    median_ms: float
    p90_ms: float
    longest_ms: float
    total_ms: float


class RepeatSummary(Value, frozen=True, kw_only=True):
    """Rates over cases with several trials; each has at least `k`."""

    k: int
    pass_at_k: float
    pass_hat_k: float
    flip_rate: float


class WeakCase(Value, frozen=True, kw_only=True):
    """A case that did not always pass, and its failed graders."""

    key: CaseKey
    score: float
    passed: int
    trials: int
    failed_graders: tuple[str, ...] = ()


class TargetSummary(Value, frozen=True, kw_only=True):
    """One target's results. Rates and means are over cases that could be scored.

    `answered_by` counts the trials that each fallback has answered.
    """

    target: str
    cases: int
    trials: int
    passed: int
    errors: tuple[Row, ...]
    pass_rate: IntervalEstimate | None
    mean: IntervalEstimate | None
    spent: CostSummary
    tokens: TokenSummary
    durations: DurationSummary | None
    repeats: RepeatSummary | None
    worst: tuple[WeakCase, ...]
    answered_by: Mapping[str, int] = {}
    skipped: tuple[Row, ...] = ()


def summarize_targets(
    rows: Iterable[Row], *, worst: int = MAX_WEAK_CASES
) -> tuple[TargetSummary, ...]:
    targets: dict[str, list[tuple[Row, ...]]] = {}
    for key, trials in rows_by_case(rows).items():
        targets.setdefault(key.target, []).append(trials)
    return tuple(_summarize_target(name, cases, worst) for name, cases in sorted(targets.items()))


def _summarize_target(target: str, cases: Sequence[tuple[Row, ...]], worst: int) -> TargetSummary:
    rows = [row for trials in cases for row in trials]
    scored = [some for trials in cases if (some := tuple(row for row in trials if row.scored))]
    return TargetSummary(
        target=target,
        cases=len(cases),
        trials=len(rows),
        passed=sum(row.passed for row in rows),
        errors=tuple(row for row in rows if row.execution_status == "execution_error"),
        pass_rate=_pass_rate(scored),
        mean=_mean(scored),
        spent=sum_costs(rows),
        tokens=_tokens(rows),
        durations=_durations(rows),
        repeats=_repeats(scored),
        worst=_worst(scored, worst),
        answered_by=Counter(row.answered_by for row in rows if row.answered_by),
        skipped=tuple(row for row in rows if row.skipped),
    )


def _pass_rate(cases: Sequence[tuple[Row, ...]]) -> IntervalEstimate | None:
    if not cases:
        return None
    rate = fmean(fmean(row.passed for row in trials) for trials in cases)
    return IntervalEstimate(value=rate, interval=wilson(rate * len(cases), len(cases)))


def _mean(cases: Sequence[tuple[Row, ...]]) -> IntervalEstimate | None:
    if not cases:
        return None
    means = [fmean(row.score for row in trials) for trials in cases]
    interval = t_interval(means)
    if interval is not None:  # a score is never outside
        interval = Interval(low=max(0.0, interval.low), high=min(1.0, interval.high))
    return IntervalEstimate(value=fmean(means), interval=interval)


def sum_costs(rows: Sequence[Row]) -> CostSummary:
    return _cost_summary([row.cost_usd for row in rows])


def _cost_summary(costs: Sequence[float | None]) -> CostSummary:
    known = [cost for cost in costs if cost is not None]
    return CostSummary(known_usd=math.fsum(known), unknown=len(costs) - len(known))


def _tokens(rows: Sequence[Row]) -> TokenSummary:
    usages = [row.token_usage for row in rows]
    return TokenSummary(known=sum_usage(usages) or TokenUsage(), unknown=usages.count(None))


def _durations(rows: Sequence[Row]) -> DurationSummary | None:
    known = sorted(row.duration_ms for row in rows if row.duration_ms is not None)
    if not known:
        return None
    return DurationSummary(
        median_ms=round(median(known), 3),
        p90_ms=round(known[math.ceil(0.9 * len(known)) - 1], 3),
        longest_ms=round(known[-1], 3),
        total_ms=round(math.fsum(known), 3),
    )


def _repeats(cases: Sequence[tuple[Row, ...]]) -> RepeatSummary | None:
    counted = [(len(trials), sum(row.passed for row in trials)) for trials in cases]
    repeated = [(count, passed) for count, passed in counted if count > 1]
    if not repeated:
        return None
    k = min(count for count, _ in repeated)
    return RepeatSummary(
        k=k,
        pass_at_k=fmean(pass_at_k(count, passed, k) for count, passed in repeated),
        pass_hat_k=fmean(pass_hat_k(count, passed, k) for count, passed in repeated),
        flip_rate=fmean(flip_rate(count, passed) for count, passed in repeated),
    )


def _worst(cases: Sequence[tuple[Row, ...]], most: int) -> tuple[WeakCase, ...]:
    weak = [_weak_case(trials) for trials in cases if not all(row.passed for row in trials)]
    return tuple(sorted(weak, key=lambda case: (case.score, case.key))[:most])


def _weak_case(trials: Sequence[Row]) -> WeakCase:
    failed = (
        score.name
        for row in trials
        for score in row.scores
        if score.verdict in {"fail", "borderline"}
    )
    return WeakCase(
        key=trials[0].key,
        score=fmean(row.score for row in trials),
        passed=sum(row.passed for row in trials),
        trials=len(trials),
        failed_graders=tuple(dict.fromkeys(failed)),
    )


RunResult = Literal["passed", "failed", "errors", "unfinished", "empty"]

_RESULTS_BY_EXIT: Final[dict[int | None, RunResult]] = {0: "passed", 1: "failed", 3: "errors"}


class RunTotals(Value, frozen=True, kw_only=True):
    """Totals over all targets; a case counts once. `judging` is not part of `spent`."""

    trials: int
    passed: int
    failed: int
    errors: int
    cases: int
    targets: int
    spent: CostSummary
    judging: CostSummary
    skipped: int = 0

    def result(self, *, finished: bool = True, exit_code: int | None = None) -> RunResult:
        """By the run's exit code if it is known, else by its trials."""
        if not self.trials:
            return "empty"
        if not finished:
            return "unfinished"
        if exit_code in _RESULTS_BY_EXIT:
            return _RESULTS_BY_EXIT[exit_code]
        if self.errors:  # without them there is no result yet
            return "errors"
        if self.failed:
            return "failed"
        return "errors" if self.skipped else "passed"


def run_totals(rows: Iterable[Row]) -> RunTotals:
    last = latest_rows(rows)
    return RunTotals(
        trials=len(last),
        passed=sum(row.passed for row in last),
        failed=sum(row.execution_status == "quality_failure" for row in last),
        errors=sum(row.execution_status == "execution_error" for row in last),
        skipped=sum(row.skipped for row in last),
        cases=len({(row.suite, row.test_id) for row in last}),
        targets=len({row.target for row in last}),
        spent=sum_costs(last),
        judging=_cost_summary([row.judge_cost_usd for row in last]),
    )
