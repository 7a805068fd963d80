"""What a grade counts for: what could not look, what is required, and which threshold."""

import pytest

from goent.evals.eval_results import CaseGrade
from goent.evals.graders.case_grader import grade
from goent.evals.suites import EvalCase, GraderSpec, InputMessage
from goent.evals.traces import TargetFailure, Trace, TracedMessage

DONE = Trace(messages=(TracedMessage(role="assistant", content="Hello World"),))


def case(*graders: GraderSpec, threshold: float | None = None) -> EvalCase:
    said = (InputMessage(role="user", text="do it"),)
    return EvalCase(id="c", suite="s", form="v4", input=said, graders=graders, threshold=threshold)


def contains(value: str, *, required: bool | float = False) -> GraderSpec:
    settings = {"value": value}
    return GraderSpec(type="contains", name="c", settings=settings, required=required)


def graded(whole: EvalCase, done: Trace = DONE, *, threshold: float = 0.8) -> CaseGrade:
    return grade(whole, done, threshold=threshold, compat=False)


METRICS = {"target_exploration_ratio": 0.5}
STEPS = {"mode": "in_order", "expected": [{"tool": "x"}]}
BROKEN = GraderSpec(type="regex", name="r", settings={"value": "("})


@pytest.mark.parametrize(
    ("spec", "done"),
    [
        (GraderSpec(type="cost", name="l", settings={"budget": 1.0}, negate=True), DONE),
        (GraderSpec(type="latency", name="l", settings={"threshold": 1.0}, negate=True), DONE),
        (GraderSpec(type="token-usage", name="l", settings={"max_total": 1}, negate=True), DONE),
        (GraderSpec(type="execution-metrics", name="l", settings=METRICS, negate=True), DONE),
        (GraderSpec(type="tool-trajectory", name="l", settings=STEPS, negate=True), Trace()),
        (GraderSpec(type="composite", name="l", members=(BROKEN,), negate=True), DONE),
    ],
)
def test_what_could_not_look_does_not_pass_by_negation(spec: GraderSpec, done: Trace):
    (found,) = graded(case(spec), done).grades
    assert (found.score, found.verdict, found.broken) == (0, "fail", True)


def test_a_composite_is_broken_by_a_member_that_is_at_any_depth():
    inner = GraderSpec(type="composite", name="i", members=(BROKEN, contains("Hello")))
    outer = GraderSpec(type="composite", name="o", members=(contains("Hello"), inner), negate=True)
    (found,) = graded(case(outer)).grades
    assert (found.score, found.broken) == (0, True)


def test_a_required_grader_fails_the_case_at_any_threshold():
    found = graded(case(contains("zzz", required=0.5)), threshold=0.0)
    assert (found.score, found.status) == (0, "quality_failure")
    assert graded(case(contains("zzz", required=0.0)), threshold=0.0).status == "ok"


def test_nothing_at_all_is_never_enough_where_something_is_required():
    absent, there = contains("zzz", required=True), contains("Hello", required=True)
    found = graded(case(absent, there), threshold=0.0)
    assert (found.score, found.status) == (0, "quality_failure")
    assert [one.verdict for one in found.grades] == ["fail", "pass"]
    assert graded(case(there, contains("zzz")), threshold=0.0).status == "ok"
    as_agentv = grade(case(absent), DONE, threshold=0.0, compat=True)
    assert as_agentv.status == "ok"


def test_a_part_of_what_is_required_is_enough_where_the_threshold_is_low():
    members = (contains("Hello"), contains("zzz"))
    half = GraderSpec(type="composite", name="half", members=members, required=True)
    assert graded(case(half), threshold=0.0).status == "ok"
    assert graded(case(half), threshold=0.6).status == "quality_failure"


def test_the_threshold_that_was_resolved_for_the_run_counts():
    both = (contains("Hello"), contains("zzz"))
    assert graded(case(*both, threshold=0.9), threshold=0.5).status == "ok"
    assert graded(case(*both, threshold=0.1), threshold=0.6).status == "quality_failure"


def test_why_an_attempt_failed_is_told_with_its_kind():
    gone = Trace(failure=TargetFailure(kind="command_failed", message="it ended with 3"))
    assert graded(case(contains("x")), gone).error == "command_failed: it ended with 3"
