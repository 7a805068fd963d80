"""Whether a provider can be asked now: its condition, the record kept of it, and the ports."""

from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol

from goent.domain.errors import WorkerError
from goent.domain.types import Provider, Value

HealthState = Literal["unknown", "healthy", "failing", "limited", "down", "refused", "no_credit"]


class ProviderCondition(Value, frozen=True, kw_only=True):
    """How one provider's model is, as far as its calls have told.

    `failing` ones failed once or twice and may still be asked. `limited`, `down`, `refused` (the
    key) and `no_credit` ones are not asked before `until` (seconds since 1970); then one call tries
    it. `time_is_announced`: the provider itself named the time. `is_on_trial`: such a call is in
    progress, so it may be back at any moment.
    """

    state: HealthState = "unknown"
    until: float | None = None
    time_is_announced: bool = False
    is_on_trial: bool = False
    reason: str = ""

    def is_unavailable(self, now: float) -> bool:
        """It is no use to ask it now."""
        return self.state not in _ASKABLE_STATES and self.until is not None and self.until > now


_ASKABLE_STATES: frozenset[HealthState] = frozenset({"unknown", "healthy", "failing"})


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


class HealthRecords(Protocol):
    """What is kept of the health of providers, for all go-ents of a user."""

    def known(self, key: HealthKey) -> HealthRecord:
        """As last seen: at once, from memory."""
        ...

    async def change(
        self, key: HealthKey, step: Callable[[HealthRecord], HealthRecord | None]
    ) -> HealthRecord | None:
        """Take the step from what is kept now, with nobody in between; None leaves it."""
        ...

    async def forget(self, backend: str, model: str) -> bool:
        """Whether there was something to forget."""
        ...


class ProviderHealth(Protocol):
    """Who can be asked. A call that was admitted ends in exactly one of the three ways."""

    def condition(self, provider: Provider) -> ProviderCondition: ...

    def calls_in_flight(self, provider: Provider) -> int:
        """Calls of this go-ent."""
        ...

    async def try_admit(self, provider: Provider, *, force: bool = False) -> bool:
        """Whether a call may go out now; `force` where there is nobody else to ask."""
        ...

    async def record_success(
        self, provider: Provider, *, began: float, used_up_for_s: float | None = None
    ) -> None:
        """It answered a call that began then; `used_up_for_s` if that was the last for so long."""
        ...

    async def record_failure(
        self, provider: Provider, error: WorkerError, *, began: float
    ) -> None: ...

    async def release(self, provider: Provider) -> None:
        """The call was given up, and tells nothing."""
        ...

    async def forget(self, provider: Provider) -> bool:
        """Ask it as if nothing had been; whether there was something."""
        ...
