"""Who is asked next when a provider fails, and after which wait?

Every target that can be asked is asked once; one whose breaker is open is left alone. When all have
failed, the one that is back soonest is asked again, a few times. One that another call is trying
out is waited for: what that call finds holds for all. All of it is bounded.
"""

import random
import time
from collections.abc import Callable

from goent.domain.health import Condition, Healths
from goent.domain.types import Value
from goent.upstream.course import Course, Target

LONGEST_WAIT_S = 30.0  # a worker that would have to wait longer is told so instead
LONGEST_TRIAL_S = 60.0  # for which it waits for what another call finds
GROWTH = 3.0


class Patience(Value, frozen=True, kw_only=True):
    """How often somebody is asked again, after everyone was asked once."""

    again: int = 3
    first_wait_s: float = 1.0


class Try(Value, frozen=True, kw_only=True):
    """Whom to ask, and after how many seconds; `force`: although it refused the account lately.

    `quiet`: it waits on, as was told before.
    """

    target: Target
    wait_s: float = 0.0
    force: bool = False
    quiet: bool = False


class Tries:
    """The tries of one call."""

    def __init__(
        self,
        course: Course,
        healths: Healths,
        patience: Patience,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._healths = healths
        self._patience = patience
        self._clock = clock
        # Sorting is stable: among those that are equally well, the preference decides.
        self._fresh = sorted(course.targets, key=lambda t: self._condition(t).state == "failing")
        self._all = course.targets
        self._forced = [t for t in course.targets if self._wants_mending(t)]
        self._again = 0
        self._stood_by_s = 0.0

    @property
    def others(self) -> bool:
        """Somebody else can be asked at once."""
        return any(not self._is_out(target) for target in self._fresh)

    def leave(self, target: Target) -> None:
        """It is not asked again for this call."""
        self._all = tuple(other for other in self._all if other is not target)

    def following(self) -> Try | None:
        """The next try; None when that was all."""
        while self._fresh:
            target = self._fresh.pop(0)
            if not self._is_out(target):
                self._forced = []  # there is somebody else
                return Try(target=target)
        if self._forced:
            return Try(target=self._forced.pop(0), force=True)
        # An account is not mended by waiting here; what another call is trying out may tell.
        waiting = [
            target
            for target in self._all
            if not self._wants_mending(target) or self._condition(target).tried
        ]
        if not waiting:
            return None
        # Longer each time, and never everyone at one moment.
        jitter = random.uniform(0.75, 1.25)  # noqa: S311 (spreads calls, hides nothing)
        guess = self._patience.first_wait_s * GROWTH**self._again * jitter
        waits = [(self._wait(target, guess), target) for target in waiting]
        wait, soonest = min(waits, key=lambda pair: pair[0])
        if self._condition(soonest).tried and self._stood_by_s < LONGEST_TRIAL_S:
            quiet = self._stood_by_s > 0
            self._stood_by_s += wait
            return Try(target=soonest, wait_s=wait, quiet=quiet)
        if self._again >= self._patience.again or wait > LONGEST_WAIT_S:
            return None
        self._again += 1
        return Try(target=soonest, wait_s=wait)

    def _wait(self, target: Target, guess: float) -> float:
        condition = self._condition(target)
        if condition.until is None or not condition.is_out(self._clock()):
            return guess
        if condition.tried:
            return self._patience.first_wait_s
        left = condition.until - self._clock()
        return left + guess / 10 if condition.told else max(left, guess)

    def _is_out(self, target: Target) -> bool:
        return self._condition(target).is_out(self._clock())

    def _wants_mending(self, target: Target) -> bool:
        """Its account may have been set right meanwhile, which only a call can tell."""
        condition = self._condition(target)
        return condition.state in {"refused", "no_credit"} and condition.is_out(self._clock())

    def _condition(self, target: Target) -> Condition:
        return self._healths.condition(target.provider)
