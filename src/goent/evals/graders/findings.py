"""Defines what a grader sees and finds, and turns findings into verdicts and a case's outcome."""

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from goent.domain.errors import GoentError
from goent.domain.types import Value
from goent.evals.eval_results import Assertion, CaseStatus, Grade, GradeVerdict, JudgeUsage
from goent.evals.suites import EvalCase, GraderSpec
from goent.evals.traces import Trace


class InvalidGrader(GoentError):
    """The grader cannot look: its settings, or the case, do not fit it."""

    exit_code = 2


class GraderInput(Value, frozen=True, kw_only=True):
    """One grader's view. `compat`: say what AgentV 4 says, its oddities included.

    `members` are what those of a composite said, for who makes one of them.
    """

    spec: GraderSpec
    case: EvalCase
    trace: Trace
    compat: bool
    members: tuple[Grade, ...] = ()


class GraderFinding(Value, frozen=True, kw_only=True):
    """A score in [0, 1]. `verdict` only where the score alone does not decide it.

    `broken`: the grader could not look, which is no opinion that could be turned round.
    `error`: it could not, because whom it needed could not be asked.
    """

    score: float
    assertions: tuple[Assertion, ...] = ()
    verdict: GradeVerdict | None = None
    details: object = None
    broken: bool = False
    error: str = ""
    judging: JudgeUsage | None = None


GraderCheck = Callable[[GraderInput], GraderFinding | None]
"""None: the grader has nothing to look for, and is left out."""

AsyncGrader = Callable[[GraderInput], Awaitable[GraderFinding]]
"""A grader that has to ask somebody: a script, a model. A `GoentError` fails that grader alone."""


def passed_assertion(text: str, evidence: str = "") -> Assertion:
    return Assertion(text=text, passed=True, evidence=evidence)


def failed_assertion(text: str, evidence: str = "") -> Assertion:
    return Assertion(text=text, passed=False, evidence=evidence)


def broken_finding(text: str) -> GraderFinding:
    return GraderFinding(
        score=0.0, verdict="fail", assertions=(failed_assertion(text),), broken=True
    )


def subagent_caveat(look: GraderInput) -> str:
    """What to say after a count of calls where subagents may have made more. AgentV looks at none of theirs."""
    hidden = look.trace.hides_subagents and not look.compat
    return "; what the subagent of `task` called is not known" if hidden else ""


def passed_share(assertions: Sequence[Assertion]) -> float:
    """Of those that passed; 1 if there are none."""
    hits = sum(assertion.passed for assertion in assertions)
    return hits / len(assertions) if assertions else 1.0


def all_or_nothing(assertions: Sequence[Assertion]) -> GraderFinding:
    """1 if all passed, else 0."""
    return GraderFinding(
        score=float(all(assertion.passed for assertion in assertions)), assertions=tuple(assertions)
    )


AGENTV_PASS = 0.8
AGENTV_BORDERLINE = 0.6
_ROUNDING = 1e-9


class GradeRules(Value, frozen=True, kw_only=True):
    """By which a case is judged: AgentV measures each grader with 0.8, whatever the case asks."""

    threshold: float
    compat: bool
    seed: bool

    def limit(self, spec: GraderSpec) -> float:
        """The score that a grader must reach if it is required."""
        if spec.min_score is not None:
            return spec.min_score
        return self.threshold if isinstance(spec.required, bool) else spec.required

    def verdict(self, spec: GraderSpec, score: float) -> GradeVerdict:
        if not self.compat:
            return "pass" if self._is_enough(spec, score) else "fail"
        if reaches(score, AGENTV_PASS):
            return "pass"
        return "borderline" if self.seed and reaches(score, AGENTV_BORDERLINE) else "fail"

    def required_failed(self, spec: GraderSpec, grade: Grade) -> bool:
        """A required grader that did not get there."""
        required = spec.required is not False
        return required and grade.verdict != "skip" and not self._is_enough(spec, grade.score)

    def _is_enough(self, spec: GraderSpec, score: float) -> bool:
        """Nothing at all is not enough where something is required, however low the threshold is."""
        gates = spec.required is True and spec.min_score is None and not self.compat
        return reaches(score, self.limit(spec)) and not (gates and score <= _ROUNDING)


def grade_rules(case: EvalCase, *, threshold: float, compat: bool) -> GradeRules:
    """`threshold` is the one that counts: who plans a run has looked at the case's own already."""
    return GradeRules(threshold=threshold, compat=compat, seed=case.form == "seed")


def reaches(score: float, limit: float) -> bool:
    return score >= limit - _ROUNDING


def to_grade(spec: GraderSpec, finding: GraderFinding, judged_by: GradeRules) -> Grade:
    score = min(1.0, max(0.0, finding.score))
    grade = Grade(
        name=spec.name,
        type=kebab_type(spec),
        score=score,
        verdict=finding.verdict or judged_by.verdict(spec, score),
        weight=spec.weight,
        assertions=finding.assertions,
        details=finding.details,
        error=finding.error,
        broken=finding.broken,
        judging=finding.judging,
    )
    turned = spec.negate and (judged_by.compat or not finding.broken)
    return _negate(spec, grade, judged_by) if turned else grade


def kebab_type(spec: GraderSpec) -> str:
    return spec.type.replace("_", "-")


def _negate(spec: GraderSpec, grade: Grade, judged_by: GradeRules) -> Grade:
    if grade.verdict == "skip":
        return grade
    score = 1.0 - grade.score
    assertions = tuple(
        msgspec.structs.replace(assertion, passed=not assertion.passed)
        for assertion in grade.assertions
    )
    verdict = judged_by.verdict(spec, score)
    return msgspec.structs.replace(grade, score=score, verdict=verdict, assertions=assertions)


def weighted_mean(weighted: Sequence[tuple[float, Grade]]) -> float:
    """Of those that were not skipped; 0 where nothing has a weight."""
    counted = [(max(0.0, weight), grade) for weight, grade in weighted if grade.verdict != "skip"]
    total = sum(weight for weight, _ in counted)
    if total <= 0:
        return 0.0
    return min(1.0, sum(weight * grade.score for weight, grade in counted) / total)


def case_outcome(
    graded: Sequence[tuple[GraderSpec, Grade]], judged_by: GradeRules
) -> tuple[float, CaseStatus, str | None]:
    """Of a case: its score, its status, and why there is none.

    Who could not be asked leaves the case open, unless another grader has decided it already.
    """
    spoilt = required_grader_failed(graded, judged_by)
    error = next((grade.error for spec, grade in graded if grade.error and _has_say(spec)), None)
    if error and not spoilt:
        return 0.0, "execution_error", error
    score = 0.0 if spoilt else weighted_mean([(spec.weight, grade) for spec, grade in graded])
    good = bool(graded) and not spoilt and reaches(score, judged_by.threshold)
    return score, "ok" if good else "quality_failure", None


def required_grader_failed(
    graded: Sequence[tuple[GraderSpec, Grade]], judged_by: GradeRules
) -> bool:
    """A required grader failed; one that could not be asked has not."""
    return any(judged_by.required_failed(spec, grade) for spec, grade in graded if not grade.error)


def judge_cost(grades: Sequence[Grade]) -> float | None:
    """Of all judges, those of members too; None if one does not tell."""
    costs = [grade.judging.cost_usd for grade in grades if grade.judging]
    return sum_if_known([*costs, *(judge_cost(grade.members) for grade in grades)])


def sum_if_known(amounts: Sequence[float | None]) -> float | None:
    """None if one of them is not known."""
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if len(known) == len(amounts) else None


def _has_say(spec: GraderSpec) -> bool:
    return spec.weight > 0 or spec.required is not False
