"""What is on a judge's list, and what do his marks come to?"""

from collections.abc import Mapping, Sequence

from goent.domain.types import Value
from goent.evals.graders.findings import Finding, Misfit
from goent.evals.graders.settings import Settable
from goent.evals.graders.verdicts import reaches
from goent.evals.grades import Assertion
from goent.evals.suites import GraderSpec

BEST = 10.0


class Range(Settable, frozen=True, kw_only=True):
    """Scores from one number to another, and what they mean."""

    score_range: tuple[float, float]
    outcome: str = ""
    expected_outcome: str = ""


class Entry(Settable, frozen=True, kw_only=True):
    """As suites write it. The three names of the outcome are three ages of the same thing."""

    id: str | int = ""
    outcome: str = ""
    expected_outcome: str = ""
    description: str = ""
    weight: float = 1.0
    required: bool | None = None
    required_min_score: float | None = None
    min_score: float | None = None
    score_ranges: tuple[Range, ...] | Mapping[str, str] = ()


Entries = tuple[str | Entry, ...]


class Item(Value, frozen=True, kw_only=True):
    """One thing to look at. With `ranges` it gets 0 to 10, else it is there or not.

    `least`: the share below which the whole fails, if the item is `required`.
    """

    id: str
    outcome: str
    weight: float = 1.0
    required: bool = False
    least: float = 1.0
    ranges: tuple[tuple[float, float, str], ...] = ()


class Mark(Value, frozen=True, kw_only=True):
    """What the judge says of one item, as a share."""

    share: float
    reason: str = ""


def items_of(spec: GraderSpec, entries: Entries, *, compat: bool) -> tuple[Item, ...]:
    """AgentV takes every item for required, unless it says it is not; here it has to say it is."""
    found = tuple(
        _item(entry, number, compat=compat) for number, entry in enumerate(entries, start=1)
    )
    ids = [item.id for item in found]
    if twice := sorted({one for one in ids if ids.count(one) > 1}):
        raise Misfit(f"Grader {spec.name!r}: {twice!r} are ids of more than one criterion.")
    if found and not any(item.weight > 0 for item in found):
        raise Misfit(f"Grader {spec.name!r}: none of its criteria has a weight above 0.")
    for item in found:
        if not item.outcome and not item.ranges:
            raise Misfit(f"Grader {spec.name!r}: criterion {item.id!r} has no `outcome`.")
    return found


def come_to(items: Sequence[Item], marks: Mapping[str, Mark], *, compat: bool) -> Finding:
    """The weighted share. A required item that is not there spoils it: AgentV only says so."""
    nothing = Mark(share=0.0, reason="not mentioned")
    marked = [(item, marks.get(item.id, nothing)) for item in items]
    total = sum(max(0.0, item.weight) for item in items)
    earned = sum(max(0.0, item.weight) * mark.share for item, mark in marked)
    spoilt = any(item.required and not reaches(mark.share, item.least) for item, mark in marked)
    score = earned / total if total > 0 else 0.0
    return Finding(
        score=0.0 if spoilt and not compat else score,
        verdict="fail" if spoilt else None,
        assertions=tuple(_assertion(item, mark) for item, mark in marked),
    )


def _item(entry: str | Entry, number: int, *, compat: bool) -> Item:
    if isinstance(entry, str):
        return Item(id=f"rubric-{number}", outcome=entry, required=compat)
    least = entry.min_score
    if least is None and entry.required_min_score is not None:
        least = entry.required_min_score / BEST
    required = least is not None or (compat and not entry.score_ranges)
    return Item(
        id=str(entry.id) or f"rubric-{number}",
        outcome=entry.outcome or entry.expected_outcome or entry.description,
        weight=entry.weight,
        required=required if entry.required is None else entry.required,
        least=1.0 if least is None else least,
        ranges=_ranges(entry.score_ranges),
    )


def _ranges(given: tuple[Range, ...] | Mapping[str, str]) -> tuple[tuple[float, float, str], ...]:
    if isinstance(given, tuple):
        return tuple((*one.score_range, one.outcome or one.expected_outcome) for one in given)
    try:
        starts = sorted((float(start), outcome) for start, outcome in given.items())
    except ValueError:
        raise Misfit(f"{list(given)!r} are no scores from 0 to 10.") from None
    ends = [start - 1 for start, _ in starts[1:]] + [BEST]
    return tuple((start, end, text) for (start, text), end in zip(starts, ends, strict=True))


def _assertion(item: Item, mark: Mark) -> Assertion:
    enough = item.least if item.required else (0.5 if item.ranges else 1.0)
    told = f" ({mark.share * BEST:g} of {BEST:g})" if item.ranges else ""
    return Assertion(
        text=f"{item.id}: {item.outcome}{told}",
        passed=reaches(mark.share, enough),
        evidence=mark.reason,
    )
