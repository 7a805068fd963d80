"""Who decides about a task that nobody pinned, for whom, and who was passed over?"""

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from goent.domain.settings import RoutingRule, Settings
from goent.domain.tasks import Classification
from goent.domain.types import Method, Pin, Provider, Route, Value
from goent.policy.decisions import (
    Decision,
    Source,
    Step,
    above_budget,
    candidates_for,
    summary,
)
from goent.policy.facts import Facts, obstacle
from goent.policy.pins import fallbacks_of, none_configured
from goent.policy.preferences import LARGE, Preferences, Wish, is_small
from goent.policy.rules import conditions, label, mismatch, targets, too_dear
from goent.policy.ways import Ways

MOST_ALTERNATIVES: Final = 5
STAND_INS: Final = 2  # for a provider that go-ent chose by itself
OWN_CHOICE: Final = frozenset({"policy", "learning"})
UNASKED: Final = "only a pin or a rule sends a task to an agent, or to a model that no file names"
CODING: Final = frozenset({"implement", "fix", "test"})


class _Found(Value, frozen=True, kw_only=True):
    """Who decided for whom. By its own choice the stand-ins are go-ent's to choose as well."""

    step: Step
    provider: Provider
    method: Method | None = None
    quick: bool = False


class Search:
    """One walk through rules, defaults and policy, with its trail."""

    def __init__(
        self,
        task: Classification,
        pin: Pin,
        settings: Settings,
        methods: Sequence[Method],
        facts: Facts,
    ) -> None:
        self._task, self._facts, self._settings = task, facts, settings
        self._asked: Method | None = pin.method
        self._said: Method | None = None  # by a rule that names nothing else
        self._candidates = tuple(candidates_for(task, settings, facts))
        self._unpaid = replace(facts, budget_usd=None)
        self._fitting = _each_once(c.provider for c in self._candidates if not c.obstacle)
        self._preferences = Preferences(task, facts, self._fitting, settings)
        self._ways = Ways(methods, settings, facts, alone=len(self._fitting) == 1)
        self._methods = methods
        self._steps: list[Step] = []
        self._passed_on: list[str] = []

    def decision(self) -> Decision:
        found = self._by_rules() or self._by_defaults() or self._by_default_provider()
        found = found or self._by_policy()
        if found is None:
            return Decision(
                refusal=self._refusal(), steps=tuple(self._steps), candidates=self._candidates
            )
        wanted = self._asked or found.method or self._said
        method, how = self._ways.way(found.provider, wanted=wanted, quick=found.quick)
        others = [p for p in self._preferences.ranked() if not _same(p, found.provider)]
        return Decision(
            chosen=Route(
                provider=found.provider,
                method=method,
                reason=self._reason(found.step, how),
                fallbacks=self._fallbacks(found, others),
            ),
            steps=tuple(self._steps),
            candidates=self._candidates,
            alternatives=tuple(self._alternative(p) for p in others[:MOST_ALTERNATIVES]),
            warnings=tuple(self._passed_on),
        )

    # Who decides

    def _by_rules(self) -> _Found | None:
        text = self._facts.text.lower()
        found: _Found | None = None
        method_said = False
        for number, rule in enumerate(self._settings.rules, 1):
            name = label(rule, number)
            if why := mismatch(rule, self._task, text):
                self._note("rule", name, why)
            elif found or method_said:
                self._note("rule", name, "an earlier rule has decided")
            elif not (rule.provider or rule.model):
                method_said = self._take_method(rule, name)
            else:
                found = self._of_rule(rule, name)
        return found

    def _take_method(self, rule: RoutingRule, name: str) -> bool:
        """A rule without a provider says how; who is left to those after it."""
        if rule.method not in self._methods:
            self._pass_on(name, f"the method {rule.method!r} is not available in this version")
            return False
        self._said = rule.method
        self._note("rule", name, f"matches, and says the method: {rule.method}", decided=True)
        return True

    def _of_rule(self, rule: RoutingRule, name: str) -> _Found | None:
        meant, unknown = targets(rule, self._settings)
        if unknown:
            self._pass_on(name, unknown)
            return None
        if rule.method and rule.method not in self._methods:
            self._pass_on(name, f"the method {rule.method!r} is not available in this version")
            return None
        why_not: list[str] = []
        for provider in (*meant, *fallbacks_of(meant[0], self._settings)):
            against = self._obstacle(provider) or too_dear(rule, provider, self._facts)
            if not against:
                instead = f", for {'; '.join(why_not)}" if why_not else ""
                why = f"matches ({conditions(rule)}): {provider.name}{instead}"
                if why_not:
                    self._passed_on.append(f"{name}: {provider.name}{instead}")
                step = self._note("rule", name, why, decided=True)
                return _Found(step=step, provider=provider, method=rule.method)
            why_not.append(f"{provider.name} is passed over ({against})")
        self._pass_on(name, "; ".join(why_not))
        return None

    def _by_defaults(self) -> _Found | None:
        for role, applies in self._roles():
            provider = self._named(self._settings.defaults.get(role))
            if provider is None:
                continue
            name = f"defaults.{role}"
            if not applies:
                self._note("default", name, f"the task is {summary(self._task)}")
                continue
            usable = self._usable(name, provider)
            if usable:
                step = self._note("default", name, usable.name, decided=True)
                return _Found(step=step, provider=usable, quick=role == "simple_tasks")
        return None

    def _roles(self) -> Iterator[tuple[str, bool]]:
        """Names that `defaults` may have, and whether each is about this task."""
        task = self._task
        yield "large_context", task.context_tokens > LARGE
        for role in self._settings.defaults:
            if role not in ("large_context", "simple_tasks", "implementation"):
                yield role, role == task.type
        yield "simple_tasks", is_small(task)
        yield "implementation", task.type in CODING

    def _by_default_provider(self) -> _Found | None:
        provider = self._named(self._settings.default_provider)
        if provider is None or not self._settings.default_chosen:
            return None
        usable = self._usable("default_provider", provider)
        if usable is None:
            return None
        why = "the configured default"
        if usable.name != provider.name:
            why = f"{usable.name}, a fallback of {why}"
        step = self._note("default", "default_provider", why, decided=True)
        return _Found(step=step, provider=usable)

    def _by_policy(self) -> _Found | None:
        chosen: _Found | None = None
        for wish in self._preferences.wishes:
            if chosen or not wish.order:
                self._note("policy", wish.name, wish.why if not chosen else "decided before")
            else:
                chosen = self._of_wish(wish)
        return chosen

    def _of_wish(self, wish: Wish) -> _Found:
        first, order = wish.order[0], self._preferences.first
        stays = order[0] is first
        step = self._note("policy", wish.name, f"{wish.why}: {first.name}", decided=stays)
        if told := self._preferences.worth.compared(wish.order, order):
            learned = self._note("learning", wish.name, told, decided=not stays)
            step = step if stays else learned
        return _Found(step=step, provider=order[0], quick=wish.quick)

    # What comes of it

    def _usable(self, name: str, provider: Provider) -> Provider | None:
        """It, or a fallback of its own; the reason is told either way."""
        against = self._obstacle(provider)
        if not against:
            return provider
        for other in fallbacks_of(provider, self._settings):
            if not self._obstacle(other):
                self._passed_on.append(f"{name}: {other.name}, for {provider.name}: {against}")
                return other
        self._pass_on(name, f"{provider.name}: {against}")
        return None

    def _fallbacks(self, found: _Found, others: Sequence[Provider]) -> tuple[Provider, ...]:
        """Whoever chose the provider chooses its stand-ins."""
        if self._facts.allow_fallback is False:
            return ()
        own = fallbacks_of(found.provider, self._settings)
        return own or (tuple(others[:STAND_INS]) if found.step.source in OWN_CHOICE else ())

    def _alternative(self, provider: Provider) -> Route:
        method, _ = self._ways.way(
            provider, wanted=self._asked or self._said, quick=is_small(self._task)
        )
        return Route(provider=provider, method=method, reason="")

    def _reason(self, step: Step, how: str) -> str:
        said = {
            "policy": f"policy ({step.name}): {step.why}",
            "learning": f"policy ({step.name}), by outcomes: {step.why}",
        }
        why = said.get(step.source, f"{step.name}: {step.why}")
        if step.name == "default_provider":
            why = step.why
        how = f", by {self._asked}, which was asked for" if self._asked else how
        return f"{why}{how}; the task is {summary(self._task)}"

    def _refusal(self) -> str:
        if not self._settings.providers:
            return none_configured(self._settings)
        each = "; ".join(f"{c.provider.name}: {c.obstacle or UNASKED}" for c in self._candidates)
        above = above_budget(self._facts, self._settings) if self._facts.hard else ""
        return f"no provider can take the task now. {each}" + (f". {above}" if above else "")

    def _obstacle(self, provider: Provider) -> str:
        """Who names a provider decides about its price; the budget itself warns or refuses."""
        if provider.backend in self._settings.agents and self._asked not in (None, "agent"):
            return f"it is an agent of its own, and the method {self._asked!r} was asked for"
        return obstacle(provider, self._task, self._unpaid)

    def _named(self, name: str | None) -> Provider | None:
        return next((c.provider for c in self._candidates if c.provider.name == name), None)

    def _pass_on(self, name: str, why: str) -> None:
        self._note("rule" if name.startswith("rule") else "default", name, f"passed over: {why}")
        self._passed_on.append(f"{name} was passed over: {why}")

    def _note(self, source: Source, name: str, why: str, *, decided: bool = False) -> Step:
        step = Step(source=source, name=name, decided=decided, why=why)
        self._steps.append(step)
        return step


def _same(one: Provider, other: Provider) -> bool:
    return (one.backend, one.model) == (other.backend, other.model)


def _each_once(providers: Iterator[Provider]) -> tuple[Provider, ...]:
    """A model that has several names goes by the shortest, which people gave it."""
    found: dict[tuple[str, str], Provider] = {}
    for provider in providers:
        if provider.method == "agent" or provider.listed:
            continue  # see UNASKED
        held = found.get((provider.backend, provider.model))
        if held is None or ("/" in held.name and "/" not in provider.name):
            found[provider.backend, provider.model] = provider
    return tuple(found.values())
