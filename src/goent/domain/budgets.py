"""How much may be spent, on what, and how much of it is left?"""

from decimal import Decimal
from typing import Literal

from goent.domain.types import Value

Scope = Literal["task", "group", "day", "project"]


class Limit(Value, frozen=True, kw_only=True):
    """An amount for one worker, a group of them, a day of the user's, or a project.

    `key` is the worker, the group, the day (UTC, as `2026-03-01`) or the project's folder. A hard
    one is never passed by more than the calls under way; a soft one warns.
    """

    scope: Scope
    key: str
    usd: Decimal
    hard: bool = False


class Standing(Value, frozen=True, kw_only=True):
    """A limit, what was spent of it, and what is held back for work that has begun.

    `unknown_calls` of it had no known price, and are in neither sum.
    """

    limit: Limit
    spent_usd: Decimal = Decimal(0)
    held_usd: Decimal = Decimal(0)
    unknown_calls: int = 0

    @property
    def left_usd(self) -> Decimal:
        return self.limit.usd - self.spent_usd - self.held_usd
