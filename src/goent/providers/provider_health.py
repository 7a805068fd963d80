"""Circuit breakers that say which providers can be called, and the probe that detects recovery.

A breaker opens when the provider says so (a rate limit, an empty account, a refused key) or after
several failures in a row, for a pause that grows. After the pause one trial call goes out; success
closes the breaker. A result is ignored if its call began before the current state did.

The rules are pure: a record and a time in, a record out. `CircuitBreakers` applies them to records by
backend, model and account, so that a new key starts afresh. Decisions read memory; only changes are
written.

`HealthProbe` lists models, which costs nothing and shows whether the provider answers and accepts the
key. It shows neither credit nor rate limits, so those states end by time and a trial call.
"""

import hashlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

import anyio
from msgspec.structs import replace

from goent.domain.errors import (
    AuthRefused,
    GoentError,
    OutOfCredit,
    ProviderRefused,
    ProviderTimeout,
    ProviderUnavailable,
    RateLimited,
    WorkerError,
)
from goent.domain.provider_condition import (
    HealthKey,
    HealthRecord,
    HealthRecords,
    HealthState,
    ProviderCondition,
    ProviderHealth,
)
from goent.domain.settings import Backend, HealthSettings, Settings
from goent.domain.types import Provider, Value
from goent.providers.call_plan import CallTarget, target_for
from goent.providers.connections import Connections, ModelCall, read_start
from goent.providers.dialects import codec_for
from goent.providers.provider_errors import failure_from_answer

RATE_LIMITED_S = 30.0  # if the provider does not say how long
REFUSED_S = 60.0  # the key may be repaired at the provider; another key starts afresh
NO_CREDIT_S = 600.0
MAX_PAUSE_S = 600.0  # between two trials of a provider that is down
MAX_OPEN_S = 24 * 3600.0  # a longer pause is a mistake, or the clock was changed
TRIAL_S = 120.0  # for which other calls wait for the trial call
CLOCK_SLACK_S = 5.0  # that clocks may differ by
MAX_REASON = 300

_ACCOUNT_STATES: Final[frozenset[HealthState]] = frozenset({"refused", "no_credit"})
_OPEN_STATES: Final[frozenset[HealthState]] = frozenset({*_ACCOUNT_STATES, "limited", "down"})


class BreakerBounds(Value, frozen=True, kw_only=True):
    """After how many failures a provider is down, and for how long at first."""

    failures: int = 3
    first_pause_s: float = 5.0

    @classmethod
    def of(cls, health: HealthSettings) -> "BreakerBounds":
        return cls(failures=max(1, health.max_retries), first_pause_s=max(1.0, health.retry_delay))


def condition_of(record: HealthRecord, now: float) -> ProviderCondition:
    """The condition that a record stands for now."""
    if record.state == "failing":
        if (
            record.until or 0.0
        ) <= now:  # an old failure: a provider that is not called cannot recover
            return ProviderCondition()
        return ProviderCondition(state="failing", reason=record.reason)
    if not is_breaker_open(record):
        return ProviderCondition(state=record.state)
    if _is_limit_over(record, now):
        return ProviderCondition(state="healthy")
    trial = record.trial_until or 0.0
    return ProviderCondition(
        state=record.state,
        until=max(record.until or 0.0, trial),
        time_is_announced=record.told,
        is_on_trial=trial > now,
        reason=record.reason,
    )


def is_breaker_open(record: HealthRecord) -> bool:
    """Whether only a trial call may go out."""
    return record.state in _OPEN_STATES


def admit(record: HealthRecord, now: float) -> HealthRecord | None:
    """The record once a call is out; None if it may not go out now.

    A rate limit whose end the provider announced ends then, without a trial.
    """
    if not is_breaker_open(record) or _is_limit_over(record, now):
        return record
    if (record.until or 0.0) > now or (record.trial_until or 0.0) > now:
        return None
    return replace(record, trial_until=now + TRIAL_S)


def admit_forced(record: HealthRecord, now: float) -> HealthRecord | None:
    """Like `admit`, where no other provider is left: the account may have been repaired.

    The next call after a refusal goes out immediately; if that is refused too, one call a minute.
    """
    if record.state not in _ACCOUNT_STATES:
        return admit(record, now)
    again = record.since + REFUSED_S if record.failures > 1 else 0.0
    if max(again, record.trial_until or 0.0) > now:
        return None
    return replace(record, trial_until=now + TRIAL_S)


def release(record: HealthRecord) -> HealthRecord:
    """The call ended without showing anything about the provider."""
    return replace(record, trial_until=None)


def record_success(
    record: HealthRecord, now: float, *, began: float, used_up_for_s: float | None = None
) -> HealthRecord:
    """A call was answered; `used_up_for_s`: its headers allow no further call for so long."""
    if used_up_for_s:
        until = now + min(used_up_for_s, MAX_OPEN_S)
        if is_breaker_open(record) and (record.until or 0.0) >= until:
            return release(record)
        return HealthRecord(
            state="limited", since=now, until=until, told=True, reason="its limit is used up"
        )
    if is_breaker_open(record) and began < record.since:
        return record
    return HealthRecord(state="healthy", since=now)


def record_failure(
    record: HealthRecord, error: WorkerError, now: float, *, began: float, bounds: BreakerBounds
) -> HealthRecord:
    """A call failed. An error about the request, not the provider, still shows that it answers."""
    if isinstance(error, AuthRefused):
        return _open_record(record, "refused", now, REFUSED_S, error)
    if not isinstance(error, ProviderUnavailable):
        return record_success(record, now, began=began)
    if isinstance(error, OutOfCredit):
        return _open_record(record, "no_credit", now, NO_CREDIT_S, error)
    announced = error.retry_after_s
    if is_breaker_open(record) and began < record.since and announced is None:
        return record  # it was out before the breaker opened
    failures = record.failures + 1
    if isinstance(error, RateLimited) or announced is not None:
        wait = _backoff(RATE_LIMITED_S, failures - 1) if announced is None else announced
        return _open_record(record, "limited", now, wait, error, announced=announced is not None)
    if failures < bounds.failures and not is_breaker_open(record):
        return HealthRecord(
            state="failing",
            failures=failures,
            since=now,
            until=now + bounds.first_pause_s,
            reason=_reason_text(error),
        )
    pause = _backoff(bounds.first_pause_s, failures - bounds.failures)
    return _open_record(record, "down", now, pause, error)


def repair_record(record: HealthRecord, now: float) -> HealthRecord:
    """The record without waits that only grew because a clock was changed."""
    if record.since > now + CLOCK_SLACK_S:
        shift = record.since - now
        return replace(
            record,
            since=now,
            until=_bounded_time(record.until, shift, now),
            trial_until=_bounded_time(record.trial_until, shift, now),
        )
    return replace(
        record,
        until=_bounded_time(record.until, 0.0, now),
        trial_until=_bounded_time(record.trial_until, 0.0, now, TRIAL_S),
    )


def _bounded_time(
    moment: float | None, shift: float, now: float, longest: float = MAX_OPEN_S
) -> float | None:
    return None if moment is None else min(moment - shift, now + longest)


def _is_limit_over(record: HealthRecord, now: float) -> bool:
    """Whether an announced rate limit has ended, which needs no trial."""
    return record.state == "limited" and record.told and (record.until or 0.0) <= now


def _open_record(
    record: HealthRecord,
    state: HealthState,
    now: float,
    wait: float,
    error: WorkerError,
    *,
    announced: bool = False,
) -> HealthRecord:
    until = now + min(wait, MAX_OPEN_S)
    if record.state == state and announced and record.told:
        until = max(until, record.until or 0.0)  # of parallel answers, the later time counts
    counted = state not in _ACCOUNT_STATES or record.state == state
    return HealthRecord(
        state=state,
        failures=record.failures + 1 if counted else 1,
        since=now,
        until=until,
        told=announced,
        reason=_reason_text(error),
    )


def _backoff(first: float, times: int) -> float:
    return min(first * 2.0 ** min(max(0, times), 30), MAX_PAUSE_S)


def _reason_text(error: WorkerError) -> str:
    return " ".join(str(error).split())[:MAX_REASON]


DIRECT_ACCOUNT = "direct"
ACCOUNT_CACHE_S = 0.5  # for which an account is cached

RecordStep = Callable[[HealthRecord], HealthRecord | None]


class InMemoryHealthRecords:
    """The port `HealthRecords` for the lifetime of a process."""

    def __init__(self) -> None:
        self._known: dict[HealthKey, HealthRecord] = {}

    def known(self, key: HealthKey) -> HealthRecord:
        return self._known.get(key, HealthRecord())

    async def change(self, key: HealthKey, step: RecordStep) -> HealthRecord | None:
        after = step(self.known(key))
        if after is not None:
            self._known[key] = after
        return after

    async def forget(self, backend: str, model: str) -> bool:
        found = [key for key in self._known if (key.backend, key.model) == (backend, model)]
        for key in found:
            del self._known[key]
        return bool(found)


class CircuitBreakers:
    """The port `ProviderHealth`. `account` identifies the key that a backend is called with."""

    def __init__(
        self,
        records: HealthRecords | None = None,
        *,
        account: Callable[[str], str] = lambda _: "",
        bounds: Callable[[], BreakerBounds] = BreakerBounds,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._records = records or InMemoryHealthRecords()
        self._account = account
        self._bounds = bounds
        self._clock = clock
        self._accounts: dict[str, str] = {}
        self._looked_up = 0.0
        self._in_flight: Counter[tuple[str, str]] = Counter()

    def condition(self, provider: Provider) -> ProviderCondition:
        return condition_of(self._records.known(self._key(provider)), self._clock())

    def calls_in_flight(self, provider: Provider) -> int:
        return self._in_flight[provider.backend, provider.model]

    async def try_admit(self, provider: Provider, *, force: bool = False) -> bool:
        key, now = self._key(provider), self._clock()
        decide = admit_forced if force else admit
        record = self._records.known(key)
        after = decide(record, now)
        if after is not None and after != record:  # a trial, which only one call may get
            after = await self._records.change(key, lambda kept: decide(kept, now))
        if after is None:
            return False
        self._in_flight[provider.backend, provider.model] += 1
        return True

    async def record_success(
        self, provider: Provider, *, began: float, used_up_for_s: float | None = None
    ) -> None:
        now = self._clock()
        step = partial(record_success, now=now, began=began, used_up_for_s=used_up_for_s)
        await self._end(provider, step)

    async def record_failure(self, provider: Provider, error: WorkerError, *, began: float) -> None:
        now, bounds = self._clock(), self._bounds()
        step = partial(record_failure, error=error, now=now, began=began, bounds=bounds)
        await self._end(provider, step)

    async def release(self, provider: Provider) -> None:
        await self._end(provider, release)

    async def forget(self, provider: Provider) -> bool:
        return await self._records.forget(provider.backend, provider.model)

    async def _end(self, provider: Provider, step: Callable[[HealthRecord], HealthRecord]) -> None:
        name = (provider.backend, provider.model)
        self._in_flight[name] = max(0, self._in_flight[name] - 1)
        key = self._key(provider)
        known = self._records.known(key)
        after = step(known)
        if after != known and not (after.state == known.state == "healthy"):
            await self._records.change(key, step)

    def _key(self, provider: Provider) -> HealthKey:
        now = time.monotonic()
        if now - self._looked_up > ACCOUNT_CACHE_S:
            self._looked_up = now
            self._accounts.clear()
        backend = provider.backend
        if backend not in self._accounts:
            self._accounts[backend] = self._account(backend)
        return HealthKey(backend, provider.model, self._accounts[backend])


def account_id(backend: Backend | None, environ: Mapping[str, str]) -> str:
    """Identifies the address and key of a backend without revealing the key."""
    if backend is None or not backend.is_held(environ):
        return DIRECT_ACCOUNT
    account = f"{backend.base_url}\0{backend.resolve_key(environ) or ''}"
    return hashlib.sha256(account.encode(errors="replace")).hexdigest()[:12]


log = logging.getLogger(__name__)

MAX_PARALLEL_PROBES = 4
PROBE_S = 15.0
MAX_PROBE_BYTES = 64 * 1024
FIRST_ERROR_STATUS = 300
_PROBED_STATES: frozenset[HealthState] = frozenset({"unknown", "failing", "down", "refused"})


class HealthProbe:
    """A background task that probes providers, if the settings want it."""

    def __init__(
        self,
        connections: Connections,
        healths: ProviderHealth,
        *,
        settings: Callable[[], Settings],
        environ: Callable[[], Mapping[str, str]],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._connections = connections
        self._healths = healths
        self._settings = settings
        self._environ = environ
        self._clock = clock

    async def run(self) -> None:
        while True:
            interval = 30.0
            try:
                settings = self._settings()
                interval = settings.health.check_interval
                if settings.health.probe:
                    await self.probe_once(settings)
            except GoentError as error:  # a file with a mistake, a disk that is full
                log.info("providers are not probed: %s", error)
            await anyio.sleep(interval)

    async def probe_once(self, settings: Settings) -> None:
        """Probe each provider of which too little is known, a few in parallel."""
        limit = anyio.CapacityLimiter(MAX_PARALLEL_PROBES)
        async with anyio.create_task_group() as group:
            for each in self._targets(settings):
                group.start_soon(self._ask, each, limit)

    def _targets(self, settings: Settings) -> Iterator[CallTarget]:
        """One model of an unknown backend is enough; the others are known by their calls."""
        now, seen = self._clock(), set[str]()
        for provider in settings.providers:
            condition = self._healths.condition(provider)
            if condition.state not in _PROBED_STATES or condition.is_unavailable(now):
                continue
            if condition.state == "unknown" and provider.backend in seen:
                continue
            try:
                found = target_for(provider, settings.backends, self._environ())
            except ProviderRefused:
                continue  # OpenCode calls it itself, or its key is missing
            seen.add(provider.backend)
            yield found

    async def _ask(self, target: CallTarget, limit: anyio.CapacityLimiter) -> None:
        async with limit:
            provider, began = target.provider, self._clock()
            if not await self._healths.try_admit(provider):
                return
            conclusive = False
            error: WorkerError | None = ProviderTimeout(
                f"{target.place} did not list its models within {PROBE_S:g} s"
            )
            try:
                with anyio.move_on_after(PROBE_S):
                    error = await self._answer(target)
                # Any other error means that the server has no list of models.
                conclusive = error is None or isinstance(error, ProviderUnavailable | AuthRefused)
                if error is None:
                    await self._healths.record_success(provider, began=began)
                elif conclusive:
                    await self._healths.record_failure(provider, error, began=began)
            finally:
                if not conclusive:
                    with anyio.CancelScope(shield=True):
                        await self._healths.release(provider)

    async def _answer(self, target: CallTarget) -> WorkerError | None:
        call = ModelCall(
            backend=target.provider.backend,
            dialect=target.dialect,
            method="GET",
            url=f"{target.base_url}/models",
            headers=codec_for(target.dialect).headers,
            body=b"",
            key=target.key,
            secret_headers=target.headers,
            server=target.server,
            hurried=True,
        )
        try:
            async with self._connections.send(call) as answer:
                if answer.status < FIRST_ERROR_STATUS:
                    return None
                body = await read_start(answer, most=MAX_PROBE_BYTES, within_s=PROBE_S)
                return failure_from_answer(
                    target.provider.backend,
                    answer.status,
                    answer.headers,
                    call.without_key(body),
                    now=time.time(),
                )
        except WorkerError as error:
            return error
