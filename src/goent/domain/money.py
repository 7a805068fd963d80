"""Model calls as they are counted and charged: records, budgets, and the ports of the ledger."""

from collections.abc import Awaitable, Callable, Sequence
from decimal import Decimal
from typing import Literal, Protocol

from goent.domain.types import BudgetScope, Price, Provider, RateLimits, Usage, Value


class Calibrations(Protocol):
    """How each model's own token count differs from go-ent's estimate."""

    def corrected(self, backend: str, model: str, estimated: int) -> int:
        """The estimate, corrected by earlier calls; unchanged while there are too few."""
        ...

    async def learn(self, backend: str, model: str, *, estimated: int, actual: int) -> None:
        """Learn from a finished call; `actual` is its whole prompt, including cached tokens."""
        ...


class StartedCall(Value, frozen=True, kw_only=True):
    """One model call that is about to leave the gateway."""

    id: str
    worker: str
    backend: str
    model: str


class CallSize(Value, frozen=True, kw_only=True):
    """The expected tokens of a call; reasoning counts as output."""

    input: int
    output: int


CallSizer = Callable[[], Awaitable[CallSize]]


class CallDelay(Value, frozen=True, kw_only=True):
    """Why a call cannot be sent yet, and after how many seconds to retry."""

    reason: str
    wait_s: float


class FinishedCall(Value, frozen=True, kw_only=True):
    """One finished model call.

    `usage` is None if the provider reported none; `is_final` is False if a stream was cut and may have
    reported a part of it. `billable` is False if the provider refused the call or never got it.
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
    """Observes model calls, and may delay or refuse them."""

    async def call_started(self, call: StartedCall, size: CallSizer) -> CallDelay | None:
        """None if the call may be sent now. `size` takes time to compute.

        Raises `BudgetSpent` if it may not be sent at all.
        """
        ...

    async def call_finished(self, call: FinishedCall) -> None: ...

    async def provider_changed(self, move: ProviderMove) -> None: ...

    async def notice(self, worker: str, text: str) -> None:
        """Report something that the worker's program does not show."""
        ...


class BudgetLimit(Value, frozen=True, kw_only=True):
    """A budget for one worker, a group of workers, a day or a project.

    `key` is the worker, the group, the day (UTC, as `2026-03-01`) or the project's folder. A hard limit is
    exceeded by the calls in flight at most; a soft one only warns. `setting` is where the user changes it.
    """

    scope: BudgetScope
    key: str
    usd: Decimal
    hard: bool = False
    setting: str = ""

    @property
    def name(self) -> str:
        """The limit in words."""
        of = "the project" if self.scope == "project" else f"{self.scope} {self.key}"
        return f"the budget of {of}, {dollars(self.usd)}"


class Spender(Value, frozen=True, kw_only=True):
    """A worker that spends money, perhaps as part of a group."""

    project: str
    worker: str
    group: str = ""

    def counts_for(self, limit: BudgetLimit, project: str) -> bool:
        """Whether its costs count for a limit; a task's limit is for a worker of `project`."""
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
    """A limit, what was spent of it, and what is reserved for work that has begun.

    `in_flight_usd` is the part of `held_usd` for calls in flight, which are settled soon. `unknown_calls`
    had no known price, and are in neither sum.
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
        """Whether the amount fits; a free call always does."""
        return not usd or usd <= self.left_usd

    def may_soon_have_room_for(self, usd: Decimal) -> bool:
        """Whether the amount would fit if the calls in flight cost nothing."""
        return usd <= self.left_usd + self.in_flight_usd

    def share_after(self, usd: Decimal) -> Decimal:
        """The share of the limit that is used with this amount; 1 is all of it."""
        taken = self.spent_usd + self.held_usd + usd
        return taken / self.limit.usd if self.limit.usd else Decimal("Infinity" if taken else 0)

    @property
    def figures(self) -> str:
        return f"{dollars(self.spent_usd)} spent, {dollars(self.held_usd)} held for work under way"


class CallHold(Value, frozen=True, kw_only=True):
    """What one call may cost, and the limits that apply to it.

    `usd` is None if no price is known. `pace` are the provider's rate limits for the model.
    """

    usd: Decimal | None = None
    usage: Usage = Usage()
    limits: tuple[BudgetLimit, ...] = ()
    pace: RateLimits = RateLimits()


class Admission(Value, frozen=True, kw_only=True):
    """Whether a call or a worker is admitted.

    `standings` are the limits without it. `exceeded` is the hard limit that it would exceed; with `wait_s`,
    only because of calls in flight. `reason` names anything else that it has to wait for.
    """

    standings: tuple[BudgetStatus, ...] = ()
    exceeded: BudgetStatus | None = None
    wait_s: float = 0.0
    reason: str = ""

    @property
    def admitted(self) -> bool:
        return self.exceeded is None and not self.wait_s


def dollars(usd: Decimal) -> str:
    """An amount with two decimals, or for small amounts two significant digits."""
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
    """A row of a cost report. `cost_usd` is None if any call's price is unknown.

    `known_usd` is then the sum of the other calls, and `unknown_calls` the number of those left out.
    """

    key: str
    calls: int
    usage: Usage
    cost_usd: Decimal | None
    known_usd: Decimal = Decimal(0)
    unknown_calls: int = 0


class Ledger(Protocol):
    """The costs of this user, in all projects."""

    async def begin_call(
        self, call: str, entry: LedgerEntry, hold: CallHold | None = None
    ) -> Admission:
        """Admit a call and record it as in flight. Until it is settled it is in no report."""
        ...

    async def hold_back(
        self, spender: Spender, usd: Decimal, limits: Sequence[BudgetLimit]
    ) -> Admission:
        """Reserve the amount for a worker, if the hard limits have room for it."""
        ...

    async def release(self, spender: Spender) -> None:
        """Release the worker's reservation."""
        ...

    async def standings(self, limits: Sequence[BudgetLimit], project: str) -> list[BudgetStatus]:
        """The state of the limits; a task's limit is for a worker of the project."""
        ...

    async def settle_call(self, call: str, entry: LedgerEntry | None) -> None:
        """Record what a call cost; None if it cannot be charged."""
        ...

    async def settle_lost(self, project: str) -> list[LedgerEntry]:
        """Record the calls that a dead go-ent of the project left in flight, with unknown cost."""
        ...

    async def add(self, entry: LedgerEntry) -> None:
        """Record a call whose start was not recorded."""
        ...

    async def report(
        self, *, by: Literal["provider", "model", "worker", "day"], project: str | None = None
    ) -> list[CostRow]: ...


class Prices(Protocol):
    """What providers charge, in USD; None if unknown, which is not 0."""

    async def cost(self, provider: Provider, usage: Usage, at: float) -> Decimal | None:
        """The cost of one call that ended at that time."""
        ...

    async def price(self, provider: Provider, at: float) -> Price | None:
        """The price per million tokens, simplified to one figure each."""
        ...
