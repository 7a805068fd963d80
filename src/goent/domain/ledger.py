"""What was spent, by whom, and what is charged?"""

from collections.abc import Sequence
from decimal import Decimal
from typing import Literal, Protocol

from goent.domain.budgets import Admission, Hold, Limit, Spender, Standing
from goent.domain.types import Price, Provider, Usage, Value


class LedgerEntry(Value, frozen=True, kw_only=True):
    """One metered model call, as the user's ledger keeps it."""

    at: float
    project: str
    worker: str
    provider: str
    backend: str
    model: str
    usage: Usage
    cost_usd: Decimal | None
    source: str
    status: int = 200
    group: str = ""

    @property
    def spender(self) -> Spender:
        return Spender(project=self.project, worker=self.worker, group=self.group)


class CostRow(Value, frozen=True, kw_only=True):
    """A line of a cost report. `cost_usd` is None as soon as one call's price is unknown.

    `known_usd` is then the sum of the others, and `unknown_calls` says how many are missing in it.
    """

    key: str
    calls: int
    usage: Usage
    cost_usd: Decimal | None
    known_usd: Decimal = Decimal(0)
    unknown_calls: int = 0


class Ledger(Protocol):
    """What was spent, by this user, in all projects."""

    async def begin(self, call: str, entry: LedgerEntry, hold: Hold | None = None) -> Admission:
        """A call wants to go out. Until it is settled it is in no report."""
        ...

    async def hold_back(self, spender: Spender, usd: Decimal, limits: Sequence[Limit]) -> Admission:
        """Hold the amount back for a worker, if the hard limits have room for it."""
        ...

    async def release(self, spender: Spender) -> None:
        """What was held back for the worker is free again."""
        ...

    async def standings(self, limits: Sequence[Limit], project: str) -> list[Standing]:
        """How the limits stand; that of a task means a worker of the project."""
        ...

    async def settle(self, call: str, entry: LedgerEntry | None) -> None:
        """The call is over: what it took, or None if nothing can be owed for it."""
        ...

    async def lost(self, project: str) -> list[LedgerEntry]:
        """Enter what a dead go-ent of the project never settled, as calls of unknown cost."""
        ...

    async def add(self, entry: LedgerEntry) -> None:
        """Enter a call that nobody saw begin."""
        ...

    async def report(
        self, *, by: Literal["provider", "model", "worker", "day"], project: str | None = None
    ) -> list[CostRow]: ...


class Prices(Protocol):
    """What providers charge, in USD. None where nobody says: unknown is not 0."""

    async def cost(self, provider: Provider, usage: Usage, at: float) -> Decimal | None:
        """Of one call that ended at that time."""
        ...

    async def price(self, provider: Provider, at: float) -> Price | None:
        """Per million tokens, as far as one figure each can tell."""
        ...
