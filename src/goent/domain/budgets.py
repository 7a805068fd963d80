"""How much may be spent, on what, how much of it is left, and may this call go out now?"""

from decimal import Decimal
from typing import Literal

from goent.domain.types import RateLimits, Usage, Value

Scope = Literal["task", "group", "day", "project"]


class Limit(Value, frozen=True, kw_only=True):
    """An amount for one worker, a group of them, a day of the user's, or a project.

    `key` is the worker, the group, the day (UTC, as `2026-03-01`) or the project's folder. A hard
    one is never passed by more than the calls under way; a soft one warns. `setting` is what the
    user would change to have another one.
    """

    scope: Scope
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

    def counts_for(self, limit: Limit, project: str) -> bool:
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


class Standing(Value, frozen=True, kw_only=True):
    """A limit, what was spent of it, and what is held back for work that has begun.

    `in_flight_usd` is the part of what is held that calls under way may take: it is settled soon.
    `unknown_calls` had no known price, and are in neither sum.
    """

    limit: Limit
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

    def may_have_room_soon_for(self, usd: Decimal) -> bool:
        """There would be room if the calls under way turned out to cost nothing."""
        return usd <= self.left_usd + self.in_flight_usd

    def after(self, usd: Decimal) -> Decimal:
        """The share of the limit that is taken when this is spent too; 1 is all of it."""
        taken = self.spent_usd + self.held_usd + usd
        return taken / self.limit.usd if self.limit.usd else Decimal("Infinity" if taken else 0)

    @property
    def figures(self) -> str:
        return f"{dollars(self.spent_usd)} spent, {dollars(self.held_usd)} held for work under way"


class Hold(Value, frozen=True, kw_only=True):
    """What one call may take, and the limits under which it may go out.

    `usd` is None where no price is known. `pace` is what the provider allows of its model.
    """

    usd: Decimal | None = None
    usage: Usage = Usage()
    limits: tuple[Limit, ...] = ()
    pace: RateLimits = RateLimits()


class Admission(Value, frozen=True, kw_only=True):
    """Whether a call, or a worker, may go on: it may if there is nothing to wait for.

    `standings` are the limits as they were without it. `passed` is the hard one that it would pass;
    with `wait_s` only because of calls that are under way. `reason` names any other thing that it
    has to wait for.
    """

    standings: tuple[Standing, ...] = ()
    passed: Standing | None = None
    wait_s: float = 0.0
    reason: str = ""

    @property
    def admitted(self) -> bool:
        return self.passed is None and not self.wait_s


def dollars(usd: Decimal) -> str:
    """Two digits, or as many as the first two that tell something."""
    digits = 2 if not usd or abs(usd) >= 1 else max(2, 1 - usd.adjusted())
    whole, _, part = f"{usd:.{digits}f}".partition(".")
    return f"${whole}.{part.rstrip('0').ljust(2, '0')}"
