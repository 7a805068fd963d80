"""Which backends and providers are there, once every source was heard?

What `providers.yaml` says goes before `opencode.json`, and that before the built-in table.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import urlsplit

from msgspec.structs import replace

from goent.config.fields import Mention
from goent.config.known import KNOWN, SHORT_NAMES, KnownBackend, known_backend
from goent.config.opencode import OUR_PACKAGES, OpenCodeConfig, speaks_our_wire
from goent.config.providers import Entry
from goent.config.tree import Problems
from goent.domain.local_servers import is_near, local_server
from goent.domain.settings import Agent, Backend
from goent.domain.types import Dialect, Provider, Secret, Value

CREDENTIALS: Final = frozenset({"authorization", "x-api-key", "api-key", "cookie"})
# What people write for servers that want no key, because some program asks for one.
STAND_INS: Final = frozenset(
    {
        "ollama",
        "lmstudio",
        "lm-studio",
        "empty",
        "none",
        "no-key",
        "not-needed",
        "sk-no-key-required",
    }
)


class Sources(Value, frozen=True, kw_only=True):
    """Everything that names providers. `logins`: where OpenCode is logged in by itself."""

    entries: tuple[Entry, ...]
    opencode: OpenCodeConfig
    logins: tuple[str, ...]
    agents: Mapping[str, Agent]
    environ: Mapping[str, str]


class _Said(Value, frozen=True, kw_only=True):
    """What the entries of `providers.yaml` say about one backend."""

    base_url: str | None = None
    key_env: str | None = None
    local: bool | None = None


def gather_backends(sources: Sources, problems: Problems) -> dict[str, Backend]:
    said = _what_entries_say(sources.entries, problems)
    found = (
        *(backend for backend in said if backend not in sources.agents),
        *sources.opencode.backends,
        *sources.opencode.chosen_backend,
        *(name for name in sources.logins if sources.opencode.offers(name)),
        *(
            known.id
            for known in KNOWN.values()
            if known.variable(sources.environ) and sources.opencode.offers(known.id)
        ),
    )
    return {
        backend: _backend(backend, said.get(backend, _Said()), sources)
        for backend in dict.fromkeys(found)
    }


def gather_providers(
    sources: Sources, backends: Mapping[str, Backend], wanted: Iterable[tuple[str, str]]
) -> tuple[Provider, ...]:
    """Entries of the file first; `wanted` are backends and models that rules and defaults name."""
    listed = {provider.backend for provider in sources.opencode.providers}
    common = [
        provider
        for backend, known in _at_their_own_address(sources, backends).items()
        for provider in _known_providers(backend, known)
    ]
    offered = [*sources.opencode.providers, *(p for p in common if p.backend not in listed)]
    facts = {(p.backend, p.model): p for p in (*common, *sources.opencode.providers)}
    found = {e.provider.name: _completed(_by_agent(e, sources), facts) for e in sources.entries}
    for provider in _agents(sources.agents):
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
            found.setdefault(bare.name, _completed(bare, facts))
    return tuple(found.values())


def _agents(agents: Mapping[str, Agent]) -> Iterator[Provider]:
    """An agent goes by its own name, with its first model or without any; its others beside it."""
    for name, agent in agents.items():
        for number, model in enumerate(agent.models or ("",)):
            shown = f"{name}/{model}" if number else name
            yield Provider(name=shown, backend=name, model=model, method="agent")


def _by_agent(entry: Entry, sources: Sources) -> Provider:
    """An entry whose backend is an agent can be had by no other method."""
    provider = entry.provider
    return replace(provider, method="agent") if provider.backend in sources.agents else provider


def _what_entries_say(entries: Iterable[Entry], problems: Problems) -> dict[str, _Said]:
    said: dict[str, _Said] = {}
    first: dict[tuple[str, str], Mention] = {}
    for entry in entries:
        backend = entry.provider.backend
        known = said.setdefault(backend, _Said())
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


def _backend(backend: str, said: _Said, sources: Sources) -> Backend:
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
    ours = said.base_url or (base_url and speaks_our_wire(theirs.npm))
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
        key=None if local and _stands_in(key, backend) else key,
        npm=theirs.npm,
        source=_source(backend, said, sources),
        local=local,
        headers=theirs.headers,
        header_envs=theirs.header_envs,
    )


def _is_local(theirs: Backend, base_url: str | None) -> bool:
    """Whether it looks like a server of the user's own that wants no key."""
    if not (base_url and is_near(base_url) and theirs.npm in OUR_PACKAGES):
        return False
    own_login = any(name.lower() in CREDENTIALS for name, _ in theirs.headers)
    return not own_login and (theirs.key is None or _stands_in(theirs.key, theirs.id))


def _stands_in(key: Secret | None, backend: str) -> bool:
    """Whether a key was only written because some program wanted one."""
    return key is not None and key.reveal().lower() in {*STAND_INS, backend.lower()}


def _dialect(known: KnownBackend | None, theirs: Backend) -> Dialect:
    if theirs.npm or not known:
        return theirs.dialect
    return known.dialect if known else "openai"


def _source(backend: str, said: _Said, sources: Sources) -> str:
    if said.base_url or said.key_env:
        return "providers.yaml"
    if backend in (*sources.opencode.backends, *sources.opencode.chosen_backend):
        return "opencode.json"
    known = known_backend(backend)
    if known and known.variable(sources.environ):
        return "environment"
    return "login" if backend in sources.logins else "providers.yaml"


def _at_their_own_address(
    sources: Sources, backends: Mapping[str, Backend]
) -> dict[str, KnownBackend]:
    """Known backends that can be used. One that `providers.yaml` moved may serve other models."""
    moved = {entry.provider.backend for entry in sources.entries if entry.base_url}
    return {
        backend: KNOWN[backend]
        for backend, settings in backends.items()
        if backend in KNOWN
        and backend not in moved
        and (backend in sources.logins or settings.resolve_key(sources.environ))
    }


def _known_providers(backend: str, known: KnownBackend) -> Iterable[Provider]:
    for model in known.models:
        yield Provider(
            name=f"{backend}/{model.name}",
            backend=backend,
            model=model.name,
            context_limit=model.context,
        )


def _completed(provider: Provider, facts: Mapping[tuple[str, str], Provider]) -> Provider:
    fact = facts.get((provider.backend, provider.model))
    if fact is None:
        return provider
    return replace(
        provider,
        price=provider.price or fact.price,
        context_limit=provider.context_limit or fact.context_limit,
        options=provider.options or fact.options,
    )
