"""Which provider does a pin mean, and is it to be had?"""

from collections.abc import Sequence
from typing import Final

from goent.domain.errors import NoRoute
from goent.domain.settings import Settings
from goent.domain.trust import in_few_words
from goent.domain.types import Method, Pin, Provider, Route

NO_PROVIDER: Final = (
    "no provider is configured: run `go-ent init` and edit .goent/providers.yaml, set a "
    "key such as ANTHROPIC_API_KEY, or log in with `opencode auth login`"
)


def choose(
    pin: Pin,
    settings: Settings,
    methods: Sequence[Method],
    *,
    allow_fallback: bool | None = None,
) -> Route:
    """A pin is obeyed or refused with the reason; it is never bent.

    A task that is pinned to a provider stays there, unless the caller or the settings let it move.
    """
    provider, reason = _provider(pin, settings)
    if pin.method and pin.method not in methods:
        offered = ", ".join(methods)
        raise NoRoute(f"method {pin.method!r} is not available in this version; one of: {offered}")
    method = pin.method or provider.method
    if provider.backend in settings.agents and method != "agent":
        raise NoRoute(
            f"provider {provider.name!r} is an agent of its own, which runs by the method 'agent' "
            f"alone: leave method {method!r} out, or name another provider"
        )
    if method not in methods:
        reason += f"; by {methods[0]}, as {method} is not available in this version"
        method = methods[0]
    if allow_fallback is None:
        allow_fallback = settings.failover_pinned or not (pin.provider or pin.model)
    fallbacks = fallbacks_of(provider, settings) if allow_fallback else ()
    return Route(provider=provider, method=method, reason=reason, fallbacks=fallbacks)


def named(pin: Pin, settings: Settings) -> tuple[Provider, ...]:
    """All that a rule's words may mean, in the order of the settings: a backend may have several."""
    of_backend = tuple(p for p in settings.providers if p.backend == pin.provider)
    known = any(p.name == pin.provider for p in settings.providers)
    if pin.model is None and of_backend and not known:
        return of_backend
    return (_provider(pin, settings)[0],)


def fallbacks_of(provider: Provider, settings: Settings) -> tuple[Provider, ...]:
    """Who may stand in for it, in the order of its entry; no name twice, and not its own."""
    named = {each.name: each for each in settings.providers}
    names = dict.fromkeys(provider.fallbacks)
    return tuple(named[name] for name in names if name in named and name != provider.name)


def _provider(pin: Pin, settings: Settings) -> tuple[Provider, str]:
    backend, model = _split(pin, settings)
    if backend is None and model is None:
        return _default(settings), "the configured default"
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


def _split(pin: Pin, settings: Settings) -> tuple[str | None, str | None]:
    """`model: zai/glm-5.3` names its backend, unless the model's own name has a slash."""
    if pin.model and "/" in pin.model:
        head, _, tail = pin.model.partition("/")
        known = head in settings.backends or head in settings.agents
        if pin.provider in (None, head) and known:
            return head, tail
    return pin.provider, pin.model


def _default(settings: Settings) -> Provider:
    name = settings.default_provider
    found = next((p for p in settings.providers if p.name == name), None)
    if found:
        return found
    if not settings.providers:
        raise NoRoute(_there(settings))
    raise NoRoute(
        "no provider was named and none is the default: pass `provider` "
        f"({_names(settings)}) or set default_provider in .goent/config.yaml"
    )


def _by_model(model: str, settings: Settings) -> Provider:
    fitting = [p for p in settings.providers if model in (p.model, p.name)]
    if not fitting:
        raise NoRoute(f"no provider offers model {model!r}; {_there(settings)}")
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
    return f"unknown provider {name!r}; {_there(settings)}"


def _there(settings: Settings) -> str:
    if settings.providers:
        return f"there are: {_names(settings)}"
    return none_configured(settings)


def none_configured(settings: Settings) -> str:
    """How to get a provider where there is none."""
    if settings.withheld:
        return (
            f"the only providers are defined by {in_few_words(settings.withheld)}, which is not "
            "trusted: review and allow it with `go-ent trust`"
        )
    return NO_PROVIDER


def _names(settings: Settings) -> str:
    return ", ".join(p.name for p in settings.providers)
