"""Where may a model call go: to the provider it names, and to whom after that?"""

from collections.abc import Iterable, Mapping

from goent.domain.errors import ProviderRefused
from goent.domain.settings import Backend
from goent.domain.types import Dialect, Provider, Secret, Value
from goent.upstream.forward import Given, Headers


class UnknownBackend(ProviderRefused):
    """Nobody has configured it."""


class ForeignBackend(ProviderRefused):
    """It is configured, but not for the worker that called."""


class Target(Value, frozen=True, kw_only=True):
    """One provider's model, with all that is needed to call it. A `local` one may have no key."""

    provider: Provider
    dialect: Dialect
    base_url: str
    key: Secret
    local: bool = False
    headers: Given = ()

    @property
    def name(self) -> str:
        return self.provider.name

    @property
    def server(self) -> str:
        """Its address if it is a server of the user's own."""
        return self.base_url if self.local else ""

    @property
    def place(self) -> str:
        """For errors: who, and where."""
        return f"backend {self.provider.backend!r} at {self.base_url!r}"


class Order(Value, frozen=True, kw_only=True):
    """One model call as somebody made it, in the dialect that they speak."""

    worker: str
    session: str = ""
    backend: str
    model: str
    dialect: Dialect
    body: bytes
    stream: bool = True
    headers: Headers = ()


class Course(Value, frozen=True, kw_only=True):
    """The targets in the order of preference; there is at least one."""

    targets: tuple[Target, ...]


def plan_course(
    provider: Provider,
    fallbacks: Iterable[Provider],
    backends: Mapping[str, Backend],
    environ: Mapping[str, str],
) -> Course:
    """The provider must be usable; a fallback that is not is passed over."""
    first = target(provider, backends, environ)
    others: list[Target] = []
    for fallback in fallbacks:
        if (fallback.backend, fallback.model) == (provider.backend, provider.model):
            continue
        try:
            others.append(target(fallback, backends, environ))
        except ProviderRefused:
            continue  # `go-ent doctor` names it; a call that can be served is not the moment
    return Course(targets=(first, *others))


def target(
    provider: Provider, backends: Mapping[str, Backend], environ: Mapping[str, str]
) -> Target:
    """Raises `ProviderRefused` if go-ent cannot call the provider itself."""
    backend = backends.get(provider.backend)
    if backend is None:
        raise UnknownBackend(f"there is no backend {provider.backend!r}")
    if not backend.base_url:
        raise ProviderRefused(
            f"backend {backend.id!r} has no base_url: set it in .goent/providers.yaml"
        )
    if not backend.is_held(environ):
        remedy = f"set {backend.key_env}" if backend.key_env else "set its api_key_env"
        raise ProviderRefused(f"no key for backend {backend.id!r}: {remedy}")
    return Target(
        provider=provider,
        dialect=backend.dialect,
        base_url=backend.base_url.rstrip("/"),
        key=Secret(backend.resolve_key(environ) or ""),
        local=backend.local,
        headers=backend.headers,
    )
