"""Is it of use to ask a provider now?"""

from typing import Literal

from goent.domain.types import Value

HealthState = Literal["unknown", "healthy", "limited", "down"]


class Condition(Value, frozen=True, kw_only=True):
    """How one provider's model is, as far as its calls have told.

    `limited` and `down` ones are not asked before `until` (seconds since 1970); then one call tries
    it. `told` says that the provider itself named the time.
    """

    state: HealthState = "unknown"
    until: float | None = None
    told: bool = False
    reason: str = ""
