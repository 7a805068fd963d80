"""Does the page say what the summary says, and stay a page whatever a run has said?"""

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from told_run import CASES, TARGETS, write_run

from goent.evals.eval_results import Assertion, CaseGrade, Grade, Row, Score
from goent.evals.reports.comparison import compare_runs
from goent.evals.reports.html_cases import MANY_CASES, CaseInput
from goent.evals.reports.html_report import BaselineComparison, HtmlReport, html_report
from goent.evals.reports.report_text import duration_text, percent_text, score_text, spent_text
from goent.evals.reports.run_summary import summarize_targets
from goent.evals.traces import TargetFailure, Trace, TracedCall, TracedMessage

VOID = {"meta", "input"}
HOSTILE = (
    "</script><script>alert(1)</script></style></title></pre><img src=x onerror=alert(2)>"
    "\"' onload='x' --> ]]> {{x}} &lt; javascript:alert(3)"
)
STEERING = "\x1b[2J\x00\x9b\u202e\ud800\x7f"


class Page(HTMLParser):
    """What a browser would make of it, as far as a test wants to know."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self.raw = {"script": "", "style": ""}
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        inside = self.open[-1] if self.open else ""
        if inside in self.raw:
            self.raw[inside] += data
        elif "svg" not in self.open:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def values(self, name: str) -> list[str]:
        return [attributes[name] for _, attributes in self.tags if name in attributes]


def page_of(rows: list[Row], out: Path, **more: object) -> Page:
    return Page(
        html_report(rows, msgspec.structs.replace(HtmlReport(name="repairs", out=out), **more))
    )


def test_the_page_is_whole_and_loads_nothing(tmp_path: Path):
    text = html_report(write_run(tmp_path), HtmlReport(name="repairs", out=tmp_path))
    page = Page(text)
    assert page.open == []
    assert text.startswith("<!doctype html>")
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    links = page.values("href")
    assert links and {link.removeprefix("#") for link in links} <= set(ids)
    assert not page.values("src") and not page.values("style")
    assert not re.search(r"url\(|@import|https?:", page.raw["style"] + page.raw["script"])


def test_only_its_own_style_and_script_may_do_anything(tmp_path: Path):
    page = page_of(write_run(tmp_path), tmp_path)
    (policy,) = (a["content"] for _, a in page.tags if a.get("http-equiv"))
    for name, content in page.raw.items():
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{name}-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_the_numbers_are_the_summarys(tmp_path: Path):
    rows = write_run(tmp_path)
    page = page_of(rows, tmp_path)
    for each in summarize_targets(rows):
        assert each.pass_rate and each.pass_rate.interval and each.mean and each.mean.interval
        assert each.durations and each.repeats
        told = [
            each.target, percent_text(each.pass_rate.value),
            f"{percent_text(each.pass_rate.interval.low)} to {percent_text(each.pass_rate.interval.high)}",
            score_text(each.mean.value),
            f"{score_text(each.mean.interval.low)} to {score_text(each.mean.interval.high)}",
            str(len(each.errors) or "-"),
            percent_text(each.repeats.pass_at_k), f"k = {each.repeats.k}",
            percent_text(each.repeats.pass_hat_k), f"k = {each.repeats.k}",
            percent_text(each.repeats.flip_rate), spent_text(each.spent, each.trials),
        ]  # fmt: skip
        assert " ".join(told) in page.text
        assert duration_text(each.durations.median_ms) in page.text
    passed = sum(row.passed for row in rows)
    assert f"Passed {passed} of {len(rows)} trials" in page.text
    assert "! not all could be judged" in page.text


def test_every_case_is_listed_and_every_trial_has_its_square(tmp_path: Path):
    rows = write_run(tmp_path, trials=2)
    page = page_of(rows, tmp_path)
    assert len(page.values("data-state")) == len(CASES) * len(TARGETS)
    squares = [a for tag, a in page.tags if tag == "rect" and a.get("height") == "18"]
    looks = [a["class"] for a in squares]
    assert len(looks) == len(rows)
    assert looks.count("pass") == sum(row.passed for row in rows)
    assert looks.count("error") == sum(not row.scored for row in rows)


def test_cases_whose_trials_disagree_come_first(tmp_path: Path):
    def trials(case: str, *scores: int) -> list[Row]:
        return [
            Row(
                test_id=case,
                target="t",
                score=each,
                execution_status="ok" if each else "quality_failure",
                trial=number,
                trials=len(scores),
            )
            for number, each in enumerate(scores, start=1)
        ]

    rows = [*trials("good", 1, 1), *trials("bad", 0, 0), *trials("mixed", 1, 0)]
    text = html_report(rows, HtmlReport(name="x", out=tmp_path))
    assert re.findall(r'class="label end"><title>(\w+)<', text) == ["mixed", "bad", "good"]
    alone = html_report(rows[::2], HtmlReport(name="x", out=tmp_path))
    assert 'id="trials"' in text and 'id="trials"' not in alone


def test_a_case_shows_what_was_asked_answered_done_and_found(tmp_path: Path):
    rows = write_run(tmp_path, trials=1)
    asked = {
        ("repairs", case): CaseInput(input=f"mend {case}", criteria="it rounds up")
        for case in CASES
    }
    page = page_of(rows, tmp_path, asked=asked)
    failed = next(row for row in rows if row.execution_status == "quality_failure")
    broken = next(each.name for each in failed.scores if each.verdict == "fail")
    for words in (
        f"mend {failed.test_id}", "it rounds up", "The last page was lost", f"✗ {broken}",
        "webfetch was called", "1 failed, 13 passed in 0.52s", "Tool calls (8)", "error",
        "pytest -q", "once: bash pytest *", "+ count = -(-len(items) // size)", failed.trace_path,
    ):  # fmt: skip
        assert words in page.text, words


def test_an_attempt_that_was_cut_off_shows_why_and_what_there_was(tmp_path: Path):
    rows = write_run(tmp_path)
    lost = [row for row in rows if not row.scored]
    assert lost
    page = page_of(lost, tmp_path)
    assert "The attempt failed. It was cut off; this is the partial trace." in page.text
    assert "timeout: not done after 300 s" in page.text
    assert "Pass rate none" in page.text


def test_what_a_subagent_called_stands_below_its_call(tmp_path: Path):
    (row,) = write_run(tmp_path, trials=1)[:1]
    calls = [TracedCall(tool=name, id=name) for name in ("task", "bash")]
    said = [TracedMessage(role="assistant", tool_calls=(call,)) for call in calls]
    within = TracedMessage(role="assistant", tool_calls=(TracedCall(tool="write"),), parent="task")
    trace = Trace(messages=(said[0], said[1], within))
    (tmp_path / row.trace_path).write_bytes(msgspec.json.encode(trace))
    page = page_of([row], tmp_path)
    assert re.search(r"Tool calls \(3\) task.* write.* bash", page.text)
    assert page.values("class").count("sub") == 1


def test_an_attempt_that_failed_at_once_was_not_cut_off(tmp_path: Path):
    """And a run that graded the traces of another one shows them, but nothing of elsewhere."""
    failure = TargetFailure(kind="no_route", message="nobody is there")
    trace = Trace(failure=failure, partial=True)
    for folder in ("one", "other", "new"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "trace.json").write_bytes(msgspec.json.encode(trace))
    row = Row(
        test_id="c", target="t", score=0, execution_status="execution_error", error="short",
        trace_path="../one/trace.json",
    )  # fmt: skip
    page = page_of([row], tmp_path / "new", graded_from=tmp_path / "one")
    assert "no_route: nobody is there" in page.text and "cut off" not in page.text
    page = page_of([row], tmp_path / "new", graded_from=tmp_path / "other")
    assert "'../one/trace.json' is not in the run's folder" in page.text


def hostile_row(out: Path) -> Row:
    bad = HOSTILE + STEERING
    trace = Trace(
        messages=(
            TracedMessage(
                role="assistant", content=HOSTILE,
                tool_calls=(
                    TracedCall(tool=HOSTILE, input={"x": HOSTILE}, output=HOSTILE, status="error", start_time="x"),
                    TracedCall(tool="a", start_time="2026-01-01T00:00:00Z", duration_ms=0),
                    TracedCall(tool="b", start_time="2026-01-01T00:00:00Z", duration_ms=0),
                ),
            ),
        ),
        file_changes=f"+{HOSTILE}\n-{HOSTILE}", log_path=HOSTILE,
        failure=TargetFailure(kind="x", message=HOSTILE),
    )  # fmt: skip
    assertion = Assertion(text=HOSTILE, passed=False, evidence=HOSTILE)
    grade = Grade(name=HOSTILE, type=HOSTILE, score=0, verdict="fail", assertions=(assertion,))
    graded = CaseGrade(score=0, status="quality_failure", grades=(grade,))
    (out / "trace.json").write_bytes(msgspec.json.encode(trace))
    (out / "grades.json").write_bytes(msgspec.json.encode(graded))
    return Row(
        test_id=bad, suite=bad, target=bad, score=0, execution_status="quality_failure", error=bad,
        scores=(Score(name=bad, type=bad, score=0, verdict="fail"),), duration_ms=0, cost_usd=0,
        trace_path="trace.json", grades_path="grades.json", answered_by=bad,
    )  # fmt: skip


def test_hostile_words_stay_words(tmp_path: Path):
    row = hostile_row(tmp_path)
    other = msgspec.structs.replace(row, target=row.target + "2", score=1, execution_status="ok")
    baseline = BaselineComparison(name=HOSTILE, comparison=compare_runs([other], [other]))
    asked = {(row.suite, row.test_id): CaseInput(input=HOSTILE, criteria=HOSTILE)}
    text = html_report(
        [row, other],
        HtmlReport(name=HOSTILE, out=tmp_path, began=HOSTILE, asked=asked, baseline=baseline),
    )
    text.encode()
    page = Page(text)
    assert page.open == []
    assert [tag for tag, _ in page.tags].count("script") == 1
    assert not {tag for tag, _ in page.tags} & {"img", "iframe", "link", "object", "base"}
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    assert all(link.startswith("#") for link in page.values("href"))
    assert page.text.count("onerror=alert(2)") > 10
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\ud800]", text)
    assert "␛[2J" in page.text


def test_long_things_are_cut_and_that_is_said(tmp_path: Path):
    calls = tuple(TracedCall(tool=f"t{number}", input="i" * 9000) for number in range(500))
    message = TracedMessage(role="assistant", content="a" * 100_000, tool_calls=calls)
    trace = Trace(messages=(message,), file_changes="+x\n" * 5000)
    (tmp_path / "trace.json").write_bytes(msgspec.json.encode(trace))
    row = Row(test_id="a", target="t", score=1, execution_status="ok", trace_path="trace.json")
    text = html_report([row], HtmlReport(name="x", out=tmp_path))
    page = Page(text)
    assert len(text) < 300_000
    for words in ("… 94,000 more characters", "… 440 more calls", "… 4,700 more lines"):
        assert words in page.text
    assert "Not shown: grades.json: No such file or directory." in page.text


@pytest.mark.parametrize(
    ("path", "content", "told"),
    [
        ("../secret.json", b"{}", "is not in the run's folder"),
        ("trace.json", b"{broken", "trace.json: JSON is malformed"),
        ("gone/trace.json", None, "trace.json: No such file or directory"),
        ("", None, "no trace was kept"),
        ("a\0b/trace.json", None, "trace.json: embedded null byte"),
        (
            "trace.json",
            b'{"messages":[{"role":"a","content":' + b"[" * 100_000,
            "trace.json: maximum recursion depth",
        ),
    ],
)
def test_a_trace_that_cannot_be_read_is_said(
    tmp_path: Path, path: str, content: bytes | None, told: str
):
    out = tmp_path / "out"
    out.mkdir()
    if content is not None:
        (out / path).write_bytes(content)
    row = Row(test_id="a", target="t", score=0, execution_status="quality_failure", trace_path=path)
    assert told in page_of([row], out).text


def test_unknown_is_not_nothing(tmp_path: Path):
    row = Row(test_id="a", target="t", score=1, execution_status="ok")
    page = page_of([row], tmp_path)
    assert "Cost unknown" in page.text and "$0" not in page.text
    assert "Median time unknown" in page.text
    paid = msgspec.structs.replace(row, test_id="b", cost_usd=0.25)
    assert "Cost at least $0.2500" in page_of([row, paid], tmp_path).text


def test_what_judges_took_is_told_apart(tmp_path: Path):
    row = Row(
        test_id="a", target="t", score=1, execution_status="ok", cost_usd=0.25, judge_cost_usd=0.5
    )
    assert "Cost $0.2500 and $0.5000 for judges" in page_of([row], tmp_path).text
    other = msgspec.structs.replace(row, test_id="b", judge_cost_usd=None)
    page = page_of([row, other], tmp_path)
    assert "Cost $0.5000 and at least $0.5000 for judges" in page.text
    assert "judges: cost unknown" in page.text


def test_a_trial_that_nobody_could_judge_shows_what_there_is(tmp_path: Path):
    trace = Trace(messages=(TracedMessage(role="assistant", content="an answer"),))
    grade = Grade(name="kind", type="llm-grader", score=0, verdict="skip", error="no such model")
    graded = CaseGrade(
        score=0, status="execution_error", grades=(grade,), error="kind: no such model"
    )
    (tmp_path / "trace.json").write_bytes(msgspec.json.encode(trace))
    (tmp_path / "grades.json").write_bytes(msgspec.json.encode(graded))
    row = Row(
        test_id="a", target="t", score=0, execution_status="execution_error",
        error=graded.error, trace_path="trace.json",
    )  # fmt: skip
    page = page_of([row], tmp_path)
    assert "It could not be judged. kind: no such model" in page.text
    assert "an answer" in page.text and "- kind llm-grader" in page.text


def test_nothing_at_all_is_a_page_too(tmp_path: Path):
    page = page_of([], tmp_path)
    assert page.open == []
    assert "nothing was run" in page.text


def test_a_baseline_is_compared_with(tmp_path: Path):
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    old = write_run(tmp_path / "old", seed=2, shift=-0.3)
    new = write_run(tmp_path / "new", shift=0.1)
    compared = compare_runs(old, new)
    page = page_of(
        new, tmp_path / "new", baseline=BaselineComparison(name="old", comparison=compared)
    )
    assert compared.conclusion == "better"
    assert f"Against old {compared.text}" in page.text
    assert f"{compared.wins}, {compared.losses}, {compared.ties}" in page.text
    best = max(compared.pairs, key=lambda pair: abs(pair.delta))
    assert f"{best.delta:+.2f}" in page.text


def test_ten_thousand_rows_make_a_page_of_a_few_megabytes(tmp_path: Path):
    failing = write_run(tmp_path, trials=1)
    wrong = [row for row in failing if not row.passed]
    rows = [
        Row(
            test_id=f"case-{number}", suite="many", target=f"t{number % 3}", score=1, execution_status="ok",
            scores=(Score(name="right", type="equals", score=1, verdict="pass"),),
            duration_ms=10.0 + number % 700, cost_usd=0.0001 * (number % 91), trace_path="x/trace.json",
        )
        for number in range(10_000)
    ]  # fmt: skip
    text = html_report([*rows, *wrong], HtmlReport(name="many", out=tmp_path))
    states = re.findall(r' data-state="(\w+)"', text)
    assert len(text.encode()) < 10_000_000
    assert len(states) == 10_000 + len(wrong) > MANY_CASES
    assert "10,000 cases have no details here" in text
    assert text.count('<div class="inside">') == len(wrong)
    assert states[0] != "passed"
