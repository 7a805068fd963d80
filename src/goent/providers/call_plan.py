"""Plans a model call: its targets, its size, who is asked next, and the error if nobody can be.

Every so often a call whose count is known teaches the next estimate.

Every target that can be asked is asked once; one whose breaker is open is left alone. When all have
failed, the one that is back soonest is asked again, a few times. One that another call is trying
out is waited for: what that call finds holds for all. All of it is bounded.
"""

import random
import re
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime

import msgspec
from anyio import to_thread
from msgspec import Struct

from goent.billing.token_estimate import estimate_tokens
from goent.domain.errors import (
    AuthRefused,
    OutOfCredit,
    ProviderDown,
    ProviderRefused,
    ProviderUnavailable,
    RateLimited,
    WorkerError,
)
from goent.domain.money import Calibrations, CallSize
from goent.domain.provider_condition import HealthState, ProviderCondition, ProviderHealth
from goent.domain.settings import Backend
from goent.domain.types import Dialect, Provider, Secret, Usage, Value
from goent.providers.connections import Headers, SecretHeaders


class UnknownBackend(ProviderRefused):
    """Nobody has configured it."""


class ForeignBackend(ProviderRefused):
    """It is configured, but not for the worker that called."""


class CallTarget(Value, frozen=True, kw_only=True):
    """One provider's model, with all that is needed to call it. A `local` one may have no key."""

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
        """Its address if it is a server of the user's own."""
        return self.base_url if self.is_local else ""

    @property
    def place(self) -> str:
        """For errors: who, and where."""
        return f"backend {self.provider.backend!r} at {self.base_url!r}"


class InboundCall(Value, frozen=True, kw_only=True):
    """One model call as somebody made it, in the dialect that they speak."""

    worker: str
    session: str = ""
    backend: str
    model: str
    dialect: Dialect
    body: bytes
    stream: bool = True
    headers: Headers = ()


class CallPlan(Value, frozen=True, kw_only=True):
    """The targets in the order of preference; there is at least one."""

    targets: tuple[CallTarget, ...]


def plan_call(
    provider: Provider,
    fallbacks: Iterable[Provider],
    backends: Mapping[str, Backend],
    environ: Mapping[str, str],
) -> CallPlan:
    """The provider must be usable; a fallback that is not is passed over."""
    first = target_for(provider, backends, environ)
    others: list[CallTarget] = []
    for fallback in fallbacks:
        if (fallback.backend, fallback.model) == (provider.backend, provider.model):
            continue
        try:
            others.append(target_for(fallback, backends, environ))
        except ProviderRefused:
            continue  # `go-ent doctor` names it; a call that can be served is not the moment
    return CallPlan(targets=(first, *others))


def target_for(
    provider: Provider, backends: Mapping[str, Backend], environ: Mapping[str, str]
) -> CallTarget:
    """Raises `ProviderRefused` if go-ent cannot call the provider itself."""
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


MAX_LEARNED_BYTES = 200_000  # bytes of a request that is worth estimating only to learn
LEARN_EVERY = 8  # calls of a model from which one is learned
LIKELY_OUTPUT = 4096  # tokens: programs ask for leave to take ten times what answers take
_BINARY = re.compile(r"[A-Za-z0-9+/=]{2000,}")  # pictures are not paid for by the letter


class NoCalibrations:
    """The port `Calibrations` that learns nothing."""

    def corrected(self, backend: str, model: str, estimated: int) -> int:
        del backend, model
        return estimated

    async def learn(self, backend: str, model: str, *, estimated: int, actual: int) -> None: ...


class TokenGauge:
    """Learns from the calls of one upstream."""

    def __init__(self, calibrations: Calibrations | None = None) -> None:
        self._calibrations = calibrations or NoCalibrations()
        self._calls: dict[tuple[str, str], int] = {}

    async def size(self, order: InboundCall, target: CallTarget) -> CallSize:
        """As this model is likely to count it."""
        provider = target.provider
        estimated = await to_thread.run_sync(_prompt_tokens, order.body)
        return CallSize(
            input=self._calibrations.corrected(provider.backend, provider.model, estimated),
            output=_max_output(order.body),
        )

    async def learn(self, order: InboundCall, target: CallTarget, usage: Usage) -> None:
        key = (target.provider.backend, target.provider.model)
        before = self._calls.get(key, 0)
        self._calls[key] = before + 1
        if before % LEARN_EVERY or len(order.body) > MAX_LEARNED_BYTES:
            return
        estimated = await to_thread.run_sync(_prompt_tokens, order.body)
        actual = usage.input + usage.cache_read + usage.cache_write
        await self._calibrations.learn(*key, estimated=estimated, actual=actual)


class _OutputLimits(Struct):
    max_tokens: int | None = None
    max_completion_tokens: int | None = None


def _max_output(body: bytes) -> int:
    try:
        asked = msgspec.json.decode(body, type=_OutputLimits)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return LIKELY_OUTPUT  # whatever it is, the provider is the one to complain
    most = asked.max_completion_tokens or asked.max_tokens or LIKELY_OUTPUT
    return min(max(most, 0), LIKELY_OUTPUT)


def _prompt_tokens(body: bytes) -> int:
    return estimate_tokens(_BINARY.sub("", body.decode(errors="replace")))


MAX_RETRY_WAIT_S = 30.0  # a worker that would have to wait longer is told so instead
MAX_TRIAL_WAIT_S = 60.0  # for which it waits for what another call finds
GROWTH = 3.0


class RetrySettings(Value, frozen=True, kw_only=True):
    """How often somebody is asked again, after everyone was asked once."""

    retries: int = 3
    first_wait_s: float = 1.0


class NextAttempt(Value, frozen=True, kw_only=True):
    """Whom to ask, and after how many seconds; `force`: although it refused the account lately.

    `quiet`: it waits on, as was told before.
    """

    target: CallTarget
    wait_s: float = 0.0
    force: bool = False
    silent: bool = False


class AttemptSchedule:
    """The tries of one call."""

    def __init__(
        self,
        course: CallPlan,
        healths: ProviderHealth,
        patience: RetrySettings,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._healths = healths
        self._patience = patience
        self._clock = clock
        # Sorting is stable: among those that are equally well, the preference decides.
        self._untried = sorted(course.targets, key=lambda t: self._condition(t).state == "failing")
        self._all = course.targets
        self._forced = [t for t in course.targets if self._may_be_repaired(t)]
        self._retries = 0
        self._trial_wait_s = 0.0

    @property
    def has_alternative(self) -> bool:
        """Somebody else can be asked at once."""
        return any(not self._is_unavailable(target) for target in self._untried)

    def drop(self, target: CallTarget) -> None:
        """It is not asked again for this call."""
        self._all = tuple(other for other in self._all if other is not target)

    def next_attempt(self) -> NextAttempt | None:
        """The next try; None when that was all."""
        while self._untried:
            target = self._untried.pop(0)
            if not self._is_unavailable(target):
                self._forced = []  # there is somebody else
                return NextAttempt(target=target)
        if self._forced:
            return NextAttempt(target=self._forced.pop(0), force=True)
        # An account is not mended by waiting here; what another call is trying out may tell.
        waiting = [
            target
            for target in self._all
            if not self._may_be_repaired(target) or self._condition(target).is_on_trial
        ]
        if not waiting:
            return None
        # Longer each time, and never everyone at one moment.
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
        """Its account may have been set right meanwhile, which only a call can tell."""
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
    """How it is, until when and why; for people."""
    what = _STATE_WORDS.get(condition.state, condition.state)
    if condition.until and condition.until > now:
        moment = datetime.fromtimestamp(condition.until, UTC)
        what += f" until {moment:%Y-%m-%d %H:%M:%S} UTC"
    return f"{what} ({condition.reason})" if condition.reason else what


def unavailable_error(course: CallPlan, healths: ProviderHealth, now: float) -> WorkerError:
    """The error for a call that went to nobody; the kind is that of the one that was asked for."""
    conditions = [(target, healths.condition(target.provider)) for target in course.targets]
    told = "; ".join(f"{target.name} is {condition_text(each, now)}" for target, each in conditions)
    first, state = course.targets[0].name, conditions[0][1].state
    message = (
        f"{told}; nobody was asked. Wait, name another provider, or forget it with "
        f"`go-ent providers reset {first}`"
    )
    if state == "refused":
        return AuthRefused(message)
    until = conditions[0][1].until
    after = None if until is None else max(0.0, until - now)
    return _ERRORS_BY_STATE.get(state, ProviderDown)(message, retry_after_s=after)
