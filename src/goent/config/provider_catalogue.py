"""Gathers backends and providers from all sources: files, OpenCode, the environment, local servers.

`providers.yaml` overrides `opencode.json`, which overrides the built-in table. A repository's own
`opencode.json` is no source: whoever wrote it could send keys anywhere.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import urlsplit

from msgspec.structs import replace

from goent.config.opencode_config import SUPPORTED_PACKAGES, OpenCodeConfig, is_callable_package
from goent.config.provider_settings import (
    KNOWN_BACKENDS,
    SHORT_NAMES,
    KnownBackend,
    ProviderFileEntry,
    known_backend,
)
from goent.config.settings_tree import Mention, Problems
from goent.domain.local_servers import ModelListing, is_local_address, local_server
from goent.domain.settings import AgentSettings, Backend, Settings
from goent.domain.types import Dialect, Provider, Secret, Value

CREDENTIAL_HEADERS: Final = frozenset({"authorization", "x-api-key", "api-key", "cookie"})
# What people write for servers that need no key, because some program insists on one.
PLACEHOLDER_KEYS: Final = frozenset(
    {"ollama", "lmstudio", "lm-studio", "empty", "none", "no-key", "not-needed"}
    | {"sk-no-key-required"}
)


class ProviderSources(Value, frozen=True, kw_only=True):
    """Everything that names providers. `logins`: where OpenCode is logged in by itself."""

    entries: tuple[ProviderFileEntry, ...]
    opencode: OpenCodeConfig
    logins: tuple[str, ...]
    agents: Mapping[str, AgentSettings]
    environ: Mapping[str, str]


class _BackendMentions(Value, frozen=True, kw_only=True):
    """What the entries of `providers.yaml` set for one backend."""

    base_url: str | None = None
    key_env: str | None = None
    local: bool | None = None


def gather_backends(sources: ProviderSources, problems: Problems) -> dict[str, Backend]:
    said = _backend_mentions(sources.entries, problems)
    found = (
        *(backend for backend in said if backend not in sources.agents),
        *sources.opencode.backends,
        *sources.opencode.chosen_backend,
        *(name for name in sources.logins if sources.opencode.offers(name)),
        *(
            known.id
            for known in KNOWN_BACKENDS.values()
            if known.variable(sources.environ) and sources.opencode.offers(known.id)
        ),
    )
    return {
        backend: _build_backend(backend, said.get(backend, _BackendMentions()), sources)
        for backend in dict.fromkeys(found)
    }


def gather_providers(
    sources: ProviderSources, backends: Mapping[str, Backend], wanted: Iterable[tuple[str, str]]
) -> tuple[Provider, ...]:
    """All providers, those of `providers.yaml` first.

    `wanted` are backends and models that rules and defaults name though no source lists them.
    """
    listed = {provider.backend for provider in sources.opencode.providers}
    common = [
        provider
        for backend, known in _known_at_usual_address(sources, backends).items()
        for provider in _known_providers(backend, known)
    ]
    offered = [*sources.opencode.providers, *(p for p in common if p.backend not in listed)]
    facts = {(p.backend, p.model): p for p in (*common, *sources.opencode.providers)}
    found = {
        e.provider.name: _with_facts(_with_agent_method(e, sources), facts) for e in sources.entries
    }
    for provider in _agent_providers(sources.agents):
        found.setdefault(provider.name, provider)
    for provider in offered:
        found.setdefault(provider.name, provider)
    usable = {(p.backend, p.model): p for p in found.values()}
    for name, pair in SHORT_NAMES.items():
        if pair in usable and name not in found:
            found[name] = replace(usable[pair], name=name)
    for pair in wanted:
        if not any((p.backend, p.model) == pair for p in found.values()):
            bare = Provider(name="/".join(pair), backend=pair[0], model=pair[1])
            found.setdefault(bare.name, _with_facts(bare, facts))
    return tuple(found.values())


def _agent_providers(agents: Mapping[str, AgentSettings]) -> Iterator[Provider]:
    """An agent's own name stands for its first model; its other models are `agent/model`."""
    for name, agent in agents.items():
        for number, model in enumerate(agent.models or ("",)):
            shown = f"{name}/{model}" if number else name
            yield Provider(name=shown, backend=name, model=model, method="agent")


def _with_agent_method(entry: ProviderFileEntry, sources: ProviderSources) -> Provider:
    """An entry whose backend is an agent has the method `agent`, whatever it says."""
    provider = entry.provider
    return replace(provider, method="agent") if provider.backend in sources.agents else provider


def _backend_mentions(
    entries: Iterable[ProviderFileEntry], problems: Problems
) -> dict[str, _BackendMentions]:
    said: dict[str, _BackendMentions] = {}
    first: dict[tuple[str, str], Mention] = {}
    for entry in entries:
        backend = entry.provider.backend
        known = said.setdefault(backend, _BackendMentions())
        if entry.local is not None and known.local is None:
            said[backend] = replace(known, local=entry.local)
        for what, mention in (("base_url", entry.base_url), ("key_env", entry.api_key_env)):
            if mention is None:
                continue
            earlier = first.setdefault((backend, what), mention)
            if earlier.name != mention.name:
                problems.note(
                    mention.place,
                    f"{mention.name!r} contradicts {earlier.name!r} ({earlier.place}); "
                    f"backend {backend!r} has one of them",
                )
            said[backend] = replace(said[backend], **{what: mention.name})
    return said


def _build_backend(backend: str, said: _BackendMentions, sources: ProviderSources) -> Backend:
    known = known_backend(backend)
    theirs = sources.opencode.backends.get(backend) or Backend(id=backend)
    logged_in = backend in sources.logins
    key_env = said.key_env or theirs.key_env
    key = theirs.key if not said.key_env else None
    if known and not key_env and not key and not said.local:
        key_env = known.variable(sources.environ)
        if not key_env and not logged_in:
            key_env = known.variables[0]
    base_url = said.base_url or theirs.base_url
    if known and (key_env or key):
        base_url = base_url or known.base_url
    if not logged_in and (server := local_server(backend)):
        base_url = base_url or server.base_url
    local = said.local
    if local is None:
        local = _is_local(theirs, base_url) and not (known or key_env or logged_in)
    if local and base_url and not urlsplit(base_url).path:
        base_url += "/v1"  # where all of these speak OpenAI's dialect
    # Without an address, or in a wire format that we do not speak, OpenCode has to call by itself;
    # then its key has to stay in its environment.
    ours = said.base_url or (base_url and is_callable_package(theirs.npm))
    direct = not ours or (logged_in and not key_env and not key)
    if direct:
        return Backend(
            id=backend,
            dialect=_dialect(known, theirs),
            npm=theirs.npm,
            source=_source(backend, said, sources),
        )
    return Backend(
        id=backend,
        dialect=_dialect(known, theirs),
        base_url=base_url,
        key_env=key_env,
        key=None if local and _is_placeholder(key, backend) else key,
        npm=theirs.npm,
        source=_source(backend, said, sources),
        local=local,
        headers=theirs.headers,
        header_envs=theirs.header_envs,
    )


def _is_local(theirs: Backend, base_url: str | None) -> bool:
    """Whether it looks like a server of the user's own that wants no key."""
    if not (base_url and is_local_address(base_url) and theirs.npm in SUPPORTED_PACKAGES):
        return False
    own_login = any(name.lower() in CREDENTIAL_HEADERS for name, _ in theirs.headers)
    return not own_login and (theirs.key is None or _is_placeholder(theirs.key, theirs.id))


def _is_placeholder(key: Secret | None, backend: str) -> bool:
    """Whether a key was only written because some program insisted on one."""
    return key is not None and key.reveal().lower() in {*PLACEHOLDER_KEYS, backend.lower()}


def _dialect(known: KnownBackend | None, theirs: Backend) -> Dialect:
    if theirs.npm or not known:
        return theirs.dialect
    return known.dialect if known else "openai"


def _source(backend: str, said: _BackendMentions, sources: ProviderSources) -> str:
    if said.base_url or said.key_env:
        return "providers.yaml"
    if backend in (*sources.opencode.backends, *sources.opencode.chosen_backend):
        return "opencode.json"
    known = known_backend(backend)
    if known and known.variable(sources.environ):
        return "environment"
    return "login" if backend in sources.logins else "providers.yaml"


def _known_at_usual_address(
    sources: ProviderSources, backends: Mapping[str, Backend]
) -> dict[str, KnownBackend]:
    """Well-known backends that are usable, except those to which `providers.yaml` gives another address."""
    moved = {entry.provider.backend for entry in sources.entries if entry.base_url}
    return {
        backend: KNOWN_BACKENDS[backend]
        for backend, settings in backends.items()
        if backend in KNOWN_BACKENDS
        and backend not in moved
        and (backend in sources.logins or settings.resolve_key(sources.environ))
    }


def _known_providers(backend: str, known: KnownBackend) -> Iterable[Provider]:
    for model, window in known.models.items():
        name = f"{backend}/{model}"
        yield Provider(name=name, backend=backend, model=model, context_limit=window)


def _with_facts(provider: Provider, facts: Mapping[tuple[str, str], Provider]) -> Provider:
    fact = facts.get((provider.backend, provider.model))
    if fact is None:
        return provider
    return replace(
        provider,
        price=provider.price or fact.price,
        context_limit=provider.context_limit or fact.context_limit,
        options=provider.options or fact.options,
    )


def with_served_models(settings: Settings, listings: Mapping[str, ModelListing]) -> Settings:
    """Add what local servers list: context windows that no file gives, and models that no file names."""
    listings = {
        name: listing
        for name, listing in listings.items()
        if name in settings.backends and settings.backends[name].base_url == listing.base_url
    }
    if not any(listing.models for listing in listings.values()):
        return settings
    written = tuple(_with_window(provider, listings) for provider in settings.providers)
    names = {provider.name for provider in written}
    models = {(provider.backend, provider.model) for provider in written}
    found = tuple(
        provider
        for provider in _served_providers(listings)
        if provider.name not in names and not _is_known_model(provider, models)
    )
    providers = (*written, *found)
    default = settings.default_provider
    if default is None and len(providers) == 1:
        providers = (replace(providers[0], listed=False),)  # nothing else can be meant
        default = providers[0].name
    return replace(settings, providers=providers, default_provider=default)


def _with_window(provider: Provider, listings: Mapping[str, ModelListing]) -> Provider:
    listing = listings.get(provider.backend)
    served = listing.find(provider.model) if listing else None
    if served is None or provider.context_limit:
        return provider
    return replace(provider, context_limit=served.window)


def _served_providers(listings: Mapping[str, ModelListing]) -> Iterator[Provider]:
    for backend, listing in listings.items():
        for served in listing.models:
            yield Provider(
                name=f"{backend}/{served.name}",
                backend=backend,
                model=served.name,
                context_limit=served.window,
                listed=True,
            )


def _is_known_model(provider: Provider, models: set[tuple[str, str]]) -> bool:
    short = provider.model.removesuffix(":latest")
    return not models.isdisjoint({(provider.backend, provider.model), (provider.backend, short)})
