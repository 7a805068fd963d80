from itertools import repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goent.billing.token_estimate import MAX_RATIO, MIN_SAMPLES, MIN_TOKENS, Calibration


def learned(*samples: tuple[int, int]) -> Calibration:
    calibration = Calibration()
    for estimated, actual in samples:
        calibration = calibration.after(estimated=estimated, actual=actual)
    return calibration


def test_a_tokenizer_that_counts_more_is_learned():
    assert learned(*repeat((1000, 1200), MIN_SAMPLES)).corrected(500) == 600


def test_too_few_samples_change_nothing():
    assert learned(*repeat((1000, 1200), MIN_SAMPLES - 1)).corrected(500) == 500


@pytest.mark.parametrize(
    ("estimated", "actual"),
    [(1000, 0), (1000, -5), (1000, 1), (1000, 10**9), (0, 0), (0, 7), (MIN_TOKENS - 1, 130)],
)
def test_an_absurd_or_tiny_sample_is_passed_over(estimated: int, actual: int):
    before = learned(*repeat((1000, 1200), 5))
    assert before.after(estimated=estimated, actual=actual) == before


def test_one_odd_call_moves_little():
    settled = learned(*repeat((1000, 1000), 20))
    assert settled.after(estimated=1000, actual=3900).factor <= 1.05


def test_a_change_of_tokenizer_is_followed():
    samples = (*repeat((1000, 1000), 50), *repeat((1000, 1400), 40))
    assert learned(*samples).factor == pytest.approx(1.4, rel=0.02)


@given(st.lists(st.tuples(st.integers(-10, 10**9), st.integers(-10, 10**9))), st.integers(0, 10**9))
def test_whatever_comes_back_the_correction_stays_bounded(
    samples: list[tuple[int, int]], estimated: int
):
    corrected = learned(*samples).corrected(estimated)
    assert min(1, estimated) <= corrected
    assert estimated / MAX_RATIO - 1 <= corrected <= estimated * MAX_RATIO + 1
