"""What does an agent that calls its models by itself say of what it took?

Nobody checks it: agents differ in what they count, and most tell no money. So it is an estimate,
and a turn of which nothing is told has an unknown cost.
"""

from decimal import Decimal

from goent.acp.messages import TurnUsage
from goent.acp.updates import UsageUpdate
from goent.domain.events import UsageReported
from goent.domain.types import Provider, Usage

CURRENCY = "USD"


class Spending:
    """From one report to the next. `resumed`: what the session cost before is not known here."""

    def __init__(self, provider: Provider, *, resumed: bool) -> None:
        self._provider = provider
        self._reported = None if resumed else Decimal(0)
        self._of_turn = False

    def begin(self) -> None:
        self._of_turn = False

    def heard(self, update: UsageUpdate) -> UsageReported | None:
        """A session's cost so far; what has come to it since the last word."""
        cost = update.cost
        if cost is None or cost.currency != CURRENCY or not 0 <= cost.amount < float("inf"):
            return None
        total = Decimal(str(cost.amount))
        before, self._reported = self._reported, total
        if before is None or total == before:
            self._of_turn = self._of_turn or before is not None
            return None
        self._of_turn = True
        # A session that goes on in another process may count anew.
        return self._report(Usage(), total - before if total > before else total)

    def ended(self, told: TurnUsage | None) -> UsageReported | None:
        """The turn is over: its tokens; and its cost, unless it was told on the way."""
        usage = _usage(told) if told else Usage()
        if self._of_turn:
            return self._report(usage, Decimal(0)) if usage.total else None
        price = self._provider.price
        return self._report(usage, price.cost(usage) if price and usage.total else None)

    def _report(self, usage: Usage, cost: Decimal | None) -> UsageReported:
        return UsageReported(
            provider=self._provider.name,
            model=self._provider.model,
            usage=usage,
            cost_usd=cost,
            source="estimate",
        )


def _usage(told: TurnUsage) -> Usage:
    """Some count cached and thought tokens within input and output, some beside them: as told."""
    return Usage(
        input=max(0, told.input_tokens),
        output=max(0, told.output_tokens),
        cache_read=max(0, told.cached_read_tokens or 0),
        cache_write=max(0, told.cached_write_tokens or 0),
        reasoning=max(0, told.thought_tokens or 0),
    )
