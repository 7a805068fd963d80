"""Computes rates, intervals and significance tests for few trials."""

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import compress
from random import Random
from statistics import NormalDist, fmean, stdev

from goent.domain.types import Value

CONFIDENCE = 0.95
RESAMPLES = 2000
EXACT_PAIRS = 12  # 4096 ways to swap, all of which are tried
EXACT_FREEDOM = 200  # above it the normal curve with one correction is as good
NOISE = 1e-12  # between sums of the same numbers in different order


class Interval(Value, frozen=True, kw_only=True):
    """The likely range of the true value."""

    low: float
    high: float


def seeded_random(seed: int = 0) -> Random:
    """Seeded, so that a report does not change when it is written again."""
    return Random(seed)  # noqa: S311 (not for secrets)


def pass_at_k(trials: int, passed: int, k: int) -> float:
    """The chance that at least one of k trials passes, without bias: 1 - C(n-c, k) / C(n, k)."""
    _check(trials, passed, k)
    return 1 - math.comb(trials - passed, k) / math.comb(trials, k)


def pass_hat_k(trials: int, passed: int, k: int) -> float:
    """The chance that all of k trials pass (pass^k), without bias: C(c, k) / C(n, k)."""
    _check(trials, passed, k)
    return math.comb(passed, k) / math.comb(trials, k)


def flip_rate(trials: int, passed: int) -> float:
    """The chance that two trials of one case disagree. Needs two trials."""
    _check(trials, passed, 2)
    return 2 * passed * (trials - passed) / (trials * (trials - 1))


def wilson(passed: float, total: int, confidence: float = CONFIDENCE) -> Interval:
    """Wilson's interval of a rate. It keeps its width where all have passed, or none.

    `passed` may be a sum of shares: with several trials of a case the case stays the unit, which is
    rather too wide than too narrow.
    """
    if total < 1 or not 0 <= passed <= total:
        raise ValueError(f"{passed!r} of {total!r} is not a rate")
    z = _z_score(confidence)
    rate = passed / total
    scale = 1 + z * z / total
    middle = (rate + z * z / (2 * total)) / scale
    half = z / scale * math.sqrt(rate * (1 - rate) / total + z * z / (4 * total * total))
    return Interval(low=max(0.0, min(rate, middle - half)), high=min(1.0, max(rate, middle + half)))


def t_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval | None:
    """Student's interval of a mean; None without spread."""
    if not _differ(values):
        return None
    mean = fmean(values)
    half = t_quantile(len(values) - 1, confidence) * stdev(values) / math.sqrt(len(values))
    return Interval(low=mean - half, high=mean + half)


def bootstrap_interval(
    values: Sequence[float],
    source: Random,
    *,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
) -> Interval | None:
    """The percentile interval of a mean; None without spread.

    Negated values with the same source give the negated interval, to the last bit.
    """
    if not _differ(values):
        return None
    count = len(values)
    means = sorted(math.fsum(source.choices(values, k=count)) / count for _ in range(resamples))
    tail = int((1 - confidence) / 2 * resamples)
    return Interval(low=means[tail], high=means[resamples - 1 - tail])


def _differ(values: Sequence[float]) -> bool:
    return bool(values) and max(values) - min(values) > NOISE


def sign_test(more: int, less: int) -> float:
    """The exact two-sided probability of so uneven a split if both sides are alike.

    For cases that pass in one run and fail in the other it is McNemar's exact test.
    """
    total = more + less
    tail = sum(math.comb(total, number) for number in range(min(more, less) + 1))
    return min(1.0, 2 * tail / 2**total)


def swap_test(deltas: Sequence[float], source: Random, *, resamples: int = 5000) -> float:
    """The two-sided probability of so large a mean if each pair could be swapped.

    It assumes nothing about the scores, and fewer than six pairs never come below 0.05.
    """
    moved = [abs(delta) for delta in deltas if delta]
    seen = abs(math.fsum(deltas)) - NOISE
    if len(moved) <= EXACT_PAIRS:
        sums = [0.0]
        for size in moved:
            sums = [total + signed for total in sums for signed in (size, -size)]
        return sum(abs(total) >= seen for total in sums) / len(sums)
    whole = math.fsum(moved)
    as_large = 0
    for _ in range(resamples):
        swapped = compress(moved, source.choices((False, True), k=len(moved)))
        as_large += abs(whole - 2 * math.fsum(swapped)) >= seen
    return (as_large + 1) / (resamples + 1)


@lru_cache(maxsize=256)
def t_quantile(freedom: int, confidence: float = CONFIDENCE) -> float:
    """The two-sided quantile of Student's distribution."""
    if freedom < 1:
        raise ValueError(f"{freedom!r} degrees of freedom say nothing")
    if freedom > EXACT_FREEDOM:
        z = _z_score(confidence)
        return z + (z**3 + z) / (4 * freedom)
    low, high = 0.0, math.pi / 2  # of the angle whose tangent is t / sqrt(freedom)
    for _ in range(60):
        middle = (low + high) / 2
        if _within(middle, freedom) < confidence:
            low = middle
        else:
            high = middle
    return math.tan(low) * math.sqrt(freedom)


def _within(angle: float, freedom: int) -> float:
    """Student's distribution between -t and t, for whole degrees (Abramowitz and Stegun, 26.7.3-4)."""
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term = cosine if odd else 1.0
    total = 0.0
    for step in range(1 + odd, freedom, 2):
        total += term
        term *= cosine * cosine * step / (step + 1)
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


def _z_score(confidence: float) -> float:
    return NormalDist().inv_cdf((1 + confidence) / 2)


def _check(trials: int, passed: int, k: int) -> None:
    if not (0 <= passed <= trials and 1 <= k <= trials):
        raise ValueError(f"{k!r} of {trials!r} trials, {passed!r} passed: no such choice")
