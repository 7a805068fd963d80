"""Which tier of model does go-ent's own agent take for a task, and which provider is that here?

Two tiers, by the names that people know them by: `haiku` for little things, `sonnet` for the rest.
They are roles: who has no model of that name still has one that is meant.
"""

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Final, Literal, get_args

from msgspec.structs import replace

from goent.domain.errors import NoRoute
from goent.domain.settings import Settings
from goent.domain.tasks import Classification
from goent.domain.types import Pin, Price, Provider
from goent.policy.pins import choose

Tier = Literal["haiku", "sonnet"]

TIERS: Final[tuple[Tier, ...]] = get_args(Tier)
_LITTLE: Final = frozenset({"trivial", "simple"})
_UNKNOWN: Final = Decimal("Infinity")


def tier(classification: Classification) -> Tier:
    """A little task that speaks of one file at most is for the small model."""
    little = classification.complexity in _LITTLE and classification.named <= 1
    return "haiku" if little else "sonnet"


def tier_reason(classification: Classification) -> str:
    """Why that tier, for the session to say."""
    named = classification.named
    where = f" and speaks of {named} files" if named > 1 else ""
    return f"{tier(classification)}, for the task is {classification.complexity}{where}"


def provider_of(
    tier_or_model: str, settings: Settings, prices: Mapping[str, Price] | None = None
) -> tuple[Provider, str]:
    """Who is meant by `haiku`, `sonnet`, a provider's name or `provider/model`, and why.

    `prices` go by the provider's name, for those whose own entry has none. Raises `NoRoute`.
    """
    own = without_agents(settings)
    if tier_or_model not in TIERS:
        return _asked_for(tier_or_model, settings, own), "asked for"
    # What a server of the user's own has, and no file names, is nobody's choice.
    written = tuple(p for p in own.providers if not p.listed)
    own = replace(own, providers=written or own.providers)
    named = next((p for p in own.providers if p.name == tier_or_model), None)
    if named:
        return named, f"the provider named {tier_or_model!r}"
    such = [p for p in own.providers if tier_or_model in p.model.lower()]
    if such:
        found = _cheapest(such, prices or {}, own.default_provider)
        return found, f"{found.name}, whose model {found.model!r} is a {tier_or_model}"
    return _instead(tier_or_model, own, prices or {})


def without_agents(settings: Settings) -> Settings:
    """The settings as go-ent's own agent has them: other agents are no models for it."""
    kept = tuple(p for p in settings.providers if p.backend not in settings.agents)
    default = next((p.name for p in kept if p.name == settings.default_provider), None)
    return replace(settings, providers=kept, default_provider=default)


def _asked_for(word: str, settings: Settings, own: Settings) -> Provider:
    agent = next((p for p in settings.providers if word in (p.name, p.backend)), None)
    if agent and agent.backend in settings.agents:
        raise NoRoute(
            f"{word!r} is another agent, not a model: go-ent's own agent takes one of "
            f"{', '.join(p.name for p in own.providers) or 'none'}"
        )
    if any(word == p.name for p in own.providers):
        return choose(Pin(provider=word), own, ("agent",)).provider
    head, _, tail = word.partition("/")
    if tail and any(head in (p.name, p.backend) for p in own.providers):
        return choose(Pin(provider=head, model=tail), own, ("agent",)).provider
    return choose(Pin(model=word), own, ("agent",)).provider


def _instead(word: Tier, own: Settings, prices: Mapping[str, Price]) -> tuple[Provider, str]:
    """Nobody has such a model."""
    default = next((p for p in own.providers if p.name == own.default_provider), None)
    if word == "haiku":
        priced = [p for p in own.providers if _cost(p, prices) != _UNKNOWN]
        if priced:
            found = _cheapest(priced, prices, own.default_provider)
            return found, f"the cheapest, {found.name}, for no provider has a {word}"
    if default:
        return default, f"the default, {default.name}, for no provider has a {word}"
    if own.providers:
        first = own.providers[0]
        return first, f"the first, {first.name}, for no provider has a {word} and none is default"
    return choose(Pin(), own, ("agent",)).provider, ""  # raises: it knows the words for it


def _cheapest(
    providers: Iterable[Provider], prices: Mapping[str, Price], default: str | None
) -> Provider:
    """Of equals the default, then the shorter name, which people gave it."""
    return min(
        providers, key=lambda p: (_cost(p, prices), p.name != default, "/" in p.name, p.name)
    )


def _cost(provider: Provider, prices: Mapping[str, Price]) -> Decimal:
    price = prices.get(provider.name) or provider.price
    return 3 * price.input + price.output if price else _UNKNOWN
