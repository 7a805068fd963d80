"""What does a finding count for? Verdicts, what is required, and the mean of many."""

from collections.abc import Sequence

import msgspec

from goent.domain.types import Value
from goent.evals.graders.findings import Finding
from goent.evals.grades import Grade, Status, Verdict
from goent.evals.suites import Case, GraderSpec

AGENTV_PASS = 0.8
AGENTV_BORDERLINE = 0.6
_ROUNDING = 1e-9


class Rules(Value, frozen=True, kw_only=True):
    """By which a case is judged: AgentV measures each grader with 0.8, whatever the case asks."""

    threshold: float
    compat: bool
    seed: bool

    def limit(self, spec: GraderSpec) -> float:
        """The score that a grader must reach if it is required."""
        if spec.min_score is not None:
            return spec.min_score
        return self.threshold if isinstance(spec.required, bool) else spec.required

    def verdict(self, spec: GraderSpec, score: float) -> Verdict:
        if not self.compat:
            return "pass" if self._suffices(spec, score) else "fail"
        if reaches(score, AGENTV_PASS):
            return "pass"
        return "borderline" if self.seed and reaches(score, AGENTV_BORDERLINE) else "fail"

    def broken(self, spec: GraderSpec, grade: Grade) -> bool:
        """A required grader that did not get there."""
        required = spec.required is not False
        return required and grade.verdict != "skip" and not self._suffices(spec, grade.score)

    def _suffices(self, spec: GraderSpec, score: float) -> bool:
        """Nothing at all is not enough where something is required, however low the threshold is."""
        gates = spec.required is True and spec.min_score is None and not self.compat
        return reaches(score, self.limit(spec)) and not (gates and score <= _ROUNDING)


def rules(case: Case, *, threshold: float, compat: bool) -> Rules:
    """`threshold` is the one that counts: who plans a run has looked at the case's own already."""
    return Rules(threshold=threshold, compat=compat, seed=case.form == "seed")


def reaches(score: float, limit: float) -> bool:
    return score >= limit - _ROUNDING


def to_grade(spec: GraderSpec, finding: Finding, judged_by: Rules) -> Grade:
    score = min(1.0, max(0.0, finding.score))
    grade = Grade(
        name=spec.name,
        type=kind(spec),
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
    return _negated(spec, grade, judged_by) if turned else grade


def kind(spec: GraderSpec) -> str:
    return spec.type.replace("_", "-")


def _negated(spec: GraderSpec, grade: Grade, judged_by: Rules) -> Grade:
    if grade.verdict == "skip":
        return grade
    score = 1.0 - grade.score
    assertions = tuple(
        msgspec.structs.replace(assertion, passed=not assertion.passed)
        for assertion in grade.assertions
    )
    verdict = judged_by.verdict(spec, score)
    return msgspec.structs.replace(grade, score=score, verdict=verdict, assertions=assertions)


def mean(weighted: Sequence[tuple[float, Grade]]) -> float:
    """Of those that were not skipped; 0 where nothing has a weight."""
    counted = [(max(0.0, weight), grade) for weight, grade in weighted if grade.verdict != "skip"]
    total = sum(weight for weight, _ in counted)
    if total <= 0:
        return 0.0
    return min(1.0, sum(weight * grade.score for weight, grade in counted) / total)


def outcome(
    graded: Sequence[tuple[GraderSpec, Grade]], judged_by: Rules
) -> tuple[float, Status, str | None]:
    """Of a case: its score, its status, and why there is none.

    Who could not be asked leaves the case open, unless another grader has decided it already.
    """
    spoilt = is_spoilt(graded, judged_by)
    error = next((grade.error for spec, grade in graded if grade.error and _counts(spec)), None)
    if error and not spoilt:
        return 0.0, "execution_error", error
    score = 0.0 if spoilt else mean([(spec.weight, grade) for spec, grade in graded])
    good = bool(graded) and not spoilt and reaches(score, judged_by.threshold)
    return score, "ok" if good else "quality_failure", None


def is_spoilt(graded: Sequence[tuple[GraderSpec, Grade]], judged_by: Rules) -> bool:
    """A required grader failed; one that could not be asked has not."""
    return any(judged_by.broken(spec, grade) for spec, grade in graded if not grade.error)


def judge_cost(grades: Sequence[Grade]) -> float | None:
    """Of all judges, those of members too; None if one does not tell."""
    costs = [grade.judging.cost_usd for grade in grades if grade.judging]
    return total([*costs, *(judge_cost(grade.members) for grade in grades)])


def total(amounts: Sequence[float | None]) -> float | None:
    """None if one of them is not known."""
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if len(known) == len(amounts) else None


def _counts(spec: GraderSpec) -> bool:
    return spec.weight > 0 or spec.required is not False
