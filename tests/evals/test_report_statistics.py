"""Do the numbers agree with published tables, and stay within their bounds?"""

from math import comb
from random import Random
from statistics import fmean

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from goent.evals.reports.statistics import (
    bootstrap_interval,
    flip_rate,
    pass_at_k,
    pass_hat_k,
    seeded_random,
    sign_test,
    swap_test,
    t_interval,
    t_quantile,
    wilson,
)

SHARES = st.lists(st.integers(-100, 100).map(lambda n: n / 100), min_size=2, max_size=20)


@st.composite
def counted(draw: st.DrawFn) -> tuple[int, int, int]:
    trials = draw(st.integers(1, 40))
    return trials, draw(st.integers(0, trials)), draw(st.integers(1, trials))


# Repeated trials


def test_pass_at_k_and_pass_hat_k_by_hand():
    # 5 trials, 2 passed, 2 drawn: 10 draws, 3 of them without a pass, 1 with nothing else.
    assert pass_at_k(5, 2, 2) == pytest.approx(0.7)
    assert pass_hat_k(5, 2, 2) == pytest.approx(0.1)
    assert pass_at_k(5, 2, 1) == pass_hat_k(5, 2, 1) == pytest.approx(0.4)


def test_the_flip_rate_is_the_chance_that_two_trials_disagree():
    assert flip_rate(2, 1) == 1
    assert flip_rate(4, 2) == pytest.approx(4 / 6)  # of 6 pairs 4 are mixed
    assert flip_rate(5, 5) == flip_rate(5, 0) == 0


@given(counted())
def test_all_passing_is_never_likelier_than_one_passing(numbers: tuple[int, int, int]):
    trials, passed, k = numbers
    all_of, one_of = pass_hat_k(trials, passed, k), pass_at_k(trials, passed, k)
    assert 0 <= all_of <= passed / trials + 1e-12
    assert passed / trials - 1e-12 <= one_of <= 1
    assert pass_hat_k(trials, trials - passed, k) == pytest.approx(1 - one_of)


@given(counted())
def test_a_flip_is_what_lies_between_one_and_all_of_two(numbers: tuple[int, int, int]):
    trials, passed, _ = numbers
    if trials > 1:
        between = pass_at_k(trials, passed, 2) - pass_hat_k(trials, passed, 2)
        assert flip_rate(trials, passed) == pytest.approx(between)


@pytest.mark.parametrize("numbers", [(3, 4, 1), (3, 1, 0), (3, 1, 4), (3, -1, 1)])
def test_more_than_there_are_cannot_be_drawn(numbers: tuple[int, int, int]):
    with pytest.raises(ValueError, match="no such choice"):
        pass_at_k(*numbers)


def test_one_trial_has_no_flip_rate():
    with pytest.raises(ValueError, match="no such choice"):
        flip_rate(1, 1)


# Intervals


@pytest.mark.parametrize(
    ("passed", "total", "low", "high"),
    [
        (81, 263, 0.2553, 0.3662),  # Newcombe 1998, table I, method 3
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_is_as_published(passed: int, total: int, low: float, high: float):
    interval = wilson(passed, total)
    assert (interval.low, interval.high) == pytest.approx((low, high), abs=5e-5)


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_holds_the_rate_and_mirrors(numbers: tuple[int, int]):
    passed, total = numbers
    interval, mirror = wilson(passed, total), wilson(total - passed, total)
    assert 0 <= interval.low <= passed / total <= interval.high <= 1
    assert interval.low < interval.high
    assert (mirror.low, mirror.high) == pytest.approx((1 - interval.high, 1 - interval.low))


@pytest.mark.parametrize(
    ("freedom", "confidence", "quantile"),
    [
        (1, 0.95, 12.706),
        (2, 0.95, 4.303),
        (3, 0.95, 3.182),
        (4, 0.99, 4.604),
        (9, 0.95, 2.262),
        (10, 0.90, 1.812),
        (30, 0.95, 2.042),
        (120, 0.95, 1.980),
        (1000, 0.95, 1.962),
    ],
)
def test_student_is_as_in_every_table(freedom: int, confidence: float, quantile: float):
    assert t_quantile(freedom, confidence) == pytest.approx(quantile, abs=6e-4)


def test_exact_and_approximate_student_meet():
    assert t_quantile(200) == pytest.approx(t_quantile(201), abs=2e-4)


def test_the_t_interval_by_hand():
    interval = t_interval([1.0, 2.0, 3.0])  # mean 2, deviation 1, 4.303 / sqrt(3)
    assert interval is not None
    assert (interval.low, interval.high) == pytest.approx((-0.4842, 4.4842), abs=1e-3)


@pytest.mark.parametrize("values", [[0.5], [1.0, 1.0], [-1.0] * 40])
def test_values_that_do_not_differ_have_no_interval(values: list[float]):
    assert t_interval(values) is None
    assert bootstrap_interval(values, seeded_random()) is None


@given(SHARES, st.integers(0, 1000))
def test_the_bootstrap_stays_among_the_values_repeats_and_mirrors(values: list[float], seed: int):
    assume(max(values) - min(values) > 1e-9)
    interval = bootstrap_interval(values, Random(seed), resamples=200)
    assert interval is not None
    assert min(values) - 1e-12 <= interval.low <= interval.high <= max(values) + 1e-12
    assert interval == bootstrap_interval(values, Random(seed), resamples=200)
    negated = bootstrap_interval([-value for value in values], Random(seed), resamples=200)
    assert negated is not None
    assert (negated.low, negated.high) == (-interval.high, -interval.low)


def test_the_bootstrap_is_about_as_wide_as_student_for_many_values():
    source = Random(7)
    values = [source.gauss(0.5, 0.1) for _ in range(400)]
    resampled, student = bootstrap_interval(values, seeded_random()), t_interval(values)
    assert resampled is not None
    assert student is not None
    assert (resampled.low, resampled.high) == pytest.approx((student.low, student.high), abs=2e-3)
    assert resampled.low < fmean(values) < resampled.high


# Tests of a difference


def test_the_sign_test_by_hand():
    assert sign_test(0, 0) == sign_test(3, 3) == 1
    assert sign_test(5, 0) == 2 / 32
    assert sign_test(6, 0) == 2 / 64
    assert sign_test(8, 2) == pytest.approx(2 * (1 + 10 + 45) / 1024)


@given(st.integers(0, 12), st.integers(0, 12), st.integers(0, 5))
def test_for_passes_and_failures_swapping_is_the_sign_test(more: int, less: int, same: int):
    if more + less <= 12:
        deltas = [1.0] * more + [-1.0] * less + [0.0] * same
        assert swap_test(deltas, seeded_random()) == pytest.approx(sign_test(more, less))


@given(SHARES, st.integers(0, 1000))
def test_swapping_mirrors_and_is_a_chance(values: list[float], seed: int):
    chance = swap_test(values, Random(seed), resamples=200)
    assert 0 < chance <= 1
    assert chance == swap_test([-value for value in values], Random(seed), resamples=200)


def test_drawn_swaps_come_close_to_all_of_them():
    # 14 up and 2 down of 16: more than are tried one by one.
    exact = 2 * sum(comb(16, number) for number in range(3)) / 2**16
    assert swap_test([1.0] * 14 + [-1.0] * 2, seeded_random()) == pytest.approx(exact, abs=0.003)


@given(st.lists(st.floats(0.01, 1), max_size=5))
def test_five_pairs_never_show_anything(deltas: list[float]):
    assert swap_test(deltas, seeded_random()) > 0.05
