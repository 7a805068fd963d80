"""What do the members of a composite come to?"""

import math
from collections.abc import Mapping, Sequence
from typing import Final

from goent.evals.graders.findings import Finding, Look, Misfit
from goent.evals.graders.settings import Aggregator, Composition, read
from goent.evals.graders.verdicts import Rules, mean, reaches
from goent.evals.grades import Assertion, Grade
from goent.evals.suites import GraderSpec

COMPOSITE: Final = "composite"
ASKING: Final[Mapping[str, str]] = {
    "code-grader": "code-aggregator",
    "llm-grader": "llm-aggregator",
}
"""Who is asked to make one of many, by the aggregator's type."""

Members = Sequence[tuple[GraderSpec, Grade]]


def aggregator_of(spec: GraderSpec) -> Aggregator:
    return read(spec, Composition).aggregator


def check_composite(look: Look) -> None:
    """Raises `Misfit`."""
    how = aggregator_of(look.spec)
    if not look.spec.members:
        raise Misfit(f"Grader {look.spec.name!r}: a composite without members.")
    if below := sorted(name for name, weight in how.weights.items() if not 0 <= weight < math.inf):
        raise Misfit(f"Grader {look.spec.name!r}: its weights of {below!r} must be 0 or more.")
    if how.type == "code-grader" and not how.command:
        raise Misfit(f"Grader {look.spec.name!r}: its aggregator has no `command`.")


def settled(graded: Members, rules: Rules) -> Finding | None:
    """What needs no aggregator: nobody has a say, somebody could not look, one was required."""
    counted = _counted(graded)
    if not counted:
        return Finding(score=0.0, verdict="skip")
    if rules.compat:
        return None
    error = next((grade.error for _, grade in counted if grade.error), "")
    if error or any(grade.broken for _, grade in counted):
        return Finding(
            score=0.0, verdict="fail", assertions=said(counted), broken=True, error=error
        )
    if any(rules.broken(spec, grade) for spec, grade in counted):
        return Finding(score=0.0, assertions=said(counted))
    return None


def together(how: Aggregator, graded: Members, rules: Rules) -> Finding:
    """By a rule; those who have to ask are asked elsewhere."""
    counted = _counted(graded)
    if how.type == "threshold":
        return _enough(how.threshold, counted, rules)
    if how.type in ASKING:
        raise Misfit(f"an aggregator of type {how.type!r} has to be asked, and nobody was.")
    weights = [
        how.weights.get(grade.name, 1.0 if rules.compat else spec.weight) for spec, grade in counted
    ]
    pairs = list(zip(weights, (grade for _, grade in counted), strict=True))
    return Finding(score=mean(pairs), assertions=said(counted))


def said(graded: Members) -> tuple[Assertion, ...]:
    """What all members looked at, each with its name."""
    return tuple(
        Assertion(text=f"[{grade.name}] {one.text}", passed=one.passed, evidence=one.evidence)
        for _, grade in graded
        for one in grade.assertions
    )


def _counted(graded: Members) -> Members:
    return [(spec, grade) for spec, grade in graded if grade.verdict != "skip"]


def _enough(threshold: float, counted: Members, rules: Rules) -> Finding:
    """AgentV calls it a pass and then counts the share; here a pass counts as one."""
    passing = sum(grade.verdict in ("pass", "borderline") for _, grade in counted)
    share = passing / len(counted)
    enough = reaches(share, threshold)
    note = Assertion(text=f"{share:.2f} of the members pass, {threshold:g} wanted", passed=enough)
    return Finding(
        score=share if rules.compat else float(enough),
        verdict="pass" if enough else "fail",
        assertions=(note, *said(counted)),
    )
