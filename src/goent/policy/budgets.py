"""Which limits hold for a worker, when is one to be warned of, and who would do it for less?"""

from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Literal

from goent.domain.budgets import Limit, Scope, Standing, dollars
from goent.domain.settings import Budget
from goent.domain.types import Value

NEAR = Decimal("0.8")
ALL = Decimal(1)

Level = Literal["near", "passed"]


class Alternative(Value, frozen=True, kw_only=True):
    """What the same work would cost at another provider."""

    provider: str
    usd: Decimal


def day_of(at: float) -> str:
    """The day of a budget. Days are UTC, as in the reports."""
    return datetime.fromtimestamp(at, UTC).date().isoformat()


def limits_of_all(budget: Budget, *, project: str, at: float) -> tuple[Limit, ...]:
    """The limits that no single worker has."""
    found: tuple[tuple[Scope, str, Decimal | None, str], ...] = (
        ("day", day_of(at), budget.per_day, "per_day"),
        ("project", project, budget.per_project, "per_project"),
    )
    return tuple(
        Limit(scope=scope, key=key, usd=usd, hard=budget.hard, setting=f"budget.{setting}")
        for scope, key, usd, setting in found
        if usd is not None
    )


def limits_of_worker(
    budget: Budget, worker: str, asked: Decimal | None, group: str, group_usd: Decimal | None
) -> tuple[Limit, ...]:
    """What somebody asked for is meant: it is hard. What a file gives is as hard as that says."""
    limits: list[Limit] = []
    if asked is not None:
        limits.append(Limit(scope="task", key=worker, usd=asked, hard=True, setting="budget_usd"))
    if budget.per_task is not None:
        limits.append(
            Limit(
                scope="task",
                key=worker,
                usd=budget.per_task,
                hard=budget.hard,
                setting="budget.per_task",
            )
        )
    if group and group_usd is not None:
        limits.append(
            Limit(
                scope="group",
                key=group,
                usd=group_usd,
                hard=True,
                setting="budget_usd of the group",
            )
        )
    return tuple(limits)


def level(standing: Standing, usd: Decimal) -> Level | None:
    """How far the limit would be used with that much more."""
    share = standing.after(usd)
    if share > ALL:
        return "passed"
    return "near" if share >= NEAR else None


def warning(standing: Standing, usd: Decimal, found: Level, what: str) -> str:
    """`what` is likely to cost that much."""
    verb = "would be passed" if found == "passed" else "is nearly used up"
    return (
        f"{standing.limit.name} ({standing.limit.setting}), {verb}: {standing.figures}, "
        f"{what} is likely to cost {dollars(usd)}"
    )


def doubt(standing: Standing, usd: Decimal, what: str) -> str:
    """A hard limit that the worker is let try, because the amount is a guess."""
    return (
        f"{standing.limit.name} ({standing.limit.setting}), may not be enough: {standing.figures}, {what} "
        f"is estimated at {dollars(usd)}. It starts all the same, because that is only an estimate, and stops at the limit"
    )


def refusal(standing: Standing, usd: Decimal, what: str) -> str:
    return (
        f"{standing.limit.name} ({standing.limit.setting}), has no room for {what}: "
        f"{standing.figures}, and it is likely to cost {dollars(usd)}"
    )


def advice(others: Iterable[Alternative], usd: Decimal, left: Decimal, setting: str) -> str:
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
