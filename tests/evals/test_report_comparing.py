"""Is a run called better only if its cases can show it?"""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from goent.domain.evaluation_messages import Conclusion
from goent.evals.eval_results import CaseKey, CaseStatus, Row
from goent.evals.reports.comparison import compare_runs
from goent.evals.reports.statistics import Interval

MIRRORED: dict[Conclusion, Conclusion] = {
    "better": "worse",
    "worse": "better",
    "no difference": "no difference",
}


def row(
    test_id: str, score: float, target: str = "t", *, trial: int = 1, failed: bool = False
) -> Row:
    status: CaseStatus = "ok" if score >= 0.8 else "quality_failure"
    return Row(
        test_id=test_id,
        target=target,
        score=score,
        execution_status="execution_error" if failed else status,
        trial=trial,
    )


def run(*scores: float, target: str = "t") -> list[Row]:
    return [row(f"case-{number:02}", score, target) for number, score in enumerate(scores)]


ROWS = st.lists(
    st.builds(
        row,
        st.sampled_from("abcdefghijklmnop"),
        st.integers(0, 10).map(lambda n: n / 10),
        st.sampled_from(["t", "u"]),
        trial=st.integers(1, 2),
        failed=st.integers(0, 9).map(lambda n: n == 0),
    ),
    max_size=40,
)


def cases(keys: tuple[CaseKey, ...]) -> list[tuple[str, str]]:
    """Without the target: of two that are compared, it names which came first."""
    return [(key.suite, key.test_id) for key in keys]


@given(ROWS, ROWS)
def test_the_other_way_round_is_the_mirror(first: list[Row], second: list[Row]):
    there, back = compare_runs(first, second), compare_runs(second, first)
    assert back.delta == (None if there.delta is None else -there.delta)
    assert back.interval == (there.interval and mirrored(there.interval))
    assert (back.p_score, back.p_pass) == (there.p_score, there.p_pass)
    assert (back.wins, back.losses, back.ties) == (there.losses, there.wins, there.ties)
    assert (back.gained, back.lost) == (there.lost, there.gained)
    assert back.conclusion == MIRRORED[there.conclusion]
    assert cases(back.unpaired.only_after) == cases(there.unpaired.only_before)
    assert cases(back.unpaired.errors_after) == cases(there.unpaired.errors_before)


def mirrored(interval: Interval) -> Interval:
    return Interval(low=-interval.high, high=-interval.low)


@given(ROWS)
def test_a_run_is_no_better_than_itself(rows: list[Row]):
    compared = compare_runs(rows, rows)
    assert compared.conclusion == "no difference"
    assert not compared.delta
    assert compared.wins == compared.losses == compared.gained == compared.lost == 0


def test_six_of_six_show_a_difference_and_five_do_not():
    five = compare_runs(run(*[0.0] * 5), run(*[1.0] * 5))
    assert (five.delta, five.wins, five.gained, five.p_pass) == (1, 5, 5, 2 / 32)
    assert five.conclusion == "no difference"
    assert "fewer than 6" in five.text
    six = compare_runs(run(*[0.0] * 6), run(*[1.0] * 6))
    assert six.conclusion == "better"
    assert (six.p_score, six.p_pass) == (2 / 64, 2 / 64)
    assert six.text.startswith("Better: the mean score changed by +1.000 over 6 cases")
    assert compare_runs(run(*[1.0] * 6), run(*[0.0] * 6)).text.startswith("Worse")


def test_noise_is_no_difference():
    compared = compare_runs(run(*[0.5, 0.9] * 6), run(*[0.9, 0.5] * 6))
    assert (compared.delta, compared.wins, compared.losses) == (0, 6, 6)
    assert compared.conclusion == "no difference"


def test_a_tenth_is_a_win_whatever_its_last_bit():
    compared = compare_runs(run(0.8, 0.9, 0.5), run(0.9, 0.8, 0.55))
    assert (compared.wins, compared.losses, compared.ties) == (1, 1, 1)
    assert compare_runs(run(0.5), run(0.55), notable=0.05).wins == 1


def test_trials_of_a_case_are_one_case():
    before = [row("a", 0.0, trial=1), row("a", 1.0, trial=2)]
    after = [row("a", 1.0, trial=1), row("a", 1.0, trial=2)]
    compared = compare_runs(before, after)
    (pair,) = compared.pairs
    assert (pair.before, pair.after, pair.passed_before, pair.passed_after) == (0.5, 1, 0.5, 1)
    assert (compared.gained, compared.interval) == (1, None)


def test_failed_attempts_and_strangers_are_left_out_and_told():
    before = [row("a", 1), row("b", 0, failed=True), row("gone", 1)]
    after = [row("a", 1), row("b", 1), row("new", 1)]
    compared = compare_runs(before, after)
    assert [pair.key.test_id for pair in compared.pairs] == ["a"]
    assert [key.test_id for key in compared.unpaired.errors_before] == ["b"]
    assert [key.test_id for key in compared.unpaired.only_before] == ["gone"]
    assert [key.test_id for key in compared.unpaired.only_after] == ["new"]


def test_what_was_skipped_has_not_failed():
    skipped = [replace(row(name, 0), execution_status="skipped") for name in "bcd"]
    before = [row("a", 1), row("b", 1), *skipped[1:]]
    after = [row("a", 1), *skipped[:2], row("d", 0, failed=True)]
    unpaired = compare_runs(before, after).unpaired
    assert cases(unpaired.skipped) == [("", "b"), ("", "c")]
    assert unpaired.text == "1 with failed attempts, 2 skipped"
    assert (unpaired.unscored, unpaired.count) == (3, 3)


def test_two_targets_can_be_compared():
    rows = run(*[0.2] * 8, target="small") + run(*[0.9] * 8, target="large")
    assert compare_runs(rows, rows, targets=("small", "large")).conclusion == "better"
    assert compare_runs(rows, rows, targets=("large", "small")).conclusion == "worse"
    assert compare_runs(rows, run(1, target="other")).text.startswith("Nothing")


def test_where_each_run_has_one_target_those_are_compared():
    small, large = run(*[0.2] * 8, target="small"), run(*[0.9] * 8, target="large")
    compared = compare_runs(small, large)
    assert compared.conclusion == "better"
    assert {pair.key.target for pair in compared.pairs} == {"small → large"}


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_same_seed_tells_the_same(seed: int):
    before = run(*[0.5] * 20)
    after = run(*(0.3 + number % 7 / 10 for number in range(20)))
    assert compare_runs(before, after, seed=seed) == compare_runs(before, after, seed=seed)
