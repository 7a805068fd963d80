"""Whom would go-ent choose by itself, and in which order?

The built-in policy: what is much to read goes to who can hold it, what is small to who is cheap
and fast, refactoring of code to who is known for it, anything else to who is said to be good at it.
"""

import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import cached_property
from typing import Final

from goent.domain.settings import Settings
from goent.domain.tasks import Classification
from goent.domain.types import Provider, Value
from goent.policy.facts import Facts
from goent.policy.worth import Worth

LARGE: Final = 50_000  # tokens of context
MUCH_CODE: Final = 40  # lines
SURE: Final = 0.6  # of the type, to rest on it alone
INFINITE: Final = Decimal("Infinity")

_FAST: Final = frozenset(
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
_PARTS: Final = re.compile("[^a-z0-9]+")
_ALL_ROUND: Final = ("sonnet", "glm", "kimi", "deepseek")
_HINTS: Final = {
    "implement": ("implementation", "implement", "feature", "coding"),
    "fix": ("fix", "bug", "debug"),
    "refactor": ("refactor",),
    "documentation": ("doc",),
    "test": ("test",),
    "format": ("format", "lint"),
    "analyze": ("analy", "research", "explain"),
    "review": ("review",),
}
_BULK: Final = ("mass_file", "multi_file", "bulk")
_MANY_FILES: Final = 5


class Wish(Value, frozen=True, kw_only=True):
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
        facts: Facts,
        fitting: Sequence[Provider],
        settings: Settings,
    ) -> None:
        self._task = task
        self._facts = facts
        own = tuple(p for p in fitting if p.name in settings.written)
        self._fitting = own or tuple(fitting)  # who wrote providers down means these
        self._default = settings.default_provider
        self.worth = Worth(self._fitting, facts)

    @cached_property
    def wishes(self) -> tuple[Wish, ...]:
        """In order; the first that has somebody decides."""
        return (self._large(), self._refactoring(), self._small(), self._hinted(), self._rest())

    def ranked(self) -> tuple[Provider, ...]:
        """Everybody, best first: those of the first wish, then the cheapest; outcomes say the rest."""
        named = {p.name for p in self.first}
        others = [p for p in self._cheapest if p.name not in named]
        return (*self.first, *self.worth.arranged(others))

    @cached_property
    def first(self) -> tuple[Provider, ...]:
        """Those of the wish that decides, as outcomes order them."""
        return self.worth.arranged(next((wish.order for wish in self.wishes if wish.order), ()))

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
        return INFINITE if expected is None else expected, provider.name != self._default

    def _large(self) -> Wish:
        name, tokens = "large context", self._task.context_tokens
        if tokens <= LARGE:
            return Wish(name=name, why=f"{tokens:,} tokens of context are not above {LARGE:,}")
        why = f"{tokens:,} tokens of context are above {LARGE:,}: "
        long = () if self._facts.cramped else self._called("kimi")
        if long:
            return Wish(name=name, why=why + "Kimi, whose window fits", order=long)
        known = [p for p in self._fitting if p.context_limit is not None]
        widest = sorted(known, key=lambda p: (-(p.context_limit or 0), self.cost(p)))
        if not widest:
            return Wish(name=name, why=why + "but nobody's window is known")
        return Wish(name=name, why=why + "the widest window", order=tuple(widest))

    def _small(self) -> Wish:
        name, complexity = "small task", self._task.complexity
        if not is_small(self._task):
            return Wish(name=name, why=f"the complexity is {complexity}")
        fast = [p for p in self._fitting if _is_fast(p)]
        what = "cheapest fast one" if fast else "cheapest one"
        order = tuple(p for p in self._cheapest if p in fast) if fast else self._cheapest
        return Wish(name=name, why=f"a {complexity} task: the {what}", order=order, quick=True)

    def _refactoring(self) -> Wish:
        name = "refactoring"
        if not is_refactoring(self._task):
            why = f"{self._task.type}, {self._task.complexity} is no refactoring of much code"
            return Wish(name=name, why=why)
        order = (*self._called("deepseek"), *self._called("sonnet"))
        why = "refactoring of code: DeepSeek, else Sonnet"
        return Wish(name=name, why=why if order else f"{why}, but neither can be had", order=order)

    def _hinted(self) -> Wish:
        name = "best_for"
        kind, hints = self._task.type, _HINTS[self._task.type]
        bulk = _BULK if self._task.named >= _MANY_FILES else ()
        order = self._such(lambda p: _is_best(p, (*hints, *bulk)))
        if not order:
            return Wish(name=name, why=f"no provider says it is best for {kind}")
        what = (
            kind if _is_best(order[0], hints) else f"many files, and {self._task.named} are named"
        )
        return Wish(name=name, why=f"said to be best for {what}", order=order)

    def _rest(self) -> Wish:
        default = self._such(lambda p: p.name == self._default)
        order = self._cheapest
        if default:
            order = (*default, *(p for p in order if p not in default))
            return Wish(name="default", why="the configured default", order=order)
        round_ = tuple(p for name in _ALL_ROUND for p in self._called(name))
        if round_:
            return Wish(name="default", why="no default can be had: an all-rounder", order=round_)
        return Wish(name="default", why="no default can be had: the cheapest", order=order)

    def _called(self, word: str) -> tuple[Provider, ...]:
        """Its short name first, then whoever has the word in its model's name."""
        found = self._such(lambda p: word in p.name.lower() or word in p.model.lower())
        return tuple(sorted(found, key=lambda p: (p.name.lower() != word, self.cost(p))))

    def _such(self, fits: Callable[[Provider], bool]) -> tuple[Provider, ...]:
        return tuple(provider for provider in self._fitting if fits(provider))


def is_small(task: Classification) -> bool:
    """Little to do, or much of the kind that needs no thought."""
    if task.type == "format" and task.complexity == "medium" and task.confidence >= SURE:
        return True
    return task.complexity in ("trivial", "simple") and not is_refactoring(task)


def is_refactoring(task: Classification) -> bool:
    """Of so much code that it takes somebody who is good at it."""
    if task.type != "refactor" or task.complexity == "trivial":
        return False
    return task.complexity != "simple" or task.named > 1 or task.size >= MUCH_CODE


def _is_best(provider: Provider, hints: Sequence[str]) -> bool:
    return any(hint in word.lower() for word in provider.best_for for hint in hints)


def _is_fast(provider: Provider) -> bool:
    said = " ".join((*provider.best_for, provider.name, provider.model)).lower()
    return not _FAST.isdisjoint(_PARTS.split(said))  # whole parts: Gemini is not mini
