"""Settings and answers that look as if something was checked."""

import os

import pytest
from judged import ScriptedJudge
from sandboxed import eval_commands

from goent.evals.graders.answer_graders import ExpectedField
from goent.evals.graders.case_grader import ask_and_grade, grade, grader_mistakes
from goent.evals.graders.grader_kind import GraderSettings, GraderTools
from goent.evals.graders.judge_prompt import RubricEntry
from goent.evals.graders.llm_grader import JudgeSettings
from goent.evals.graders.script_grader import ScriptSettings
from goent.evals.graders.trace_graders import ExpectedCall
from goent.evals.suites import EvalCase, GraderSpec, InputMessage
from goent.evals.traces import Trace, TracedCall, TracedMessage


def case(spec: GraderSpec, expected: object = None) -> EvalCase:
    said = (InputMessage(role="user", text="do it"),)
    wanted = (TracedMessage(role="assistant", content=expected),) if expected else ()
    return EvalCase(id="c", suite="s", form="v4", input=said, graders=(spec,), expected=wanted)


def score(whole: EvalCase, *calls: TracedCall, answer: str = "", compat: bool = False) -> float:
    done = Trace(messages=(TracedMessage(role="assistant", content=answer, tool_calls=calls),))
    return grade(whole, done, threshold=0.8, compat=compat).score


def spec(kind: str, **settings: object) -> GraderSpec:
    return GraderSpec(type=kind, name="g", settings=settings)


def test_counts_and_expected_calls_are_both_looked_at():
    both = spec("tool-trajectory", mode="any_order", minimums={"a": 1}, expected=[{"tool": "b"}])
    assert score(case(both), TracedCall(tool="a")) == 0.5
    assert score(case(both), TracedCall(tool="a"), TracedCall(tool="b")) == 1
    assert score(case(both), TracedCall(tool="a"), compat=True) == 1


@pytest.mark.parametrize("mode", ["any_order", "superset"])
def test_of_two_calls_that_fit_the_one_in_time_is_taken(mode: str):
    items = [{"tool": "a", "max_duration_ms": 100}]
    calls = [TracedCall(tool="a", duration_ms=ms) for ms in (None, 500, 50)]
    assert score(case(spec("tool-trajectory", mode=mode, expected=items)), *calls) == 1


@pytest.mark.parametrize(
    ("grader", "word"),
    [
        (spec("tool-trajectory", mode="in_order", minimums={"a": 1}), "any_order"),
        (spec("tool-trajectory", mode="any_order", minimums={"a": 0}), "1 or more"),
        (
            spec(
                "tool-trajectory",
                mode="in_order",
                expected=[{"tool": "a", "args": {"command": "x"}, "args_match": ["comand"]}],
            ),
            "'comand'",
        ),
        (spec("contains", value=""), "in every answer"),
        (spec("icontains", value=""), "in every answer"),
        (spec("starts-with", value=""), "in every answer"),
        (spec("contains-all", value=[]), "in every answer"),
        (spec("contains-any", value=["a", ""]), "in every answer"),
        (
            GraderSpec(
                type="composite",
                name="g",
                settings={"aggregator": {"weights": {"m": -1.0}}},
                members=(spec("contains", value="x"),),
            ),
            "['m'] must be 0 or more",
        ),
    ],
)
def test_what_would_check_nothing_is_a_mistake_of_the_suite(grader: GraderSpec, word: str):
    (found,) = grader_mistakes(case(grader))
    assert word in found.text


def every_form(form: type[GraderSettings]) -> set[type[GraderSettings]]:
    return {form}.union(*map(every_form, form.__subclasses__()))


def test_no_form_of_settings_takes_what_it_does_not_know():
    forms = every_form(GraderSettings)
    assert {ExpectedCall, ExpectedField, RubricEntry, ScriptSettings, JudgeSettings} < forms
    assert all(form.__struct_config__.forbid_unknown_fields for form in forms)


@pytest.mark.parametrize("compat", [True, False])
@pytest.mark.parametrize("answer", ["NaN", "[Infinity]", '{"a": -Infinity}'])
def test_what_javascript_would_not_read_is_no_json(answer: str, compat: bool):
    assert score(case(spec("is-json")), answer=answer, compat=compat) == 0


FIELDS = spec("field-accuracy", fields=[{"path": "a"}])
NEAR = spec("field-accuracy", fields=[{"path": "a", "match": "numeric_tolerance"}])


@pytest.mark.parametrize(
    ("grader", "answer", "worth"),
    [
        (FIELDS, 'such as {x}: {"a": 100}', 1),
        (FIELDS, 'not {"a": 100} but {"a": 7}', 0),
        (FIELDS, 'so {"a": 100}, I say {"a": 100}', 1),
        (FIELDS, 'so {"a": 100, "b": NaN}', 0),
        (NEAR, '{"a": "1_0_0"}', 0),
        (NEAR, '{"a": " 1e2 "}', 1),
    ],
)
def test_the_fields_of_one_object_are_compared(grader: GraderSpec, answer: str, worth: float):
    assert score(case(grader, {"a": 100}), answer=answer) == worth


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "answer",
    [
        "```" + " " * 1_000_000,
        "```json" + "\n" * 1_000_000 + "``",
        '{"x":' * 500 + "[" + "1," * 2_500_000,
        ('{"a":' * 900 + "1" + "}" * 900) * 2,
    ],
    ids=["spaces", "lines", "objects", "depth"],
)
def test_a_long_answer_takes_no_longer_to_read_than_it_is(
    answer: str, caplog: pytest.LogCaptureFixture
):
    assert score(case(FIELDS, {"a": 100}), answer=answer) == 0
    assert not caplog.records  # no defect of the grader


@pytest.mark.parametrize(
    "answer", ['```json{"a": 100}```', 'so\n```\n {"a": 100} \n``` and ```x```']
)
def test_what_stands_between_fences_is_read(answer: str):
    assert score(case(FIELDS, {"a": 100}), answer=answer) == 1


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("command", "worth"),
    [
        (["true"], 1.0),  # it ends before it reads: the pipe breaks
        (["sh", "-c", "exit 3"], 0.0),
        (["sleep", "30"], 0.0),
    ],
)
async def test_a_script_cannot_harm_the_run(command: list[str], worth: float):
    said = TracedMessage(role="assistant", content="x" * 1_000_000)
    found = await ask_and_grade(
        case(spec("code-grader", command=command, timeout_seconds=1.0)),
        Trace(messages=(said,)),
        threshold=0.8,
        compat=False,
        tools=GraderTools(commands=eval_commands(os.environ), judge=ScriptedJudge("no")),
    )
    assert found.score == worth
