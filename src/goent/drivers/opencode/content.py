"""Which configuration does OpenCode get from us?

It goes in by `OPENCODE_CONFIG_CONTENT`, which wins over the user's file and the repository's.
OpenCode merges objects key by key and replaces lists and plain values, so everything that must not
be bent by a repository is said here, even where it repeats a default.

What this cannot hold: a repository's own plugins and MCP servers are programs that OpenCode runs,
and a `"*"` permission after ours may loosen what *subagents* do unasked (a worker's own session
has rules that come last). So a repository's files are read only where the user says so, with
`opencode.project_config: true`.
"""

from collections.abc import Mapping

from msgspec import UNSET, Raw, Struct, UnsetType, field

from goent.config.known import known_backend
from goent.domain.settings import Action, Backend, Settings
from goent.domain.types import Dialect, Provider

WARM_PROVIDER = "goent-warm"
WARM_MODEL = "warm"
WARM = f"{WARM_PROVIDER}/{WARM_MODEL}"
OWN_PROVIDER = "opencode"  # OpenCode's own models, by the user's login
OUTPUT_LIMIT = 8192  # OpenCode wants one beside a window; every provider we know accepts this

# By tool, and there for all or by pattern; the last match decides.
Permissions = Mapping[str, Action | Mapping[str, Action]]

_PACKAGES: Mapping[Dialect, str] = {
    "openai": "@ai-sdk/openai-compatible",
    "anthropic": "@ai-sdk/anthropic",
}


class Options(Struct, frozen=True, kw_only=True, rename={"base_url": "baseURL", "key": "apiKey"}):
    """Where a provider's calls go."""

    base_url: str
    key: str | UnsetType = UNSET


class Limit(Struct, frozen=True, kw_only=True):
    """Tokens. OpenCode refuses one without the other."""

    context: int
    output: int


class Cost(Struct, frozen=True, kw_only=True):
    """USD per million tokens."""

    input: float
    output: float
    cache_read: float | UnsetType = UNSET
    cache_write: float | UnsetType = UNSET


class Model(Struct, frozen=True, kw_only=True):
    """What OpenCode cannot know of a model that is not in its catalogue."""

    tool_call: bool = True
    limit: Limit | UnsetType = UNSET
    cost: Cost | UnsetType = UNSET
    options: Raw | UnsetType = UNSET


class ProviderEntry(Struct, frozen=True, kw_only=True):
    """One provider; merged with OpenCode's catalogue and the user's file."""

    npm: str
    options: Options
    models: Mapping[str, Model]


class Agent(Struct, frozen=True, kw_only=True):
    """An agent of OpenCode's own that is switched off, or one of ours."""

    disable: bool | UnsetType = UNSET
    mode: str | UnsetType = UNSET
    permission: Permissions | UnsetType = UNSET


class Permission(Struct, frozen=True, kw_only=True):
    """What a session without rules of its own may do: a subagent's, above all."""

    edit: str = "ask"
    bash: str = "ask"
    external_directory: str = "ask"
    webfetch: str = "ask"


class GuardOptions(Struct, frozen=True, kw_only=True):
    """Where the guard inside OpenCode asks, and as whom."""

    url: str
    token: str


UNTITLED = Agent(disable=True)  # it would spend a model call on naming each session


class Content(Struct, frozen=True, kw_only=True):
    """The whole. A session whose model was never set can only reach the gate's own model.

    Language servers and formatters are programs, many of them a repository's own: of its
    `node_modules/.bin` or `vendor/bin`. They run unasked, also when a file is only read.
    """

    provider: Mapping[str, ProviderEntry]
    enabled_providers: tuple[str, ...]
    disabled_providers: tuple[str, ...] = ()
    model: str = WARM
    small_model: str = WARM
    autoupdate: bool = False
    share: str = "disabled"
    snapshot: bool = False  # we undo by git; OpenCode's snapshots cost two git calls a step
    agent: Mapping[str, Agent] = field(default_factory=lambda: {"title": UNTITLED})
    permission: Permission | Permissions = Permission()
    plugin: tuple[tuple[str, GuardOptions], ...] = ()
    shell: str | UnsetType = UNSET
    lsp: bool | UnsetType = False
    formatter: bool | UnsetType = False


def held_backends(settings: Settings, environ: Mapping[str, str]) -> frozenset[str]:
    """The backends that go-ent calls itself, with a key or without: their calls go through the gate."""
    backends = settings.backends.values()
    return frozenset(backend.id for backend in backends if backend.is_held(environ))


def generate(
    settings: Settings, *, held: frozenset[str], addresses: Mapping[str, str], token: str
) -> Content:
    """`addresses` are the gate's, for every held backend and for the warm-up."""
    entries = {
        WARM_PROVIDER: ProviderEntry(
            npm=_PACKAGES["openai"],
            options=Options(base_url=addresses[WARM_PROVIDER], key=token),
            models={WARM_MODEL: Model()},
        )
    }
    for backend in settings.backends.values():
        if backend.id in held:
            options = Options(base_url=addresses[backend.id], key=token)
            # The gate speaks two dialects, whatever package the catalogue would take.
            entries[backend.id] = _entry(settings, backend, _PACKAGES[backend.dialect], options)
        elif backend.base_url:
            package = backend.npm or _PACKAGES[backend.dialect]
            options = Options(base_url=backend.base_url)
            entries[backend.id] = _entry(settings, backend, package, options)
    is_users = settings.opencode.profile == "user"
    own = (OWN_PROVIDER,) if is_users else ()
    enabled = dict.fromkeys((*settings.backends, *own, WARM_PROVIDER))
    programs = UNSET if is_users and settings.opencode.project_config else False
    return Content(
        provider=entries, enabled_providers=tuple(enabled), lsp=programs, formatter=programs
    )


def _entry(settings: Settings, backend: Backend, npm: str, options: Options) -> ProviderEntry:
    models = {p.model: _model(p) for p in settings.providers if p.backend == backend.id}
    return ProviderEntry(npm=npm, options=options, models=models)


def _model(provider: Provider) -> Model:
    limit: Limit | UnsetType = UNSET
    if provider.context_limit and not _in_catalogue(provider):
        output = min(OUTPUT_LIMIT, provider.context_limit // 2)
        limit = Limit(context=provider.context_limit, output=output)
    options = Raw(provider.options) if provider.options else UNSET
    return Model(limit=limit, cost=_cost(provider), options=options)


def _in_catalogue(provider: Provider) -> bool:
    """OpenCode knows the model's true limits: ours would only narrow its answers."""
    known = known_backend(provider.backend)
    return known is not None and any(model.name == provider.model for model in known.models)


def _cost(provider: Provider) -> Cost | UnsetType:
    price = provider.price
    if price is None:
        return UNSET
    read, write = price.cache_read, price.cache_write
    return Cost(
        input=float(price.input),
        output=float(price.output),
        cache_read=UNSET if read is None else float(read),
        cache_write=UNSET if write is None else float(write),
    )
