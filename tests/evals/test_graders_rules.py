"""Each grader's own rules, where go-ent's differ from AgentV's and where they do not."""

import pytest
from rules_stage import call, case, graded, path, score, steps, text, trace, trajectory

from goent.evals.graders.case_grader import grader_mistakes
from goent.evals.suites import EvalCase, GraderSpec, InputMessage
from goent.evals.traces import TokenUsage, Trace, TracedCall, TracedMessage


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        (text("contains", "BOB"), "The answer lacks 'BOB'; it is 'HELLO, ANN!'"),
        (text("equals", "yes"), "Expected 'yes', got 'HELLO, ANN!'"),
        (text("ends-with", "."), "The answer does not end with '.'; it is 'HELLO, ANN!'"),
        (text("regex", "^A"), "The answer does not match /^A/; it is 'HELLO, ANN!'"),
        (
            text("contains-all", ["ANN", "BOB"]),
            "Of ['ANN', 'BOB'] the answer lacks ['BOB']; it is 'HELLO, ANN!'",
        ),
        (text("contains", "ANN", negate=True), "The answer contains 'ANN'"),
    ],
)
def test_a_text_that_does_not_fit_is_told_with_the_answer(spec: GraderSpec, told: str):
    found = graded(spec, trace(answer="HELLO, ANN!\n"))
    assert [(one.text, one.passed) for one in found.grades[0].assertions] == [(told, False)]


def test_of_a_long_answer_the_end_that_was_looked_at_is_told():
    long = trace(answer="<" + "x" * 5000 + ">")
    specs = (text("starts-with", "y"), text("ends-with", "y"))
    found = graded(case(*specs), long)
    start, end = (one.assertions[0].text for one in found.grades)
    assert start == f"The answer does not start with 'y'; it is '<{'x' * 99}'…"
    assert end == f"The answer does not end with 'y'; it is …'{'x' * 99}>'"


@pytest.mark.parametrize(
    ("spec", "answer", "fits"),
    [
        (text("equals", " a "), "a\n", True),
        (text("starts-with", "a"), "  ab", True),
        (text("icontains", "ÄB"), "xäb", True),
        (text("icontains-all", ["A", "c"]), "ab", False),
        (text("regex", "a$"), "a\n", False),
        (text("regex", r"(?<n>a)\k"), "a", False),
        (text("regex", "(?<n>[$]+)$"), "a$$", True),
        (text("regex", r"^\d$"), "٣", False),
        (text("regex", r"^[\d]$"), "٣", False),
        (text("regex", r"^\w+$"), "ä", False),
        (text("regex", r"^[\W]$"), "ä", True),
        (text("regex", r"^[^\W]$"), "ä", False),
        (text("regex", r"^\D[\D]$"), "٣x", True),
        (text("regex", r"(?<q>['\"]).*\k<q>"), "say 'a'", True),
        (text("regex", r"^\u{41}[\u{42}]$"), "AB", True),
        (text("regex", "a[^]b"), "a\nb", True),
        (text("regex", "a[]|b"), "a", False),
        (text("regex", "a.b"), "a\rb", False),
        (text("regex", "^[[&&]$"), "[", True),
        (text("contains-any", ["x", "b"]), "ab", True),
        (text("contains", 5), "5", False),
        (GraderSpec(type="is-json", name="j"), "[1", False),
    ],
)
def test_a_text_fits_or_not(spec: GraderSpec, answer: str, fits: bool):
    for compat in (True, False):
        assert score(spec, trace(answer=answer), compat=compat) == float(fits)


def test_what_is_unknown_is_not_within_a_limit():
    for kind, settings in [("latency", {"threshold": 9}), ("cost", {"budget": 9.0})]:
        assert score(GraderSpec(type=kind, name="l", settings=settings), trace()) == 0


def test_tokens_are_counted_in_one_way():
    usage = TokenUsage(input=100, output=50, cached=25)
    done = Trace(messages=trace().messages, usage=usage)
    metrics = GraderSpec(type="execution-metrics", name="m", settings={"max_tokens": 160})
    total = GraderSpec(type="token-usage", name="t", settings={"max_total": 160})
    assert (score(metrics, done, compat=True), score(total, done, compat=True)) == (1, 0)
    assert (score(metrics, done), score(total, done)) == (0, 0)


@pytest.mark.parametrize("compat", [True, False])
def test_a_required_grader_that_fails_fails_the_case(compat: bool):
    good, bad = text("contains", "Hello", weight=9.0), text("contains", "zz", required=True)
    assert score(case(good, bad), trace(), compat=compat) == 0
    lenient = text("contains", "zz", required=True, min_score=0.0)
    assert score(case(good, lenient), trace(), compat=compat) == pytest.approx(0.9)


def test_a_required_member_fails_its_composite():
    members = (text("contains", "Hello", weight=9.0), text("contains", "zz", required=True))
    spec = GraderSpec(type="composite", name="c", members=members)
    assert (score(spec, trace()), score(spec, trace(), compat=True)) == (0, 0.5)


def test_a_seed_suite_knows_the_borderline():
    spec = trajectory("in_order", expected=steps("a", "b", "c"))
    found = graded(spec, path("a", "b"), compat=True, form="seed")
    assert found.grades[0].verdict == "borderline"
    assert graded(spec, path("a", "b"), compat=True).grades[0].verdict == "fail"


def test_negation_turns_score_and_assertions():
    found = graded(text("contains", "zz", negate=True), trace()).grades[0]
    assert (found.score, found.verdict, found.assertions[0].passed) == (1, "pass", True)


def test_a_grader_that_cannot_look_does_not_pass_by_negation():
    found = graded(text("regex", "(", negate=True), trace())
    assert (found.score, found.grades[0].verdict) == (0, "fail")


def test_a_days_spelling_does_not_count():
    expected = (TracedMessage(role="assistant", content={"d": "2025-01-15"}),)
    fields = {"fields": [{"path": "d", "match": "date"}]}
    spec = GraderSpec(type="field-accuracy", name="f", settings=fields)
    said = (InputMessage(role="user", text="x"),)
    whole = EvalCase(id="c", suite="s", form="v4", input=said, graders=(spec,), expected=expected)
    assert score(whole, trace(answer='so: ```json\n{"d": "15-JAN-2025"}\n```')) == 1
    assert score(whole, trace(answer='it is {"d": "2025-01-16"}')) == 0
    assert score(whole, trace(answer="no {json")) == 0
    assert score(whole, trace(answer="[" * 100_000)) == 0
    assert score(whole, trace(answer='so {"d":' + "[" * 100_000)) == 0


@pytest.mark.parametrize(
    ("one", "used"),
    [
        (call("skill", name="s"), 1),
        (call("Read", file_path="/x/skills/s/SKILL.md"), 1),
        (TracedCall(tool="bash", output="cat skills/s/SKILL.md"), 1),
        (call("skill", name="t"), 0),
    ],
)
def test_a_skill_is_used_by_name_file_or_output(one: TracedCall, used: int):
    spec = GraderSpec(type="skill-trigger", name="k", settings={"skill": "s"})
    assert score(spec, trace(one)) == used


@pytest.mark.parametrize(
    ("spec", "word"),
    [
        (text("contains", "x", weight=0.0), "weight above 0"),
        (text("magic", "x"), "'magic'"),
        (text("regex", "("), "regular expression"),
        (trajectory("any_order"), "checks nothing"),
        (trajectory("sideways"), "sideways"),
        (trajectory("any_order", max={"edit": -1}), "`max` of ['edit'] must be 0 or more"),
        (trajectory("any_order", max={"edit": 1}, status="ok"), "bounds look at calls of every"),
        (GraderSpec(type="token-usage", name="t"), "no limit"),
        (GraderSpec(type="composite", name="c"), "needs members"),
        (
            GraderSpec(type="field-accuracy", name="f", settings={"fields": [{"path": "zz"}]}),
            "'zz'",
        ),
    ],
)
def test_a_grader_that_can_say_nothing_is_a_mistake_of_the_suite(spec: GraderSpec, word: str):
    (found,) = grader_mistakes(case(spec))
    assert word in found.text


def test_a_sound_case_has_no_mistakes():
    script = GraderSpec(type="code-grader", name="s", settings={"command": ["true"]})
    assert grader_mistakes(case(text("contains", "x"), script)) == ()
