"""Which backends does everyone know? Used where a key in the environment is all there is.

Ids, models, windows and prices are those of OpenCode's catalogue. Prices age: what a file says
wins over this table.
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import Final

from goent.domain.types import Dialect, Price, Value


class KnownModel(Value, frozen=True, kw_only=True):
    """A model that is worth offering without being asked."""

    name: str
    context: int
    price: Price


class KnownBackend(Value, frozen=True, kw_only=True):
    """Where a backend answers, and which variables hold its key; the first one set counts."""

    id: str
    variables: tuple[str, ...]
    base_url: str
    dialect: Dialect = "openai"
    models: tuple[KnownModel, ...]

    def variable(self, environ: Mapping[str, str]) -> str | None:
        return next((name for name in self.variables if environ.get(name)), None)


def _model(name: str, context: int, *prices: str) -> KnownModel:
    """`prices`: input, output and, where they differ from input, cache read and cache write."""
    figures = dict(zip(("input", "output", "cache_read", "cache_write"), prices, strict=False))
    cached = {key: Decimal(figures[key]) for key in ("cache_read", "cache_write") if key in figures}
    price = Price(input=Decimal(figures["input"]), output=Decimal(figures["output"]), **cached)
    return KnownModel(name=name, context=context, price=price)


_BACKENDS: Final = (
    KnownBackend(
        id="anthropic",
        variables=("ANTHROPIC_API_KEY",),
        base_url="https://api.anthropic.com/v1",
        dialect="anthropic",
        models=(
            _model("claude-haiku-4-5", 200_000, "1", "5", "0.1", "1.25"),
            _model("claude-sonnet-4-5", 1_000_000, "3", "15", "0.3", "3.75"),
            _model("claude-sonnet-5", 1_000_000, "2", "10", "0.2", "2.5"),
            _model("claude-opus-5-5", 1_000_000, "4", "20", "0.2", "5"),
        ),
    ),
    KnownBackend(
        id="openai",
        variables=("OPENAI_API_KEY",),
        base_url="https://api.openai.com/v1",
        models=(
            _model("gpt-5-mini", 400_000, "0.25", "2", "0.025"),
            _model("gpt-5.3-codex", 400_000, "1.75", "14", "0.175"),
            _model("gpt-5.6", 1_050_000, "4", "20", "0.4", "5"),
        ),
    ),
    KnownBackend(
        id="deepseek",
        variables=("DEEPSEEK_API_KEY",),
        base_url="https://api.deepseek.com",
        models=(
            _model("deepseek-flash", 1_000_000, "0.15", "0.6", "0.003"),
            _model("deepseek-v4-pro", 1_000_000, "0.435", "0.87", "0.003625"),
        ),
    ),
    KnownBackend(
        id="moonshotai",
        variables=("MOONSHOT_API_KEY",),
        base_url="https://api.moonshot.ai/v1",
        models=(
            _model("kimi-k2.6", 262_144, "0.95", "4", "0.16"),
            _model("kimi-k2.7-code", 262_144, "0.95", "4", "0.19"),
            _model("kimi-k3", 1_048_576, "3", "15", "0.3"),
        ),
    ),
    KnownBackend(
        id="zai",
        variables=("ZHIPU_API_KEY", "ZAI_API_KEY"),
        base_url="https://api.z.ai/api/paas/v4",
        models=(
            _model("glm-4.7", 204_800, "0.6", "2.2", "0.11"),
            _model("glm-5.3", 1_000_000, "1.4", "4.4", "0.26"),
            _model("glm-5.3-flash", 1_000_000, "0.15", "0.5", "0.03"),
        ),
    ),
    KnownBackend(
        id="minimax",
        variables=("MINIMAX_API_KEY",),
        base_url="https://api.minimax.io/anthropic/v1",
        dialect="anthropic",
        models=(_model("MiniMax-M3", 1_000_000, "0.3", "1.2", "0.06"),),
    ),
    KnownBackend(
        id="openrouter",
        variables=("OPENROUTER_API_KEY",),
        base_url="https://openrouter.ai/api/v1",
        models=(
            _model("anthropic/claude-haiku-4.5", 200_000, "1", "5", "0.1", "1.25"),
            _model("anthropic/claude-sonnet-4.5", 1_000_000, "3", "15", "0.3", "3.75"),
            _model("moonshotai/kimi-k3", 1_048_576, "3", "15", "0.3"),
            _model("z-ai/glm-5.3", 1_310_720, "1.4", "4.4", "0.26"),
        ),
    ),
    KnownBackend(
        id="groq",
        variables=("GROQ_API_KEY",),
        base_url="https://api.groq.com/openai/v1",
        models=(
            _model("openai/gpt-oss-120b", 131_072, "0.15", "0.6", "0.075"),
            _model("llama-3.3-70b-versatile", 131_072, "0.59", "0.79"),
        ),
    ),
    KnownBackend(
        id="mistral",
        variables=("MISTRAL_API_KEY",),
        base_url="https://api.mistral.ai/v1",
        models=(
            _model("codestral-latest", 256_000, "0.3", "0.9"),
            _model("mistral-large-latest", 262_144, "0.5", "1.5"),
        ),
    ),
    KnownBackend(
        id="xai",
        variables=("XAI_API_KEY",),
        base_url="https://api.x.ai/v1",
        models=(
            _model("grok-build-0.1", 256_000, "1", "2", "0.2"),
            _model("grok-4.7", 500_000, "2", "6", "0.5"),
        ),
    ),
    KnownBackend(
        id="cerebras",
        variables=("CEREBRAS_API_KEY",),
        base_url="https://api.cerebras.ai/v1",
        models=(_model("gpt-oss-120b", 131_072, "0.35", "0.75"),),
    ),
)

KNOWN: Final[Mapping[str, KnownBackend]] = {backend.id: backend for backend in _BACKENDS}

SHORT_NAMES: Final[Mapping[str, tuple[str, str]]] = {
    "haiku": ("anthropic", "claude-haiku-4-5"),
    "sonnet": ("anthropic", "claude-sonnet-5"),
    "opus": ("anthropic", "claude-opus-5-5"),
    "glm": ("zai", "glm-5.3"),
    "kimi": ("moonshotai", "kimi-k2.7-code"),
    "deepseek": ("deepseek", "deepseek-v4-pro"),
}

ALL_ROUND: Final = ("sonnet", "glm", "kimi", "deepseek")  # the default where nobody chose one

_ALSO_CALLED: Final[Mapping[str, str]] = {"moonshot": "moonshotai"}


def known_backend(backend: str) -> KnownBackend | None:
    return KNOWN.get(_ALSO_CALLED.get(backend, backend))
