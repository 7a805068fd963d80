"""The price of a model call: from the user's settings, else from the list of genai-prices.

A configured price comes first, and a local server without one is free. Otherwise the list is
consulted for the provider that the backend is named after. A flat-rate plan, or a model that the list
has no price for, has an unknown price, which is not 0. The list is part of the package and never
fetched. Loading it takes a fifth of a second, so the first call that needs it does so in a thread.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from anyio import to_thread

from goent.domain.settings import Backend
from goent.domain.types import Price, Provider, Usage

if TYPE_CHECKING:
    from genai_prices.data_snapshot import DataSnapshot
    from genai_prices.types import ModelInfo, TieredPrices


_LISTED_PROVIDERS: Final[Mapping[str, str]] = {  # by OpenCode's id of the backend
    "anthropic": "anthropic",
    "cerebras": "cerebras",
    "deepseek": "deepseek",
    "fireworks-ai": "fireworks",
    "google": "google",
    "groq": "groq",
    "minimax": "minimax",
    "mistral": "mistral",
    "moonshot": "moonshotai",
    "moonshotai": "moonshotai",
    "openai": "openai",
    "openrouter": "openrouter",
    "perplexity": "perplexity",
    "togetherai": "together",
    "xai": "x-ai",
    "zai": "zai",
}
FREE_PRICE: Final = Price(input=Decimal(0), output=Decimal(0))
_FLAT_RATE: Final = "coding"  # in the address of a monthly plan
_LOOKUPS: Final = 512


class PriceList:
    """The port `Prices`. `backends` gives the configured backends, by id."""

    def __init__(self, backends: Callable[[], Mapping[str, Backend]]) -> None:
        self._backends = backends
        self._loaded = False

    async def cost(self, provider: Provider, usage: Usage, at: float) -> Decimal | None:
        """USD for one call. Listed prices may depend on the size of the prompt and the time of day."""
        if configured := self._configured_price(provider):
            return configured.cost(usage)
        model = await self._model(provider)
        return _listed_cost(model, usage, at) if model else None

    async def price(self, provider: Provider, at: float) -> Price | None:
        """The price of a small call, for people to compare."""
        if configured := self._configured_price(provider):
            return configured
        model = await self._model(provider)
        return _listed_price(model, at) if model else None

    def _configured_price(self, provider: Provider) -> Price | None:
        backend = self._backends().get(provider.backend)
        return provider.price or (FREE_PRICE if backend and backend.local else None)

    async def _model(self, provider: Provider) -> "ModelInfo | None":
        listed = _listed_provider(self._backends().get(provider.backend))
        if listed is None:
            return None
        if not self._loaded:
            await to_thread.run_sync(_load)
            self._loaded = True
        return _find_model(listed, provider.model)


def _listed_provider(backend: Backend | None) -> str | None:
    listed = _LISTED_PROVIDERS.get(backend.id) if backend else None
    if backend is None or listed is None or backend.base_url is None:
        return listed
    # A proxy charges the same prices; a monthly plan does not.
    return None if _FLAT_RATE in urlsplit(backend.base_url).path.split("/") else listed


def _load() -> "DataSnapshot":
    from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415 (a fifth of a second)

    return get_snapshot()


@lru_cache(_LOOKUPS)
def _find_model(provider: str, model: str) -> "ModelInfo | None":
    try:
        return _load().find_provider_model(model, None, provider, None)[1]
    except LookupError:
        return None


def _listed_cost(model: "ModelInfo", usage: Usage, at: float) -> Decimal | None:
    from genai_prices import Usage as Counted  # noqa: PLC0415 (loaded by now)

    if _listed_price(model, at) is None:
        return None
    counted = Counted(
        input_tokens=usage.input + usage.cache_read + usage.cache_write,
        cache_read_tokens=usage.cache_read,
        cache_write_tokens=usage.cache_write,
        output_tokens=usage.output + usage.reasoning,
    )
    return model.get_prices(_utc_time(at)).calc_price(counted)["total_price"]


def _listed_price(model: "ModelInfo", at: float) -> Price | None:
    """None also for a model that is listed without a price, for which the list would give 0."""
    prices = model.get_prices(_utc_time(at))
    tokens_in, tokens_out = _base_price(prices.input_mtok), _base_price(prices.output_mtok)
    if tokens_in is None or tokens_out is None:
        return None
    return Price(
        input=tokens_in,
        output=tokens_out,
        cache_read=_base_price(prices.cache_read_mtok),
        cache_write=_base_price(prices.cache_write_mtok),
    )


def _base_price(price: "Decimal | TieredPrices | None") -> Decimal | None:
    return price if price is None or isinstance(price, Decimal) else price.base


def _utc_time(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)
