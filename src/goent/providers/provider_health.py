"""Circuit breakers that say which providers can be asked, and the probe that finds them back.

It opens when the provider says so (a rate limit, an empty account, a refused key) or after failures
in a row, for a pause that grows. When the pause is over, one call tries it; success closes it. A call
that began before the state it would change is old news. Pure: a record, a time in; a record out.

What a call tells is kept by backend, model and account, so that another key starts anew. A decision
reads memory; only what changes something is written.

A list of models costs nothing and shows whether the provider answers and takes the key. It shows
neither credit nor a free limit, so whoever lacks those waits for its time, and for a call.
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

RATE_LIMITED_S = 30.0  # where the provider does not say when to come back
REFUSED_S = 60.0  # a key may be mended where it was made; another key here starts anew
NO_CREDIT_S = 600.0
MAX_PAUSE_S = 600.0  # between two tries of one that is down
MAX_OPEN_S = 24 * 3600.0  # beyond it somebody means something else, or the clock was set
TRIAL_S = 120.0  # for which others wait for the one call that tries
CLOCK_SLACK_S = 5.0  # that clocks may differ
MAX_REASON = 300

_ACCOUNT_STATES: Final[frozenset[HealthState]] = frozenset({"refused", "no_credit"})
_OPEN_STATES: Final[frozenset[HealthState]] = frozenset({*_ACCOUNT_STATES, "limited", "down"})


class BreakerBounds(Value, frozen=True, kw_only=True):
    """When a provider counts as down, and for how long at first."""

    failures: int = 3
    first_pause_s: float = 5.0

    @classmethod
    def of(cls, health: HealthSettings) -> "BreakerBounds":
        return cls(failures=max(1, health.max_retries), first_pause_s=max(1.0, health.retry_delay))


def condition_of(record: HealthRecord, now: float) -> ProviderCondition:
    """As others see it now."""
    if record.state == "failing":
        # Long enough ago it says nothing any more: a provider that nobody asks cannot recover.
        recent = (record.until or 0.0) > now
        return (
            ProviderCondition(state="failing", reason=record.reason)
            if recent
            else ProviderCondition()
        )
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
    """No call goes through but a trial."""
    return record.state in _OPEN_STATES


def admit(record: HealthRecord, now: float) -> HealthRecord | None:
    """The record once a call is on its way; None if there may be none now.

    A rate limit whose time the provider named is over then, without a trial.
    """
    if not is_breaker_open(record) or _is_limit_over(record, now):
        return record
    if (record.until or 0.0) > now or (record.trial_until or 0.0) > now:
        return None
    return replace(record, trial_until=now + TRIAL_S)


def admit_forced(record: HealthRecord, now: float) -> HealthRecord | None:
    """As `admitted`, where no other provider is left: the account may have been mended.

    The next call after a refusal goes out immediately; if it is refused too, one call a minute.
    """
    if record.state not in _ACCOUNT_STATES:
        return admit(record, now)
    again = record.since + REFUSED_S if record.failures > 1 else 0.0
    if max(again, record.trial_until or 0.0) > now:
        return None
    return replace(record, trial_until=now + TRIAL_S)


def release(record: HealthRecord) -> HealthRecord:
    """The call ended and told nothing about the provider."""
    return replace(record, trial_until=None)


def record_success(
    record: HealthRecord, now: float, *, began: float, used_up_for_s: float | None = None
) -> HealthRecord:
    """A call was answered; `used_up_for_s` if it was the last for so long, by its own headers."""
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
    """A call failed. An error that is about the work, not the provider, shows that it answers."""
    if isinstance(error, AuthRefused):
        return _open_record(record, "refused", now, REFUSED_S, error)
    if not isinstance(error, ProviderUnavailable):
        return record_success(record, now, began=began)
    if isinstance(error, OutOfCredit):
        return _open_record(record, "no_credit", now, NO_CREDIT_S, error)
    told = error.retry_after_s
    if is_breaker_open(record) and began < record.since and told is None:
        return record  # it was on its way when others found out
    failures = record.failures + 1
    if isinstance(error, RateLimited) or told is not None:
        guess = _backoff(RATE_LIMITED_S, failures - 1)
        return _open_record(
            record, "limited", now, guess if told is None else told, error, told=told
        )
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
    """As kept by somebody whose clock may have been set since: no wait grows by that."""
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
    """It comes back by the clock alone: the window is full again."""
    return record.state == "limited" and record.told and (record.until or 0.0) <= now


def _open_record(
    record: HealthRecord,
    state: HealthState,
    now: float,
    wait: float,
    error: WorkerError,
    *,
    told: float | None = None,
) -> HealthRecord:
    until = now + min(wait, MAX_OPEN_S)
    if record.state == state and told is not None and record.told:
        until = max(until, record.until or 0.0)  # of two answers at once, the later time holds
    counted = state not in _ACCOUNT_STATES or record.state == state
    return HealthRecord(
        state=state,
        failures=record.failures + 1 if counted else 1,
        since=now,
        until=until,
        told=told is not None,
        reason=_reason_text(error),
    )


def _backoff(first: float, times: int) -> float:
    return min(first * 2.0 ** min(max(0, times), 30), MAX_PAUSE_S)


def _reason_text(error: WorkerError) -> str:
    return " ".join(str(error).split())[:MAX_REASON]


DIRECT_ACCOUNT = "direct"
ACCOUNT_CACHE_S = 0.5  # for which an account is not looked up again

RecordStep = Callable[[HealthRecord], HealthRecord | None]


class InMemoryHealthRecords:
    """The port `HealthRecords` that forgets with its process."""

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
    """The port `ProviderHealth`. `account` names whose key a backend is asked with, `bounds` the terms."""

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
        self._under_way: Counter[tuple[str, str]] = Counter()

    def condition(self, provider: Provider) -> ProviderCondition:
        return condition_of(self._records.known(self._key(provider)), self._clock())

    def calls_in_flight(self, provider: Provider) -> int:
        return self._under_way[provider.backend, provider.model]

    async def try_admit(self, provider: Provider, *, force: bool = False) -> bool:
        key, now = self._key(provider), self._clock()
        decide = admit_forced if force else admit
        record = self._records.known(key)
        after = decide(record, now)
        if after is not None and after != record:  # a trial: others may want it too
            after = await self._records.change(key, lambda kept: decide(kept, now))
        if after is None:
            return False
        self._under_way[provider.backend, provider.model] += 1
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
        self._under_way[name] = max(0, self._under_way[name] - 1)
        key = self._key(provider)
        known = self._records.known(key)
        if not _is_news(known, step(known)):
            return
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
    """Tells address and key of a backend apart from others without telling the key."""
    if backend is None or not backend.is_held(environ):
        return DIRECT_ACCOUNT
    told = f"{backend.base_url}\0{backend.resolve_key(environ) or ''}".encode(errors="replace")
    return hashlib.sha256(told).hexdigest()[:12]


def _is_news(one: HealthRecord, other: HealthRecord) -> bool:
    """A provider that is well and serves once more is no news."""
    return one != other and not (one.state == other.state == "healthy")


log = logging.getLogger(__name__)

MAX_PARALLEL_PROBES = 4
PROBE_S = 15.0
MAX_PROBE_BYTES = 64 * 1024
FIRST_ERROR_STATUS = 300
_PROBED_STATES: frozenset[HealthState] = frozenset({"unknown", "failing", "down", "refused"})


class HealthProbe:
    """The background task of one go-ent; it sleeps while the settings want no probe."""

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
                log.info("no probe of providers: %s", error)
            await anyio.sleep(interval)

    async def probe_once(self, settings: Settings) -> None:
        """Ask once everybody of whom too little is known, a few at a time."""
        limit = anyio.CapacityLimiter(MAX_PARALLEL_PROBES)
        async with anyio.create_task_group() as group:
            for each in self._targets(settings):
                group.start_soon(self._ask, each, limit)

    def _targets(self, settings: Settings) -> Iterator[CallTarget]:
        """One model of a backend speaks for the list; the others are what their calls tell."""
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

    async def _ask(self, asked: CallTarget, limit: anyio.CapacityLimiter) -> None:
        async with limit:
            provider, began = asked.provider, self._clock()
            if not await self._healths.try_admit(provider):
                return
            told = False
            silent = f"{asked.place} did not list its models within {PROBE_S:g} s"
            error: WorkerError | None = ProviderTimeout(silent)
            try:
                with anyio.move_on_after(PROBE_S):
                    error = await self._answer(asked)
                told = await self._record(provider, error, began)
            finally:
                if not told:
                    with anyio.CancelScope(shield=True):
                        await self._healths.release(provider)

    async def _record(self, provider: Provider, error: WorkerError | None, began: float) -> bool:
        """Whether the answer told anything; a server without such a list tells nothing."""
        if error is None:
            await self._healths.record_success(provider, began=began)
        elif isinstance(error, ProviderUnavailable | AuthRefused):
            await self._healths.record_failure(provider, error, began=began)
        else:
            return False
        return True

    async def _answer(self, asked: CallTarget) -> WorkerError | None:
        call = ModelCall(
            backend=asked.provider.backend,
            dialect=asked.dialect,
            method="GET",
            url=f"{asked.base_url}/models",
            headers=codec_for(asked.dialect).headers,
            body=b"",
            key=asked.key,
            secret_headers=asked.headers,
            server=asked.server,
            hurried=True,
        )
        try:
            async with self._connections.send(call) as answer:
                if answer.status < FIRST_ERROR_STATUS:
                    return None
                body = await read_start(answer, most=MAX_PROBE_BYTES, within_s=PROBE_S)
                return failure_from_answer(
                    asked.provider.backend,
                    answer.status,
                    answer.headers,
                    call.without_key(body),
                    now=time.time(),
                )
        except WorkerError as error:
            return error
