"""Do summaries keep the unknown unknown, and do hostile names stay names?"""

import re
import xml.etree.ElementTree as ET
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goent.evals.eval_results import Row, Score
from goent.evals.reports.comparison import compare_runs
from goent.evals.reports.report_formats import (
    comparison_markdown,
    junit_xml,
    markdown_code,
    summary_markdown,
)
from goent.evals.reports.run_summary import summarize_targets
from goent.evals.traces import TokenUsage

HOSTILE = "a|b `x` <b>&amp;\"' ]]> @team \x00\x1b[31m\ud800\ufffe\n| --- | **!"
SURROGATES = st.text(st.characters(exclude_categories=[]), max_size=30)
ROWS = (
    Row(
        test_id="a", target="t", score=1, execution_status="ok", cost_usd=0.5, duration_ms=1000,
        token_usage=TokenUsage(input=10, output=5), suite="s",
    ),
    Row(
        test_id="b", target="t", score=0.4, execution_status="quality_failure", duration_ms=3000, suite="s",
        scores=(
            Score(name="right", type="equals", score=0, verdict="fail"),
            Score(name="polite", type="llm", score=0.8, verdict="pass"),
        ),
    ),
    Row(test_id="c", target="t", score=0, execution_status="execution_error", error="no route", suite="s"),
)  # fmt: skip


def trials(test_id: str, *passed: bool) -> list[Row]:
    return [
        Row(
            test_id=test_id,
            target="t",
            score=float(each),
            execution_status="ok" if each else "quality_failure",
            trial=number,
            trials=len(passed),
        )
        for number, each in enumerate(passed, start=1)
    ]


# Summary


def test_errors_stand_beside_the_rates_and_unknown_costs_have_no_total():
    (summary,) = summarize_targets(ROWS)
    assert (summary.cases, summary.trials, summary.passed, len(summary.errors)) == (3, 3, 1, 1)
    assert summary.pass_rate is not None and summary.mean is not None
    assert summary.pass_rate.value == 0.5
    assert summary.mean.value == pytest.approx(0.7)
    assert summary.mean.interval is not None and summary.mean.interval.high == 1
    assert (summary.spent.known_usd, summary.spent.unknown, summary.spent.total_usd) == (
        0.5,
        2,
        None,
    )
    assert (summary.tokens.known.input, summary.tokens.unknown) == (10, 2)
    assert summary.durations is not None
    assert (summary.durations.median_ms, summary.durations.p90_ms) == (2000, 3000)
    (weak,) = summary.worst
    assert (weak.key.test_id, weak.failed_graders) == ("b", ("right",))


def test_a_target_that_only_failed_has_no_rate():
    (summary,) = summarize_targets(ROWS[2:])
    assert summary.pass_rate is summary.mean is summary.durations is summary.repeats is None


def test_repeated_trials_tell_reliability():
    rows = trials("a", True, True, True) + trials("b", True, False, False)
    (summary,) = summarize_targets(rows)
    assert summary.repeats is not None
    assert summary.repeats.k == 3
    assert (summary.repeats.pass_at_k, summary.repeats.pass_hat_k) == (1, 0.5)
    assert summary.repeats.flip_rate == pytest.approx((0 + 4 / 6) / 2)
    assert summary.pass_rate is not None
    assert summary.pass_rate.value == pytest.approx(2 / 3)


def test_the_worst_come_first_and_are_few():
    rows = [
        Row(test_id=f"{n:02}", target="t", score=n / 100, execution_status="quality_failure")
        for n in reversed(range(30))
    ]
    (summary,) = summarize_targets(rows, worst=3)
    assert [case.key.test_id for case in summary.worst] == ["00", "01", "02"]


# Markdown


def test_a_summary_in_markdown_says_what_is_unknown():
    text = summary_markdown(summarize_targets(ROWS))
    assert "at least $0.5000 (2 of 3 unknown)" in text
    assert "50.0% (9.5% to 90.5%)" in text
    assert "<code>no route</code>" in text
    assert "unknown |" in summary_markdown(summarize_targets(ROWS[2:]))
    assert "No case was run." in summary_markdown(summarize_targets([]))


def test_a_comparison_in_markdown_begins_with_its_conclusion():
    before = [row for n in range(8) for row in trials(f"c{n}", False)]
    after = [row for n in range(8) for row in trials(f"c{n}", True)]
    text = comparison_markdown(compare_runs(before, [*after, *trials("new", True)]))
    assert text.splitlines()[2].startswith("**Better:")
    assert "| now passing, now failing | 8, 0 (p = 0.0078) |" in text
    assert "Not compared: 1 only in the second run." in text


@given(st.one_of(st.just(HOSTILE), SURROGATES))
def test_no_name_breaks_a_table_or_means_anything(name: str):
    inside = markdown_code(name).removeprefix("<code>").removesuffix("</code>")
    assert not set(re.sub(r"&#\d+;", "", inside)) & set("|`<>&@*[]()!\\~#:/\n\r\t\x00")
    assert "".join(unescape(inside).split()) == "".join(
        char for char in name if char.isprintable() and not char.isspace()
    )
    bad = Row(test_id=name, target=name, score=0, execution_status="execution_error", error=name)
    tables = [
        line for line in summary_markdown(summarize_targets([bad])).split("\n") if line[:1] == "|"
    ]
    assert [line.count("|") for line in tables] == [8, 8, 8, 3, 3, 3]


def test_plain_names_stay_readable():
    assert markdown_code("fix_the-bug.v2") == "<code>fix_the-bug.v2</code>"
    assert markdown_code("_x_") == "<code>&#95;x&#95;</code>"
    assert len(markdown_code("y" * 500)) == len("<code></code>") + 120


# JUnit


def test_junit_counts_and_tells_failures_apart_from_errors():
    root = ET.fromstring(junit_xml(ROWS))
    suite = root[0]
    for element in (root, suite):
        counts = [element.get(name) for name in ("tests", "failures", "errors", "time")]
        assert counts == ["3", "1", "1", "4.000"]
    passed, failed, broken = suite
    assert (passed.get("name"), passed.get("classname"), passed.get("time")) == (
        "a",
        "t.s",
        "1.000",
    )
    assert [child.tag for child in passed] == []
    assert failed[0].tag == "failure" and failed[0].get("message") == "score 0.4: right 0.00"
    assert failed[0].text is not None and "fail: right (equals) 0" in failed[0].text
    assert broken[0].tag == "error" and broken[0].get("message") == "no route"
    assert broken.get("time") is None


def test_trials_have_names_of_their_own():
    names = [case.get("name") for case in ET.fromstring(junit_xml(trials("a", True, False)))[0]]
    assert names == ["a [trial 1/2]", "a [trial 2/2]"]


@given(st.one_of(st.just(HOSTILE), SURROGATES))
def test_any_name_comes_back_from_junit_without_its_control_characters(name: str):
    rows = [
        Row(test_id=name, target=name, score=0, execution_status="execution_error", error=name),
        Row(
            test_id="x", target=name, score=0, execution_status="quality_failure", suite=name,
            scores=(Score(name=name, type=name, score=0, verdict="fail"),),
        ),
    ]  # fmt: skip
    suite = ET.fromstring(junit_xml(rows, name=name))[0]
    expected = "".join(
        char
        for char in name
        if char in "\t\n\r"
        or (char >= " " and not "\ud800" <= char <= "\udfff" and char not in "\ufffe\uffff")
    )
    assert suite.get("name") == expected
    assert suite[0].get("name") == expected
    assert [case[0].tag for case in suite] == ["error", "failure"]
