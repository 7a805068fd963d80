"""What is an attempt worth? All graders of a case, and what they come to."""

import logging
from collections.abc import Callable, Mapping

import anyio
import msgspec

from goent.domain.errors import GoentError
from goent.domain.types import Value
from goent.evals.graders.composites import (
    ASKING,
    COMPOSITE,
    aggregator_of,
    check_composite,
    settled,
    together,
)
from goent.evals.graders.fields import field_accuracy
from goent.evals.graders.findings import Asked, Check, Finding, Look, Misfit, broken
from goent.evals.graders.limits import cost, execution_metrics, latency, token_usage
from goent.evals.graders.llm import check_judge
from goent.evals.graders.scripts import check_script
from goent.evals.graders.skills import skill_trigger
from goent.evals.graders.texts import TEXTS
from goent.evals.graders.trajectory import tool_trajectory
from goent.evals.graders.verdicts import (
    Rules,
    is_spoilt,
    judge_cost,
    kind,
    outcome,
    rules,
    to_grade,
)
from goent.evals.grades import Grade, Graded
from goent.evals.suites import Case, GraderSpec
from goent.evals.suites import Place as Written
from goent.evals.traces import Trace, TracedMessage

log = logging.getLogger(__name__)

CHECKS: Mapping[str, Check] = {
    **TEXTS,
    "tool-trajectory": tool_trajectory,
    "latency": latency,
    "cost": cost,
    "token-usage": token_usage,
    "execution-metrics": execution_metrics,
    "field-accuracy": field_accuracy,
    "skill-trigger": skill_trigger,
}
"""The deterministic ones, by type. `composite` is made of others."""


class Mistake(Value, frozen=True, kw_only=True):
    """What no attempt could make good: the suite is at fault."""

    place: Written
    text: str


Place = tuple[int, ...]
"""Where a grader stands in its case: its index, then that of the member."""

Answers = Mapping[Place, Finding]
"""What those said who had to be asked."""


async def grade_asking(
    case: Case, trace: Trace, *, threshold: float, compat: bool, askers: Mapping[str, Asked]
) -> Graded:
    """As `grade`, with the graders that `askers` know by type; all are asked at once.

    Only who makes one of many waits for them, the innermost first.
    """
    answers: dict[Place, Finding] = {}

    async def ask(place: Place, who: str, look: Look) -> None:
        try:
            answers[place] = await askers[who](look)
        except GoentError as error:
            answers[place] = broken(str(error))
        except Exception as error:  # a grader's defect must not cost the other cases
            log.exception("grader %r failed", look.spec.name)
            answers[place] = _defect(look.spec, error)

    if trace.failure is None:
        every = every_grader(case.graders)
        grader = _Grader(case, trace, rules(case, threshold=threshold, compat=compat), answers)
        async with anyio.create_task_group() as asking:
            for place, spec in every:
                if kind(spec) in askers:
                    asking.start_soon(ask, place, kind(spec), grader.look(spec))
        for place, spec in sorted(every, key=lambda one: len(one[0]), reverse=True):
            who = _who_makes_one(spec)
            if who not in askers:
                continue
            members = grader.members(place, spec)
            if settled(members, grader.rules) is None:
                said = tuple(grade for _, grade in members)
                await ask(place, who, msgspec.structs.replace(grader.look(spec), members=said))
    return grade(case, trace, threshold=threshold, compat=compat, answers=answers)


def grade(
    case: Case, trace: Trace, *, threshold: float, compat: bool, answers: Answers | None = None
) -> Graded:
    """Pure: `answers` are the findings of graders that had to ask, by their places."""
    if trace.failure is not None:
        why = f"{trace.failure.kind}: {trace.failure.message}"
        return Graded(score=0.0, status="execution_error", error=why)
    grader = _Grader(case, trace, rules(case, threshold=threshold, compat=compat), answers or {})
    found = [(spec, grader.grade((i,), spec)) for i, spec in enumerate(case.graders)]
    graded = [(spec, one) for spec, one in found if one is not None]
    score, status, error = outcome(graded, grader.rules)
    return Graded(
        score=score,
        status=status,
        grades=tuple(one for _, one in graded),
        error=error,
        judge_cost_usd=judge_cost([one for _, one in graded]),
        spoilt=is_spoilt(graded, grader.rules),
    )


def mistakes(case: Case) -> tuple[Mistake, ...]:
    """Why these graders could not say anything; for who reads suites."""
    blank = Trace(messages=(TracedMessage(role="assistant"),))
    found: list[Mistake] = []
    for _, spec in every_grader(case.graders):
        check = _SETTINGS.get(kind(spec)) or CHECKS.get(kind(spec), _unknown)
        try:
            check(Look(spec=spec, case=case, trace=blank, compat=False))
        except Misfit as misfit:
            found.append(Mistake(place=spec.place, text=str(misfit)))
    if not any(spec.weight > 0 for spec in case.graders):
        text = f"Case {case.id!r} has no grader with a weight above 0: it could only fail."
        found.append(Mistake(place=case.place, text=text))
    return tuple(found)


def every_grader(
    specs: tuple[GraderSpec, ...], above: Place = ()
) -> list[tuple[Place, GraderSpec]]:
    """With all members of composites."""
    found: list[tuple[Place, GraderSpec]] = []
    for index, spec in enumerate(specs):
        place = (*above, index)
        found += [(place, spec), *every_grader(spec.members, place)]
    return found


class _Grader:
    def __init__(self, case: Case, trace: Trace, judged_by: Rules, answers: Answers) -> None:
        self._case, self._answers, self.rules = case, answers, judged_by
        # AgentV's traces have no subagents.
        self._trace = trace.without_subagents() if judged_by.compat else trace

    def look(self, spec: GraderSpec) -> Look:
        return Look(spec=spec, case=self._case, trace=self._trace, compat=self.rules.compat)

    def grade(self, place: Place, spec: GraderSpec) -> Grade | None:
        if kind(spec) == COMPOSITE:
            return self._composite(place, spec)
        finding = self._answers.get(place) or self._find(spec)
        return finding and to_grade(spec, finding, self.rules)

    def members(self, place: Place, spec: GraderSpec) -> list[tuple[GraderSpec, Grade]]:
        found = [(one, self.grade((*place, i), one)) for i, one in enumerate(spec.members)]
        return [(one, grade) for one, grade in found if grade is not None]

    def _find(self, spec: GraderSpec) -> Finding | None:
        try:
            return CHECKS.get(kind(spec), _unknown)(self.look(spec))
        except Misfit as misfit:
            return broken(str(misfit))
        except Exception as error:  # the same
            log.exception("grader %r failed", spec.name)
            return _defect(spec, error)

    def _composite(self, place: Place, spec: GraderSpec) -> Grade:
        graded = self.members(place, spec)
        try:
            finding = (
                settled(graded, self.rules)
                or self._answers.get(place)
                or together(aggregator_of(spec), graded, self.rules)
            )
        except Misfit as misfit:
            finding = broken(str(misfit))
        members = tuple(grade for _, grade in graded)
        return msgspec.structs.replace(to_grade(spec, finding, self.rules), members=members)


def _who_makes_one(spec: GraderSpec) -> str:
    """Of a composite: the asker that makes one of its members, if one has to be asked."""
    if kind(spec) != COMPOSITE:
        return ""
    try:
        return ASKING.get(aggregator_of(spec).type, "")
    except Misfit:
        return ""


def _defect(spec: GraderSpec, error: Exception) -> Finding:
    return broken(f"Grader {spec.name!r} has a defect: {type(error).__name__}: {error}")


def _unknown(look: Look) -> Finding:
    raise Misfit(f"Grader {look.spec.name!r}: nobody knows the type {look.spec.type!r}.")


_SETTINGS: Mapping[str, Callable[[Look], object]] = {
    COMPOSITE: check_composite,
    "code-grader": check_script,
    "llm-grader": check_judge,
    "rubrics": check_judge,
}
"""Those that are not looked at by a function alone: are their settings sound?"""
