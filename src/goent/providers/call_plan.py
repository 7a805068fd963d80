"""Plans a model call: its targets, which one is next, and the error if none can be asked.

Every target is tried once, except those whose breaker is open. When all have failed, the one that is
back soonest is retried, a few times. If another call is already trying a target out, this one waits
for the result. All of it is bounded.
"""

import random
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime

from goent.domain.errors import (
    AuthRefused,
    OutOfCredit,
    ProviderDown,
    ProviderRefused,
    ProviderUnavailable,
    RateLimited,
    WorkerError,
)
from goent.domain.provider_condition import HealthState, ProviderCondition, ProviderHealth
from goent.domain.settings import Backend
from goent.domain.types import Dialect, Provider, Secret, Value
from goent.providers.connections import Headers, SecretHeaders


class UnknownBackend(ProviderRefused):
    """The call names a backend that is not configured."""


class ForeignBackend(ProviderRefused):
    """The backend is configured, but not for the worker that called."""


class CallTarget(Value, frozen=True, kw_only=True):
    """One provider's model, with all that is needed to call it. A local one may have no key."""

    provider: Provider
    dialect: Dialect
    base_url: str
    key: Secret
    is_local: bool = False
    headers: SecretHeaders = ()

    @property
    def name(self) -> str:
        return self.provider.name

    @property
    def server(self) -> str:
        """Its address if it is one of the user's own servers, else empty."""
        return self.base_url if self.is_local else ""

    @property
    def place(self) -> str:
        return f"backend {self.provider.backend!r} at {self.base_url!r}"


class InboundCall(Value, frozen=True, kw_only=True):
    """One model call as it came in, in its caller's dialect."""

    worker: str
    session: str = ""
    backend: str
    model: str
    dialect: Dialect
    body: bytes
    stream: bool = True
    headers: Headers = ()


class CallPlan(Value, frozen=True, kw_only=True):
    """At least one target, in order of preference."""

    targets: tuple[CallTarget, ...]


def plan_call(
    provider: Provider,
    fallbacks: Iterable[Provider],
    backends: Mapping[str, Backend],
    environ: Mapping[str, str],
) -> CallPlan:
    """The plan for a provider, which must be usable, and those of its fallbacks that are."""
    first = target_for(provider, backends, environ)
    others: list[CallTarget] = []
    for fallback in fallbacks:
        if (fallback.backend, fallback.model) == (provider.backend, provider.model):
            continue
        try:
            others.append(target_for(fallback, backends, environ))
        except ProviderRefused:
            continue  # `go-ent doctor` reports it; this call can be served
    return CallPlan(targets=(first, *others))


def target_for(
    provider: Provider, backends: Mapping[str, Backend], environ: Mapping[str, str]
) -> CallTarget:
    """How to call the provider. Raises `ProviderRefused` if go-ent cannot do so itself."""
    backend = backends.get(provider.backend)
    if backend is None:
        raise UnknownBackend(f"there is no backend {provider.backend!r}")
    if not backend.base_url:
        raise ProviderRefused(
            f"backend {backend.id!r} has no base_url: set it in .goent/providers.yaml"
        )
    if not backend.is_held(environ):
        remedy = f"set {backend.key_env}" if backend.key_env else "set its api_key_env"
        raise ProviderRefused(f"no key for backend {backend.id!r}: {remedy}")
    return CallTarget(
        provider=provider,
        dialect=backend.dialect,
        base_url=backend.base_url.rstrip("/"),
        key=Secret(backend.resolve_key(environ) or ""),
        is_local=backend.local,
        headers=backend.headers,
    )


MAX_RETRY_WAIT_S = 30.0  # a longer wait is an error instead
MAX_TRIAL_WAIT_S = 60.0  # for the result of another call's trial
GROWTH = 3.0


class RetrySettings(Value, frozen=True, kw_only=True):
    """How often to retry, after every target was tried once."""

    retries: int = 3
    first_wait_s: float = 1.0


class NextAttempt(Value, frozen=True, kw_only=True):
    """A target, and the seconds to wait before the call.

    `force`: call it although it refused the account recently. `silent`: a notice of the wait has
    been given already.
    """

    target: CallTarget
    wait_s: float = 0.0
    force: bool = False
    silent: bool = False


class AttemptSchedule:
    """The tries of one call."""

    def __init__(
        self,
        plan: CallPlan,
        healths: ProviderHealth,
        patience: RetrySettings,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._healths = healths
        self._patience = patience
        self._clock = clock
        # Sorting is stable, so preference decides among targets in the same condition.
        self._untried = sorted(plan.targets, key=lambda t: self._condition(t).state == "failing")
        self._all = plan.targets
        self._forced = [t for t in plan.targets if self._may_be_repaired(t)]
        self._retries = 0
        self._trial_wait_s = 0.0

    @property
    def has_alternative(self) -> bool:
        """Whether another target can be tried immediately."""
        return any(not self._is_unavailable(target) for target in self._untried)

    def drop(self, target: CallTarget) -> None:
        """Do not retry the target for this call."""
        self._all = tuple(other for other in self._all if other is not target)

    def next_attempt(self) -> NextAttempt | None:
        """The next attempt; None if there is none left."""
        while self._untried:
            target = self._untried.pop(0)
            if not self._is_unavailable(target):
                self._forced = []  # only used if no other target is left
                return NextAttempt(target=target)
        if self._forced:
            return NextAttempt(target=self._forced.pop(0), force=True)
        # Waiting does not repair an account, but another call's trial may succeed.
        waiting = [
            target
            for target in self._all
            if not self._may_be_repaired(target) or self._condition(target).is_on_trial
        ]
        if not waiting:
            return None
        # Longer each time, and spread so that calls do not retry in step.
        jitter = random.uniform(0.75, 1.25)  # noqa: S311 (spreads calls, hides nothing)
        guess = self._patience.first_wait_s * GROWTH**self._retries * jitter
        waits = [(self._wait(target, guess), target) for target in waiting]
        wait, soonest = min(waits, key=lambda pair: pair[0])
        if self._condition(soonest).is_on_trial and self._trial_wait_s < MAX_TRIAL_WAIT_S:
            quiet = self._trial_wait_s > 0
            self._trial_wait_s += wait
            return NextAttempt(target=soonest, wait_s=wait, silent=quiet)
        if self._retries >= self._patience.retries or wait > MAX_RETRY_WAIT_S:
            return None
        self._retries += 1
        return NextAttempt(target=soonest, wait_s=wait)

    def _wait(self, target: CallTarget, guess: float) -> float:
        condition = self._condition(target)
        if condition.until is None or not condition.is_unavailable(self._clock()):
            return guess
        if condition.is_on_trial:
            return self._patience.first_wait_s
        left = condition.until - self._clock()
        return left + guess / 10 if condition.time_is_announced else max(left, guess)

    def _is_unavailable(self, target: CallTarget) -> bool:
        return self._condition(target).is_unavailable(self._clock())

    def _may_be_repaired(self, target: CallTarget) -> bool:
        """Its account may have been repaired meanwhile, which only a call can show."""
        condition = self._condition(target)
        return condition.state in {"refused", "no_credit"} and condition.is_unavailable(
            self._clock()
        )

    def _condition(self, target: CallTarget) -> ProviderCondition:
        return self._healths.condition(target.provider)


_STATE_WORDS: Mapping[HealthState, str] = {
    "failing": "failing",
    "limited": "rate limited",
    "down": "down",
    "refused": "refusing its key",
    "no_credit": "out of credit",
}
_ERRORS_BY_STATE: Mapping[HealthState, type[ProviderUnavailable]] = {
    "limited": RateLimited,
    "no_credit": OutOfCredit,
}


def condition_text(condition: ProviderCondition, now: float) -> str:
    """The condition in words: what, until when and why."""
    what = _STATE_WORDS.get(condition.state, condition.state)
    if condition.until and condition.until > now:
        moment = datetime.fromtimestamp(condition.until, UTC)
        what += f" until {moment:%Y-%m-%d %H:%M:%S} UTC"
    return f"{what} ({condition.reason})" if condition.reason else what


def unavailable_error(plan: CallPlan, healths: ProviderHealth, now: float) -> WorkerError:
    """The error for a call that no target could take; its kind is that of the first target."""
    conditions = [(target, healths.condition(target.provider)) for target in plan.targets]
    states = "; ".join(f"{t.name} is {condition_text(each, now)}" for t, each in conditions)
    first, state = plan.targets[0].name, conditions[0][1].state
    message = (
        f"{states}; no call was made. Wait, choose another provider, or retry immediately with "
        f"`go-ent providers reset {first}`"
    )
    if state == "refused":
        return AuthRefused(message)
    until = conditions[0][1].until
    after = None if until is None else max(0.0, until - now)
    return _ERRORS_BY_STATE.get(state, ProviderDown)(message, retry_after_s=after)
