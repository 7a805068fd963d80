"""Which backends does everyone know? Used where a key in the environment is all there is.

Ids, models and windows are those of OpenCode's catalogue. What a file says wins over this table.
Prices are not here: `llm.prices` knows them.
"""

from collections.abc import Mapping
from typing import Final

from goent.domain.types import Dialect, Value


class KnownModel(Value, frozen=True, kw_only=True):
    """A model that is worth offering without being asked."""

    name: str
    context: int


class KnownBackend(Value, frozen=True, kw_only=True):
    """Where a backend answers, and which variables hold its key; the first one set counts."""

    id: str
    variables: tuple[str, ...]
    base_url: str
    dialect: Dialect = "openai"
    models: tuple[KnownModel, ...]

    def variable(self, environ: Mapping[str, str]) -> str | None:
        return next((name for name in self.variables if environ.get(name)), None)


_BACKENDS: Final = (
    KnownBackend(
        id="anthropic",
        variables=("ANTHROPIC_API_KEY",),
        base_url="https://api.anthropic.com/v1",
        dialect="anthropic",
        models=(
            KnownModel(name="claude-haiku-4-5", context=200_000),
            KnownModel(name="claude-sonnet-4-5", context=1_000_000),
            KnownModel(name="claude-sonnet-5", context=1_000_000),
            KnownModel(name="claude-opus-5-5", context=1_000_000),
        ),
    ),
    KnownBackend(
        id="openai",
        variables=("OPENAI_API_KEY",),
        base_url="https://api.openai.com/v1",
        models=(
            KnownModel(name="gpt-5-mini", context=400_000),
            KnownModel(name="gpt-5.3-codex", context=400_000),
            KnownModel(name="gpt-5.6", context=1_050_000),
        ),
    ),
    KnownBackend(
        id="deepseek",
        variables=("DEEPSEEK_API_KEY",),
        base_url="https://api.deepseek.com",
        models=(
            KnownModel(name="deepseek-flash", context=1_000_000),
            KnownModel(name="deepseek-v4-pro", context=1_000_000),
        ),
    ),
    KnownBackend(
        id="moonshotai",
        variables=("MOONSHOT_API_KEY",),
        base_url="https://api.moonshot.ai/v1",
        models=(
            KnownModel(name="kimi-k2.6", context=262_144),
            KnownModel(name="kimi-k2.7-code", context=262_144),
            KnownModel(name="kimi-k3", context=1_048_576),
        ),
    ),
    KnownBackend(
        id="zai",
        variables=("ZHIPU_API_KEY", "ZAI_API_KEY"),
        base_url="https://api.z.ai/api/paas/v4",
        models=(
            KnownModel(name="glm-4.7", context=204_800),
            KnownModel(name="glm-5.3", context=1_000_000),
            KnownModel(name="glm-5.3-flash", context=1_000_000),
        ),
    ),
    KnownBackend(
        id="minimax",
        variables=("MINIMAX_API_KEY",),
        base_url="https://api.minimax.io/anthropic/v1",
        dialect="anthropic",
        models=(KnownModel(name="MiniMax-M3", context=1_000_000),),
    ),
    KnownBackend(
        id="openrouter",
        variables=("OPENROUTER_API_KEY",),
        base_url="https://openrouter.ai/api/v1",
        models=(
            KnownModel(name="anthropic/claude-haiku-4.5", context=200_000),
            KnownModel(name="anthropic/claude-sonnet-4.5", context=1_000_000),
            KnownModel(name="moonshotai/kimi-k3", context=1_048_576),
            KnownModel(name="z-ai/glm-5.3", context=1_310_720),
        ),
    ),
    KnownBackend(
        id="groq",
        variables=("GROQ_API_KEY",),
        base_url="https://api.groq.com/openai/v1",
        models=(
            KnownModel(name="openai/gpt-oss-120b", context=131_072),
            KnownModel(name="llama-3.3-70b-versatile", context=131_072),
        ),
    ),
    KnownBackend(
        id="mistral",
        variables=("MISTRAL_API_KEY",),
        base_url="https://api.mistral.ai/v1",
        models=(
            KnownModel(name="codestral-latest", context=256_000),
            KnownModel(name="mistral-large-latest", context=262_144),
        ),
    ),
    KnownBackend(
        id="xai",
        variables=("XAI_API_KEY",),
        base_url="https://api.x.ai/v1",
        models=(
            KnownModel(name="grok-build-0.1", context=256_000),
            KnownModel(name="grok-4.7", context=500_000),
        ),
    ),
    KnownBackend(
        id="cerebras",
        variables=("CEREBRAS_API_KEY",),
        base_url="https://api.cerebras.ai/v1",
        models=(KnownModel(name="gpt-oss-120b", context=131_072),),
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


def key_variables(provider: str) -> tuple[str, ...]:
    """The variables that would bring it: a short name, a backend, or one of its models."""
    backend = SHORT_NAMES[provider][0] if provider in SHORT_NAMES else provider.partition("/")[0]
    known = known_backend(backend)
    return known.variables if known else ()
