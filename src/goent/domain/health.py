"""Is it of use to ask a provider now?"""

from typing import Literal, NamedTuple

from goent.domain.types import Value

HealthState = Literal["unknown", "healthy", "failing", "limited", "down", "refused", "no_credit"]


class Condition(Value, frozen=True, kw_only=True):
    """How one provider's model is, as far as its calls have told.

    `failing` ones failed once or twice and may still be asked. `limited`, `down`, `refused` (the
    key) and `no_credit` ones are not asked before `until` (seconds since 1970); then one call tries
    it. `told` says that the provider itself named the time.
    """

    state: HealthState = "unknown"
    until: float | None = None
    told: bool = False
    reason: str = ""

    def is_out(self, now: float) -> bool:
        """It is no use to ask it now."""
        return self.state not in _ASKED and self.until is not None and self.until > now


_ASKED: frozenset[HealthState] = frozenset({"unknown", "healthy", "failing"})


class HealthKey(NamedTuple):
    """Whose health it is. `account` tells address and key apart from others, and tells neither."""

    backend: str
    model: str
    account: str


class HealthRecord(Value, frozen=True, kw_only=True):
    """What is kept of one provider's model. Times are seconds since 1970.

    `failures` in a row; `since` the state holds; `trial_until` another call tries it out.
    """

    state: HealthState = "unknown"
    failures: int = 0
    since: float = 0.0
    until: float | None = None
    told: bool = False
    trial_until: float | None = None
    reason: str = ""
