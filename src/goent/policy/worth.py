"""Who of several is likely to get a task done at the least expense, as far as outcomes tell?

The expense of a success is the money and the time of all tries that it takes, and the trouble with
those that fail. One provider goes before another only where it would be the less expensive even if
the outcomes had flattered it and wronged the other.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final

from goent.domain.forecasts import Forecast
from goent.domain.types import Provider, Value
from goent.policy.facts import Facts
from goent.policy.learning import Outlook

HOUR_USD: Final = 2.0  # somebody waits, beside other work
FAILURE_USD: Final = 0.10  # somebody reads what went wrong, and hands the task over again
TWO: Final = 2  # with fewer there is nothing to compare
TOLD: Final = 4  # providers whose figures are told
NOTHING: Final = Forecast(p50_usd=None, p90_usd=None, source="estimate")


class Expense(Value, frozen=True, kw_only=True):
    """USD a success: probably, and if outcomes have wronged or flattered the provider."""

    likely: float
    best: float
    worst: float


class Worth:
    """The expenses of one task, at the providers that can take it."""

    def __init__(self, providers: Sequence[Provider], facts: Facts) -> None:
        self._providers = providers
        self._facts = facts

    @cached_property
    def expenses(self) -> Mapping[str, Expense]:
        """Of those with enough outcomes. What is not known of one of them counts for none."""
        known = dict(self._known())
        forecasts = {name: self._facts.forecasts.get(name, NOTHING) for name in known}
        priced = all(forecast.p50_usd is not None for forecast in forecasts.values())
        timed = all(forecast.seconds is not None for forecast in forecasts.values())
        found: dict[str, Expense] = {}
        for name, forecast in forecasts.items():
            money = float(forecast.p50_usd or 0) if priced else 0.0
            waiting = (forecast.seconds or 0.0) * HOUR_USD / 3600 if timed else 0.0
            found[name] = _expense(known[name], money + waiting)
        return found

    def arranged(self, order: Sequence[Provider]) -> tuple[Provider, ...]:
        """The order as it was, except that who is clearly better takes the place of who is worse."""
        expenses = self.expenses
        able = [p for p in order if p.name in expenses]
        if len(able) < TWO:
            return tuple(order)
        falling = sorted(able, key=lambda p: expenses[p.name].worst, reverse=True)
        placed: dict[str, Provider] = {}
        for provider in order:
            own = expenses.get(provider.name)
            # Whoever is clearly better than one of these is so than this one too: it comes before.
            while own and falling and expenses[falling[-1].name].worst < own.best:
                better = falling.pop()
                placed.setdefault(better.name, better)
            placed.setdefault(provider.name, provider)
        return tuple(placed.values())

    def compared(self, before: Sequence[Provider], after: Sequence[Provider]) -> str:
        """What outcomes say about them, and what that changed; empty where there are none."""
        told = [p for p in after if p.name in self._facts.outlooks]
        if not told:
            return ""
        figures = "; ".join(self._figures(p.name) for p in told[:TOLD])
        more = f"; and {len(told) - TOLD} more" if len(told) > TOLD else ""
        return f"{self._change(before, after)}: {figures}{more}"

    def _known(self) -> Iterator[tuple[str, Outlook]]:
        for provider in self._providers:
            outlook = self._facts.outlooks.get(provider.name)
            if outlook and outlook.enough:
                yield provider.name, outlook

    def _change(self, before: Sequence[Provider], after: Sequence[Provider]) -> str:
        if before[0].name != after[0].name:
            return f"{after[0].name} rather than {before[0].name}"
        if tuple(before) != tuple(after):
            return f"{after[0].name} stays, others change places"
        if len(before) < TWO:
            return "there is nobody to choose from"
        few = sum(p.name in self.expenses for p in before) < TWO
        return "too few outcomes to change anything" if few else "no clear difference"

    def _figures(self, name: str) -> str:
        outlook = self._facts.outlooks[name]
        said = f"{name} {outlook.good} of {outlook.seen} good"
        if outlook.graded:
            said += f", {outlook.graded} of them in evaluations"
        if name not in self.expenses:
            return f"{said}, too few of the type"
        chance = f"chance {outlook.low:.0%} to {outlook.high:.0%}"
        return f"{said} ({chance}, a success for about ${self.expenses[name].likely:.2f})"


def _expense(outlook: Outlook, once: float) -> Expense:
    return Expense(
        likely=_of_success(once, outlook.chance),
        best=_of_success(once, outlook.high),
        worst=_of_success(once, outlook.low),
    )


def _of_success(once: float, chance: float) -> float:
    return (once + FAILURE_USD * (1 - chance)) / chance
