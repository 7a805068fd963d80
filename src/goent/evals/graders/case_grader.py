"""Grades an attempt with all graders of its case, composites and conversations included."""

import logging
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Final

import anyio
import msgspec

from goent.domain.errors import GoentError
from goent.domain.types import Value
from goent.evals.eval_results import Assertion, CaseGrade, CaseStatus, Grade
from goent.evals.graders.composite_grader import aggregate, aggregator_settings, settled_finding
from goent.evals.graders.findings import (
    GraderFinding,
    GraderInput,
    GradeRules,
    InvalidGrader,
    broken_finding,
    case_outcome,
    grade_rules,
    judge_cost,
    reaches,
    required_grader_failed,
    to_grade,
)
from goent.evals.graders.grader_kind import AsyncGrader, GraderTools
from goent.evals.graders.grader_registry import GRADERS, GraderPath, all_graders
from goent.evals.suites import CaseConversation, EvalCase, GraderSpec, SuiteLocation
from goent.evals.traces import Trace, TracedMessage, sum_if_known

log = logging.getLogger(__name__)

FindingsByPath = Mapping[GraderPath, GraderFinding]
"""The findings of scripts and judges, by the place of their grader."""


class GraderMistake(Value, frozen=True, kw_only=True):
    """A mistake in the suite: no attempt could pass this grader."""

    place: SuiteLocation
    text: str


async def ask_and_grade(
    case: EvalCase, trace: Trace, *, threshold: float, compat: bool, tools: GraderTools
) -> CaseGrade:
    """As `grade`, with scripts and judges; all are asked in parallel, then aggregators, innermost first."""
    answers: dict[GraderPath, GraderFinding] = {}

    async def ask(place: GraderPath, grader: AsyncGrader, look: GraderInput) -> None:
        try:
            answers[place] = await grader(look, tools)
        except GoentError as error:
            answers[place] = broken_finding(str(error))
        except Exception as error:  # noqa: BLE001 (a grader's defect must not cost the other cases)
            answers[place] = _defect_finding(look.spec, error)

    if trace.failure is None:
        every = list(all_graders(case.graders))
        grader = _CaseGrader(
            case, trace, grade_rules(case, threshold=threshold, compat=compat), answers
        )
        async with anyio.create_task_group() as group:
            for place, spec in every:
                kind = GRADERS.get(spec.type)
                if kind and kind.ask:
                    group.start_soon(ask, place, kind.ask, grader.look(spec))
        for place, spec in sorted(every, key=lambda one: len(one[0]), reverse=True):
            if combine := _combining_grader(spec):
                members = grader.members(place, spec)
                if settled_finding(members, grader.rules) is None:
                    grades = tuple(grade for _, grade in members)
                    look = msgspec.structs.replace(grader.look(spec), members=grades)
                    await ask(place, combine, look)
    return grade(case, trace, threshold=threshold, compat=compat, answers=answers)


def grade(
    case: EvalCase,
    trace: Trace,
    *,
    threshold: float,
    compat: bool,
    answers: FindingsByPath | None = None,
) -> CaseGrade:
    """Grades without side effects; `answers` are the findings of scripts and judges."""
    if trace.failure is not None:
        why = f"{trace.failure.kind}: {trace.failure.message}"
        return CaseGrade(score=0.0, status="execution_error", error=why)
    rules = grade_rules(case, threshold=threshold, compat=compat)
    graded = _CaseGrader(case, trace, rules, answers or {}).graded((), case.graders)
    score, status, error = case_outcome(graded, rules)
    return CaseGrade(
        score=score,
        status=status,
        grades=tuple(one for _, one in graded),
        error=error,
        judge_cost_usd=judge_cost([one for _, one in graded]),
        spoilt=required_grader_failed(graded, rules),
    )


def grader_mistakes(case: EvalCase) -> tuple[GraderMistake, ...]:
    """What is wrong with a case's graders, whatever the attempt."""
    blank = Trace(messages=(TracedMessage(role="assistant"),))
    found: list[GraderMistake] = []
    for _, spec in all_graders(case.graders):
        kind = GRADERS.get(spec.type)
        check = kind and (kind.validate or kind.check)
        try:
            (check or _unknown_type)(GraderInput(spec=spec, case=case, trace=blank, compat=False))
        except InvalidGrader as error:
            found.append(GraderMistake(place=spec.place, text=str(error)))
    if not any(spec.weight > 0 for spec in case.graders):
        text = f"Case {case.id!r} has no grader with a weight above 0, so it could only fail."
        found.append(GraderMistake(place=case.place, text=text))
    return tuple(found)


class _CaseGrader:
    def __init__(
        self, case: EvalCase, trace: Trace, rules: GradeRules, answers: FindingsByPath
    ) -> None:
        self._case, self._answers, self.rules = case, answers, rules
        # AgentV's traces have no subagents.
        self._trace = trace.without_subagents() if rules.compat else trace

    def look(self, spec: GraderSpec) -> GraderInput:
        return GraderInput(spec=spec, case=self._case, trace=self._trace, compat=self.rules.compat)

    def graded(
        self, above: GraderPath, specs: Sequence[GraderSpec]
    ) -> list[tuple[GraderSpec, Grade]]:
        found = [(spec, self._grade((*above, i), spec)) for i, spec in enumerate(specs)]
        return [(spec, one) for spec, one in found if one is not None]

    def members(self, place: GraderPath, spec: GraderSpec) -> list[tuple[GraderSpec, Grade]]:
        return self.graded(place, spec.members)

    def _grade(self, place: GraderPath, spec: GraderSpec) -> Grade | None:
        if spec.type == "composite":
            return self._composite(place, spec)
        finding = self._answers.get(place) or self._find(spec)
        return finding and to_grade(spec, finding, self.rules)

    def _find(self, spec: GraderSpec) -> GraderFinding | None:
        kind = GRADERS.get(spec.type)
        try:
            return ((kind and kind.check) or _unknown_type)(self.look(spec))
        except InvalidGrader as error:
            return broken_finding(str(error))
        except Exception as error:  # noqa: BLE001 (a grader's defect must not cost the other cases)
            return _defect_finding(spec, error)

    def _composite(self, place: GraderPath, spec: GraderSpec) -> Grade:
        graded = self.members(place, spec)
        try:
            finding = (
                settled_finding(graded, self.rules)
                or self._answers.get(place)
                or aggregate(aggregator_settings(spec), graded, self.rules)
            )
        except InvalidGrader as error:
            finding = broken_finding(str(error))
        members = tuple(grade for _, grade in graded)
        return msgspec.structs.replace(to_grade(spec, finding, self.rules), members=members)


def _combining_grader(spec: GraderSpec) -> AsyncGrader | None:
    """The script or judge that combines a composite's members, if its aggregator is one."""
    if spec.type != "composite":
        return None
    try:
        kind = GRADERS.get(aggregator_settings(spec).type)
    except InvalidGrader:
        return None
    return kind and kind.combine


def _defect_finding(spec: GraderSpec, error: Exception) -> GraderFinding:
    log.error("grader %r failed", spec.name, exc_info=error)
    return broken_finding(f"Grader {spec.name!r} has a defect: {type(error).__name__}: {error}")


def _unknown_type(look: GraderInput) -> GraderFinding:
    raise InvalidGrader(f"Grader {look.spec.name!r}: unknown type {look.spec.type!r}.")


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
    """Combines the grades of turns (None: no graders) with that of the `whole` conversation.

    Turns without graders do not count, and turns that were not reached fail; a required grader of the
    whole fails it, even where a judge was unavailable.
    In AgentV turns without graders pass, and no grader of a whole conversation is required.
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
    """The cost of all judges; None if one is unknown."""
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
