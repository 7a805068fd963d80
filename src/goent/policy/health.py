"""Is a provider well, and what does one more call tell about it? A circuit breaker, and nothing else.

It opens when the provider says so (a rate limit, an empty account, a refused key) or after failures
in a row, for a pause that grows. When the pause is over, one call tries it; success closes it. A call
that began before the state it would change is old news. Pure: a record, a time in; a record out.
"""

from typing import Final

from msgspec.structs import replace

from goent.domain.errors import (
    AuthRefused,
    OutOfCredit,
    ProviderUnavailable,
    RateLimited,
    WorkerError,
)
from goent.domain.health import Condition, HealthRecord, HealthState
from goent.domain.settings import Health
from goent.domain.types import Value

RATE_LIMITED_S = 30.0  # where the provider does not say when to come back
REFUSED_S = 60.0  # a key may be mended where it was made; another key here starts anew
NO_CREDIT_S = 600.0
LONGEST_PAUSE_S = 600.0  # between two tries of one that is down
LONGEST_S = 24 * 3600.0  # beyond it somebody means something else, or the clock was set
TRIAL_S = 120.0  # for which others wait for the one call that tries
SLACK_S = 5.0  # that clocks may differ
LONGEST_REASON = 300

_ACCOUNT: Final[frozenset[HealthState]] = frozenset({"refused", "no_credit"})
_OPEN: Final[frozenset[HealthState]] = frozenset({*_ACCOUNT, "limited", "down"})


class Bounds(Value, frozen=True, kw_only=True):
    """When a provider counts as down, and for how long at first."""

    failures: int = 3
    first_pause_s: float = 5.0

    @classmethod
    def of(cls, health: Health) -> "Bounds":
        return cls(failures=max(1, health.max_retries), first_pause_s=max(1.0, health.retry_delay))


def condition(record: HealthRecord, now: float) -> Condition:
    """As others see it now."""
    if record.state == "failing":
        # Long enough ago it says nothing any more: a provider that nobody asks cannot recover.
        recent = (record.until or 0.0) > now
        return Condition(state="failing", reason=record.reason) if recent else Condition()
    if not is_open(record):
        return Condition(state=record.state)
    if _is_over(record, now):
        return Condition(state="healthy")
    trial = record.trial_until or 0.0
    return Condition(
        state=record.state,
        until=max(record.until or 0.0, trial),
        told=record.told,
        tried=trial > now,
        reason=record.reason,
    )


def is_open(record: HealthRecord) -> bool:
    """No call goes through but a trial."""
    return record.state in _OPEN


def admitted(record: HealthRecord, now: float) -> HealthRecord | None:
    """The record once a call is on its way; None if there may be none now.

    A rate limit whose time the provider named is over then, without a trial.
    """
    if not is_open(record) or _is_over(record, now):
        return record
    if (record.until or 0.0) > now or (record.trial_until or 0.0) > now:
        return None
    return replace(record, trial_until=now + TRIAL_S)


def forced(record: HealthRecord, now: float) -> HealthRecord | None:
    """As `admitted`, where no other provider is left: the account may have been mended.

    The next call after a refusal goes out immediately; if it is refused too, one call a minute.
    """
    if record.state not in _ACCOUNT:
        return admitted(record, now)
    again = record.since + REFUSED_S if record.failures > 1 else 0.0
    if max(again, record.trial_until or 0.0) > now:
        return None
    return replace(record, trial_until=now + TRIAL_S)


def released(record: HealthRecord) -> HealthRecord:
    """The call ended and told nothing about the provider."""
    return replace(record, trial_until=None)


def served(
    record: HealthRecord, now: float, *, began: float, used_up_for_s: float | None = None
) -> HealthRecord:
    """A call was answered; `used_up_for_s` if it was the last for so long, by its own headers."""
    if used_up_for_s:
        until = now + min(used_up_for_s, LONGEST_S)
        if is_open(record) and (record.until or 0.0) >= until:
            return released(record)
        return HealthRecord(
            state="limited", since=now, until=until, told=True, reason="its limit is used up"
        )
    if is_open(record) and began < record.since:
        return record
    return HealthRecord(state="healthy", since=now)


def failed(
    record: HealthRecord, error: WorkerError, now: float, *, began: float, bounds: Bounds
) -> HealthRecord:
    """A call failed. An error that is about the work, not the provider, shows that it answers."""
    if isinstance(error, AuthRefused):
        return _opened(record, "refused", now, REFUSED_S, error)
    if not isinstance(error, ProviderUnavailable):
        return served(record, now, began=began)
    if isinstance(error, OutOfCredit):
        return _opened(record, "no_credit", now, NO_CREDIT_S, error)
    told = error.retry_after_s
    if is_open(record) and began < record.since and told is None:
        return record  # it was on its way when others found out
    failures = record.failures + 1
    if isinstance(error, RateLimited) or told is not None:
        guess = _grown(RATE_LIMITED_S, failures - 1)
        return _opened(record, "limited", now, guess if told is None else told, error, told=told)
    if failures < bounds.failures and not is_open(record):
        return HealthRecord(
            state="failing",
            failures=failures,
            since=now,
            until=now + bounds.first_pause_s,
            reason=_reason(error),
        )
    pause = _grown(bounds.first_pause_s, failures - bounds.failures)
    return _opened(record, "down", now, pause, error)


def mended(record: HealthRecord, now: float) -> HealthRecord:
    """As kept by somebody whose clock may have been set since: no wait grows by that."""
    if record.since > now + SLACK_S:
        shift = record.since - now
        return replace(
            record,
            since=now,
            until=_bounded(record.until, shift, now),
            trial_until=_bounded(record.trial_until, shift, now),
        )
    return replace(
        record,
        until=_bounded(record.until, 0.0, now),
        trial_until=_bounded(record.trial_until, 0.0, now, TRIAL_S),
    )


def _bounded(
    moment: float | None, shift: float, now: float, longest: float = LONGEST_S
) -> float | None:
    return None if moment is None else min(moment - shift, now + longest)


def _is_over(record: HealthRecord, now: float) -> bool:
    """It comes back by the clock alone: the window is full again."""
    return record.state == "limited" and record.told and (record.until or 0.0) <= now


def _opened(
    record: HealthRecord,
    state: HealthState,
    now: float,
    wait: float,
    error: WorkerError,
    *,
    told: float | None = None,
) -> HealthRecord:
    until = now + min(wait, LONGEST_S)
    if record.state == state and told is not None and record.told:
        until = max(until, record.until or 0.0)  # of two answers at once, the later time holds
    counted = state not in _ACCOUNT or record.state == state
    return HealthRecord(
        state=state,
        failures=record.failures + 1 if counted else 1,
        since=now,
        until=until,
        told=told is not None,
        reason=_reason(error),
    )


def _grown(first: float, times: int) -> float:
    return min(first * 2.0 ** min(max(0, times), 30), LONGEST_PAUSE_S)


def _reason(error: WorkerError) -> str:
    return " ".join(str(error).split())[:LONGEST_REASON]
