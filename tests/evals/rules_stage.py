"""Cases, traces and graders for tests of the rules."""

from typing import Any

from goent.evals.eval_results import CaseGrade
from goent.evals.graders.case_grader import grade
from goent.evals.suites import EvalCase, GraderSpec, InputMessage, SuiteDialect
from goent.evals.traces import CallStatus, Trace, TracedCall, TracedMessage


def case(
    *graders: GraderSpec, form: SuiteDialect = "v4", threshold: float | None = None
) -> EvalCase:
    said = (InputMessage(role="user", text="do it"),)
    return EvalCase(id="c", suite="s", form=form, input=said, graders=graders, threshold=threshold)


def trace(*calls: TracedCall, answer: str = "Hello World") -> Trace:
    return Trace(messages=(TracedMessage(role="assistant", content=answer, tool_calls=calls),))


def call(
    tool: str, status: CallStatus = "ok", ms: float | None = None, **given: object
) -> TracedCall:
    return TracedCall(tool=tool, input=given, status=status, duration_ms=ms)


def path(*names: str) -> Trace:
    return trace(*map(call, names))


def steps(*names: str) -> list[dict[str, str]]:
    return [{"tool": name} for name in names]


def trajectory(mode: str, **settings: object) -> GraderSpec:
    return GraderSpec(type="tool-trajectory", name="tt", settings={"mode": mode, **settings})


def text(kind: str, value: object, **more: Any) -> GraderSpec:
    return GraderSpec(type=kind, name=kind, settings={"value": value}, **more)


def graded(
    spec: GraderSpec | EvalCase, done: Trace, *, compat: bool = False, form: SuiteDialect = "v4"
) -> CaseGrade:
    whole = spec if isinstance(spec, EvalCase) else case(spec, form=form)
    return grade(whole, done, threshold=0.8, compat=compat)


def score(
    spec: GraderSpec | EvalCase, done: Trace, *, compat: bool = False, form: SuiteDialect = "v4"
) -> float:
    return graded(spec, done, compat=compat, form=form).score
