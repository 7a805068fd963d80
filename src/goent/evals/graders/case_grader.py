"""Grades an attempt with all graders of its case, composites and conversations included."""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Final

import anyio
import msgspec

from goent.domain.errors import GoentError
from goent.domain.types import Value
from goent.evals.eval_results import Assertion, CaseGrade, CaseStatus, Grade
from goent.evals.graders.answer_graders import TEXT_CHECKS, field_accuracy
from goent.evals.graders.findings import (
    AsyncGrader,
    GraderCheck,
    GraderFinding,
    GraderInput,
    GradeRules,
    InvalidGrader,
    broken_finding,
    case_outcome,
    grade_rules,
    judge_cost,
    kebab_type,
    reaches,
    required_grader_failed,
    sum_if_known,
    to_grade,
    weighted_mean,
)
from goent.evals.graders.grader_settings import (
    AggregatorSettings,
    CompositeSettings,
    read_grader_settings,
)
from goent.evals.graders.llm_grader import check_judge, llm_aggregator, llm_grader
from goent.evals.graders.script_grader import check_script, code_aggregator, code_grader
from goent.evals.graders.target_judge import Judge
from goent.evals.graders.trace_graders import (
    cost,
    execution_metrics,
    latency,
    skill_trigger,
    token_usage,
    tool_trajectory,
)
from goent.evals.suite_commands import SuiteCommandRunner
from goent.evals.suites import CaseConversation, EvalCase, GraderSpec, SuiteLocation
from goent.evals.traces import Trace, TracedMessage

COMPOSITE: Final = "composite"
AGGREGATOR_TYPES: Final[Mapping[str, str]] = {
    "code-grader": "code-aggregator",
    "llm-grader": "llm-aggregator",
}
"""Who is asked to make one of many, by the aggregator's type."""

GradedMembers = Sequence[tuple[GraderSpec, Grade]]


def aggregator_settings(spec: GraderSpec) -> AggregatorSettings:
    return read_grader_settings(spec, CompositeSettings).aggregator


def check_composite(look: GraderInput) -> None:
    """Raises `InvalidGrader`."""
    how = aggregator_settings(look.spec)
    if not look.spec.members:
        raise InvalidGrader(f"Grader {look.spec.name!r}: a composite without members.")
    if below := sorted(name for name, weight in how.weights.items() if not 0 <= weight < math.inf):
        raise InvalidGrader(
            f"Grader {look.spec.name!r}: its weights of {below!r} must be 0 or more."
        )
    if how.type == "code-grader" and not how.command:
        raise InvalidGrader(f"Grader {look.spec.name!r}: its aggregator has no `command`.")


def settled_finding(graded: GradedMembers, rules: GradeRules) -> GraderFinding | None:
    """What needs no aggregator: nobody has a say, somebody could not look, one was required."""
    counted = _not_skipped(graded)
    if not counted:
        return GraderFinding(score=0.0, verdict="skip")
    if rules.compat:
        return None
    error = next((grade.error for _, grade in counted if grade.error), "")
    if error or any(grade.broken for _, grade in counted):
        return GraderFinding(
            score=0.0,
            verdict="fail",
            assertions=member_assertions(counted),
            broken=True,
            error=error,
        )
    if any(rules.required_failed(spec, grade) for spec, grade in counted):
        return GraderFinding(score=0.0, assertions=member_assertions(counted))
    return None


def aggregate(how: AggregatorSettings, graded: GradedMembers, rules: GradeRules) -> GraderFinding:
    """By a rule; those who have to ask are asked elsewhere."""
    counted = _not_skipped(graded)
    if how.type == "threshold":
        return _threshold_finding(how.threshold, counted, rules)
    if how.type in AGGREGATOR_TYPES:
        raise InvalidGrader(f"an aggregator of type {how.type!r} has to be asked, and nobody was.")
    weights = [
        how.weights.get(grade.name, 1.0 if rules.compat else spec.weight) for spec, grade in counted
    ]
    pairs = list(zip(weights, (grade for _, grade in counted), strict=True))
    return GraderFinding(score=weighted_mean(pairs), assertions=member_assertions(counted))


def member_assertions(graded: GradedMembers) -> tuple[Assertion, ...]:
    """What all members looked at, each with its name."""
    return tuple(
        Assertion(text=f"[{grade.name}] {one.text}", passed=one.passed, evidence=one.evidence)
        for _, grade in graded
        for one in grade.assertions
    )


def _not_skipped(graded: GradedMembers) -> GradedMembers:
    return [(spec, grade) for spec, grade in graded if grade.verdict != "skip"]


def _threshold_finding(
    threshold: float, counted: GradedMembers, rules: GradeRules
) -> GraderFinding:
    """AgentV calls it a pass and then counts the share; here a pass counts as one."""
    passing = sum(grade.verdict in ("pass", "borderline") for _, grade in counted)
    share = passing / len(counted)
    enough = reaches(share, threshold)
    note = Assertion(text=f"{share:.2f} of the members pass, {threshold:g} wanted", passed=enough)
    return GraderFinding(
        score=share if rules.compat else float(enough),
        verdict="pass" if enough else "fail",
        assertions=(note, *member_assertions(counted)),
    )


log = logging.getLogger(__name__)

GRADER_CHECKS: Mapping[str, GraderCheck] = {
    **TEXT_CHECKS,
    "tool-trajectory": tool_trajectory,
    "latency": latency,
    "cost": cost,
    "token-usage": token_usage,
    "execution-metrics": execution_metrics,
    "field-accuracy": field_accuracy,
    "skill-trigger": skill_trigger,
}
"""The deterministic ones, by type. `composite` is made of others."""


class GraderMistake(Value, frozen=True, kw_only=True):
    """What no attempt could make good: the suite is at fault."""

    place: SuiteLocation
    text: str


GraderPath = tuple[int, ...]
"""Where a grader stands in its case: its index, then that of the member."""

FindingsByPath = Mapping[GraderPath, GraderFinding]
"""What those said who had to be asked."""


async def ask_and_grade(
    case: EvalCase,
    trace: Trace,
    *,
    threshold: float,
    compat: bool,
    askers: Mapping[str, AsyncGrader],
) -> CaseGrade:
    """As `grade`, with the graders that `askers` know by type; all are asked at once.

    Only who makes one of many waits for them, the innermost first.
    """
    answers: dict[GraderPath, GraderFinding] = {}

    async def ask(place: GraderPath, who: str, look: GraderInput) -> None:
        try:
            answers[place] = await askers[who](look)
        except GoentError as error:
            answers[place] = broken_finding(str(error))
        except Exception as error:  # a grader's defect must not cost the other cases
            log.exception("grader %r failed", look.spec.name)
            answers[place] = _defect_finding(look.spec, error)

    if trace.failure is None:
        every = all_graders(case.graders)
        grader = _CaseGrader(
            case, trace, grade_rules(case, threshold=threshold, compat=compat), answers
        )
        async with anyio.create_task_group() as asking:
            for place, spec in every:
                if kebab_type(spec) in askers:
                    asking.start_soon(ask, place, kebab_type(spec), grader.look(spec))
        for place, spec in sorted(every, key=lambda one: len(one[0]), reverse=True):
            who = _aggregator_type(spec)
            if who not in askers:
                continue
            members = grader.members(place, spec)
            if settled_finding(members, grader.rules) is None:
                said = tuple(grade for _, grade in members)
                await ask(place, who, msgspec.structs.replace(grader.look(spec), members=said))
    return grade(case, trace, threshold=threshold, compat=compat, answers=answers)


def grade(
    case: EvalCase,
    trace: Trace,
    *,
    threshold: float,
    compat: bool,
    answers: FindingsByPath | None = None,
) -> CaseGrade:
    """Pure: `answers` are the findings of graders that had to ask, by their places."""
    if trace.failure is not None:
        why = f"{trace.failure.kind}: {trace.failure.message}"
        return CaseGrade(score=0.0, status="execution_error", error=why)
    grader = _CaseGrader(
        case, trace, grade_rules(case, threshold=threshold, compat=compat), answers or {}
    )
    found = [(spec, grader.grade((i,), spec)) for i, spec in enumerate(case.graders)]
    graded = [(spec, one) for spec, one in found if one is not None]
    score, status, error = case_outcome(graded, grader.rules)
    return CaseGrade(
        score=score,
        status=status,
        grades=tuple(one for _, one in graded),
        error=error,
        judge_cost_usd=judge_cost([one for _, one in graded]),
        spoilt=required_grader_failed(graded, grader.rules),
    )


def grader_mistakes(case: EvalCase) -> tuple[GraderMistake, ...]:
    """Why these graders could not say anything; for who reads suites."""
    blank = Trace(messages=(TracedMessage(role="assistant"),))
    found: list[GraderMistake] = []
    for _, spec in all_graders(case.graders):
        check = _SETTINGS_CHECKS.get(kebab_type(spec)) or GRADER_CHECKS.get(
            kebab_type(spec), _unknown_type
        )
        try:
            check(GraderInput(spec=spec, case=case, trace=blank, compat=False))
        except InvalidGrader as misfit:
            found.append(GraderMistake(place=spec.place, text=str(misfit)))
    if not any(spec.weight > 0 for spec in case.graders):
        text = f"Case {case.id!r} has no grader with a weight above 0: it could only fail."
        found.append(GraderMistake(place=case.place, text=text))
    return tuple(found)


def all_graders(
    specs: tuple[GraderSpec, ...], above: GraderPath = ()
) -> list[tuple[GraderPath, GraderSpec]]:
    """With all members of composites."""
    found: list[tuple[GraderPath, GraderSpec]] = []
    for index, spec in enumerate(specs):
        place = (*above, index)
        found += [(place, spec), *all_graders(spec.members, place)]
    return found


class _CaseGrader:
    def __init__(
        self, case: EvalCase, trace: Trace, judged_by: GradeRules, answers: FindingsByPath
    ) -> None:
        self._case, self._answers, self.rules = case, answers, judged_by
        # AgentV's traces have no subagents.
        self._trace = trace.without_subagents() if judged_by.compat else trace

    def look(self, spec: GraderSpec) -> GraderInput:
        return GraderInput(spec=spec, case=self._case, trace=self._trace, compat=self.rules.compat)

    def grade(self, place: GraderPath, spec: GraderSpec) -> Grade | None:
        if kebab_type(spec) == COMPOSITE:
            return self._composite(place, spec)
        finding = self._answers.get(place) or self._find(spec)
        return finding and to_grade(spec, finding, self.rules)

    def members(self, place: GraderPath, spec: GraderSpec) -> list[tuple[GraderSpec, Grade]]:
        found = [(one, self.grade((*place, i), one)) for i, one in enumerate(spec.members)]
        return [(one, grade) for one, grade in found if grade is not None]

    def _find(self, spec: GraderSpec) -> GraderFinding | None:
        try:
            return GRADER_CHECKS.get(kebab_type(spec), _unknown_type)(self.look(spec))
        except InvalidGrader as misfit:
            return broken_finding(str(misfit))
        except Exception as error:  # the same
            log.exception("grader %r failed", spec.name)
            return _defect_finding(spec, error)

    def _composite(self, place: GraderPath, spec: GraderSpec) -> Grade:
        graded = self.members(place, spec)
        try:
            finding = (
                settled_finding(graded, self.rules)
                or self._answers.get(place)
                or aggregate(aggregator_settings(spec), graded, self.rules)
            )
        except InvalidGrader as misfit:
            finding = broken_finding(str(misfit))
        members = tuple(grade for _, grade in graded)
        return msgspec.structs.replace(to_grade(spec, finding, self.rules), members=members)


def _aggregator_type(spec: GraderSpec) -> str:
    """Of a composite: the asker that makes one of its members, if one has to be asked."""
    if kebab_type(spec) != COMPOSITE:
        return ""
    try:
        return AGGREGATOR_TYPES.get(aggregator_settings(spec).type, "")
    except InvalidGrader:
        return ""


def _defect_finding(spec: GraderSpec, error: Exception) -> GraderFinding:
    return broken_finding(f"Grader {spec.name!r} has a defect: {type(error).__name__}: {error}")


def _unknown_type(look: GraderInput) -> GraderFinding:
    raise InvalidGrader(f"Grader {look.spec.name!r}: nobody knows the type {look.spec.type!r}.")


_SETTINGS_CHECKS: Mapping[str, Callable[[GraderInput], object]] = {
    COMPOSITE: check_composite,
    "code-grader": check_script,
    "llm-grader": check_judge,
    "rubrics": check_judge,
}
"""Those that are not looked at by a function alone: are their settings sound?"""

PARALLEL_SCRIPTS: Final = 16  # in a run, however many cases are graded and by how many


def async_graders(
    commands: SuiteCommandRunner,
    judge: Judge,
    scratch: Path | None = None,
    *,
    turn: anyio.CapacityLimiter | None = None,
) -> Mapping[str, AsyncGrader]:
    """By type. Scripts are run by `commands`.

    They take `turn`s, the same for all cases of a run; a script's time begins with its turn.
    """
    turn = turn or anyio.CapacityLimiter(PARALLEL_SCRIPTS)
    return {
        "code-grader": _limited(code_grader(commands, scratch), turn),
        "code-aggregator": _limited(code_aggregator(commands), turn),
        "llm-grader": llm_grader(judge),
        "rubrics": llm_grader(judge),
        "llm-aggregator": llm_aggregator(judge),
    }


def _limited(script: AsyncGrader, turn: anyio.CapacityLimiter) -> AsyncGrader:
    async def ask(look: GraderInput) -> GraderFinding:
        async with turn:
            return await script(look)

    return ask


_AGGREGATIONS: Final[Mapping[str, Callable[[Sequence[float]], float]]] = {
    "mean": fmean,
    "min": min,
    "max": max,
}


def conversation_grade(
    talk: CaseConversation,
    turns: Sequence[CaseGrade | None],
    whole: CaseGrade | None,
    *,
    threshold: float,
    compat: bool,
) -> CaseGrade:
    """Of the turns that were made; None is one that nobody grades. `whole`: what graders say of all of them.

    Who is not graded says nothing, and what was not reached has failed; a required grader of the whole fails it,
    also where a judge could not be asked.
    For AgentV the first has passed, and no grader is required of a whole conversation.
    """
    grades = [
        _turn_grade(f"turn-{number}", graded, threshold, compat=compat)
        for number, graded in enumerate(turns, start=1)
    ]
    grades += [
        _unreached_grade(number, after=len(turns), compat=compat)
        for number in range(len(turns) + 1, len(talk.turns) + 1)
    ]
    if whole is not None:
        grades.append(_part_grade("conversation", whole, threshold))
    scores = [grade.score for grade in grades if compat or grade.verdict != "skip"]
    made = [one for one in (*turns, whole) if one is not None]
    spoilt = whole is not None and whole.spoilt and not compat
    unasked = (one.error for one in made if one.status == "execution_error")
    error = None if spoilt else next(unasked, None)
    score = _AGGREGATIONS[talk.aggregation](scores) if scores and not error and not spoilt else 0.0
    good = bool(scores) and not spoilt and reaches(score, threshold)
    status: CaseStatus = "execution_error" if error else "ok" if good else "quality_failure"
    return CaseGrade(
        score=score,
        status=status,
        grades=tuple(grades),
        error=error,
        judge_cost_usd=total_judge_cost(made),
        spoilt=spoilt,
    )


def total_judge_cost(made: Sequence[CaseGrade]) -> float | None:
    """Of all judges; None if what one took is not known."""
    return sum_if_known([one.judge_cost_usd for one in made])


def _turn_grade(name: str, graded: CaseGrade | None, threshold: float, *, compat: bool) -> Grade:
    if graded is None:
        return Grade(name=name, type="turn", score=1.0, verdict="pass" if compat else "skip")
    return _part_grade(name, graded, threshold, "turn")


def _part_grade(
    name: str, graded: CaseGrade, threshold: float, kind: str = "conversation"
) -> Grade:
    return Grade(
        name=name,
        type=kind,
        score=graded.score,
        verdict="pass" if reaches(graded.score, threshold) and not graded.spoilt else "fail",
        error=graded.error or "",
        members=graded.grades,
    )


def _unreached_grade(number: int, *, after: int, compat: bool) -> Grade:
    why = f"Not reached: turn {after} failed, and on_turn_failure is 'stop'."
    return Grade(
        name=f"turn-{number}",
        type="turn",
        score=0.0,
        verdict="skip" if compat else "fail",
        assertions=(Assertion(text=why, passed=False),),
    )
