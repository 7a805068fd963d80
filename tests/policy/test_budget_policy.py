from decimal import Decimal

import pytest

from goent.billing.budget_rules import (
    RouteCost,
    budget_advice,
    budget_level,
    limits_of_all,
    limits_of_worker,
)
from goent.domain.money import BudgetLimit, BudgetStatus, dollars
from goent.domain.settings import BudgetSettings

pytestmark = pytest.mark.spec("P35")

LIMIT = BudgetLimit(scope="day", key="2026-03-01", usd=Decimal(1))
DEAR, CHEAP = (RouteCost(provider=n, usd=Decimal(u)) for n, u in (("b", "0.5"), ("a", "0.1")))


@pytest.mark.parametrize(
    ("spent", "held", "more", "found"),
    [
        ("0.5", "0", "0.29", None),
        ("0.5", "0.1", "0.2", "near"),
        ("0.5", "0.3", "0.2", "near"),
        ("0.5", "0.3", "0.21", "passed"),
        ("1.1", "0", "0", "passed"),
    ],
)
def test_a_limit_is_near_from_four_fifths_and_passed_above_all(
    spent: str, held: str, more: str, found: str | None
):
    standing = BudgetStatus(limit=LIMIT, spent_usd=Decimal(spent), held_usd=Decimal(held))
    assert budget_level(standing, Decimal(more)) == found


def test_a_budget_of_nothing_is_passed_by_anything():
    nothing = BudgetStatus(
        limit=BudgetLimit(scope="day", key="2026-03-01", usd=Decimal(0), hard=True)
    )
    assert budget_level(nothing, Decimal("0.001")) == "passed"
    assert not nothing.has_room_for(Decimal("0.001")) and nothing.has_room_for(Decimal(0))


def test_what_a_caller_asks_for_is_hard_and_what_a_file_gives_is_as_it_says():
    budget = BudgetSettings(per_task=Decimal(1), per_day=Decimal(5), per_project=Decimal(9))
    own = limits_of_worker(budget, "w1", Decimal("0.5"), "s1", Decimal(3))
    assert [(limit.scope, limit.usd, limit.hard) for limit in own] == [
        ("task", Decimal("0.5"), True),
        ("task", Decimal(1), False),
        ("group", Decimal(3), True),
    ]
    shared = limits_of_all(budget, project="/a", at=86_400.0)
    assert [(limit.scope, limit.key) for limit in shared] == [
        ("day", "1970-01-02"),
        ("project", "/a"),
    ]
    assert limits_of_worker(BudgetSettings(), "w1", None, "", None) == ()


def test_the_cheapest_that_fits_is_named_or_that_none_does():
    fits = budget_advice([DEAR, CHEAP], Decimal(1), Decimal("0.2"), "budget_usd")
    assert "provider 'a' would fit, at about $0.10" in fits
    none = budget_advice([DEAR, CHEAP], Decimal(1), Decimal("0.05"), "budget_usd")
    assert "the cheapest route, provider 'a', costs about $0.10" in none
    assert "raise budget_usd" in budget_advice([DEAR], Decimal("0.4"), Decimal(1), "budget_usd")


@pytest.mark.parametrize(
    ("usd", "told"),
    [
        ("0", "$0.00"),
        ("12.346", "$12.35"),
        ("0.5", "$0.50"),
        ("0.024", "$0.024"),
        ("0.0700", "$0.07"),
        ("0.000012345", "$0.000012"),
    ],
)
def test_amounts_are_told_with_the_digits_that_tell_something(usd: str, told: str):
    assert dollars(Decimal(usd)) == told
