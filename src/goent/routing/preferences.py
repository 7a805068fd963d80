"""The built-in routing policy: whom to choose without a rule, by which method, in which order.

The expense of a success is the money and the time of all tries that it takes, and the trouble with
those that fail. One provider goes before another only where it would be the less expensive even if
the outcomes had flattered it and wronged the other.

The built-in policy: what is much to read goes to who can hold it, what is small to who is cheap
and fast, refactoring of code to who is known for it, anything else to who is said to be good at it.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import cached_property
from typing import Final

from goent.domain.settings import Settings
from goent.domain.task_profile import MIN_CONFIDENCE, Classification, Forecast
from goent.domain.types import Method, Provider, Value
from goent.routing.experience import Outlook
from goent.routing.route_facts import RouteFacts

HOUR_USD: Final = 2.0  # somebody waits, beside other work
FAILURE_USD: Final = 0.10  # somebody reads what went wrong, and hands the task over again
MIN_COMPARED: Final = 2  # with fewer there is nothing to compare
MAX_SHOWN: Final = 4  # providers whose figures are told
NO_FORECAST: Final = Forecast(p50_usd=None, p90_usd=None, source="estimate")


class Expense(Value, frozen=True, kw_only=True):
    """USD a success: probably, and if outcomes have wronged or flattered the provider."""

    likely: float
    best: float
    worst: float


class ExpenseRanking:
    """The expenses of one task, at the providers that can take it."""

    def __init__(self, providers: Sequence[Provider], facts: RouteFacts) -> None:
        self._providers = providers
        self._facts = facts

    @cached_property
    def expenses(self) -> Mapping[str, Expense]:
        """Of those with enough outcomes. What is not known of one of them counts for none."""
        known = dict(self._sufficient_outlooks())
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
        """The order as it was, except that who is clearly better takes the place of who is worse."""
        expenses = self.expenses
        able = [p for p in order if p.name in expenses]
        if len(able) < MIN_COMPARED:
            return tuple(order)
        falling = sorted(able, key=lambda p: expenses[p.name].worst, reverse=True)
        placed: dict[str, Provider] = {}
        for provider in order:
            own = expenses.get(provider.name)
            # Whoever is clearly better than one of these is so than this one too: it comes before.
            while own and falling and expenses[falling[-1].name].worst < own.best:
                better = falling.pop()
                placed.setdefault(better.name, better)
            placed.setdefault(provider.name, provider)
        return tuple(placed.values())

    def comparison(self, before: Sequence[Provider], after: Sequence[Provider]) -> str:
        """What outcomes say about them, and what that changed; empty where there are none."""
        told = [p for p in after if p.name in self._facts.outlooks]
        if not told:
            return ""
        figures = "; ".join(self._figures(p.name) for p in told[:MAX_SHOWN])
        more = f"; and {len(told) - MAX_SHOWN} more" if len(told) > MAX_SHOWN else ""
        return f"{self._change(before, after)}: {figures}{more}"

    def _sufficient_outlooks(self) -> Iterator[tuple[str, Outlook]]:
        for provider in self._providers:
            outlook = self._facts.outlooks.get(provider.name)
            if outlook and outlook.enough:
                yield provider.name, outlook

    def _change(self, before: Sequence[Provider], after: Sequence[Provider]) -> str:
        if before[0].name != after[0].name:
            return f"{after[0].name} rather than {before[0].name}"
        if tuple(before) != tuple(after):
            return f"{after[0].name} stays, others change places"
        if len(before) < MIN_COMPARED:
            return "there is nobody to choose from"
        few = sum(p.name in self.expenses for p in before) < MIN_COMPARED
        return "too few outcomes to change anything" if few else "no clear difference"

    def _figures(self, name: str) -> str:
        outlook = self._facts.outlooks[name]
        said = f"{name} {outlook.good} of {outlook.seen} good"
        if outlook.graded:
            said += f", {outlook.graded} of them in evaluations"
        if name not in self.expenses:
            return f"{said}, too few of the type"
        chance = f"chance {outlook.low:.0%} to {outlook.high:.0%}"
        return f"{said} ({chance}, a success for about ${self.expenses[name].likely:.2f})"


def _expense(outlook: Outlook, once: float) -> Expense:
    return Expense(
        likely=_per_success(once, outlook.chance),
        best=_per_success(once, outlook.high),
        worst=_per_success(once, outlook.low),
    )


def _per_success(once: float, chance: float) -> float:
    return (once + FAILURE_USD * (1 - chance)) / chance


class MethodChoice:
    """The methods there are. `alone`: there is but one provider, and nothing to choose."""

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
        """The method, and a remark where it is not the one to be expected."""
        if provider.backend in self._settings.agents:
            return "agent", ""
        if wanted:
            return wanted, ""
        if provider.method == "agent" and "agent" in self._methods:
            return "agent", ""  # whoever named the provider meant that
        if self._facts.needs_no_tools and self._can_call_directly(provider):
            return "api", ", by api, because it needs no tools"
        method, how = self._default_method(provider)
        if not quick or "cli" not in self._methods:
            return method, how
        # Where somebody has to be asked, or the model is the only one: a session that is warm.
        if self._facts.may_ask:
            return method, how or f", by {method}, because it may have to ask, and cli cannot"
        if self._alone:
            return method, how or f", by {method}, because there is no other provider"
        return "cli", ", by cli"

    def _default_method(self, provider: Provider) -> tuple[Method, str]:
        if provider.method == "api" and not self._facts.needs_no_tools:
            return (
                self._method_with_tools(),
                f", by {self._method_with_tools()}, for api has no tools",
            )
        if provider.method in self._methods:
            return provider.method, ""
        method = self._methods[0]
        return method, f"; by {method}, as {provider.method} is not available in this version"

    def _method_with_tools(self) -> Method:
        return "acp" if "acp" in self._methods else self._methods[0]

    def _can_call_directly(self, provider: Provider) -> bool:
        """Whether go-ent itself knows the way to the model; OpenCode's own logins it does not."""
        backend = self._settings.backends.get(provider.backend)
        return "api" in self._methods and backend is not None and backend.base_url is not None


LARGE_CONTEXT: Final = 50_000  # tokens of context
LARGE_REFACTORING: Final = 40  # lines
UNKNOWN_COST: Final = Decimal("Infinity")

_FAST_WORDS: Final = frozenset(
    [
        "haiku",
        "flash",
        "mini",
        "nano",
        "small",
        "lite",
        "fast",
        "turbo",
        "instant",
        "simple",
        "quick",
    ]
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


class Preference(Value, frozen=True, kw_only=True):
    """One step of the policy. With nobody in `order` it does not apply, and `why` says why."""

    name: str
    why: str
    order: tuple[Provider, ...] = ()
    quick: bool = False


class Preferences:
    """The policy for one task, over the providers that nothing speaks against."""

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
        self._fitting = own or tuple(fitting)  # who wrote providers down means these
        self._default = settings.default_provider
        self._default_chosen = settings.default_chosen
        self.worth = ExpenseRanking(self._fitting, facts)

    @cached_property
    def steps(self) -> tuple[Preference, ...]:
        """In order; the first that has somebody decides."""
        return (
            self._large(),
            self._refactoring(),
            self._small(),
            self._best_for(),
            self._remaining(),
        )

    def ranked(self) -> tuple[Provider, ...]:
        """Everybody, best first: those of the first wish, then the cheapest; outcomes say the rest."""
        named = {p.name for p in self.best}
        others = [p for p in self._cheapest if p.name not in named]
        return (*self.best, *self.worth.reordered(others))

    @cached_property
    def best(self) -> tuple[Provider, ...]:
        """Those of the wish that decides, as outcomes order them."""
        return self.worth.reordered(next((wish.order for wish in self.steps if wish.order), ()))

    @cached_property
    def _cheapest(self) -> tuple[Provider, ...]:
        return tuple(sorted(self._fitting, key=self.cost))

    def cost(self, provider: Provider) -> tuple[Decimal, bool]:
        """To sort by: what it would probably cost, and of equals the default one first."""
        forecast = self._facts.forecasts.get(provider.name)
        expected = forecast.p50_usd if forecast else None
        price = self._facts.prices.get(provider.name) or provider.price
        if expected is None and price:
            expected = 3 * price.input + price.output
        return UNKNOWN_COST if expected is None else expected, provider.name != self._default

    def _large(self) -> Preference:
        name, tokens = "large context", self._task.context_tokens
        if tokens <= LARGE_CONTEXT:
            return Preference(
                name=name, why=f"{tokens:,} tokens of context are not above {LARGE_CONTEXT:,}"
            )
        why = f"{tokens:,} tokens of context are above {LARGE_CONTEXT:,}: "
        long = () if self._facts.no_window_fits else self._with_word("kimi")
        if long:
            return Preference(name=name, why=why + "Kimi, whose window fits", order=long)
        known = [p for p in self._fitting if p.context_limit is not None]
        widest = sorted(known, key=lambda p: (-(p.context_limit or 0), self.cost(p)))
        if not widest:
            return Preference(name=name, why=why + "but nobody's window is known")
        return Preference(name=name, why=why + "the widest window", order=tuple(widest))

    def _small(self) -> Preference:
        name, complexity = "small task", self._task.complexity
        if not is_small(self._task):
            return Preference(name=name, why=f"the complexity is {complexity}")
        fast = [p for p in self._fitting if _is_fast(p)]
        what = "cheapest fast one" if fast else "cheapest one"
        order = tuple(p for p in self._cheapest if p in fast) if fast else self._cheapest
        return Preference(
            name=name, why=f"a {complexity} task: the {what}", order=order, quick=True
        )

    def _refactoring(self) -> Preference:
        name = "refactoring"
        if not is_refactoring(self._task):
            why = f"{self._task.type}, {self._task.complexity} is no refactoring of much code"
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
            return Preference(name=name, why=f"no provider says it is best for {kind}")
        what = (
            kind if _is_best(order[0], hints) else f"many files, and {self._task.named} are named"
        )
        return Preference(name=name, why=f"said to be best for {what}", order=order)

    def _remaining(self) -> Preference:
        default = self._matching(lambda p: p.name == self._default)
        order = self._cheapest
        if default:
            order = (*default, *(p for p in order if p not in default))
            why = "the configured default"
            if not self._default_chosen:
                why = "no default provider configured; using the inferred one"
            return Preference(name="default", why=why, order=order)
        missing = (
            "the default provider is unavailable"
            if self._default
            else "no default provider configured"
        )
        round_ = tuple(p for name in _ALL_ROUNDERS for p in self._with_word(name))
        if round_:
            return Preference(name="default", why=f"{missing}; using an all-rounder", order=round_)
        return Preference(name="default", why=f"{missing}; using the cheapest", order=order)

    def _with_word(self, word: str) -> tuple[Provider, ...]:
        """Its short name first, then whoever has the word in its model's name."""
        found = self._matching(lambda p: word in p.name.lower() or word in p.model.lower())
        return tuple(sorted(found, key=lambda p: (p.name.lower() != word, self.cost(p))))

    def _matching(self, fits: Callable[[Provider], bool]) -> tuple[Provider, ...]:
        return tuple(provider for provider in self._fitting if fits(provider))


def is_small(task: Classification) -> bool:
    """Little to do, or much of the kind that needs no thought."""
    if task.type == "format" and task.complexity == "medium" and task.confidence >= MIN_CONFIDENCE:
        return True
    return task.complexity in ("trivial", "simple") and not is_refactoring(task)


def is_refactoring(task: Classification) -> bool:
    """Of so much code that it takes somebody who is good at it."""
    if task.type != "refactor" or task.complexity == "trivial":
        return False
    return task.complexity != "simple" or task.named > 1 or task.size >= LARGE_REFACTORING


def _is_best(provider: Provider, hints: Sequence[str]) -> bool:
    return any(hint in word.lower() for word in provider.best_for for hint in hints)


def _is_fast(provider: Provider) -> bool:
    said = " ".join((*provider.best_for, provider.name, provider.model)).lower()
    return not _FAST_WORDS.isdisjoint(_WORD_BREAK.split(said))  # whole parts: Gemini is not mini
