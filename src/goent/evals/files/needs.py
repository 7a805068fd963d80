"""Which cases have to wait for others, and can that come to an end?"""

from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Final

from goent.config.fields import Mention
from goent.config.tree import Problems, suggestion
from goent.evals.suites import Case
from goent.evals.suites import Place as Written

MOST: Final = 20  # circles that are told at once


def check_needs(
    cases: Sequence[Case], needs: Mapping[Written, tuple[Mention, ...]], problems: Problems
) -> None:
    """Ids that no case of the suite has, and cases that wait for themselves."""
    known = {case.id: case for case in cases}
    mentioned = {case.id: needs.get(case.place, ()) for case in cases}
    for case in cases:
        for mention in mentioned[case.id]:
            if mention.name not in known:
                others = tuple(name for name in known if name != case.id)
                remedy = suggestion(mention.name, others) if others else "take it away"
                problems.note(
                    mention.place, f"no case of this suite has the id {mention.name!r}; {remedy}"
                )
    for circle in _circles({case.id: case.needs for case in cases}):
        first = next(one for one in mentioned[circle[0]] if one.name == circle[1])
        problems.note(first.place, f"waits for itself: {' → '.join(circle)}; take one of them away")


def _circles(needs: dict[str, tuple[str, ...]]) -> Iterator[list[str]]:
    """Cases of which each needs the next; no case is in two of them."""
    for _ in range(MOST):
        try:
            TopologicalSorter(needs).prepare()
        except CycleError as error:
            told: list[str] = error.args[1]
            yield told[::-1]
            needs = {name: of for name, of in needs.items() if name not in told}
        else:
            return
