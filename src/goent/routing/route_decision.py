"""Chooses the provider and method for a task by pin, rules, defaults or policy, and says why.

A pin is obeyed or refused. Otherwise the first of these decides: a matching rule whose provider is
available, `defaults`, the configured default provider, the policy of `preferences`.
"""

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Final, Literal

from msgspec.structs import replace

from goent.domain.errors import NoRoute
from goent.domain.settings import RoutingRule, Settings
from goent.domain.task_profile import MIN_CONFIDENCE, TASK_CLAUSE, Classification
from goent.domain.types import Method, Pin, Provider, Route, Value
from goent.routing.pins import (
    TIERS,
    choose_pinned,
    fallbacks_of,
    none_configured,
    pinned_providers,
    provider_for_tier,
    tier_for,
    tier_reason,
)
from goent.routing.preferences import LARGE_CONTEXT, MethodChoice, Preference, Preferences, is_small
from goent.routing.route_facts import (
    RouteFacts,
    context_text,
    count_text,
    obstacle,
    pin_objection,
    usd_text,
)

MAX_ALTERNATIVES: Final = 5
MAX_FALLBACKS: Final = 2  # for a provider that go-ent chose itself
OWN_SOURCES: Final = frozenset({"policy", "learning"})
NEEDS_PIN: Final = "only a pin or a rule sends a task to an agent, or to a model that no file names"
CODING_TYPES: Final = frozenset({"implement", "fix", "test"})
DecisionSource = Literal["pin", "rule", "default", "policy", "learning"]


class DecisionStep(Value, frozen=True, kw_only=True):
    """One step of the decision, and its result."""

    source: DecisionSource
    name: str
    decided: bool
    why: str


class RouteCandidate(Value, frozen=True, kw_only=True):
    """A provider, and why it cannot take the task now; it can if `obstacle` is empty."""

    provider: Provider
    obstacle: str = ""


class RouteDecision(Value, frozen=True, kw_only=True):
    """The choice and how it was made; without a chosen route, `refusal` says why."""

    chosen_route: Route | None = None
    refusal: str = ""
    steps: tuple[DecisionStep, ...] = ()
    candidates: tuple[RouteCandidate, ...] = ()
    alternatives: tuple[Route, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def route(self) -> Route:
        if self.chosen_route is None:
            raise NoRoute(self.refusal)
        return self.chosen_route


def task_summary(task: Classification) -> str:
    """The features that rules and policy use."""
    kind = task.type if task.confidence >= MIN_CONFIDENCE else f"probably {task.type}"
    files = f"{count_text(task.named, 'file')} named, " if task.named else ""
    return f"{kind}, {task.complexity}, {files}{context_text(task.context_tokens)}"


def candidates_for(
    task: Classification, settings: Settings, facts: RouteFacts
) -> Iterator[RouteCandidate]:
    for provider in settings.providers:
        yield RouteCandidate(provider=provider, obstacle=obstacle(provider, task, facts))


def budget_objection(facts: RouteFacts, settings: Settings) -> str:
    """Why the budget is too small for every provider; empty if it may suffice."""
    known = {
        p.name: forecast.p90_usd
        for p in settings.providers
        if (forecast := facts.forecasts.get(p.name)) and forecast.p90_usd is not None
    }
    if facts.budget_usd is None or not known or min(known.values()) <= facts.budget_usd:
        return ""
    name = min(known, key=lambda each: known[each])
    return (
        f"budget_usd {usd_text(facts.budget_usd)} is less than the cheapest route may cost: {name}, up "
        f"to {usd_text(known[name])}; raise it, or make the task smaller"
    )


def rule_label(rule: RoutingRule, number: int) -> str:
    return f"rule {rule.id!r}" if rule.id else f"rule {number}"


def rule_conditions(rule: RoutingRule) -> str:
    """Its conditions, in words."""
    parts = [
        "/".join(rule.types),
        "/".join(rule.complexity),
        f"{rule.min_files} files or more" if rule.min_files is not None else "",
        f"{rule.min_context:,} tokens or more" if rule.min_context is not None else "",
        f"words {', '.join(map(repr, rule.keywords))}" if rule.keywords else "",
        f"at most {usd_text(Decimal(str(rule.max_cost)))}" if rule.max_cost is not None else "",
    ]
    return ", ".join(part for part in parts if part) or "every task"


def rule_mismatch(rule: RoutingRule, task: Classification, text: str) -> str:
    """Why it does not match; empty if it does. `text` is the task in lower case."""
    if rule.types and task.type not in rule.types:
        return f"the type is {task.type}, not {' or '.join(rule.types)}"
    if rule.complexity and task.complexity not in rule.complexity:
        return f"the complexity is {task.complexity}, not {' or '.join(rule.complexity)}"
    if rule.min_files is not None and task.named < rule.min_files:
        return f"it names {count_text(task.named, 'file')}, not {rule.min_files} or more"
    if rule.min_context is not None and task.context_tokens < rule.min_context:
        return f"{context_text(task.context_tokens)}, not {rule.min_context:,} or more"
    if rule.keywords and not any(_mentions(text, word.lower()) for word in rule.keywords):
        return f"it contains none of {', '.join(map(repr, rule.keywords))}"
    return ""


def too_expensive(rule: RoutingRule, provider: Provider, facts: RouteFacts) -> str:
    """Why its `max_cost` excludes this provider; empty if it does not."""
    if rule.max_cost is None:
        return ""
    forecast = facts.forecasts.get(provider.name)
    if forecast is None or forecast.p90_usd is None:
        return f"the cost of {provider.name} is unknown, so max_cost cannot be checked"
    most = Decimal(str(rule.max_cost))
    if forecast.p90_usd <= most:
        return ""
    return f"{provider.name} may cost {usd_text(forecast.p90_usd)}, above its max_cost of {usd_text(most)}"


def rule_providers(rule: RoutingRule, settings: Settings) -> tuple[tuple[Provider, ...], str]:
    """The providers it may mean, or why there are none. Both empty: it names only a method."""
    if not (rule.provider or rule.model):
        return (), ""
    try:
        return pinned_providers(Pin(provider=rule.provider, model=rule.model), settings), ""
    except NoRoute as error:
        return (), str(error)


def _mentions(text: str, word: str) -> bool:
    return word in text and bool(_whole_word(word).search(text))


@lru_cache(1024)
def _whole_word(word: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){re.escape(word)}(?!\w)")


class _Selection(Value, frozen=True, kw_only=True):
    """The provider that a step has chosen."""

    step: DecisionStep
    provider: Provider
    method: Method | None = None
    quick: bool = False


class RouteSearch:
    """Goes through rules, defaults and policy, and records each step."""

    def __init__(
        self,
        task: Classification,
        pin: Pin,
        settings: Settings,
        methods: Sequence[Method],
        facts: RouteFacts,
    ) -> None:
        self._task, self._facts, self._settings = task, facts, settings
        self._pinned_method: Method | None = pin.method
        self._rule_method: Method | None = None  # from a rule that names only a method
        self._candidates = tuple(candidates_for(task, settings, facts))
        self._facts_without_budget = replace(facts, budget_usd=None)
        self._fitting = _unique_models(c.provider for c in self._candidates if not c.obstacle)
        self._preferences = Preferences(task, facts, self._fitting, settings)
        self._method_choice = MethodChoice(methods, settings, facts, alone=len(self._fitting) == 1)
        self._methods = methods
        self._steps: list[DecisionStep] = []
        self._warnings: list[str] = []

    def decision(self) -> RouteDecision:
        found = self._by_rules() or self._by_defaults() or self._by_default_provider()
        found = found or self._by_policy()
        if found is None:
            return RouteDecision(
                refusal=self._refusal(), steps=tuple(self._steps), candidates=self._candidates
            )
        wanted = self._pinned_method or found.method or self._rule_method
        method, how = self._method_choice.method_for(
            found.provider, wanted=wanted, quick=found.quick
        )
        others = [p for p in self._preferences.ranked() if not _same_model(p, found.provider)]
        return RouteDecision(
            chosen_route=Route(
                provider=found.provider,
                method=method,
                reason=self._reason(found.step, how),
                fallbacks=self._fallbacks(found, others),
            ),
            steps=tuple(self._steps),
            candidates=self._candidates,
            alternatives=tuple(self._alternative(p) for p in others[:MAX_ALTERNATIVES]),
            warnings=tuple(self._warnings),
        )

    # The sources, in order

    def _by_rules(self) -> _Selection | None:
        text = self._facts.text.lower()
        found: _Selection | None = None
        method_decided = False
        for number, rule in enumerate(self._settings.rules, 1):
            name = rule_label(rule, number)
            if why := rule_mismatch(rule, self._task, text):
                self._add_step("rule", name, why)
            elif found or method_decided:
                self._add_step("rule", name, "an earlier rule has decided")
            elif not (rule.provider or rule.model):
                method_decided = self._take_method(rule, name)
            else:
                found = self._apply_rule(rule, name)
        return found

    def _take_method(self, rule: RoutingRule, name: str) -> bool:
        """Apply a rule that names only a method; later steps choose the provider."""
        if rule.method not in self._methods:
            self._skip(name, f"the method {rule.method!r} is not available in this version")
            return False
        self._rule_method = rule.method
        self._add_step("rule", name, f"matches, and sets the method: {rule.method}", decided=True)
        return True

    def _apply_rule(self, rule: RoutingRule, name: str) -> _Selection | None:
        meant, unknown = rule_providers(rule, self._settings)
        if unknown:
            self._skip(name, unknown)
            return None
        if rule.method and rule.method not in self._methods:
            self._skip(name, f"the method {rule.method!r} is not available in this version")
            return None
        why_not: list[str] = []
        for provider in (*meant, *fallbacks_of(meant[0], self._settings)):
            against = self._obstacle(provider) or too_expensive(rule, provider, self._facts)
            if not against:
                instead = f", for {'; '.join(why_not)}" if why_not else ""
                why = f"matches ({rule_conditions(rule)}): {provider.name}{instead}"
                if why_not:
                    self._warnings.append(f"{name}: {provider.name}{instead}")
                step = self._add_step("rule", name, why, decided=True)
                return _Selection(step=step, provider=provider, method=rule.method)
            why_not.append(f"{provider.name} is passed over ({against})")
        self._skip(name, "; ".join(why_not))
        return None

    def _by_defaults(self) -> _Selection | None:
        for role, applies in self._roles():
            provider = self._provider_named(self._settings.defaults.get(role))
            if provider is None:
                continue
            name = f"defaults.{role}"
            if not applies:
                self._add_step("default", name, f"the task is {task_summary(self._task)}")
                continue
            usable = self._usable(name, provider)
            if usable:
                step = self._add_step("default", name, usable.name, decided=True)
                return _Selection(step=step, provider=usable, quick=role == "simple_tasks")
        return None

    def _roles(self) -> Iterator[tuple[str, bool]]:
        """The possible names in `defaults`, and whether each applies to this task."""
        task = self._task
        yield "large_context", task.context_tokens > LARGE_CONTEXT
        for role in self._settings.defaults:
            if role not in ("large_context", "simple_tasks", "implementation"):
                yield role, role == task.type
        yield "simple_tasks", is_small(task)
        yield "implementation", task.type in CODING_TYPES

    def _by_default_provider(self) -> _Selection | None:
        provider = self._provider_named(self._settings.default_provider)
        if provider is None or not self._settings.default_chosen:
            return None
        usable = self._usable("default_provider", provider)
        if usable is None:
            return None
        why = "the configured default"
        if usable.name != provider.name:
            why = f"{usable.name}, a fallback of {why}"
        step = self._add_step("default", "default_provider", why, decided=True)
        return _Selection(step=step, provider=usable)

    def _by_policy(self) -> _Selection | None:
        chosen: _Selection | None = None
        for preference in self._preferences.steps:
            if chosen or not preference.order:
                self._add_step(
                    "policy", preference.name, preference.why if not chosen else "decided before"
                )
            else:
                chosen = self._apply_preference(preference)
        return chosen

    def _apply_preference(self, preference: Preference) -> _Selection:
        first, order = preference.order[0], self._preferences.best
        stays = order[0] is first
        step = self._add_step(
            "policy",
            preference.name,
            f"{preference.why}{preference.joint}{first.name}",
            decided=stays,
        )
        if change := self._preferences.worth.comparison(preference.order, order):
            learned = self._add_step("learning", preference.name, change, decided=not stays)
            step = step if stays else learned
        return _Selection(step=step, provider=order[0], quick=preference.quick)

    # Helpers

    def _usable(self, name: str, provider: Provider) -> Provider | None:
        """The provider, or the first usable of its fallbacks; what is passed over is recorded."""
        against = self._obstacle(provider)
        if not against:
            return provider
        for other in fallbacks_of(provider, self._settings):
            if not self._obstacle(other):
                self._warnings.append(f"{name}: {other.name}, for {provider.name}: {against}")
                return other
        self._skip(name, f"{provider.name}: {against}")
        return None

    def _fallbacks(self, found: _Selection, others: Sequence[Provider]) -> tuple[Provider, ...]:
        """Its configured fallbacks; the next best ones if go-ent chose the provider."""
        if self._facts.allow_fallback is False:
            return ()
        own = fallbacks_of(found.provider, self._settings)
        return own or (tuple(others[:MAX_FALLBACKS]) if found.step.source in OWN_SOURCES else ())

    def _alternative(self, provider: Provider) -> Route:
        method, _ = self._method_choice.method_for(
            provider, wanted=self._pinned_method or self._rule_method, quick=is_small(self._task)
        )
        return Route(provider=provider, method=method, reason="")

    def _reason(self, step: DecisionStep, how: str) -> str:
        prefix = {
            "policy": f"policy ({step.name}): ",
            "learning": f"policy ({step.name}), by outcomes: ",
        }.get(step.source, "" if step.name == "default_provider" else f"{step.name}: ")
        why = prefix + step.why
        how = f", by {self._pinned_method}, as requested" if self._pinned_method else how
        return f"{why}{how}{TASK_CLAUSE}{task_summary(self._task)}"

    def _refusal(self) -> str:
        if not self._settings.providers:
            return none_configured(self._settings)
        each = "; ".join(f"{c.provider.name}: {c.obstacle or NEEDS_PIN}" for c in self._candidates)
        return f"no provider can take the task now. {each}"

    def _obstacle(self, provider: Provider) -> str:
        """Ignores the budget: a rule or default may name an expensive provider."""
        if provider.backend in self._settings.agents and self._pinned_method not in (None, "agent"):
            return f"it is an agent of its own, and the requested method is {self._pinned_method!r}"
        return obstacle(provider, self._task, self._facts_without_budget)

    def _provider_named(self, name: str | None) -> Provider | None:
        return next((c.provider for c in self._candidates if c.provider.name == name), None)

    def _skip(self, name: str, why: str) -> None:
        self._add_step(
            "rule" if name.startswith("rule") else "default", name, f"passed over: {why}"
        )
        self._warnings.append(f"{name} was passed over: {why}")

    def _add_step(
        self, source: DecisionSource, name: str, why: str, *, decided: bool = False
    ) -> DecisionStep:
        step = DecisionStep(source=source, name=name, decided=decided, why=why)
        self._steps.append(step)
        return step


def _same_model(one: Provider, other: Provider) -> bool:
    return (one.backend, one.model) == (other.backend, other.model)


def _unique_models(providers: Iterator[Provider]) -> tuple[Provider, ...]:
    """Each model once, by its short name if it has one."""
    found: dict[tuple[str, str], Provider] = {}
    for provider in providers:
        if provider.method == "agent" or provider.listed:
            continue  # see NEEDS_PIN
        known = found.get((provider.backend, provider.model))
        if known is None or ("/" in known.name and "/" not in provider.name):
            found[provider.backend, provider.model] = provider
    return tuple(found.values())


def decide_route(
    task: Classification,
    pin: Pin,
    settings: Settings,
    methods: Sequence[Method],
    facts: RouteFacts,
) -> RouteDecision:
    """Never raises: a task that no provider can take has a `refusal`."""
    if pin.method == "agent" in methods and not pin.provider and pin.model in (None, *TIERS):
        return _decide_by_tier(task, pin, settings, facts)
    if pin.provider or pin.model:
        return _decide_by_pin(task, pin, settings, methods, facts)
    if pin.method and pin.method not in methods:
        return RouteDecision(refusal=_unknown_method(pin.method, methods))
    first = RouteSearch(task, pin, settings, methods, facts).decision()
    if first.chosen_route:
        return first
    for eased, warning in _concessions(task, settings, facts):
        decision = RouteSearch(task, pin, settings, methods, eased).decision()
        if decision.chosen_route:
            return replace(decision, warnings=(*decision.warnings, warning))
    return first


def _concessions(
    task: Classification, settings: Settings, facts: RouteFacts
) -> Iterator[tuple[RouteFacts, str]]:
    """Relaxed facts, each with its warning, for when no provider is left."""
    if facts.avoid:
        again = f"no other provider can take it now: {', '.join(facts.avoid)} may get it again"
        yield replace(facts, avoid=()), again
    cramped = (
        f"{context_text(task.context_tokens)} fit no window: the widest was chosen, and the context "
        "has to be read in parts"
    )
    yield replace(facts, no_window_fits=True), cramped
    if facts.budget_usd is not None:
        kept = f"no available provider stays within budget_usd {usd_text(facts.budget_usd)}"
        above = budget_objection(facts, settings) or kept
        yield replace(facts, budget_usd=None), above
        yield replace(facts, budget_usd=None, no_window_fits=True), f"{cramped}; {above}"


def _decide_by_pin(
    task: Classification, pin: Pin, settings: Settings, methods: Sequence[Method], facts: RouteFacts
) -> RouteDecision:
    try:
        route = choose_pinned(pin, settings, methods, allow_fallback=facts.allow_fallback)
    except NoRoute as error:
        step = DecisionStep(source="pin", name="pin", decided=False, why=str(error))
        return RouteDecision(refusal=str(error), steps=(step,))
    return RouteDecision(
        chosen_route=route,
        steps=(DecisionStep(source="pin", name="pin", decided=True, why=route.reason),),
        candidates=tuple(candidates_for(task, settings, facts)),
        warnings=tuple(_pin_warnings(route, task, settings, facts)),
    )


def _decide_by_tier(
    task: Classification, pin: Pin, settings: Settings, facts: RouteFacts
) -> RouteDecision:
    """For go-ent's own agent: the requested tier, or the one that fits the task."""
    candidates = tuple(candidates_for(task, settings, facts))
    own, why = settings, "asked for"
    if pin.model is None:
        why = tier_reason(task)
        fitting = tuple(c.provider for c in candidates if not c.obstacle)
        own = replace(settings, providers=fitting) if fitting else settings
    try:
        provider, which = provider_for_tier(pin.model or tier_for(task), own, facts.prices)
    except NoRoute as error:
        step = DecisionStep(source="policy", name="tier", decided=False, why=str(error))
        return RouteDecision(refusal=str(error), steps=(step,), candidates=candidates)
    moves = facts.allow_fallback
    if moves is None:
        moves = settings.failover_pinned or pin.model is None
    route = Route(
        provider=provider,
        method="agent",
        reason=f"{why}: {which}",
        fallbacks=fallbacks_of(provider, settings) if moves else (),
    )
    return RouteDecision(
        chosen_route=route,
        steps=(DecisionStep(source="policy", name="tier", decided=True, why=route.reason),),
        candidates=candidates,
        warnings=tuple(_pin_warnings(route, task, settings, facts)),
    )


def _pin_warnings(
    route: Route, task: Classification, settings: Settings, facts: RouteFacts
) -> Iterator[str]:
    """A pin is obeyed in spite of obstacles, with a warning."""
    against = pin_objection(route.provider, task, facts)
    if not against:
        return
    others = [
        p
        for p in fallbacks_of(route.provider, settings) or settings.providers
        if p.name != route.provider.name and not obstacle(p, task, facts)
    ]
    instead = f"; {others[0].name!r} could take it" if others else ""
    moving = " and will, if it fails" if route.fallbacks else ""
    yield f"provider {route.provider.name!r} was asked for, but: {against}{instead}{moving}"


def _unknown_method(method: Method, methods: Sequence[Method]) -> str:
    return f"method {method!r} is not available in this version; one of: {', '.join(methods)}"
