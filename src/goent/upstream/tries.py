"""Who is asked next when a provider fails, and after which wait?

Every target is asked once; one that said when to come back is left alone until then. When all have
failed, the one that is back soonest is asked again, a few times. All of it is bounded.
"""

import random

from goent.domain.types import Value
from goent.upstream.cooldown import Cooldowns
from goent.upstream.course import Course, Target

LONGEST_WAIT_S = 30.0  # a worker that would have to wait longer is told so instead
GROWTH = 3.0


class Patience(Value, frozen=True, kw_only=True):
    """How often somebody is asked again, after everyone was asked once."""

    again: int = 3
    first_wait_s: float = 1.0


class Try(Value, frozen=True, kw_only=True):
    """Whom to ask, and after how many seconds."""

    target: Target
    wait_s: float = 0.0


class Tries:
    """The tries of one call."""

    def __init__(self, course: Course, cooldowns: Cooldowns, patience: Patience) -> None:
        self._cooldowns = cooldowns
        self._patience = patience
        # Sorting is stable: among those that may be asked, the preference decides.
        self._fresh = sorted(course.targets, key=lambda t: cooldowns.of(t) is not None)
        self._all = course.targets
        self._again = 0

    def first(self) -> Target:
        """Also one that cools down, if there is no other: it knows best whether it still does."""
        return self._fresh.pop(0)

    @property
    def others(self) -> bool:
        """Somebody else can be asked at once."""
        return any(not self._is_told_to_wait(target) for target in self._fresh)

    def after_failure(self) -> Try | None:
        """The next try; None when that was all."""
        while self._fresh:
            target = self._fresh.pop(0)
            if not self._is_told_to_wait(target):
                return Try(target=target)
        # Longer each time, and never everyone at one moment.
        jitter = random.uniform(0.75, 1.25)  # noqa: S311 (spreads calls, hides nothing)
        guess = self._patience.first_wait_s * GROWTH**self._again * jitter
        waits = [(self._wait(target, guess), target) for target in self._all]
        wait, soonest = min(waits, key=lambda pair: pair[0])
        if self._again >= self._patience.again or wait > LONGEST_WAIT_S:
            return None
        self._again += 1
        return Try(target=soonest, wait_s=wait)

    def _is_told_to_wait(self, target: Target) -> bool:
        cooldown = self._cooldowns.of(target)
        return cooldown is not None and cooldown.told

    def _wait(self, target: Target, guess: float) -> float:
        cooldown = self._cooldowns.of(target)
        if cooldown and cooldown.told:
            return cooldown.until - self._cooldowns.clock() + guess / 10
        return guess
