"""The built-in routing policy: which provider, method and order to choose without a rule.

Large contexts go to the widest window, small tasks to a cheap and fast model, refactorings to models
known for them, and anything else to a provider whose `best_for` matches. Outcomes then reorder: a
success is priced at the money and time of all attempts that it takes, plus the cost of failures. One
provider overtakes another only if it is cheaper even when the outcomes flattered it and were
unfair to the other.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import cached_property
from typing import Final

from goent.domain.settings import Settings
from goent.domain.task_profile import MIN_CONFIDENCE, Classification, Forecast
from goent.domain.types import Method, Provider, Value
from goent.routing.experience import Outlook
from goent.routing.route_facts import RouteFacts, context_text

HOUR_USD: Final = 2.0  # cost of waiting, beside other work
FAILURE_USD: Final = 0.10  # cost of reading what went wrong, and of starting the task again
MIN_COMPARED: Final = 2  # providers
MAX_SHOWN: Final = 4  # providers whose figures are shown
LARGE_CONTEXT: Final = 50_000  # tokens
LARGE_REFACTORING: Final = 40  # lines
UNKNOWN_COST: Final = Decimal("Infinity")
NO_FORECAST: Final = Forecast(p50_usd=None, p90_usd=None, source="estimate")
_FAST_WORDS: Final = frozenset(
    {
        *("haiku", "flash", "mini", "nano", "small", "lite"),
        *("fast", "turbo", "instant", "simple", "quick"),
    }
)
_WORD_BREAK: Final = re.compile("[^a-z0-9]+")
_ALL_ROUNDERS: Final = ("sonnet", "glm", "kimi", "deepseek")
_HINTS_BY_TYPE: Final = {
    "implement": ("implementation", "implement", "feature", "coding"),
    "fix": ("fix", "bug", "debug"),
    "refactor": ("refactor",),
    "documentation": ("doc",),
    "test": ("test",),
    "format": ("format", "lint"),
    "analyze": ("analy", "research", "explain"),
    "review": ("review",),
}
_BULK_WORDS: Final = ("mass_file", "multi_file", "bulk")
_MANY_FILES: Final = 5
UNCONFIGURED_DEFAULT: Final = "no default provider configured"


class Expense(Value, frozen=True, kw_only=True):
    """USD per success: likely, and the bounds if the outcomes were too bad or too good."""

    likely: float
    best: float
    worst: float


class ExpenseRanking:
    """Ranks the providers that can take a task by the expense of a success."""

    def __init__(self, providers: Sequence[Provider], facts: RouteFacts) -> None:
        self._providers = providers
        self._facts = facts

    @cached_property
    def expenses(self) -> Mapping[str, Expense]:
        """By provider, for those with enough outcomes. Price or time counts only if known for all."""
        known = {
            p.name: outlook
            for p in self._providers
            if (outlook := self._facts.outlooks.get(p.name)) and outlook.enough
        }
        forecasts = {name: self._facts.forecasts.get(name, NO_FORECAST) for name in known}
        priced = all(forecast.p50_usd is not None for forecast in forecasts.values())
        timed = all(forecast.seconds is not None for forecast in forecasts.values())
        found: dict[str, Expense] = {}
        for name, forecast in forecasts.items():
            money = float(forecast.p50_usd or 0) if priced else 0.0
            waiting = (forecast.seconds or 0.0) * HOUR_USD / 3600 if timed else 0.0
            found[name] = _expense(known[name], money + waiting)
        return found

    def reordered(self, order: Sequence[Provider]) -> tuple[Provider, ...]:
        """The same order, except that clearly better providers move before worse ones."""
        expenses = self.expenses
        able = [p for p in order if p.name in expenses]
        if len(able) < MIN_COMPARED:
            return tuple(order)
        falling = sorted(able, key=lambda p: expenses[p.name].worst, reverse=True)
        placed: dict[str, Provider] = {}
        for provider in order:
            own = expenses.get(provider.name)
            while own and falling and expenses[falling[-1].name].worst < own.best:
                better = falling.pop()
                placed.setdefault(better.name, better)
            placed.setdefault(provider.name, provider)
        return tuple(placed.values())

    def comparison(self, before: Sequence[Provider], after: Sequence[Provider]) -> str:
        """What the outcomes changed, with the figures; empty without outcomes."""
        shown = [p for p in after if p.name in self._facts.outlooks]
        if not shown:
            return ""
        figures = "; ".join(self._figures(p.name) for p in shown[:MAX_SHOWN])
        more = f"; and {len(shown) - MAX_SHOWN} more" if len(shown) > MAX_SHOWN else ""
        return f"{self._change(before, after)}: {figures}{more}"

    def _change(self, before: Sequence[Provider], after: Sequence[Provider]) -> str:
        if before[0].name != after[0].name:
            return f"{after[0].name} rather than {before[0].name}"
        if tuple(before) != tuple(after):
            return f"{after[0].name} stays first, others change places"
        if len(before) < MIN_COMPARED:
            return "there is only one provider"
        few = sum(p.name in self.expenses for p in before) < MIN_COMPARED
        return "too few outcomes to change anything" if few else "no clear difference"

    def _figures(self, name: str) -> str:
        outlook = self._facts.outlooks[name]
        counts = f"{name} {outlook.good} of {outlook.seen} good"
        if outlook.graded:
            counts += f", {outlook.graded} of them in evaluations"
        if name not in self.expenses:
            return f"{counts}, too few of the type"
        chance = f"chance {outlook.low:.0%} to {outlook.high:.0%}"
        return f"{counts} ({chance}, a success for about ${self.expenses[name].likely:.2f})"


def _expense(outlook: Outlook, once: float) -> Expense:
    return Expense(
        likely=_per_success(once, outlook.chance),
        best=_per_success(once, outlook.high),
        worst=_per_success(once, outlook.low),
    )


def _per_success(once: float, chance: float) -> float:
    return (once + FAILURE_USD * (1 - chance)) / chance


class MethodChoice:
    """Chooses the method for a provider. `alone`: there is only one provider to choose from."""

    def __init__(
        self, methods: Sequence[Method], settings: Settings, facts: RouteFacts, *, alone: bool
    ) -> None:
        self._methods = tuple(methods)
        self._settings = settings
        self._facts = facts
        self._alone = alone

    def method_for(
        self, provider: Provider, *, wanted: Method | None, quick: bool
    ) -> tuple[Method, str]:
        """The method, and a remark if it is not the expected one."""
        if provider.backend in self._settings.agents:
            return "agent", ""
        if wanted:
            return wanted, ""
        if provider.method == "agent" and "agent" in self._methods:
            return "agent", ""  # its entry says so
        if self._facts.needs_no_tools and self._can_call_directly(provider):
            return "api", ", by api, because it needs no tools"
        method, how = self._default_method(provider)
        if not quick or "cli" not in self._methods:
            return method, how
        # A warm session is better if somebody may have to be asked, or there is only one model.
        if self._facts.may_ask:
            return method, how or f", by {method}, because it may have to ask, and cli cannot"
        if self._alone:
            return method, how or f", by {method}, because there is only one provider"
        return "cli", ", by cli"

    def _default_method(self, provider: Provider) -> tuple[Method, str]:
        if provider.method == "api" and not self._facts.needs_no_tools:
            method = "acp" if "acp" in self._methods else self._methods[0]
            return method, f", by {method}, because api has no tools"
        if provider.method in self._methods:
            return provider.method, ""
        method = self._methods[0]
        return method, f"; by {method}, as {provider.method} is not available in this version"

    def _can_call_directly(self, provider: Provider) -> bool:
        """Whether go-ent can call the model itself; it cannot use OpenCode's own logins."""
        backend = self._settings.backends.get(provider.backend)
        return "api" in self._methods and backend is not None and backend.base_url is not None


class Preference(Value, frozen=True, kw_only=True):
    """One step of the policy. It applies if `order` has a provider; `why` says why or why not."""

    name: str
    why: str
    order: tuple[Provider, ...] = ()
    quick: bool = False
    joint: str = ": "  # between `why` and the provider's name


class Preferences:
    """The policy for one task, over the providers without an obstacle."""

    def __init__(
        self,
        task: Classification,
        facts: RouteFacts,
        fitting: Sequence[Provider],
        settings: Settings,
    ) -> None:
        self._task = task
        self._facts = facts
        own = tuple(p for p in fitting if p.name in settings.written)
        self._fitting = own or tuple(fitting)  # configured providers go before detected ones
        self._default = settings.default_provider
        self._default_chosen = settings.default_chosen
        self.worth = ExpenseRanking(self._fitting, facts)

    @cached_property
    def steps(self) -> tuple[Preference, ...]:
        """In order; the first that applies decides."""
        return (
            self._large(),
            self._refactoring(),
            self._small(),
            self._best_for(),
            self._remaining(),
        )

    def ranked(self) -> tuple[Provider, ...]:
        """All providers, best first: those of the deciding step, then the cheapest."""
        named = {p.name for p in self.best}
        others = [p for p in self._cheapest if p.name not in named]
        return (*self.best, *self.worth.reordered(others))

    @cached_property
    def best(self) -> tuple[Provider, ...]:
        """The providers of the deciding step, reordered by outcomes."""
        return self.worth.reordered(
            next((preference.order for preference in self.steps if preference.order), ())
        )

    @cached_property
    def _cheapest(self) -> tuple[Provider, ...]:
        return tuple(sorted(self._fitting, key=self.cost))

    def cost(self, provider: Provider) -> tuple[Decimal, bool]:
        """A sort key: the likely cost, then the default provider first."""
        forecast = self._facts.forecasts.get(provider.name)
        expected = forecast.p50_usd if forecast else None
        price = self._facts.prices.get(provider.name) or provider.price
        if expected is None and price:
            expected = 3 * price.input + price.output
        return UNKNOWN_COST if expected is None else expected, provider.name != self._default

    def _large(self) -> Preference:
        name, tokens = "large context", self._task.context_tokens
        if tokens <= LARGE_CONTEXT:
            why = f"{context_text(tokens)}, not above {LARGE_CONTEXT:,}"
            return Preference(name=name, why=why)
        why = f"{context_text(tokens)}, above {LARGE_CONTEXT:,}: "
        long = () if self._facts.no_window_fits else self._with_word("kimi")
        if long:
            return Preference(name=name, why=why + "Kimi, whose window fits", order=long)
        known = [p for p in self._fitting if p.context_limit is not None]
        widest = sorted(known, key=lambda p: (-(p.context_limit or 0), self.cost(p)))
        if not widest:
            return Preference(name=name, why=why + "but no window is known")
        return Preference(name=name, why=why + "the widest window", order=tuple(widest))

    def _small(self) -> Preference:
        name, complexity = "small task", self._task.complexity
        if not is_small(self._task):
            return Preference(name=name, why=f"the complexity is {complexity}")
        fast = [p for p in self._fitting if _is_fast(p)]
        why = f"a {complexity} task: the cheapest {'fast one' if fast else 'one'}"
        order = tuple(p for p in self._cheapest if p in fast) if fast else self._cheapest
        return Preference(name=name, why=why, order=order, quick=True)

    def _refactoring(self) -> Preference:
        name = "refactoring"
        if not is_refactoring(self._task):
            why = f"{self._task.type}, {self._task.complexity} is not a large refactoring"
            return Preference(name=name, why=why)
        order = (*self._with_word("deepseek"), *self._with_word("sonnet"))
        why = "refactoring of code: DeepSeek, else Sonnet"
        return Preference(
            name=name, why=why if order else f"{why}, but neither is available", order=order
        )

    def _best_for(self) -> Preference:
        name = "best_for"
        kind, hints = self._task.type, _HINTS_BY_TYPE[self._task.type]
        bulk = _BULK_WORDS if self._task.named >= _MANY_FILES else ()
        order = self._matching(lambda p: _is_best(p, (*hints, *bulk)))
        if not order:
            return Preference(name=name, why=f"no provider is marked as best for {kind}")
        many = f"many files, and {self._task.named} are named"
        what = kind if _is_best(order[0], hints) else many
        return Preference(name=name, why=f"marked as best for {what}", order=order)

    def _remaining(self) -> Preference:
        chosen, order = self._default_chosen, self._cheapest
        missing = "the default provider is unavailable" if chosen else UNCONFIGURED_DEFAULT
        if default := self._matching(lambda p: p.name == self._default):
            order = (*default, *(p for p in order if p not in default))
            if chosen:
                return Preference(name="default", why="the configured default", order=order)
            why = f"{UNCONFIGURED_DEFAULT}; using"
            return Preference(name="default", why=why, order=order, joint=" ")
        if rounders := tuple(p for name in _ALL_ROUNDERS for p in self._with_word(name)):
            order, why = rounders, f"{missing}; using an all-rounder"
        else:
            why = f"{missing}; using the cheapest"
        return Preference(name="default", why=why, order=order, joint=", ")

    def _with_word(self, word: str) -> tuple[Provider, ...]:
        """The provider of that short name, then those with the word in their model's name."""
        found = self._matching(lambda p: word in p.name.lower() or word in p.model.lower())
        return tuple(sorted(found, key=lambda p: (p.name.lower() != word, self.cost(p))))

    def _matching(self, fits: Callable[[Provider], bool]) -> tuple[Provider, ...]:
        return tuple(provider for provider in self._fitting if fits(provider))


def is_small(task: Classification) -> bool:
    """Whether there is little to do, or only formatting."""
    if task.type == "format" and task.complexity == "medium" and task.confidence >= MIN_CONFIDENCE:
        return True
    return task.complexity in ("trivial", "simple") and not is_refactoring(task)


def is_refactoring(task: Classification) -> bool:
    """Whether it is a refactoring of more than a little code."""
    if task.type != "refactor" or task.complexity == "trivial":
        return False
    return task.complexity != "simple" or task.named > 1 or task.size >= LARGE_REFACTORING


def _is_best(provider: Provider, hints: Sequence[str]) -> bool:
    return any(hint in word.lower() for word in provider.best_for for hint in hints)


def _is_fast(provider: Provider) -> bool:
    words = " ".join((*provider.best_for, provider.name, provider.model)).lower()
    return not _FAST_WORDS.isdisjoint(_WORD_BREAK.split(words))  # whole words: Gemini is not mini
