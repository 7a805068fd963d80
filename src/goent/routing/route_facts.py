"""The facts that a routing decision uses, and a provider's obstacles for a task."""

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

from goent.domain.provider_condition import ProviderCondition
from goent.domain.task_profile import Classification, Forecast
from goent.domain.types import Price, Provider, Value
from goent.routing.experience import Outlook

USABLE_WINDOW: Final = 0.8  # of a window that context may fill; the rest is for the work
UNAVAILABLE_STATES: Final = frozenset({"limited", "down"})


class RouteFacts(Value, frozen=True, kw_only=True):
    """What is known around a task. The mappings are by the provider's name.

    `may_ask`: its permissions may have to ask somebody. `needs_no_tools`: it needs only an answer in
    words. `missing_keys` are the environment variables without a key. `budget_usd` is what is left.
    `no_window_fits`: the context exceeds every window, so that windows no longer count. `outlooks`
    come from earlier outcomes. The providers to `avoid` have failed the task.
    """

    text: str = ""
    now: float = 0.0
    conditions: Mapping[str, ProviderCondition] = {}
    missing_keys: Mapping[str, str] = {}
    prices: Mapping[str, Price] = {}
    forecasts: Mapping[str, Forecast] = {}
    outlooks: Mapping[str, Outlook] = {}
    budget_usd: Decimal | None = None
    may_ask: bool = False
    needs_no_tools: bool = False
    no_window_fits: bool = False
    allow_fallback: bool | None = None
    avoid: tuple[str, ...] = ()


def obstacle(provider: Provider, task: Classification, facts: RouteFacts) -> str:
    """Why the provider cannot take the task now; empty if it can."""
    return (
        _has_failed(provider, facts)
        or _unavailable(provider, facts)
        or _no_key(provider, facts)
        or _too_small(provider, task, facts)
        or _too_expensive(provider, facts)
    )


def pin_objection(provider: Provider, task: Classification, facts: RouteFacts) -> str:
    """What to warn about a pinned provider: everything but its key and price."""
    return _unavailable(provider, facts) or _too_small(provider, task, facts)


def _has_failed(provider: Provider, facts: RouteFacts) -> str:
    return "it has failed this task before" if provider.name in facts.avoid else ""


def _unavailable(provider: Provider, facts: RouteFacts) -> str:
    condition = facts.conditions.get(provider.name)
    if condition is None or condition.state not in UNAVAILABLE_STATES:
        return ""
    if condition.until is not None and condition.until <= facts.now:
        return ""  # one call may try it
    until = f" until {clock_text(condition.until, facts.now)}" if condition.until else ""
    because = f" ({condition.reason})" if condition.reason else ""
    return f"{condition.state}{until}{because}"


def _no_key(provider: Provider, facts: RouteFacts) -> str:
    variable = facts.missing_keys.get(provider.name)
    return f"no key: set {variable} where go-ent or its client is started" if variable else ""


def _too_small(provider: Provider, task: Classification, facts: RouteFacts) -> str:
    window = provider.context_limit
    if facts.no_window_fits or window is None or task.context_tokens <= window * USABLE_WINDOW:
        return ""
    return f"its window of {window:,} tokens is too small for {task.context_tokens:,}"


def _too_expensive(provider: Provider, facts: RouteFacts) -> str:
    forecast = facts.forecasts.get(provider.name)
    if facts.budget_usd is None or forecast is None or forecast.p90_usd is None:
        return ""
    if forecast.p90_usd <= facts.budget_usd:
        return ""
    return (
        f"may cost {usd_text(forecast.p90_usd)}, above the budget of {usd_text(facts.budget_usd)}"
    )


def clock_text(at: float, now: float) -> str:
    """A time; today's without its date."""
    then, today = datetime.fromtimestamp(at, UTC), datetime.fromtimestamp(now, UTC)
    shape = "%H:%M:%S UTC" if then.date() == today.date() else "%Y-%m-%d %H:%M UTC"
    return then.strftime(shape)


def count_text(number: int, noun: str) -> str:
    return f"{f'{number:,}' if number else 'no'} {noun}{'s' * (number != 1)}"


def context_text(tokens: int) -> str:
    return f"{tokens:,} token{'s' * (tokens != 1)} of context"


def usd_text(amount: Decimal) -> str:
    return f"${amount:,.2f}" if amount >= 1 else f"${amount:.4f}"
