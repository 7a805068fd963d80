"""Whether a provider can be called now: its condition, the stored record of it, and the ports."""

from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol

from goent.domain.errors import WorkerError
from goent.domain.types import Provider, Value

HealthState = Literal["unknown", "healthy", "failing", "limited", "down", "refused", "no_credit"]


class ProviderCondition(Value, frozen=True, kw_only=True):
    """The condition of one provider's model, according to its calls.

    One that is `failing` failed once or twice and is still called. One that is `limited`, `down`, `refused`
    (the key) or `no_credit` is not called before `until` (seconds since 1970); then one call tries it.
    `time_is_announced`: the provider itself named the time. `is_on_trial`: such a call is in flight.
    """

    state: HealthState = "unknown"
    until: float | None = None
    time_is_announced: bool = False
    is_on_trial: bool = False
    reason: str = ""

    def is_unavailable(self, now: float) -> bool:
        """Whether a call now would be useless."""
        return self.state not in _ASKABLE_STATES and self.until is not None and self.until > now


_ASKABLE_STATES: frozenset[HealthState] = frozenset({"unknown", "healthy", "failing"})


class HealthKey(NamedTuple):
    """The key of a health record. `account` is a digest of address and key."""

    backend: str
    model: str
    account: str


class HealthRecord(Value, frozen=True, kw_only=True):
    """The stored health of one provider's model. Times are seconds since 1970.

    `failures` are consecutive; `since` is when the state began; until `trial_until` a call tries it.
    """

    state: HealthState = "unknown"
    failures: int = 0
    since: float = 0.0
    until: float | None = None
    told: bool = False
    trial_until: float | None = None
    reason: str = ""


class HealthRecords(Protocol):
    """The health records that all go-ents of a user share."""

    def known(self, key: HealthKey) -> HealthRecord:
        """The record as last seen, from memory."""
        ...

    async def change(
        self, key: HealthKey, step: Callable[[HealthRecord], HealthRecord | None]
    ) -> HealthRecord | None:
        """Apply a step to the present record atomically; a step that returns None changes nothing."""
        ...

    async def forget(self, backend: str, model: str) -> bool:
        """Delete a record; returns whether there was one."""
        ...


class ProviderHealth(Protocol):
    """Which providers can be called. An admitted call ends with `record_success`, `record_failure` or `release`."""

    def condition(self, provider: Provider) -> ProviderCondition: ...

    def calls_in_flight(self, provider: Provider) -> int:
        """Calls of this go-ent that are in flight."""
        ...

    async def try_admit(self, provider: Provider, *, force: bool = False) -> bool:
        """Whether a call may be sent now; `force` if there is no other provider."""
        ...

    async def record_success(
        self, provider: Provider, *, began: float, used_up_for_s: float | None = None
    ) -> None:
        """Record an answered call; `used_up_for_s` if no more calls are allowed for so long."""
        ...

    async def record_failure(
        self, provider: Provider, error: WorkerError, *, began: float
    ) -> None: ...

    async def release(self, provider: Provider) -> None:
        """End a call that was abandoned and says nothing about the provider."""
        ...

    async def forget(self, provider: Provider) -> bool:
        """Delete the provider's record; returns whether there was one."""
        ...
