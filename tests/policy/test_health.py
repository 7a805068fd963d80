"""A breaker opens for good reasons, lets one call try it, and always closes again."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goent.domain.errors import (
    AuthRefused,
    ContextOverflow,
    OutOfCredit,
    Overloaded,
    ProviderDown,
    ProviderTimeout,
    RateLimited,
    WorkerError,
)
from goent.domain.provider_condition import HealthRecord
from goent.domain.settings import HealthSettings
from goent.providers import provider_health
from goent.providers.provider_health import MAX_OPEN_S, MAX_PAUSE_S, TRIAL_S, BreakerBounds

NOW = 1_800_000_000.0
BOUNDS = BreakerBounds(failures=3, first_pause_s=5)
DOWN = ProviderDown("backend 'x' answered 503")


def failed(record: HealthRecord, error: WorkerError = DOWN, at: float = NOW) -> HealthRecord:
    return provider_health.record_failure(record, error, at, began=at, bounds=BOUNDS)


def down(at: float = NOW) -> HealthRecord:
    record = HealthRecord()
    for _ in range(BOUNDS.failures):
        record = failed(record, at=at)
    return record


@pytest.mark.spec("P36")
def test_it_is_down_after_so_many_failures_in_a_row() -> None:
    record = failed(failed(HealthRecord()))
    assert provider_health.condition_of(record, NOW).state == "failing"
    assert not provider_health.condition_of(record, NOW).is_unavailable(NOW), (
        "it may still be asked"
    )
    record = failed(record)
    seen = provider_health.condition_of(record, NOW)
    assert (seen.state, seen.until, seen.time_is_announced) == ("down", NOW + 5, False)
    assert "503" in seen.reason
    assert seen.is_unavailable(NOW)


def test_one_answer_ends_the_row() -> None:
    record = provider_health.record_success(failed(failed(HealthRecord())), NOW, began=NOW)
    assert provider_health.condition_of(failed(record), NOW).state == "failing"


@pytest.mark.parametrize(("retries", "opens_at"), [(1, 1), (0, 1), (5, 5)])
def test_the_settings_say_how_many_failures(retries: int, opens_at: int) -> None:
    bounds = BreakerBounds.of(HealthSettings(max_retries=retries, retry_delay=7))
    record, count = HealthRecord(), 0
    while not provider_health.is_breaker_open(record):
        record = provider_health.record_failure(record, DOWN, NOW, began=NOW, bounds=bounds)
        count += 1
    assert (count, record.until) == (opens_at, NOW + 7)


def test_pauses_grow_with_every_trial_that_fails_and_have_an_end() -> None:
    record, now, pauses = down(), NOW, list[float]()
    for _ in range(12):
        assert record.until
        pauses.append(record.until - now)
        now = record.until
        trying = provider_health.admit(record, now)
        assert trying
        record = failed(trying, at=now)
    assert pauses == sorted(pauses)
    assert pauses[:3] == [5, 10, 20]
    assert pauses[-1] == MAX_PAUSE_S


def test_when_the_pause_is_over_one_call_tries_it_and_success_closes_it() -> None:
    record = down()
    assert provider_health.admit(record, NOW + 4) is None
    trying = provider_health.admit(record, NOW + 6)
    assert trying
    assert provider_health.admit(trying, NOW + 7) is None, "one at a time"
    assert provider_health.condition_of(trying, NOW + 7).is_unavailable(NOW + 7), (
        "others see it as out"
    )
    assert provider_health.admit(provider_health.release(trying), NOW + 7), (
        "a trial that was given up is free"
    )
    assert provider_health.admit(trying, NOW + 6 + TRIAL_S), "nobody waits for a dead one for ever"
    closed = provider_health.record_success(trying, NOW + 8, began=NOW + 6)
    assert provider_health.condition_of(closed, NOW + 8).state == "healthy"
    assert provider_health.admit(closed, NOW + 8) == closed


@pytest.mark.spec("P38")
def test_a_rate_limit_holds_until_the_time_that_was_named_and_then_is_over() -> None:
    record = failed(HealthRecord(), RateLimited("slow down", retry_after_s=3600))
    seen = provider_health.condition_of(record, NOW + 3599)
    assert (seen.state, seen.until, seen.time_is_announced) == ("limited", NOW + 3600, True)
    assert provider_health.admit(record, NOW + 3599) is None
    assert provider_health.admit(record, NOW + 3600) == record, "for everybody, without a trial"
    assert provider_health.condition_of(record, NOW + 3600).state == "healthy"


def test_a_limit_that_names_no_time_is_tried_after_a_guess() -> None:
    record = failed(HealthRecord(), RateLimited("slow down"))
    assert record.until == NOW + provider_health.RATE_LIMITED_S
    assert not record.told
    trying = provider_health.admit(record, NOW + 31)
    assert trying and trying.trial_until


@pytest.mark.spec("P38")
def test_a_good_answer_can_tell_that_it_was_the_last_for_now() -> None:
    record = provider_health.record_success(HealthRecord(), NOW, began=NOW, used_up_for_s=40)
    seen = provider_health.condition_of(record, NOW)
    assert (seen.state, seen.until, seen.time_is_announced) == ("limited", NOW + 40, True)


def test_an_overloaded_one_that_names_a_time_is_left_alone_until_then() -> None:
    record = failed(HealthRecord(), Overloaded("busy", retry_after_s=20))
    assert provider_health.condition_of(record, NOW).until == NOW + 20


@pytest.mark.parametrize(
    ("error", "state"), [(AuthRefused("who?"), "refused"), (OutOfCredit("empty"), "no_credit")]
)
def test_an_account_that_is_refused_opens_at_once(error: WorkerError, state: str) -> None:
    record = failed(HealthRecord(), error)
    seen = provider_health.condition_of(record, NOW)
    assert (seen.state, seen.is_unavailable(NOW)) == (state, True)
    trying = provider_health.admit_forced(record, NOW)
    assert trying, "where there is nobody else it may be tried: it may have been mended"
    assert provider_health.admit_forced(trying, NOW) is None, "by one"
    assert provider_health.admit_forced(down(), NOW) is None, (
        "one that is down is left alone all the same"
    )


@pytest.mark.parametrize("error", [AuthRefused("who?"), OutOfCredit("empty")])
def test_an_account_that_is_refused_again_is_asked_at_most_once_a_minute(
    error: WorkerError,
) -> None:
    refused = failed(failed(HealthRecord()), error)
    assert provider_health.admit_forced(refused, NOW), (
        "the next prompt asks immediately, whatever failed before"
    )
    again = failed(refused, error, NOW + 1)
    assert provider_health.admit_forced(again, NOW + 60) is None
    assert provider_health.admit_forced(again, NOW + 61)
    later = failed(again, error, NOW + 61)
    assert provider_health.admit_forced(later, NOW + 62) is None


def test_an_error_about_the_work_shows_that_the_provider_answers() -> None:
    record = failed(failed(HealthRecord()), ContextOverflow("too long"))
    assert provider_health.condition_of(record, NOW).state == "healthy"


def test_news_that_is_older_than_the_state_changes_nothing() -> None:
    limited = failed(HealthRecord(), RateLimited("slow down", retry_after_s=3600))
    assert provider_health.record_success(limited, NOW + 1, began=NOW - 10) == limited
    record = down()
    again = provider_health.record_failure(
        record, ProviderTimeout("late"), NOW + 1, began=NOW - 9, bounds=BOUNDS
    )
    assert again == record, "twenty calls that fail together are one failure"


def test_of_two_times_that_are_named_the_later_holds() -> None:
    record = failed(HealthRecord(), RateLimited("an hour", retry_after_s=3600))
    record = failed(record, RateLimited("a minute", retry_after_s=60), at=NOW + 1)
    assert record.until == NOW + 3600


def test_a_clock_that_was_set_back_makes_no_wait_longer() -> None:
    record = failed(HealthRecord(), RateLimited("a minute", retry_after_s=60))
    day = 24 * 3600
    mended = provider_health.repair_record(record, NOW - day)
    assert mended.until == NOW - day + 60
    assert provider_health.repair_record(record, NOW + 1) == record
    far = HealthRecord(state="limited", since=NOW, until=NOW + 90 * day, told=True)
    assert provider_health.repair_record(far, NOW).until == NOW + MAX_OPEN_S


ERRORS = st.sampled_from(
    [DOWN, ProviderTimeout("silent"), Overloaded("busy"), RateLimited("x"), OutOfCredit("x")]
) | st.floats(0, 1e9).map(lambda s: RateLimited("told", retry_after_s=s))
NEWS = st.lists(st.tuples(st.floats(0, 1e5), st.floats(0, 1e4), ERRORS | st.none()), max_size=30)


@given(NEWS)
def test_whatever_happens_every_wait_ends_and_one_answer_closes(
    news: list[tuple[float, float, WorkerError | None]],
) -> None:
    record, now = HealthRecord(), NOW
    for passed, lasted, error in news:
        now += passed
        taken = provider_health.admit(record, now)
        if taken is None:
            continue
        began, now = now, now + lasted
        if error is None:
            record = provider_health.record_success(taken, now, began=began)
            assert provider_health.condition_of(record, now).state == "healthy"
        else:
            record = provider_health.record_failure(taken, error, now, began=began, bounds=BOUNDS)
        seen = provider_health.condition_of(record, now)
        if seen.until is not None:
            assert math.isfinite(seen.until)
            assert seen.until <= now + MAX_OPEN_S
        over = now + MAX_OPEN_S + 1
        trying = provider_health.admit(record, over)
        assert trying, "nobody is out for ever"
        if trying.trial_until:
            assert provider_health.admit(trying, over) is None
