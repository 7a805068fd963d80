"""Where on a plot is a value, and which values are named beside it?"""

import math
from collections.abc import Sequence

from goent.domain.types import Value

WIDE = 20  # from the smallest to the largest: above it an axis counts in powers of ten
STEPS = (1, 2, 5, 10)
MOST_TICKS = 5


class Axis(Value, frozen=True, kw_only=True):
    """From `low` at `start` to `high` at `end`, which are places on the plot."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def at(self, value: float) -> float:
        share = (self._bent(value) - self._bent(self.low)) / (
            self._bent(self.high) - self._bent(self.low)
        )
        return self.start + min(1.0, max(0.0, share)) * (self.end - self.start)

    def ticks(self) -> tuple[float, ...]:
        return _powers(self.low, self.high) if self.log else _round(self.low, self.high)

    def bins(self, count: int) -> tuple[float, ...]:
        """The ends of so many equal parts."""
        low, high = self._bent(self.low), self._bent(self.high)
        ends = (low + (high - low) * number / count for number in range(count + 1))
        return tuple(math.exp(end) if self.log else end for end in ends)

    def _bent(self, value: float) -> float:
        return math.log(max(value, self.low / 10)) if self.log else value


def unit_axis(start: float, end: float) -> Axis:
    """Of scores and rates."""
    return Axis(low=0.0, high=1.0, start=start, end=end)


def fitting_axis(values: Sequence[float], start: float, end: float) -> Axis:
    """From 0, unless the values are so far apart that most would lie on one spot."""
    positive = [value for value in values if value > 0]
    high = max(positive, default=1.0)
    low = min(positive, default=high)
    if len(positive) == len(values) and positive and high / low > WIDE:
        return Axis(low=low / 1.3, high=high * 1.3, start=start, end=end, log=True)
    return Axis(low=0.0, high=high * 1.05, start=start, end=end)


def counted(values: Sequence[float], ends: Sequence[float]) -> list[int]:
    """How many values are in each part; the last one has its end too."""
    parts = [0] * (len(ends) - 1)
    for value in values:
        at = sum(value >= end for end in ends[1:-1])
        parts[at] += 1
    return parts


def _round(low: float, high: float) -> tuple[float, ...]:
    raw = (high - low) / MOST_TICKS
    power = 10 ** math.floor(math.log10(raw))
    step = next(power * step for step in STEPS if power * step >= raw - 1e-12)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return tuple(step * number for number in range(first, last + 1))


def _powers(low: float, high: float) -> tuple[float, ...]:
    first, last = math.ceil(math.log10(low)), math.floor(math.log10(high))
    whole = [10.0**power for power in range(first, last + 1)]
    if len(whole) >= 3:  # noqa: PLR2004 (fewer leave much of the scale unnamed)
        every = math.ceil(len(whole) / MOST_TICKS)
        return tuple(whole[::every])
    steps = (10.0**power * step for power in range(first - 1, last + 1) for step in (1, 2, 5))
    return tuple(value for value in steps if low <= value <= high)
