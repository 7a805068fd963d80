"""Which cases have to wait for others, and can that come to an end?"""

from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from goent.config.fields import Mention
from goent.config.tree import Problems, suggestion
from goent.evals.suites import Case
from goent.evals.suites import Place as Written


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
    try:
        TopologicalSorter({case.id: case.needs for case in cases}).prepare()
    except CycleError as error:
        told: list[str] = error.args[1]
        circle = told[::-1]  # each needs the next
        first = next(one for one in mentioned[circle[0]] if one.name == circle[1])
        problems.note(first.place, f"waits for itself: {' → '.join(circle)}; take one of them away")
