"""Says which limits hold for a worker, when one is nearly spent, and who would cost less."""

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
    """What the same work would cost at another provider."""

    provider: str
    usd: Decimal


def day_of(at: float) -> str:
    """The day of a budget. Days are UTC, as in the reports."""
    return datetime.fromtimestamp(at, UTC).date().isoformat()


def limits_of_all(budget: BudgetSettings, *, project: str, at: float) -> tuple[BudgetLimit, ...]:
    """The limits that no single worker has."""
    found: tuple[tuple[BudgetScope, str, Decimal | None, str], ...] = (
        ("day", day_of(at), budget.per_day, "per_day"),
        ("project", project, budget.per_project, "per_project"),
    )
    return tuple(
        BudgetLimit(scope=scope, key=key, usd=usd, hard=budget.hard, setting=f"budget.{setting}")
        for scope, key, usd, setting in found
        if usd is not None
    )


def limits_of_worker(
    budget: BudgetSettings,
    worker: str,
    asked: Decimal | None,
    group: str,
    group_usd: Decimal | None,
) -> tuple[BudgetLimit, ...]:
    """What somebody asked for is meant: it is hard. What a file gives is as hard as that says."""
    limits: list[BudgetLimit] = []
    if asked is not None:
        limits.append(
            BudgetLimit(scope="task", key=worker, usd=asked, hard=True, setting="budget_usd")
        )
    if budget.per_task is not None:
        limits.append(
            BudgetLimit(
                scope="task",
                key=worker,
                usd=budget.per_task,
                hard=budget.hard,
                setting="budget.per_task",
            )
        )
    if group and group_usd is not None:
        limits.append(
            BudgetLimit(
                scope="group",
                key=group,
                usd=group_usd,
                hard=True,
                setting="budget_usd of the group",
            )
        )
    return tuple(limits)


def budget_level(standing: BudgetStatus, usd: Decimal) -> BudgetLevel | None:
    """How far the limit would be used with that much more."""
    share = standing.share_after(usd)
    if share > FULL_SHARE:
        return "passed"
    return "near" if share >= NEAR_SHARE else None


def budget_warning(standing: BudgetStatus, usd: Decimal, found: BudgetLevel, what: str) -> str:
    """`what` is likely to cost that much."""
    verb = "would be passed" if found == "passed" else "is nearly used up"
    return (
        f"{standing.limit.name} ({standing.limit.setting}), {verb}: {standing.figures}, "
        f"{what} is likely to cost {dollars(usd)}"
    )


def tight_budget_warning(standing: BudgetStatus, usd: Decimal, what: str) -> str:
    """A hard limit that the worker is let try, because the amount is a guess."""
    return (
        f"{standing.limit.name} ({standing.limit.setting}), may not be enough: {standing.figures}, {what} "
        f"is estimated at {dollars(usd)}. It starts all the same, because that is only an estimate, and stops at the limit"
    )


def budget_refusal(standing: BudgetStatus, usd: Decimal, what: str) -> str:
    return (
        f"{standing.limit.name} ({standing.limit.setting}), has no room for {what}: "
        f"{standing.figures}, and it is likely to cost {dollars(usd)}"
    )


def budget_advice(others: Iterable[RouteCost], usd: Decimal, left: Decimal, setting: str) -> str:
    """Somebody cheaper, if there is one; what else can be done."""
    cheaper = sorted((o for o in others if o.usd < usd), key=lambda o: (o.usd, o.provider))
    if not cheaper:
        return f"no other provider is known to be cheaper; raise {setting}, or ask for less"
    best = cheaper[0]
    if best.usd <= left:
        return f"provider {best.provider!r} would fit, at about {dollars(best.usd)}; or raise {setting}"
    return (
        f"the cheapest route, provider {best.provider!r}, costs about {dollars(best.usd)}, which is "
        f"more than is left too: raise {setting}, or ask for less"
    )
