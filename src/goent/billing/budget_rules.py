"""Which budget limits hold for a worker, when one is nearly spent, and what would cost less."""

from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Literal

from goent.domain.money import BudgetLimit, BudgetStatus, dollars
from goent.domain.settings import BudgetSettings
from goent.domain.types import BudgetScope, Value

NEAR_SHARE = Decimal("0.8")
FULL_SHARE = Decimal(1)

BudgetLevel = Literal["near", "passed"]


class RouteCost(Value, frozen=True, kw_only=True):
    """The cost of the same work at another provider."""

    provider: str
    usd: Decimal


def day_of(at: float) -> str:
    """The day of a budget. Days are UTC, as in the reports."""
    return datetime.fromtimestamp(at, UTC).date().isoformat()


def limits_of_all(budget: BudgetSettings, *, project: str, at: float) -> tuple[BudgetLimit, ...]:
    """The limits that no single worker has."""
    return (
        *_limit("day", day_of(at), budget.per_day, "budget.per_day", hard=budget.hard),
        *_limit("project", project, budget.per_project, "budget.per_project", hard=budget.hard),
    )


def limits_of_worker(
    budget: BudgetSettings,
    worker: str,
    asked: Decimal | None,
    group: str,
    group_usd: Decimal | None,
) -> tuple[BudgetLimit, ...]:
    """The worker's own limits: those of its request are hard, the configured one is if set so."""
    return (
        *_limit("task", worker, asked, "budget_usd", hard=True),
        *_limit("task", worker, budget.per_task, "budget.per_task", hard=budget.hard),
        *_limit("group", group, group_usd if group else None, "budget_usd of the group", hard=True),
    )


def _limit(
    scope: BudgetScope, key: str, usd: Decimal | None, setting: str, *, hard: bool
) -> tuple[BudgetLimit, ...]:
    if usd is None:
        return ()
    return (BudgetLimit(scope=scope, key=key, usd=usd, hard=hard, setting=setting),)


def budget_level(standing: BudgetStatus, usd: Decimal) -> BudgetLevel | None:
    """How close the limit would be after spending that much more."""
    share = standing.share_after(usd)
    if share > FULL_SHARE:
        return "passed"
    return "near" if share >= NEAR_SHARE else None


def budget_warning(standing: BudgetStatus, usd: Decimal, found: BudgetLevel, what: str) -> str:
    """A warning that `what`, at an estimated `usd`, nears or exceeds a limit."""
    verb = "would be exceeded" if found == "passed" else "is nearly used up"
    return (
        f"{_named(standing)}, {verb}: {standing.figures}, {what} is likely to cost {dollars(usd)}"
    )


def tight_budget_warning(standing: BudgetStatus, usd: Decimal, what: str) -> str:
    """A warning for a worker that starts although its estimate exceeds a hard limit."""
    return (
        f"{_named(standing)}, may not be enough: {standing.figures}, {what} is estimated at "
        f"{dollars(usd)}. It starts anyway, because that is only an estimate, and stops at the limit"
    )


def budget_refusal(standing: BudgetStatus, usd: Decimal, what: str) -> str:
    return (
        f"{_named(standing)}, has no room for {what}: {standing.figures}, "
        f"and it is likely to cost {dollars(usd)}"
    )


def _named(standing: BudgetStatus) -> str:
    return f"{standing.limit.name} ({standing.limit.setting})"


def budget_advice(others: Iterable[RouteCost], usd: Decimal, left: Decimal, setting: str) -> str:
    """A cheaper provider, if there is one, and what else can be done."""
    cheaper = sorted((o for o in others if o.usd < usd), key=lambda o: (o.usd, o.provider))
    if not cheaper:
        return f"no other provider is known to be cheaper; raise {setting}, or ask for less"
    best = cheaper[0]
    if best.usd <= left:
        return f"provider {best.provider!r} would fit, at about {dollars(best.usd)}; or raise {setting}"
    return (
        f"the cheapest route, provider {best.provider!r}, costs about {dollars(best.usd)}, which is also "
        f"more than is left: raise {setting}, or ask for less"
    )
