"""Generates the configuration that go-ent lays over OpenCode's own.

It is passed in `OPENCODE_CONFIG_CONTENT`, which overrides the user's file and the repository's.
OpenCode merges objects key by key and replaces lists and plain values, so everything that a
repository must not change is set here, even where it repeats a default.

What this cannot prevent: a repository's own plugins and MCP servers are programs that OpenCode runs,
and a `"*"` permission after ours may loosen what *subagents* may do (a worker's own session has
rules that come last). So a repository's files are read only if the user sets
`opencode.project_config: true`.

The configuration groups patterns by tool, and the last match decides. Rules whose order alternates
between a tool and a wildcard that covers it cannot be expressed that way and are refused: better no
permission than a different one.
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
OUTPUT_LIMIT = 8192  # OpenCode requires one with a window; every known provider accepts this

# By tool, for all patterns or each; the last match decides.
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
    """A model; what it leaves unset comes from OpenCode's catalogue."""

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
    """What a session without rules of its own may do, such as a subagent's."""

    edit: str = "ask"
    bash: str = "ask"
    external_directory: str = "ask"
    webfetch: str = "ask"


class GuardOptions(Struct, frozen=True, kw_only=True):
    """How the guard inside OpenCode reaches us."""

    url: str
    token: str


NO_TITLE_AGENT = AgentEntry(
    disable=True
)  # it would spend a model call on the title of each session


class ConfigOverlay(Struct, frozen=True, kw_only=True):
    """The whole configuration. A session without a model can only reach the gate's own one.

    Language servers and formatters are off: many are a repository's own programs, in its
    `node_modules/.bin` or `vendor/bin`, and run without a question even when a file is read.
    """

    provider: Mapping[str, OverlayProvider]
    enabled_providers: tuple[str, ...]
    disabled_providers: tuple[str, ...] = ()
    model: str = WARM
    small_model: str = WARM
    autoupdate: bool = False
    share: str = "disabled"
    snapshot: bool = False  # we undo by git; snapshots cost two git calls a step
    agent: Mapping[str, AgentEntry] = field(default_factory=lambda: {"title": NO_TITLE_AGENT})
    permission: DefaultPermission | PermissionMap = DefaultPermission()
    plugin: tuple[tuple[str, GuardOptions], ...] = ()
    shell: str | UnsetType = UNSET
    lsp: bool | UnsetType = False
    formatter: bool | UnsetType = False


def gated_backends(settings: Settings, environ: Mapping[str, str]) -> frozenset[str]:
    """The backends whose calls go through the gate: those that go-ent can call itself."""
    backends = settings.backends.values()
    return frozenset(backend.id for backend in backends if backend.is_held(environ))


def generate_overlay(
    settings: Settings, *, held: frozenset[str], addresses: Mapping[str, str], token: str
) -> ConfigOverlay:
    """`addresses` are the gate's, for every backend in `held` and for the warm-up."""
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
            # The gate speaks two dialects, whatever package the catalogue has.
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
    """Whether OpenCode knows the model's own limits, which ours would only narrow."""
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


# OpenCode does not start if its configuration has patterns for these.
WITHOUT_PATTERNS = frozenset({"doom_loop", "question", "todowrite", "webfetch", "websearch"})


def permission_map(rules: Sequence[PermissionRule]) -> PermissionMap:
    """The rules grouped by tool, without changing any verdict; raises `RequestError` if impossible."""
    effective = [
        rule
        for n, rule in enumerate(rules)
        if not any(_covers(later, rule) for later in rules[n + 1 :])
    ]
    grouped: dict[str, dict[str, PermissionAction]] = {}
    for rule in effective:
        patterns = grouped.pop(rule.tool, {})
        grouped[rule.tool] = {**patterns, rule.pattern: rule.action}
    _check_order(effective, list(grouped))
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
    """Whether the later rule overrides the other in every case."""
    whole = later.pattern in ("*", rule.pattern)
    return whole and (later.tool == rule.tool or _is_wildcard_for(later.tool, rule.tool))


def _check_order(effective: Sequence[PermissionRule], tools: Sequence[str]) -> None:
    place = {tool: n for n, tool in enumerate(tools)}
    for first, second in combinations(effective, 2):
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
