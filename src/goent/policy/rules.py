"""Does a rule of `routing.yaml` match a task, whom does it name, and if it does not: why?"""

import re
from decimal import Decimal
from functools import lru_cache

from goent.domain.errors import NoRoute
from goent.domain.settings import RoutingRule, Settings
from goent.domain.tasks import Classification
from goent.domain.types import Pin, Provider
from goent.policy.facts import Facts, counted, usd
from goent.policy.pins import named


def label(rule: RoutingRule, number: int) -> str:
    return f"rule {rule.id!r}" if rule.id else f"rule {number}"


def conditions(rule: RoutingRule) -> str:
    """What it asks of a task, in words."""
    parts = [
        "/".join(rule.types),
        "/".join(rule.complexity),
        f"{rule.min_files} files or more" if rule.min_files is not None else "",
        f"{rule.min_context:,} tokens or more" if rule.min_context is not None else "",
        f"words {', '.join(map(repr, rule.keywords))}" if rule.keywords else "",
        f"at most {usd(Decimal(str(rule.max_cost)))}" if rule.max_cost is not None else "",
    ]
    return ", ".join(part for part in parts if part) or "every task"


def mismatch(rule: RoutingRule, task: Classification, text: str) -> str:
    """Why it does not match; empty if it does. `text` is the task's, in lower case."""
    if rule.types and task.type not in rule.types:
        return f"the type is {task.type}, not {' or '.join(rule.types)}"
    if rule.complexity and task.complexity not in rule.complexity:
        return f"the complexity is {task.complexity}, not {' or '.join(rule.complexity)}"
    if rule.min_files is not None and task.named < rule.min_files:
        return f"it names {counted(task.named, 'file')}, not {rule.min_files} or more"
    if rule.min_context is not None and task.context_tokens < rule.min_context:
        return f"{task.context_tokens:,} tokens of context, not {rule.min_context:,} or more"
    if rule.keywords and not any(_says(text, word.lower()) for word in rule.keywords):
        return f"it says none of {', '.join(map(repr, rule.keywords))}"
    return ""


def too_dear(rule: RoutingRule, provider: Provider, facts: Facts) -> str:
    """Why its `max_cost` keeps it from this provider."""
    if rule.max_cost is None:
        return ""
    forecast = facts.forecasts.get(provider.name)
    if forecast is None or forecast.p90_usd is None:
        return f"what {provider.name} would cost is not known, and max_cost asks for it"
    most = Decimal(str(rule.max_cost))
    if forecast.p90_usd <= most:
        return ""
    return f"{provider.name} may cost {usd(forecast.p90_usd)}, above its max_cost of {usd(most)}"


def targets(rule: RoutingRule, settings: Settings) -> tuple[tuple[Provider, ...], str]:
    """Whom it may mean, or why it can mean nobody. Neither: it names a method alone."""
    if not (rule.provider or rule.model):
        return (), ""
    try:
        return named(Pin(provider=rule.provider, model=rule.model), settings), ""
    except NoRoute as error:
        return (), str(error)


def _says(text: str, word: str) -> bool:
    return word in text and bool(_whole(word).search(text))


@lru_cache(1024)
def _whole(word: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){re.escape(word)}(?!\w)")
