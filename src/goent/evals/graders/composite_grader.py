"""Makes one finding of a composite's members: by weights, a threshold, a script or a judge."""

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from goent.evals.eval_results import Assertion, Grade
from goent.evals.graders.findings import (
    GraderFinding,
    GraderInput,
    GradeRules,
    InvalidGrader,
    reaches,
    weighted_mean,
)
from goent.evals.graders.grader_kind import GraderKind, GraderSettings, read_grader_settings
from goent.evals.suites import GraderSpec

GradedMembers = Sequence[tuple[GraderSpec, Grade]]


class AggregatorSettings(GraderSettings, frozen=True, kw_only=True):
    """How members become one: their mean, the share that passes, or what a script or a judge says."""

    type: Literal["weighted_average", "threshold", "code-grader", "llm-grader"] = "weighted_average"
    weights: Mapping[str, float] = {}
    threshold: float = 0.5
    command: tuple[str, ...] = ()
    cwd: str = "."
    timeout_seconds: float = 60.0
    prompt: str = ""
    target: str | None = None
    model: str | None = None


class CompositeSettings(GraderSettings, frozen=True, kw_only=True):
    """Settings of `composite`; its members are in the grader itself."""

    aggregator: AggregatorSettings = AggregatorSettings()


def aggregator_settings(spec: GraderSpec) -> AggregatorSettings:
    return read_grader_settings(spec, CompositeSettings).aggregator


def check_composite(look: GraderInput) -> None:
    """Raises `InvalidGrader`."""
    how = aggregator_settings(look.spec)
    if not look.spec.members:
        raise InvalidGrader(f"Grader {look.spec.name!r}: a composite needs members.")
    if below := sorted(name for name, weight in how.weights.items() if not 0 <= weight < math.inf):
        raise InvalidGrader(
            f"Grader {look.spec.name!r}: its weights of {below!r} must be 0 or more."
        )
    if how.type == "code-grader" and not how.command:
        raise InvalidGrader(f"Grader {look.spec.name!r}: its aggregator has no `command`.")


def settled_finding(graded: GradedMembers, rules: GradeRules) -> GraderFinding | None:
    """Decides without the aggregator: all members skipped, one is broken, or a required one failed."""
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
            assertions=_member_assertions(counted),
            broken=True,
            error=error,
        )
    if any(rules.required_failed(spec, grade) for spec, grade in counted):
        return GraderFinding(score=0.0, assertions=_member_assertions(counted))
    return None


def aggregate(how: AggregatorSettings, graded: GradedMembers, rules: GradeRules) -> GraderFinding:
    """Combines members by weights or a threshold; scripts and judges are asked elsewhere."""
    counted = _not_skipped(graded)
    if how.type == "threshold":
        return _threshold_finding(how.threshold, counted, rules)
    if how.type != "weighted_average":
        raise InvalidGrader(f"the aggregator of type {how.type!r} was not asked.")
    weighted = [
        (how.weights.get(grade.name, 1.0 if rules.compat else spec.weight), grade)
        for spec, grade in counted
    ]
    return GraderFinding(score=weighted_mean(weighted), assertions=_member_assertions(counted))


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
        assertions=(note, *_member_assertions(counted)),
    )


def _member_assertions(graded: GradedMembers) -> tuple[Assertion, ...]:
    return tuple(
        Assertion(text=f"[{grade.name}] {one.text}", passed=one.passed, evidence=one.evidence)
        for _, grade in graded
        for one in grade.assertions
    )


def _not_skipped(graded: GradedMembers) -> GradedMembers:
    return [(spec, grade) for spec, grade in graded if grade.verdict != "skip"]


COMPOSITE_GRADERS = (
    GraderKind(
        name="composite",
        settings=CompositeSettings,
        score="of its members",
        validate=check_composite,
    ),
)
