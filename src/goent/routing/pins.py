"""Resolves a pin or a model tier to a provider, or refuses it with the reason.

There are two tiers, by well-known names: `haiku` for small tasks, `sonnet` for the rest. They are
roles: without a model of that name, another one stands in.
"""

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Final, Literal, get_args

from msgspec.structs import replace

from goent.domain.errors import NoRoute
from goent.domain.settings import Settings, list_places
from goent.domain.task_profile import Classification
from goent.domain.types import Method, Pin, Price, Provider, Route

NO_PROVIDER: Final = (
    "no provider is configured: run `go-ent init` and edit .goent/providers.yaml, set a "
    "key such as ANTHROPIC_API_KEY, or log in with `opencode auth login`"
)
Tier = Literal["haiku", "sonnet"]
TIERS: Final[tuple[Tier, ...]] = get_args(Tier)
_SMALL_COMPLEXITIES: Final = frozenset({"trivial", "simple"})
_UNKNOWN_COST: Final = Decimal("Infinity")


def choose_pinned(
    pin: Pin,
    settings: Settings,
    methods: Sequence[Method],
    *,
    allow_fallback: bool | None = None,
) -> Route:
    """The route of a pin, which is obeyed exactly or refused with the reason.

    A task that is pinned to a provider has no fallbacks, unless the caller or the settings allow it.
    """
    provider, reason = _pinned_provider(pin, settings)
    if pin.method and pin.method not in methods:
        offered = ", ".join(methods)
        raise NoRoute(f"method {pin.method!r} is not available in this version; one of: {offered}")
    method = pin.method or provider.method
    if provider.backend in settings.agents and method != "agent":
        raise NoRoute(
            f"provider {provider.name!r} is an agent of its own, which runs only by the method 'agent': "
            f"leave method {method!r} out, or name another provider"
        )
    if method not in methods:
        reason += f"; by {methods[0]}, as {method} is not available in this version"
        method = methods[0]
    if allow_fallback is None:
        allow_fallback = settings.failover_pinned or not (pin.provider or pin.model)
    fallbacks = fallbacks_of(provider, settings) if allow_fallback else ()
    return Route(provider=provider, method=method, reason=reason, fallbacks=fallbacks)


def pinned_providers(pin: Pin, settings: Settings) -> tuple[Provider, ...]:
    """All providers that a rule may mean, in the order of the settings."""
    of_backend = tuple(p for p in settings.providers if p.backend == pin.provider)
    known = any(p.name == pin.provider for p in settings.providers)
    if pin.model is None and of_backend and not known:
        return of_backend
    return (_pinned_provider(pin, settings)[0],)


def fallbacks_of(provider: Provider, settings: Settings) -> tuple[Provider, ...]:
    """Its configured fallbacks, in the order of its entry."""
    named = {each.name: each for each in settings.providers}
    names = dict.fromkeys(provider.fallbacks)
    return tuple(named[name] for name in names if name in named and name != provider.name)


def _pinned_provider(pin: Pin, settings: Settings) -> tuple[Provider, str]:
    backend, model = _split_model(pin, settings)
    if backend is None and model is None:
        chosen = "the configured default" if settings.default_chosen else "the default"
        return _default_provider(settings), chosen
    if backend is None:
        return _by_model(model or "", settings), "asked for"
    return _by_backend(backend, model, settings), "asked for"


def _by_backend(name: str, model: str | None, settings: Settings) -> Provider:
    named = next((p for p in settings.providers if p.name == name), None)
    if named and model in (None, named.model):
        return named
    # A short name with another model: the name's backend serves it, or refuses.
    backend = named.backend if named else name
    if model is None:
        return _only_model(backend, settings)
    served = [p for p in settings.providers if p.backend == backend]
    known = next((p for p in served if p.model == model), None)
    known = known or next((p for p in served if p.name == model), None)  # anthropic's `haiku`
    if not known and backend in settings.agents:
        return Provider(name=f"{backend}/{model}", backend=backend, model=model, method="agent")
    if not known and backend not in settings.backends:
        raise NoRoute(_unknown_provider(name, settings))
    return known or Provider(name=f"{backend}/{model}", backend=backend, model=model)


def _split_model(pin: Pin, settings: Settings) -> tuple[str | None, str | None]:
    """`model: zai/glm-5.3` names its backend, unless the model's own name has a slash."""
    if pin.model and "/" in pin.model:
        head, _, tail = pin.model.partition("/")
        known = head in settings.backends or head in settings.agents
        if pin.provider in (None, head) and known:
            return head, tail
    return pin.provider, pin.model


def _default_provider(settings: Settings) -> Provider:
    name = settings.default_provider
    found = next((p for p in settings.providers if p.name == name), None)
    if found:
        return found
    if not settings.providers:
        raise NoRoute(_available_text(settings))
    raise NoRoute(
        "no provider was named and none is the default: pass `provider` "
        f"({_provider_names(settings)}) or set default_provider in .goent/config.yaml"
    )


def _by_model(model: str, settings: Settings) -> Provider:
    fitting = [p for p in settings.providers if model in (p.model, p.name)]
    if not fitting:
        raise NoRoute(f"no provider offers model {model!r}; {_available_text(settings)}")
    if len({p.backend for p in fitting}) > 1:
        names = ", ".join(p.name for p in fitting)
        raise NoRoute(f"model {model!r} is offered by {names}: pass `provider` as well")
    return fitting[0]


def _only_model(backend: str, settings: Settings) -> Provider:
    models = {p.model: p for p in settings.providers if p.backend == backend}
    if not models:
        raise NoRoute(_unknown_provider(backend, settings))
    default = next((p for p in models.values() if p.name == settings.default_provider), None)
    if len(models) > 1 and not default:
        raise NoRoute(
            f"provider {backend!r} has several models: pass `model` ({', '.join(models)})"
        )
    return default or next(iter(models.values()))


def _unknown_provider(name: str, settings: Settings) -> str:
    if act := next((act for act in settings.withheld if name in act.names), None):
        return (
            f"provider {name!r} is defined by {act.place}, which is not trusted ({act.says}). "
            "Review and allow it with `go-ent trust`"
        )
    return f"unknown provider {name!r}; {_available_text(settings)}"


def _available_text(settings: Settings) -> str:
    if settings.providers:
        return f"there are: {_provider_names(settings)}"
    return none_configured(settings)


def none_configured(settings: Settings) -> str:
    """How to configure a provider."""
    if settings.withheld:
        return (
            f"the only providers are defined by {list_places(settings.withheld)}, which is not "
            "trusted: review and allow it with `go-ent trust`"
        )
    return NO_PROVIDER


def _provider_names(settings: Settings) -> str:
    return ", ".join(p.name for p in settings.providers)


def tier_for(classification: Classification) -> Tier:
    """`haiku` for a small task that names one file at most."""
    little = classification.complexity in _SMALL_COMPLEXITIES and classification.named <= 1
    return "haiku" if little else "sonnet"


def tier_reason(classification: Classification) -> str:
    named = classification.named
    where = f" and names {named} files" if named > 1 else ""
    return f"{tier_for(classification)}, because the task is {classification.complexity}{where}"


def provider_for_tier(
    tier_or_model: str, settings: Settings, prices: Mapping[str, Price] | None = None
) -> tuple[Provider, str]:
    """The provider for `haiku`, `sonnet`, a provider's name or `provider/model`, and why.

    `prices` are by the provider's name, for entries without one. Raises `NoRoute`.
    """
    own = without_agents(settings)
    if tier_or_model not in TIERS:
        return _named_provider(tier_or_model, settings, own), "asked for"
    # Models that only the user's own server lists need to be requested by name.
    written = tuple(p for p in own.providers if not p.listed)
    own = replace(own, providers=written or own.providers)
    named = next((p for p in own.providers if p.name == tier_or_model), None)
    if named:
        return named, f"the provider named {tier_or_model!r}"
    such = [p for p in own.providers if tier_or_model in p.model.lower()]
    if such:
        found = _cheapest_of(such, prices or {}, own.default_provider)
        return found, f"{found.name}, whose model {found.model!r} is a {tier_or_model}"
    return _stand_in(tier_or_model, own, prices or {})


def without_agents(settings: Settings) -> Settings:
    """The settings for go-ent's own agent: other agents are not models."""
    kept = tuple(p for p in settings.providers if p.backend not in settings.agents)
    default = next((p.name for p in kept if p.name == settings.default_provider), None)
    return replace(settings, providers=kept, default_provider=default)


def _named_provider(word: str, settings: Settings, own: Settings) -> Provider:
    agent = next((p for p in settings.providers if word in (p.name, p.backend)), None)
    if agent and agent.backend in settings.agents:
        raise NoRoute(
            f"{word!r} is another agent, not a model: go-ent's own agent takes one of "
            f"{', '.join(p.name for p in own.providers) or 'none'}"
        )
    if any(word == p.name for p in own.providers):
        return choose_pinned(Pin(provider=word), own, ("agent",)).provider
    head, _, tail = word.partition("/")
    if tail and any(head in (p.name, p.backend) for p in own.providers):
        return choose_pinned(Pin(provider=head, model=tail), own, ("agent",)).provider
    return choose_pinned(Pin(model=word), own, ("agent",)).provider


def _stand_in(word: Tier, own: Settings, prices: Mapping[str, Price]) -> tuple[Provider, str]:
    """A stand-in where no provider has a model of that name."""
    default = next((p for p in own.providers if p.name == own.default_provider), None)
    if word == "haiku":
        priced = [p for p in own.providers if _price_rank(p, prices) != _UNKNOWN_COST]
        if priced:
            found = _cheapest_of(priced, prices, own.default_provider)
            return found, f"the cheapest, {found.name}, because no provider has a {word}"
    if default:
        return default, f"the default, {default.name}, because no provider has a {word}"
    if own.providers:
        first = own.providers[0]
        return (
            first,
            f"the first, {first.name}, because no provider has a {word} and none is default",
        )
    return choose_pinned(Pin(), own, ("agent",)).provider, ""  # raises, with the right message


def _cheapest_of(
    providers: Iterable[Provider], prices: Mapping[str, Price], default: str | None
) -> Provider:
    """The cheapest; among equals the default, then short names."""
    return min(
        providers, key=lambda p: (_price_rank(p, prices), p.name != default, "/" in p.name, p.name)
    )


def _price_rank(provider: Provider, prices: Mapping[str, Price]) -> Decimal:
    price = prices.get(provider.name) or provider.price
    return 3 * price.input + price.output if price else _UNKNOWN_COST
