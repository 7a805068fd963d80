"""Whom is it no use to ask right now?"""

import time
from collections.abc import Callable

from goent.domain.errors import OutOfCredit, ProviderUnavailable, RateLimited
from goent.domain.types import Value
from goent.upstream.course import Target

RATE_LIMITED_S = 30.0  # where the provider does not say when to come back
DOWN_S = 15.0
NO_CREDIT_S = 600.0
LONGEST_S = 24 * 3600.0


class Cooldown(Value, frozen=True, kw_only=True):
    """Until when, on the clock; `told` by the provider, or our own guess."""

    until: float
    told: bool


class Cooldowns:
    """What is known about coming back, by backend and model."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._cooling: dict[tuple[str, str], Cooldown] = {}

    def of(self, target: Target) -> Cooldown | None:
        """None if the target may be asked."""
        cooldown = self._cooling.get(_key(target))
        return cooldown if cooldown and cooldown.until > self.clock() else None

    def failed(self, target: Target, error: ProviderUnavailable) -> None:
        told = NO_CREDIT_S if isinstance(error, OutOfCredit) else error.retry_after_s
        guess = RATE_LIMITED_S if isinstance(error, RateLimited) else DOWN_S
        wait = min(guess if told is None else told, LONGEST_S)
        self._cooling[_key(target)] = Cooldown(until=self.clock() + wait, told=told is not None)

    def served(self, target: Target) -> None:
        self._cooling.pop(_key(target), None)


def _key(target: Target) -> tuple[str, str]:
    return target.provider.backend, target.provider.model
