"""Who wins, of several workers that were given the same task?"""

from collections.abc import Sequence
from decimal import Decimal

from goent.core.swarms.outcomes import Outcome

ENDLESS = Decimal("Infinity")


def winner(outcomes: Sequence[Outcome], *, provable: bool, all_in: bool) -> Outcome | None:
    """The first one that is proved; of several, the least change, cost and time.

    `provable`: there are commands that prove it. Without any, a claim is all there is, and all
    must be in before claims are compared; one that changed nothing comes last.
    """
    done = [each for each in outcomes if each.standing == "completed"]
    if provable:
        done = [each for each in done if each.evidence == "verified"]
    elif not all_in:
        return None
    return min(done, key=_rank, default=None)


def _rank(each: Outcome) -> tuple[bool, int, Decimal, float]:
    cost = ENDLESS if each.cost_usd is None else each.cost_usd
    return each.lines == 0, each.lines, cost, each.seconds
