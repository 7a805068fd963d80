"""What was decided about a task's way, and what led to it?"""

from collections.abc import Iterator
from typing import Final, Literal

from goent.domain.errors import NoRoute
from goent.domain.settings import Settings
from goent.domain.tasks import Classification
from goent.domain.types import Provider, Route, Value
from goent.policy.facts import Facts, counted, obstacle, usd

SURE: Final = 0.6  # of the type, to say it without a doubt
Source = Literal["pin", "rule", "default", "policy", "learning"]


class Step(Value, frozen=True, kw_only=True):
    """Something that was asked on the way to the decision, and what it said."""

    source: Source
    name: str
    decided: bool
    why: str


class Candidate(Value, frozen=True, kw_only=True):
    """A provider, and what speaks against it now; nothing, if `obstacle` is empty."""

    provider: Provider
    obstacle: str = ""


class Decision(Value, frozen=True, kw_only=True):
    """The choice with all that led to it; without a `chosen` one, `refusal` says why."""

    chosen: Route | None = None
    refusal: str = ""
    steps: tuple[Step, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    alternatives: tuple[Route, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def route(self) -> Route:
        if self.chosen is None:
            raise NoRoute(self.refusal)
        return self.chosen


def summary(task: Classification) -> str:
    """The features that rules and policy look at: what is guessed says so, or is left out."""
    kind = task.type if task.confidence >= SURE else f"probably {task.type}"
    files = f"{counted(task.named, 'file')} named, " if task.named else ""
    return f"{kind}, {task.complexity}, {files}{task.context_tokens:,} tokens of context"


def candidates_for(task: Classification, settings: Settings, facts: Facts) -> Iterator[Candidate]:
    for provider in settings.providers:
        yield Candidate(provider=provider, obstacle=obstacle(provider, task, facts))


def above_budget(facts: Facts, settings: Settings) -> str:
    """Empty where no forecast says that the budget is too small."""
    known = {
        p.name: forecast.p90_usd
        for p in settings.providers
        if (forecast := facts.forecasts.get(p.name)) and forecast.p90_usd is not None
    }
    if facts.budget_usd is None or not known or min(known.values()) <= facts.budget_usd:
        return ""
    name = min(known, key=lambda each: known[each])
    return (
        f"budget_usd {usd(facts.budget_usd)} is less than the cheapest route may cost: {name} up to "
        f"{usd(known[name])}; raise it, or give a smaller task"
    )
