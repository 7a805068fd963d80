"""AgentV's own verdicts of recorded attempts, and ours."""

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from judged import ScriptedJudge
from sandboxed import eval_commands

from goent.evals.eval_results import CaseGrade
from goent.evals.graders.case_grader import ask_and_grade, grade
from goent.evals.graders.grader_kind import GraderTools
from goent.evals.suites import EvalCase, GraderSpec, InputMessage, SuiteLocation
from goent.evals.traces import TargetFailure, Trace, TracedMessage

pytestmark = pytest.mark.anyio

HERE = Path(__file__).parent / "compat"
SUITE = HERE / "suite.eval.yaml"
GOLDEN = {
    row["id"]: row for row in map(json.loads, (HERE / "golden.jsonl").read_text().splitlines())
}
TESTS: dict[str, Any] = {test["id"]: test for test in yaml.safe_load(SUITE.read_text())["tests"]}
COMMON = {"type", "name", "weight", "required", "min_score", "negate"}


def spec_of(entry: dict[str, Any]) -> GraderSpec:
    members = tuple(map(spec_of, entry.get("assertions", ())))
    settings = {k: v for k, v in entry.items() if k not in COMMON and k != "assertions"}
    common = {k: v for k, v in entry.items() if k in COMMON and k != "type"}
    kind = entry["type"].replace("_", "-")
    return GraderSpec(**{"name": kind, **common}, type=kind, settings=settings, members=members)


def case_of(test: dict[str, Any]) -> EvalCase:
    return EvalCase(
        id=test["id"],
        suite="compat",
        form="v4",
        input=(InputMessage(role="user", text=test["input"]),),
        expected=msgspec.convert(test.get("expected_output", []), tuple[TracedMessage, ...]),
        graders=tuple(map(spec_of, test["assertions"])),
        threshold=test.get("execution", {}).get("threshold"),
        place=SuiteLocation(file=str(SUITE)),
    )


def trace_of(name: str) -> Trace:
    path = HERE / "fixtures" / f"{name}.json"
    if not path.exists():
        return Trace(failure=TargetFailure(kind="exit", message="no such file"))
    told = json.loads(path.read_text())
    text = told.get("text", path.read_text())
    messages = told.get("output") or [{"role": "assistant", "content": text}]
    rest = {key: told[key] for key in ("cost_usd", "duration_ms") if key in told}
    return msgspec.convert({"messages": messages, "usage": told.get("token_usage"), **rest}, Trace)


async def graded(name: str, *, compat: bool) -> CaseGrade:
    case = case_of(TESTS[name])
    return await ask_and_grade(
        case,
        trace_of(name),
        threshold=0.8 if case.threshold is None else case.threshold,
        compat=compat,
        tools=GraderTools(commands=eval_commands(os.environ), judge=ScriptedJudge("no")),
    )


@pytest.mark.parametrize("name", GOLDEN)
async def test_agentv_would_say_the_same(name: str):
    found = await graded(name, compat=True)
    row = GOLDEN[name]
    assert found.score == pytest.approx(row["score"], abs=1e-6)
    assert found.status == row["status"]
    ours = [(one.type, one.verdict, one.weight) for one in found.grades]
    assert ours == [(one["type"], one["verdict"], one["weight"]) for one in row["scores"]]
    scores = [one["score"] for one in row["scores"]]
    assert [one.score for one in found.grades] == pytest.approx(scores)


@pytest.mark.parametrize(
    ("name", "score", "status"),
    [
        ("in-missing-eats", 2 / 3, "quality_failure"),
        ("comp-thr-pass", 1.0, "ok"),
        ("cg-garbage-json", 0.7, "quality_failure"),
        ("fa-missing", 0.0, "quality_failure"),
        ("any-none", 0.0, "quality_failure"),
        ("tok-total-cached", 0.0, "quality_failure"),
        ("em-half", 0.0, "quality_failure"),
        ("ex-shift", 0.0, "quality_failure"),
    ],
)
async def test_without_its_oddities_the_grade_is_fairer(name: str, score: float, status: str):
    found = await graded(name, compat=False)
    assert (found.score, found.status) == (pytest.approx(score), status)


async def test_what_is_not_odd_is_graded_alike():
    odd = {"in-missing-eats", "comp-thr-pass", "cg-garbage-json", "fa-missing", "em-half"}
    odd.add("ex-empty-expected")  # there were calls, and none was expected
    odd.add("in-lat-skip")  # nobody knows how long the call took
    for name in GOLDEN.keys() - odd:
        plain, compat = await graded(name, compat=False), await graded(name, compat=True)
        assert (name, plain.score, plain.status) == (name, compat.score, compat.status)


def test_a_grader_that_nobody_knows_fails_and_says_so():
    case = msgspec.structs.replace(
        case_of(TESTS["txt-contains"]), graders=(GraderSpec(type="magic", name="m"),)
    )
    found = grade(case, trace_of("txt-contains"), threshold=0.8, compat=False)
    assert found.score == 0
    assert "'magic'" in found.grades[0].assertions[0].text
