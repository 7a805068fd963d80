"""Who counts an attempt's model calls, and what came of it?"""

from contextlib import AbstractContextManager
from decimal import Decimal
from typing import Protocol

from goent.domain.events import UsageReported
from goent.domain.ports import Gate
from goent.domain.types import Provider, Usage
from goent.evals.traces import TokenUsage


class Bill:
    """What one attempt has been charged with so far. A cost is unknown as soon as one call's is."""

    def __init__(self) -> None:
        self.calls = 0
        self.usage = Usage()
        self.cost_usd: Decimal | None = Decimal(0)

    def add(self, report: UsageReported) -> None:
        self.calls += report.calls
        self.usage += report.usage
        if self.cost_usd is not None and report.cost_usd is not None:
            self.cost_usd += report.cost_usd
        else:
            self.cost_usd = None

    @property
    def usd(self) -> float | None:
        """None if nothing was charged, or nobody knows what it costs."""
        return None if self.cost_usd is None or not self.calls else float(self.cost_usd)

    @property
    def tokens(self) -> TokenUsage:
        """As suites count them."""
        return TokenUsage(
            input=self.usage.input + self.usage.cache_write,
            output=self.usage.output + self.usage.reasoning,
            cached=self.usage.cache_read,
            reasoning=self.usage.reasoning,
        )


class Accounts(Protocol):
    """The ledger and the budgets, as an attempt sees them. `payer` is the attempt's name there."""

    @property
    def gate(self) -> Gate:
        """Where calls to models go in whose keys go-ent holds."""
        ...

    def charging(self, payer: str) -> AbstractContextManager[Bill]:
        """What passes the gate in the payer's name is charged to the bill meanwhile."""
        ...

    async def settled(self, payer: str) -> None:
        """Return when the payer's calls have been counted; bounded."""
        ...

    async def allow_direct(self, payer: str, provider: Provider) -> None:
        """Calls of the payer will not pass the gate. Raises `BudgetExceeded` if a budget forbids that."""
        ...

    async def report_direct(self, payer: str, provider: Provider, report: UsageReported) -> None:
        """What calls took that did not pass the gate."""
        ...
