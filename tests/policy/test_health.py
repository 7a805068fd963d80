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
from goent.domain.health import HealthRecord
from goent.domain.settings import Health
from goent.policy import health
from goent.policy.health import LONGEST_PAUSE_S, LONGEST_S, TRIAL_S, Bounds

NOW = 1_800_000_000.0
BOUNDS = Bounds(failures=3, first_pause_s=5)
DOWN = ProviderDown("backend 'x' answered 503")


def failed(record: HealthRecord, error: WorkerError = DOWN, at: float = NOW) -> HealthRecord:
    return health.failed(record, error, at, began=at, bounds=BOUNDS)


def down(at: float = NOW) -> HealthRecord:
    record = HealthRecord()
    for _ in range(BOUNDS.failures):
        record = failed(record, at=at)
    return record


@pytest.mark.spec("P36")
def test_it_is_down_after_so_many_failures_in_a_row() -> None:
    record = failed(failed(HealthRecord()))
    assert health.condition(record, NOW).state == "failing"
    assert not health.condition(record, NOW).is_out(NOW), "it may still be asked"
    record = failed(record)
    seen = health.condition(record, NOW)
    assert (seen.state, seen.until, seen.told) == ("down", NOW + 5, False)
    assert "503" in seen.reason
    assert seen.is_out(NOW)


def test_one_answer_ends_the_row() -> None:
    record = health.served(failed(failed(HealthRecord())), NOW, began=NOW)
    assert health.condition(failed(record), NOW).state == "failing"


@pytest.mark.parametrize(("retries", "opens_at"), [(1, 1), (0, 1), (5, 5)])
def test_the_settings_say_how_many_failures(retries: int, opens_at: int) -> None:
    bounds = Bounds.of(Health(max_retries=retries, retry_delay=7))
    record, count = HealthRecord(), 0
    while not health.is_open(record):
        record = health.failed(record, DOWN, NOW, began=NOW, bounds=bounds)
        count += 1
    assert (count, record.until) == (opens_at, NOW + 7)


def test_pauses_grow_with_every_trial_that_fails_and_have_an_end() -> None:
    record, now, pauses = down(), NOW, list[float]()
    for _ in range(12):
        assert record.until
        pauses.append(record.until - now)
        now = record.until
        trying = health.admitted(record, now)
        assert trying
        record = failed(trying, at=now)
    assert pauses == sorted(pauses)
    assert pauses[:3] == [5, 10, 20]
    assert pauses[-1] == LONGEST_PAUSE_S


def test_when_the_pause_is_over_one_call_tries_it_and_success_closes_it() -> None:
    record = down()
    assert health.admitted(record, NOW + 4) is None
    trying = health.admitted(record, NOW + 6)
    assert trying
    assert health.admitted(trying, NOW + 7) is None, "one at a time"
    assert health.condition(trying, NOW + 7).is_out(NOW + 7), "others see it as out"
    assert health.admitted(health.released(trying), NOW + 7), "a trial that was given up is free"
    assert health.admitted(trying, NOW + 6 + TRIAL_S), "nobody waits for a dead one for ever"
    closed = health.served(trying, NOW + 8, began=NOW + 6)
    assert health.condition(closed, NOW + 8).state == "healthy"
    assert health.admitted(closed, NOW + 8) == closed


@pytest.mark.spec("P38")
def test_a_rate_limit_holds_until_the_time_that_was_named_and_then_is_over() -> None:
    record = failed(HealthRecord(), RateLimited("slow down", retry_after_s=3600))
    seen = health.condition(record, NOW + 3599)
    assert (seen.state, seen.until, seen.told) == ("limited", NOW + 3600, True)
    assert health.admitted(record, NOW + 3599) is None
    assert health.admitted(record, NOW + 3600) == record, "for everybody, without a trial"
    assert health.condition(record, NOW + 3600).state == "healthy"


def test_a_limit_that_names_no_time_is_tried_after_a_guess() -> None:
    record = failed(HealthRecord(), RateLimited("slow down"))
    assert record.until == NOW + health.RATE_LIMITED_S
    assert not record.told
    trying = health.admitted(record, NOW + 31)
    assert trying and trying.trial_until


@pytest.mark.spec("P38")
def test_a_good_answer_can_tell_that_it_was_the_last_for_now() -> None:
    record = health.served(HealthRecord(), NOW, began=NOW, used_up_for_s=40)
    seen = health.condition(record, NOW)
    assert (seen.state, seen.until, seen.told) == ("limited", NOW + 40, True)


def test_an_overloaded_one_that_names_a_time_is_left_alone_until_then() -> None:
    record = failed(HealthRecord(), Overloaded("busy", retry_after_s=20))
    assert health.condition(record, NOW).until == NOW + 20


@pytest.mark.parametrize(
    ("error", "state"), [(AuthRefused("who?"), "refused"), (OutOfCredit("empty"), "no_credit")]
)
def test_an_account_that_is_refused_opens_at_once(error: WorkerError, state: str) -> None:
    record = failed(HealthRecord(), error)
    seen = health.condition(record, NOW)
    assert (seen.state, seen.is_out(NOW)) == (state, True)
    trying = health.forced(record, NOW)
    assert trying, "where there is nobody else it may be tried: it may have been mended"
    assert health.forced(trying, NOW) is None, "by one"
    assert health.forced(down(), NOW) is None, "one that is down is left alone all the same"


@pytest.mark.parametrize("error", [AuthRefused("who?"), OutOfCredit("empty")])
def test_an_account_that_is_refused_again_is_asked_at_most_once_a_minute(
    error: WorkerError,
) -> None:
    refused = failed(failed(HealthRecord()), error)
    assert health.forced(refused, NOW), "the next prompt asks immediately, whatever failed before"
    again = failed(refused, error, NOW + 1)
    assert health.forced(again, NOW + 60) is None
    assert health.forced(again, NOW + 61)
    later = failed(again, error, NOW + 61)
    assert health.forced(later, NOW + 62) is None


def test_an_error_about_the_work_shows_that_the_provider_answers() -> None:
    record = failed(failed(HealthRecord()), ContextOverflow("too long"))
    assert health.condition(record, NOW).state == "healthy"


def test_news_that_is_older_than_the_state_changes_nothing() -> None:
    limited = failed(HealthRecord(), RateLimited("slow down", retry_after_s=3600))
    assert health.served(limited, NOW + 1, began=NOW - 10) == limited
    record = down()
    again = health.failed(record, ProviderTimeout("late"), NOW + 1, began=NOW - 9, bounds=BOUNDS)
    assert again == record, "twenty calls that fail together are one failure"


def test_of_two_times_that_are_named_the_later_holds() -> None:
    record = failed(HealthRecord(), RateLimited("an hour", retry_after_s=3600))
    record = failed(record, RateLimited("a minute", retry_after_s=60), at=NOW + 1)
    assert record.until == NOW + 3600


def test_a_clock_that_was_set_back_makes_no_wait_longer() -> None:
    record = failed(HealthRecord(), RateLimited("a minute", retry_after_s=60))
    day = 24 * 3600
    mended = health.mended(record, NOW - day)
    assert mended.until == NOW - day + 60
    assert health.mended(record, NOW + 1) == record
    far = HealthRecord(state="limited", since=NOW, until=NOW + 90 * day, told=True)
    assert health.mended(far, NOW).until == NOW + LONGEST_S


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
        taken = health.admitted(record, now)
        if taken is None:
            continue
        began, now = now, now + lasted
        if error is None:
            record = health.served(taken, now, began=began)
            assert health.condition(record, now).state == "healthy"
        else:
            record = health.failed(taken, error, now, began=began, bounds=BOUNDS)
        seen = health.condition(record, now)
        if seen.until is not None:
            assert math.isfinite(seen.until)
            assert seen.until <= now + LONGEST_S
        over = now + LONGEST_S + 1
        trying = health.admitted(record, over)
        assert trying, "nobody is out for ever"
        if trying.trial_until:
            assert health.admitted(trying, over) is None
