"""Reads `providers.yaml`, and holds the table of well-known backends.

Ids, models and windows are those of OpenCode's catalogue; a settings file overrides them. Prices come
from the billing room.
"""

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Final, get_args

from goent.config.settings_tree import Mention, SettingsFields, read_url, read_variable
from goent.domain.local_servers import local_server
from goent.domain.settings import HealthSettings
from goent.domain.types import Dialect, Method, Price, Provider, RateLimits, Value

TASK_TYPES: Final[Mapping[str, str]] = {
    "implement": "implement",
    "feature": "implement",
    "fix": "fix",
    "bugfix": "fix",
    "refactor": "refactor",
    "format": "format",
    "lint": "format",
    "test": "test",
    "analyze": "analyze",
    "documentation": "documentation",
    "review": "review",
}


class KnownBackend(Value, frozen=True, kw_only=True):
    """Where a backend answers, which variables may hold its key, and its models' context windows."""

    id: str
    variables: tuple[str, ...]
    base_url: str
    dialect: Dialect = "openai"
    models: Mapping[str, int]

    def variable(self, environ: Mapping[str, str]) -> str | None:
        return next((name for name in self.variables if environ.get(name)), None)


_BACKENDS: Final = (
    KnownBackend(
        id="anthropic",
        variables=("ANTHROPIC_API_KEY",),
        base_url="https://api.anthropic.com/v1",
        dialect="anthropic",
        models={
            "claude-haiku-4-5": 200_000,
            "claude-sonnet-4-5": 1_000_000,
            "claude-sonnet-5": 1_000_000,
            "claude-opus-5-5": 1_000_000,
        },
    ),
    KnownBackend(
        id="openai",
        variables=("OPENAI_API_KEY",),
        base_url="https://api.openai.com/v1",
        models={"gpt-5-mini": 400_000, "gpt-5.3-codex": 400_000, "gpt-5.6": 1_050_000},
    ),
    KnownBackend(
        id="deepseek",
        variables=("DEEPSEEK_API_KEY",),
        base_url="https://api.deepseek.com",
        models={"deepseek-flash": 1_000_000, "deepseek-v4-pro": 1_000_000},
    ),
    KnownBackend(
        id="moonshotai",
        variables=("MOONSHOT_API_KEY",),
        base_url="https://api.moonshot.ai/v1",
        models={"kimi-k2.6": 262_144, "kimi-k2.7-code": 262_144, "kimi-k3": 1_048_576},
    ),
    KnownBackend(
        id="zai",
        variables=("ZHIPU_API_KEY", "ZAI_API_KEY"),
        base_url="https://api.z.ai/api/paas/v4",
        models={"glm-4.7": 204_800, "glm-5.3": 1_000_000, "glm-5.3-flash": 1_000_000},
    ),
    KnownBackend(
        id="minimax",
        variables=("MINIMAX_API_KEY",),
        base_url="https://api.minimax.io/anthropic/v1",
        dialect="anthropic",
        models={"MiniMax-M3": 1_000_000},
    ),
    KnownBackend(
        id="openrouter",
        variables=("OPENROUTER_API_KEY",),
        base_url="https://openrouter.ai/api/v1",
        models={
            "anthropic/claude-haiku-4.5": 200_000,
            "anthropic/claude-sonnet-4.5": 1_000_000,
            "moonshotai/kimi-k3": 1_048_576,
            "z-ai/glm-5.3": 1_310_720,
        },
    ),
    KnownBackend(
        id="groq",
        variables=("GROQ_API_KEY",),
        base_url="https://api.groq.com/openai/v1",
        models={"openai/gpt-oss-120b": 131_072, "llama-3.3-70b-versatile": 131_072},
    ),
    KnownBackend(
        id="mistral",
        variables=("MISTRAL_API_KEY",),
        base_url="https://api.mistral.ai/v1",
        models={"codestral-latest": 256_000, "mistral-large-latest": 262_144},
    ),
    KnownBackend(
        id="xai",
        variables=("XAI_API_KEY",),
        base_url="https://api.x.ai/v1",
        models={"grok-build-0.1": 256_000, "grok-4.7": 500_000},
    ),
    KnownBackend(
        id="cerebras",
        variables=("CEREBRAS_API_KEY",),
        base_url="https://api.cerebras.ai/v1",
        models={"gpt-oss-120b": 131_072},
    ),
)

KNOWN_BACKENDS: Final[Mapping[str, KnownBackend]] = {backend.id: backend for backend in _BACKENDS}

SHORT_NAMES: Final[Mapping[str, tuple[str, str]]] = {
    "haiku": ("anthropic", "claude-haiku-4-5"),
    "sonnet": ("anthropic", "claude-sonnet-5"),
    "opus": ("anthropic", "claude-opus-5-5"),
    "glm": ("zai", "glm-5.3"),
    "kimi": ("moonshotai", "kimi-k2.7-code"),
    "deepseek": ("deepseek", "deepseek-v4-pro"),
}

# In this order the default, where nobody has chosen one.
DEFAULT_SHORT_NAMES: Final = ("sonnet", "glm", "kimi", "deepseek")

_BACKEND_ALIASES: Final[Mapping[str, str]] = {"moonshot": "moonshotai"}


def known_backend(backend: str) -> KnownBackend | None:
    return KNOWN_BACKENDS.get(_BACKEND_ALIASES.get(backend, backend))


def key_variables(provider: str) -> tuple[str, ...]:
    """The variables that may hold the key of a short name, a backend, or one of its models."""
    backend = SHORT_NAMES[provider][0] if provider in SHORT_NAMES else provider.partition("/")[0]
    known = known_backend(backend)
    return known.variables if known else ()


_OLD_PRICE: Final = re.compile(r"\$?\s*(\d{1,9}(?:\.\d{1,12})?)\s*/\s*1?\s*([kKmM])\s*(?:tokens?)?")
_PER_MILLION: Final = {"k": Decimal(1000), "m": Decimal(1)}


def read_price(fields: SettingsFields) -> Price | None:
    """USD per million tokens; None where no price is set."""
    spelling = fields.one_of("price", "cost_per_1m_tokens", "cost")
    if spelling == "price":
        return fields.section("price", read_price_table)
    if spelling == "cost_per_1m_tokens":
        return _flat_price(fields.number("cost_per_1m_tokens", None))
    if spelling == "cost":
        return _old_cost(fields)
    return None


def read_price_table(fields: SettingsFields) -> Price | None:
    """`{input, output, cache_read, cache_write}`, in `providers.yaml` and in `opencode.json`."""
    for key in ("input", "output"):
        if not fields.has(key):
            fields.note_mistake(
                key, "is missing; a price has both input and output, in USD per million"
            )
    price_in, price_out = fields.number("input", None), fields.number("output", None)
    cache_read, cache_write = fields.number("cache_read", None), fields.number("cache_write", None)
    if price_in is None or price_out is None:
        return None
    return Price(input=price_in, output=price_out, cache_read=cache_read, cache_write=cache_write)


def _old_cost(fields: SettingsFields) -> Price | None:
    if fields.shape("cost") == "table":
        return fields.section("cost", _old_price_table)
    sentence = fields.text("cost", None)
    if sentence is None:
        return None
    match = _OLD_PRICE.fullmatch(sentence)
    if match is None:
        fields.note_mistake("cost", f"{sentence!r} is not a price such as '$0.01/1M tokens'")
        return None
    figure, unit = match.groups()
    return _flat_price(Decimal(figure) * _PER_MILLION[unit.lower()])


def _old_price_table(fields: SettingsFields) -> Price | None:
    spelling = fields.one_of("per_1k_tokens", "per_1m_tokens")
    if spelling is None:
        fields.note_mistake(
            "per_1k_tokens", "is missing; set the price of a thousand tokens, in USD"
        )
        return None
    figure = fields.number(spelling, None)
    if figure is None or spelling == "per_1m_tokens":
        return _flat_price(figure)
    return _flat_price(figure * 1000)


def _flat_price(figure: Decimal | None) -> Price | None:
    return None if figure is None else Price(input=figure, output=figure)


METHODS: Final[tuple[Method, ...]] = get_args(Method)
ROLES: Final = ("implementation", "large_context", "simple_tasks")  # besides types of tasks


class ProviderFileEntry(Value, frozen=True, kw_only=True):
    """One provider of the file, with what it says about its backend."""

    provider: Provider
    base_url: Mention | None = None
    api_key_env: Mention | None = None
    local: bool | None = None
    fallbacks: tuple[Mention, ...] = ()


class ProvidersFile(Value, frozen=True, kw_only=True):
    """The whole file. Entries with mistakes are included, because their names are taken."""

    entries: tuple[ProviderFileEntry, ...] = ()
    defaults: Mapping[str, Mention] = {}
    health: HealthSettings = HealthSettings()


def read_providers(fields: SettingsFields) -> ProvidersFile:
    return ProvidersFile(
        entries=tuple(fields.tables("providers", _provider_entry).values()),
        defaults=fields.section("defaults", _defaults),
        health=fields.section("health", _health),
    )


def _provider_entry(fields: SettingsFields) -> ProviderFileEntry:
    fallbacks = fields.mentions("fallbacks")
    backend = fields.required_text("provider", "name the backend, as in opencode.json")
    return ProviderFileEntry(
        provider=Provider(
            name=fields.name,
            backend=backend,
            model=_model(fields, backend),
            method=fields.choice("method", METHODS, "acp"),
            context_limit=fields.integer("context_limit", None, least=1),
            best_for=fields.texts("best_for"),
            price=read_price(fields),
            fallbacks=tuple(mention.name for mention in fallbacks),
            limits=fields.section("limits", _rate_limits),
        ),
        base_url=read_url(fields, "base_url"),
        api_key_env=read_variable(fields, "api_key_env"),
        local=_local(fields, backend),
        fallbacks=fallbacks,
    )


def _local(fields: SettingsFields, backend: str) -> bool | None:
    """None where its address decides."""
    if not fields.has("local"):
        return None
    local = fields.flag("local", default=False)
    if local and not fields.has("base_url") and local_server(backend) is None:
        fields.note_mistake("local", "needs a base_url: the address of the server")
    return local


def _model(fields: SettingsFields, backend: str) -> str:
    """A short name stands for its model, where a well-known backend answers at its own address."""
    name = fields.required_text("model", "name the model, as the backend calls it")
    known = known_backend(backend)
    if name not in SHORT_NAMES or known is None or fields.has("base_url"):
        return name
    owner, model = SHORT_NAMES[name]
    if owner != known.id:
        fields.note_mistake(
            "model",
            f"{name!r} is short for {owner}/{model}, which {backend!r} does not serve; "
            f"name a model of its own, such as {next(iter(known.models))!r}",
        )
        return name
    return model


def _rate_limits(fields: SettingsFields) -> RateLimits:
    return RateLimits(
        concurrency=fields.integer("concurrency", None, least=1),
        rpm=fields.integer("rpm", None, least=1),
        tpm=fields.integer("tpm", None, least=1),
    )


def _defaults(fields: SettingsFields) -> dict[str, Mention]:
    """By role; a type of task may go by its older names too."""
    named = {role: fields.mention(role) for role in ROLES}
    for word, kind in TASK_TYPES.items():
        mention = fields.mention(word)
        named[kind] = mention or named.get(kind)
    return {role: mention for role, mention in named.items() if mention}


def _health(fields: SettingsFields) -> HealthSettings:
    normal = HealthSettings()
    silence = fields.number("silence_timeout", None, least=1)
    return HealthSettings(
        check_interval=fields.amount("check_interval", normal.check_interval, least=1),
        worker_timeout=fields.amount("worker_timeout", normal.worker_timeout, least=1),
        max_retries=fields.integer("max_retries", normal.max_retries),
        retry_delay=fields.amount("retry_delay", normal.retry_delay),
        probe=fields.flag("probe", default=normal.probe),
        silence_timeout=None if silence is None else float(silence),
    )
