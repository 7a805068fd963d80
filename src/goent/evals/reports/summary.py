"""How did each target do, how sure is that, and what did it cost?"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median

from goent.domain.types import Value
from goent.evals.reports.statistics import (
    Interval,
    flip_rate,
    pass_at_k,
    pass_hat_k,
    t_interval,
    wilson,
)
from goent.evals.rows import CaseKey, Row, by_case
from goent.evals.traces import TokenUsage

WORST = 5


class Estimate(Value, frozen=True, kw_only=True):
    """A value and how far it may be off; no interval of a mean where all cases are alike, or one."""

    value: float
    interval: Interval | None = None


class Spent(Value, frozen=True, kw_only=True):
    """What is known of costs. `unknown` counts the trials that told none: with any, there is no total."""

    known_usd: float = 0.0
    unknown: int = 0

    @property
    def total_usd(self) -> float | None:
        return None if self.unknown else self.known_usd


class Tokens(Value, frozen=True, kw_only=True):
    """What is known of tokens, and how many trials told none."""

    known: TokenUsage = TokenUsage()
    unknown: int = 0


class Durations(Value, frozen=True, kw_only=True):
    """Of the trials whose duration is known, in milliseconds."""

    median_ms: float
    p90_ms: float
    longest_ms: float
    total_ms: float


class Repeats(Value, frozen=True, kw_only=True):
    """What repeated trials tell, of the cases that have several; `k` is how many each of those has at least."""

    k: int
    pass_at_k: float
    pass_hat_k: float
    flip_rate: float


class Weak(Value, frozen=True, kw_only=True):
    """A case that did not always pass, and the graders that were not content."""

    key: CaseKey
    score: float
    passed: int
    trials: int
    failed_graders: tuple[str, ...] = ()


class TargetSummary(Value, frozen=True, kw_only=True):
    """One target's run. Rates and means are over cases that could be scored; the others stand beside them.

    `answered_by`: how many trials each fallback has answered in place of the target.
    """

    target: str
    cases: int
    trials: int
    passed: int
    errors: tuple[Row, ...]
    pass_rate: Estimate | None
    mean: Estimate | None
    spent: Spent
    tokens: Tokens
    durations: Durations | None
    repeats: Repeats | None
    worst: tuple[Weak, ...]
    answered_by: Mapping[str, int] = {}
    skipped: tuple[Row, ...] = ()


def summarise(rows: Iterable[Row], *, worst: int = WORST) -> tuple[TargetSummary, ...]:
    """Of each target, by name."""
    targets: dict[str, list[tuple[Row, ...]]] = {}
    for key, trials in by_case(rows).items():
        targets.setdefault(key.target, []).append(trials)
    return tuple(_of_target(name, cases, worst) for name, cases in sorted(targets.items()))


def _of_target(target: str, cases: Sequence[tuple[Row, ...]], worst: int) -> TargetSummary:
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
        spent=spent_on(rows),
        tokens=_tokens(rows),
        durations=_durations(rows),
        repeats=_repeats(scored),
        worst=_worst(scored, worst),
        answered_by=Counter(row.answered_by for row in rows if row.answered_by),
        skipped=tuple(row for row in rows if row.skipped),
    )


def _pass_rate(cases: Sequence[tuple[Row, ...]]) -> Estimate | None:
    if not cases:
        return None
    rate = fmean(fmean(row.passed for row in trials) for trials in cases)
    return Estimate(value=rate, interval=wilson(rate * len(cases), len(cases)))


def _mean(cases: Sequence[tuple[Row, ...]]) -> Estimate | None:
    if not cases:
        return None
    means = [fmean(row.score for row in trials) for trials in cases]
    interval = t_interval(means)
    if interval is not None:  # a score is never outside
        interval = Interval(low=max(0.0, interval.low), high=min(1.0, interval.high))
    return Estimate(value=fmean(means), interval=interval)


def spent_on(rows: Sequence[Row]) -> Spent:
    known = [row.cost_usd for row in rows if row.cost_usd is not None]
    return Spent(known_usd=math.fsum(known), unknown=len(rows) - len(known))


def _tokens(rows: Sequence[Row]) -> Tokens:
    known = [row.token_usage for row in rows if row.token_usage is not None]
    total = TokenUsage(
        input=sum(usage.input for usage in known),
        output=sum(usage.output for usage in known),
        cached=sum(usage.cached for usage in known),
        reasoning=sum(usage.reasoning for usage in known),
    )
    return Tokens(known=total, unknown=len(rows) - len(known))


def _durations(rows: Sequence[Row]) -> Durations | None:
    known = sorted(row.duration_ms for row in rows if row.duration_ms is not None)
    if not known:
        return None
    return Durations(
        median_ms=round(median(known), 3),
        p90_ms=round(known[math.ceil(0.9 * len(known)) - 1], 3),
        longest_ms=round(known[-1], 3),
        total_ms=round(math.fsum(known), 3),
    )


def _repeats(cases: Sequence[tuple[Row, ...]]) -> Repeats | None:
    counted = [(len(trials), sum(row.passed for row in trials)) for trials in cases]
    repeated = [(count, passed) for count, passed in counted if count > 1]
    if not repeated:
        return None
    k = min(count for count, _ in repeated)
    return Repeats(
        k=k,
        pass_at_k=fmean(pass_at_k(count, passed, k) for count, passed in repeated),
        pass_hat_k=fmean(pass_hat_k(count, passed, k) for count, passed in repeated),
        flip_rate=fmean(flip_rate(count, passed) for count, passed in repeated),
    )


def _worst(cases: Sequence[tuple[Row, ...]], most: int) -> tuple[Weak, ...]:
    weak = [_weak(trials) for trials in cases if not all(row.passed for row in trials)]
    return tuple(sorted(weak, key=lambda case: (case.score, case.key))[:most])


def _weak(trials: Sequence[Row]) -> Weak:
    failed = (
        score.name
        for row in trials
        for score in row.scores
        if score.verdict in {"fail", "borderline"}
    )
    return Weak(
        key=trials[0].key,
        score=fmean(row.score for row in trials),
        passed=sum(row.passed for row in trials),
        trials=len(trials),
        failed_graders=tuple(dict.fromkeys(failed)),
    )
