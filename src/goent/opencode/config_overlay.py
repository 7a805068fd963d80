"""Generates the configuration that go-ent lays over OpenCode's own.

It goes in by `OPENCODE_CONFIG_CONTENT`, which wins over the user's file and the repository's.
OpenCode merges objects key by key and replaces lists and plain values, so everything that must not
be bent by a repository is said here, even where it repeats a default.

What this cannot hold: a repository's own plugins and MCP servers are programs that OpenCode runs,
and a `"*"` permission after ours may loosen what *subagents* do unasked (a worker's own session
has rules that come last). So a repository's files are read only where the user says so, with
`opencode.project_config: true`.

The configuration groups patterns by tool, and the last match decides. An order of rules that jumps
between a tool and a wildcard that covers it cannot be said that way; such rules are refused, because
a permission that means something else than was written is worse than none.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations

from msgspec import UNSET, Raw, Struct, UnsetType, field

from goent.config.provider_settings import known_backend
from goent.domain.errors import RequestError
from goent.domain.settings import Backend, PermissionAction, PermissionRule, Settings
from goent.domain.types import Dialect, Provider
from goent.permissions.permission_rules import wildcard_matches

WARM_PROVIDER = "goent-warm"
WARM_MODEL = "warm"
WARM = f"{WARM_PROVIDER}/{WARM_MODEL}"
OWN_PROVIDER = "opencode"  # OpenCode's own models, by the user's login
OUTPUT_LIMIT = 8192  # OpenCode wants one beside a window; every provider we know accepts this

# By tool, and there for all or by pattern; the last match decides.
PermissionMap = Mapping[str, PermissionAction | Mapping[str, PermissionAction]]

_PACKAGES: Mapping[Dialect, str] = {
    "openai": "@ai-sdk/openai-compatible",
    "anthropic": "@ai-sdk/anthropic",
}


class ProviderOptions(
    Struct, frozen=True, kw_only=True, rename={"base_url": "baseURL", "key": "apiKey"}
):
    """Where a provider's calls go."""

    base_url: str
    key: str | UnsetType = UNSET


class ModelLimit(Struct, frozen=True, kw_only=True):
    """Tokens. OpenCode refuses one without the other."""

    context: int
    output: int


class ModelCost(Struct, frozen=True, kw_only=True):
    """USD per million tokens."""

    input: float
    output: float
    cache_read: float | UnsetType = UNSET
    cache_write: float | UnsetType = UNSET


class ModelEntry(Struct, frozen=True, kw_only=True):
    """What OpenCode cannot know of a model that is not in its catalogue."""

    tool_call: bool = True
    limit: ModelLimit | UnsetType = UNSET
    cost: ModelCost | UnsetType = UNSET
    options: Raw | UnsetType = UNSET


class OverlayProvider(Struct, frozen=True, kw_only=True):
    """One provider; merged with OpenCode's catalogue and the user's file."""

    npm: str
    options: ProviderOptions
    models: Mapping[str, ModelEntry]


class AgentEntry(Struct, frozen=True, kw_only=True):
    """An agent of OpenCode's own that is switched off, or one of ours."""

    disable: bool | UnsetType = UNSET
    mode: str | UnsetType = UNSET
    permission: PermissionMap | UnsetType = UNSET


class DefaultPermission(Struct, frozen=True, kw_only=True):
    """What a session without rules of its own may do: a subagent's, above all."""

    edit: str = "ask"
    bash: str = "ask"
    external_directory: str = "ask"
    webfetch: str = "ask"


class GuardOptions(Struct, frozen=True, kw_only=True):
    """Where the guard inside OpenCode asks, and as whom."""

    url: str
    token: str


NO_TITLE_AGENT = AgentEntry(disable=True)  # it would spend a model call on naming each session


class ConfigOverlay(Struct, frozen=True, kw_only=True):
    """The whole. A session whose model was never set can only reach the gate's own model.

    Language servers and formatters are programs, many of them a repository's own: of its
    `node_modules/.bin` or `vendor/bin`. They run unasked, also when a file is only read.
    """

    provider: Mapping[str, OverlayProvider]
    enabled_providers: tuple[str, ...]
    disabled_providers: tuple[str, ...] = ()
    model: str = WARM
    small_model: str = WARM
    autoupdate: bool = False
    share: str = "disabled"
    snapshot: bool = False  # we undo by git; OpenCode's snapshots cost two git calls a step
    agent: Mapping[str, AgentEntry] = field(default_factory=lambda: {"title": NO_TITLE_AGENT})
    permission: DefaultPermission | PermissionMap = DefaultPermission()
    plugin: tuple[tuple[str, GuardOptions], ...] = ()
    shell: str | UnsetType = UNSET
    lsp: bool | UnsetType = False
    formatter: bool | UnsetType = False


def gated_backends(settings: Settings, environ: Mapping[str, str]) -> frozenset[str]:
    """The backends that go-ent calls itself, with a key or without: their calls go through the gate."""
    backends = settings.backends.values()
    return frozenset(backend.id for backend in backends if backend.is_held(environ))


def generate_overlay(
    settings: Settings, *, held: frozenset[str], addresses: Mapping[str, str], token: str
) -> ConfigOverlay:
    """`addresses` are the gate's, for every held backend and for the warm-up."""
    entries = {
        WARM_PROVIDER: OverlayProvider(
            npm=_PACKAGES["openai"],
            options=ProviderOptions(base_url=addresses[WARM_PROVIDER], key=token),
            models={WARM_MODEL: ModelEntry()},
        )
    }
    for backend in settings.backends.values():
        if backend.id in held:
            options = ProviderOptions(base_url=addresses[backend.id], key=token)
            # The gate speaks two dialects, whatever package the catalogue would take.
            entries[backend.id] = _provider_entry(
                settings, backend, _PACKAGES[backend.dialect], options
            )
        elif backend.base_url:
            package = backend.npm or _PACKAGES[backend.dialect]
            options = ProviderOptions(base_url=backend.base_url)
            entries[backend.id] = _provider_entry(settings, backend, package, options)
    is_users = settings.opencode.profile == "user"
    own = (OWN_PROVIDER,) if is_users else ()
    enabled = dict.fromkeys((*settings.backends, *own, WARM_PROVIDER))
    programs = UNSET if is_users and settings.opencode.project_config else False
    return ConfigOverlay(
        provider=entries, enabled_providers=tuple(enabled), lsp=programs, formatter=programs
    )


def _provider_entry(
    settings: Settings, backend: Backend, npm: str, options: ProviderOptions
) -> OverlayProvider:
    models = {p.model: _model_entry(p) for p in settings.providers if p.backend == backend.id}
    return OverlayProvider(npm=npm, options=options, models=models)


def _model_entry(provider: Provider) -> ModelEntry:
    limit: ModelLimit | UnsetType = UNSET
    if provider.context_limit and not _in_catalogue(provider):
        output = min(OUTPUT_LIMIT, provider.context_limit // 2)
        limit = ModelLimit(context=provider.context_limit, output=output)
    options = Raw(provider.options) if provider.options else UNSET
    return ModelEntry(limit=limit, cost=_model_cost(provider), options=options)


def _in_catalogue(provider: Provider) -> bool:
    """OpenCode knows the model's true limits: ours would only narrow its answers."""
    known = known_backend(provider.backend)
    return known is not None and provider.model in known.models


def _model_cost(provider: Provider) -> ModelCost | UnsetType:
    price = provider.price
    if price is None:
        return UNSET
    read, write = price.cache_read, price.cache_write
    return ModelCost(
        input=float(price.input),
        output=float(price.output),
        cache_read=UNSET if read is None else float(read),
        cache_write=UNSET if write is None else float(write),
    )


# OpenCode's configuration accepts no patterns for these, and does not start with them.
WITHOUT_PATTERNS = frozenset({"doom_loop", "question", "todowrite", "webfetch", "websearch"})


def permission_map(rules: Sequence[PermissionRule]) -> PermissionMap:
    """The same verdict on every question; raises `RequestError` where there is no such grouping."""
    telling = [
        rule
        for n, rule in enumerate(rules)
        if not any(_covers(later, rule) for later in rules[n + 1 :])
    ]
    grouped: dict[str, dict[str, PermissionAction]] = {}
    for rule in telling:
        patterns = grouped.pop(rule.tool, {})
        grouped[rule.tool] = {**patterns, rule.pattern: rule.action}
    _check_order(telling, list(grouped))
    return {tool: _simplify(tool, patterns) for tool, patterns in grouped.items()}


def _simplify(
    tool: str, patterns: Mapping[str, PermissionAction]
) -> PermissionAction | Mapping[str, PermissionAction]:
    if list(patterns) == ["*"]:
        return patterns["*"]
    if tool in WITHOUT_PATTERNS:
        raise RequestError(
            f"by the method 'cli' there are no patterns for the permission {tool!r} "
            f"({', '.join(map(repr, patterns))}): decide it as a whole, or use the method 'acp'"
        )
    return patterns


def _covers(later: PermissionRule, rule: PermissionRule) -> bool:
    """Whatever the rule decides, the later one decides after it."""
    whole = later.pattern in ("*", rule.pattern)
    return whole and (later.tool == rule.tool or _is_wildcard_for(later.tool, rule.tool))


def _check_order(telling: Sequence[PermissionRule], tools: Sequence[str]) -> None:
    place = {tool: n for n, tool in enumerate(tools)}
    for first, second in combinations(telling, 2):
        swapped = place[first.tool] > place[second.tool]
        if swapped and first.action != second.action and _may_meet(first.tool, second.tool):
            raise RequestError(
                f"the method 'cli' cannot keep the order of these permission rules: "
                f"{_rule_text(first)}, then {_rule_text(second)}, then {first.tool!r} again; put the rules "
                f"of {first.tool!r} together, or use the method 'acp'"
            )


def _may_meet(one: str, other: str) -> bool:
    both_wild = _is_wild(one) and _is_wild(other)
    return both_wild or _is_wildcard_for(one, other) or _is_wildcard_for(other, one)


def _is_wildcard_for(wildcard: str, tool: str) -> bool:
    return _is_wild(wildcard) and (
        wildcard == "*" or (not _is_wild(tool) and wildcard_matches(wildcard, tool))
    )


def _is_wild(tool: str) -> bool:
    return "*" in tool or "?" in tool


def _rule_text(rule: PermissionRule) -> str:
    return f"{rule.tool!r} {rule.pattern!r} {rule.action}"
