"""Model calls as they are counted and charged: records, budgets, and the ports of the ledger."""

from collections.abc import Awaitable, Callable, Sequence
from decimal import Decimal
from typing import Literal, Protocol

from goent.domain.types import BudgetScope, Price, Provider, RateLimits, Usage, Value


class Calibrations(Protocol):
    """How each model's own count of tokens differs from our estimate."""

    def corrected(self, backend: str, model: str, estimated: int) -> int:
        """The estimate, set right by what earlier calls told; as it is while there are too few."""
        ...

    async def learn(self, backend: str, model: str, *, estimated: int, actual: int) -> None:
        """A call came back: `actual` is its whole prompt, cached tokens included."""
        ...


class StartedCall(Value, frozen=True, kw_only=True):
    """One model call that is about to leave the gateway."""

    id: str
    worker: str
    backend: str
    model: str


class CallSize(Value, frozen=True, kw_only=True):
    """How many tokens a call is likely to take; reasoning is output."""

    input: int
    output: int


CallSizer = Callable[[], Awaitable[CallSize]]


class CallDelay(Value, frozen=True, kw_only=True):
    """Why a call cannot go out yet, and in how many seconds to ask again."""

    reason: str
    wait_s: float


class FinishedCall(Value, frozen=True, kw_only=True):
    """One model call that is over.

    `usage` is None if the provider reported none; it `is_final` unless the stream was cut off.
    `billable` is False if the provider cannot bill the call: it refused it, or never got it.
    """

    id: str
    worker: str
    session: str
    backend: str
    model: str
    status: int
    usage: Usage | None
    billable: bool
    seconds: float
    is_final: bool = True
    error: str = ""


class ProviderMove(Value, frozen=True, kw_only=True):
    """A worker's model calls go to another provider from here on."""

    worker: str
    from_provider: str
    to_provider: str
    reason: str


class CallObserver(Protocol):
    """Who is told what becomes of model calls."""

    async def call_started(self, call: StartedCall, size: CallSizer) -> CallDelay | None:
        """The call may go out, unless something hinders it now. `size` costs time to find out.

        Raises `BudgetSpent` if it may not go out at all.
        """
        ...

    async def call_finished(self, call: FinishedCall) -> None: ...

    async def provider_changed(self, move: ProviderMove) -> None: ...

    async def notice(self, worker: str, text: str) -> None:
        """Something that the worker's program does not see and its owner should."""
        ...


class BudgetLimit(Value, frozen=True, kw_only=True):
    """An amount for one worker, a group of them, a day of the user's, or a project.

    `key` is the worker, the group, the day (UTC, as `2026-03-01`) or the project's folder. A hard
    one is never passed by more than the calls under way; a soft one warns. `setting` is what the
    user would change to have another one.
    """

    scope: BudgetScope
    key: str
    usd: Decimal
    hard: bool = False
    setting: str = ""

    @property
    def name(self) -> str:
        """As people are told of it."""
        of = "the project" if self.scope == "project" else f"{self.scope} {self.key}"
        return f"the budget of {of}, {dollars(self.usd)}"


class Spender(Value, frozen=True, kw_only=True):
    """Who spends: a worker of a project, perhaps one of a group."""

    project: str
    worker: str
    group: str = ""

    def counts_for(self, limit: BudgetLimit, project: str) -> bool:
        """`project` is the one whose worker the limit of a task means."""
        match limit.scope:
            case "task":
                return (self.project, self.worker) == (project, limit.key)
            case "group":
                return self.group == limit.key
            case "project":
                return self.project == limit.key
            case "day":
                return True


class BudgetStatus(Value, frozen=True, kw_only=True):
    """A limit, what was spent of it, and what is held back for work that has begun.

    `in_flight_usd` is the part of what is held that calls under way may take: it is settled soon.
    `unknown_calls` had no known price, and are in neither sum.
    """

    limit: BudgetLimit
    spent_usd: Decimal = Decimal(0)
    held_usd: Decimal = Decimal(0)
    in_flight_usd: Decimal = Decimal(0)
    unknown_calls: int = 0

    @property
    def left_usd(self) -> Decimal:
        return self.limit.usd - self.spent_usd - self.held_usd

    def has_room_for(self, usd: Decimal) -> bool:
        """What costs nothing can always be had."""
        return not usd or usd <= self.left_usd

    def may_soon_have_room_for(self, usd: Decimal) -> bool:
        """There would be room if the calls under way turned out to cost nothing."""
        return usd <= self.left_usd + self.in_flight_usd

    def share_after(self, usd: Decimal) -> Decimal:
        """The share of the limit that is taken when this is spent too; 1 is all of it."""
        taken = self.spent_usd + self.held_usd + usd
        return taken / self.limit.usd if self.limit.usd else Decimal("Infinity" if taken else 0)

    @property
    def figures(self) -> str:
        return f"{dollars(self.spent_usd)} spent, {dollars(self.held_usd)} held for work under way"


class CallHold(Value, frozen=True, kw_only=True):
    """What one call may take, and the limits under which it may go out.

    `usd` is None where no price is known. `pace` is what the provider allows of its model.
    """

    usd: Decimal | None = None
    usage: Usage = Usage()
    limits: tuple[BudgetLimit, ...] = ()
    pace: RateLimits = RateLimits()


class Admission(Value, frozen=True, kw_only=True):
    """Whether a call, or a worker, may go on: it may if there is nothing to wait for.

    `standings` are the limits as they were without it. `exceeded` is the hard one that it would
    exceed, with `wait_s` only because of calls in progress. `reason` names anything else that it
    has to wait for.
    """

    standings: tuple[BudgetStatus, ...] = ()
    exceeded: BudgetStatus | None = None
    wait_s: float = 0.0
    reason: str = ""

    @property
    def admitted(self) -> bool:
        return self.exceeded is None and not self.wait_s


def dollars(usd: Decimal) -> str:
    """Two digits, or as many as the first two that tell something."""
    digits = 2 if not usd or abs(usd) >= 1 else max(2, 1 - usd.adjusted())
    whole, _, part = f"{usd:.{digits}f}".partition(".")
    return f"${whole}.{part.rstrip('0').ljust(2, '0')}"


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

    async def begin_call(
        self, call: str, entry: LedgerEntry, hold: CallHold | None = None
    ) -> Admission:
        """A call wants to go out. Until it is settled it is in no report."""
        ...

    async def hold_back(
        self, spender: Spender, usd: Decimal, limits: Sequence[BudgetLimit]
    ) -> Admission:
        """Hold the amount back for a worker, if the hard limits have room for it."""
        ...

    async def release(self, spender: Spender) -> None:
        """What was held back for the worker is free again."""
        ...

    async def standings(self, limits: Sequence[BudgetLimit], project: str) -> list[BudgetStatus]:
        """How the limits stand; that of a task means a worker of the project."""
        ...

    async def settle_call(self, call: str, entry: LedgerEntry | None) -> None:
        """The call is over: what it took, or None if nothing can be owed for it."""
        ...

    async def settle_lost(self, project: str) -> list[LedgerEntry]:
        """Enter what a dead go-ent of the project never settled, as calls of unknown cost."""
        ...

    async def add(self, entry: LedgerEntry) -> None:
        """Enter a call that nobody saw begin."""
        ...

    async def report(
        self, *, by: Literal["provider", "model", "worker", "day"], project: str | None = None
    ) -> list[CostRow]: ...


class Prices(Protocol):
    """What providers charge, in USD. None means unknown, which is not 0."""

    async def cost(self, provider: Provider, usage: Usage, at: float) -> Decimal | None:
        """The price of one call that ended at that time."""
        ...

    async def price(self, provider: Provider, at: float) -> Price | None:
        """The price per million tokens, for people to compare."""
        ...
