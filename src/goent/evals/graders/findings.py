"""Defines what a grader sees and finds, and turns findings into verdicts and a case's outcome."""

from collections.abc import Sequence

import msgspec

from goent.domain.errors import GoentError
from goent.domain.types import Value
from goent.evals.eval_results import Assertion, CaseStatus, Grade, GradeVerdict, JudgeUsage
from goent.evals.suites import EvalCase, GraderSpec
from goent.evals.traces import Trace, sum_if_known

AGENTV_PASS = 0.8
AGENTV_BORDERLINE = 0.6
_ROUNDING = 1e-9


class InvalidGrader(GoentError):
    """The grader cannot grade: its settings or the case do not fit it."""

    exit_code = 2


class GraderInput(Value, frozen=True, kw_only=True):
    """What one grader sees. `compat`: grade as AgentV 4 does, oddities included.

    `members` are the grades of a composite's members, for its aggregator.
    """

    spec: GraderSpec
    case: EvalCase
    trace: Trace
    compat: bool
    members: tuple[Grade, ...] = ()


class GraderFinding(Value, frozen=True, kw_only=True):
    """A score in [0, 1]. `verdict` is set only where the score alone does not decide it.

    `broken`: the grader could not grade, which `negate` does not turn into a pass.
    `error`: it could not because a script or judge was unavailable, so there is no score at all.
    """

    score: float
    assertions: tuple[Assertion, ...] = ()
    verdict: GradeVerdict | None = None
    details: object = None
    broken: bool = False
    error: str = ""
    judging: JudgeUsage | None = None


def broken_finding(text: str, *, error: str = "") -> GraderFinding:
    return GraderFinding(
        score=0.0,
        verdict="fail",
        assertions=(Assertion(text=text, passed=False),),
        broken=True,
        error=error,
    )


def single_check(text: str, *, passed: bool, evidence: str = "") -> GraderFinding:
    """1 or 0, by one assertion."""
    return all_or_nothing([Assertion(text=text, passed=passed, evidence=evidence)])


def subagent_caveat(look: GraderInput) -> str:
    """A note for counts of calls where subagents may have made more. AgentV ignores all of theirs."""
    hidden = look.trace.hides_subagents and not look.compat
    return "; the calls of the subagent of `task` are unknown" if hidden else ""


def passed_share(assertions: Sequence[Assertion]) -> float:
    """The share that passed; 1 if there are none."""
    hits = sum(assertion.passed for assertion in assertions)
    return hits / len(assertions) if assertions else 1.0


def all_or_nothing(assertions: Sequence[Assertion]) -> GraderFinding:
    return GraderFinding(
        score=float(all(assertion.passed for assertion in assertions)), assertions=tuple(assertions)
    )


class GradeRules(Value, frozen=True, kw_only=True):
    """How a case is judged. AgentV's threshold for a grader is 0.8, whatever the case asks."""

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
        required = spec.required is not False
        return required and grade.verdict != "skip" and not self._is_enough(spec, grade.score)

    def _is_enough(self, spec: GraderSpec, score: float) -> bool:
        """A score of 0 never satisfies `required: true`, however low the threshold is."""
        gates = spec.required is True and spec.min_score is None and not self.compat
        return reaches(score, self.limit(spec)) and not (gates and score <= _ROUNDING)


def grade_rules(case: EvalCase, *, threshold: float, compat: bool) -> GradeRules:
    """`threshold` is the effective one: the case's own was applied when the run was planned."""
    return GradeRules(threshold=threshold, compat=compat, seed=case.form == "seed")


def reaches(score: float, limit: float) -> bool:
    return score >= limit - _ROUNDING


def to_grade(spec: GraderSpec, finding: GraderFinding, rules: GradeRules) -> Grade:
    score = min(1.0, max(0.0, finding.score))
    grade = Grade(
        name=spec.name,
        type=spec.type,
        score=score,
        verdict=finding.verdict or rules.verdict(spec, score),
        weight=spec.weight,
        assertions=finding.assertions,
        details=finding.details,
        error=finding.error,
        broken=finding.broken,
        judging=finding.judging,
    )
    negated = spec.negate and (rules.compat or not finding.broken)
    return _negate(spec, grade, rules) if negated else grade


def _negate(spec: GraderSpec, grade: Grade, rules: GradeRules) -> Grade:
    if grade.verdict == "skip":
        return grade
    score = 1.0 - grade.score
    assertions = tuple(
        msgspec.structs.replace(assertion, passed=not assertion.passed)
        for assertion in grade.assertions
    )
    verdict = rules.verdict(spec, score)
    return msgspec.structs.replace(grade, score=score, verdict=verdict, assertions=assertions)


def weighted_mean(weighted: Sequence[tuple[float, Grade]]) -> float:
    """The mean over what was not skipped; 0 where nothing has a weight."""
    counted = [(max(0.0, weight), grade) for weight, grade in weighted if grade.verdict != "skip"]
    total = sum(weight for weight, _ in counted)
    if total <= 0:
        return 0.0
    return min(1.0, sum(weight * grade.score for weight, grade in counted) / total)


def case_outcome(
    graded: Sequence[tuple[GraderSpec, Grade]], rules: GradeRules
) -> tuple[float, CaseStatus, str | None]:
    """A case's score, its status, and the error if it has no score.

    A grader that could not be asked leaves the case open, unless a required one has failed already.
    """
    spoilt = required_grader_failed(graded, rules)
    counted = (grade for spec, grade in graded if spec.weight > 0 or spec.required is not False)
    error = next((grade.error for grade in counted if grade.error), None)
    if error and not spoilt:
        return 0.0, "execution_error", error
    score = 0.0 if spoilt else weighted_mean([(spec.weight, grade) for spec, grade in graded])
    good = bool(graded) and not spoilt and reaches(score, rules.threshold)
    return score, "ok" if good else "quality_failure", None


def required_grader_failed(graded: Sequence[tuple[GraderSpec, Grade]], rules: GradeRules) -> bool:
    """A required grader that could not be asked has not failed."""
    return any(rules.required_failed(spec, grade) for spec, grade in graded if not grade.error)


def judge_cost(grades: Sequence[Grade]) -> float | None:
    """The cost of all judges, members' included; None if one is unknown."""
    costs = [grade.judging.cost_usd for grade in grades if grade.judging]
    return sum_if_known([*costs, *(judge_cost(grade.members) for grade in grades)])
