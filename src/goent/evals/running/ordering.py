"""Which cases have to come along, and which have to come first?"""

from collections.abc import Collection, Sequence
from graphlib import TopologicalSorter

from goent.evals.suites import Case


def with_needed(chosen: Collection[str], cases: Sequence[Case]) -> frozenset[str]:
    """The ids that were chosen of a suite, and those of the cases that they need, theirs, and so on."""
    needs = {case.id: case.needs for case in cases}
    found: set[str] = set()
    waiting = list(chosen)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += needs.get(name, ())
    return frozenset(found)


def depths(cases: Sequence[Case]) -> dict[tuple[str, str], int]:
    """By suite and id: 0 for a case that needs no other, else one more than the deepest that it needs."""
    needs = {case.id: case.needs for case in cases}
    found: dict[str, int] = {}
    for name in TopologicalSorter(needs).static_order():
        found[name] = 1 + max((found[need] for need in needs.get(name, ())), default=-1)
    return {(case.suite, case.id): found[case.id] for case in cases}
