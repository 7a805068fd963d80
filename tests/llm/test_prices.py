"""What a call costs: the user's price first, then the list's, and else nobody knows."""

import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import anyio
import pytest

from goent.billing.price_list import PriceList
from goent.config.provider_settings import KNOWN_BACKENDS, SHORT_NAMES
from goent.domain.settings import Backend
from goent.domain.types import Price, Provider, Usage
from goent.proc.child_process import run_command

pytestmark = pytest.mark.anyio

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC).timestamp()
EVENING = datetime(2026, 11, 15, 20, tzinfo=UTC).timestamp()
BACKENDS = {
    **{
        known.id: Backend(id=known.id, base_url=known.base_url) for known in KNOWN_BACKENDS.values()
    },
    "moonshot": Backend(id="moonshot", base_url="https://api.moonshot.ai/v1"),
    "google": Backend(id="google"),
    "corner-shop": Backend(id="corner-shop", base_url="https://api.anthropic.com/v1"),
}
USAGE = Usage(input=12, output=30, cache_read=100, cache_write=2000, reasoning=20)


def provider(backend: str, model: str, price: Price | None = None) -> Provider:
    return Provider(name="p", backend=backend, model=model, price=price)


async def cost(of: Provider, usage: Usage, at: float = NOON) -> Decimal | None:
    return await PriceList(lambda: BACKENDS).cost(of, usage, at)


async def test_the_list_prices_each_kind_of_token():
    haiku = provider("anthropic", "claude-haiku-4-5")
    expected = (12 * 1 + 100 * Decimal("0.1") + 2000 * Decimal("1.25") + 50 * 5) / Decimal(
        1_000_000
    )
    assert await cost(haiku, USAGE) == expected


async def test_the_users_price_goes_before_the_list():
    own = Price(input=Decimal("0.5"), output=Decimal(2))
    haiku = provider("anthropic", "claude-haiku-4-5", own)
    assert await cost(haiku, USAGE) == own.cost(USAGE)
    assert await PriceList(lambda: BACKENDS).price(haiku, NOON) == own


async def test_a_price_of_nothing_is_known():
    free = Price(input=Decimal(0), output=Decimal(0))
    assert await cost(provider("corner-shop", "anything", free), USAGE) == 0
    assert await cost(provider("anthropic", "claude-haiku-4-5", free), USAGE) == 0


async def test_a_long_prompt_is_charged_by_the_higher_step():
    sonnet = provider("anthropic", "claude-sonnet-4-5")
    assert await cost(sonnet, Usage(input=200_000)) == Decimal("0.6")
    assert await cost(sonnet, Usage(input=200_001)) == Decimal("1.200006")
    assert await cost(sonnet, Usage(input=1, cache_read=200_000)) == Decimal("0.120006")


async def test_the_time_of_day_counts():
    chat = provider("deepseek", "deepseek-chat")
    usage = Usage(input=1_000_000)
    assert await cost(chat, usage, NOON) == Decimal("0.27")
    assert await cost(chat, usage, EVENING) == Decimal("0.135")


@pytest.mark.parametrize(
    ("backend", "model"),
    [
        ("corner-shop", "claude-haiku-4-5"),  # the address is known, but who knows the shop?
        ("nowhere", "claude-haiku-4-5"),  # not configured
        ("anthropic", "gpt-5-mini"),  # somebody else's model
        ("anthropic", "no-such-model"),
        ("zai", ""),
        ("openrouter", "allenai/molmo-7b-d:free"),  # listed, but without a price
        ("cerebras", "qwen-3-coder-480b"),
    ],
)
async def test_what_the_list_does_not_price_is_unknown_and_not_nothing(backend: str, model: str):
    assert await cost(provider(backend, model), USAGE) is None
    assert await PriceList(lambda: BACKENDS).price(provider(backend, model), NOON) is None


async def test_a_proxy_is_priced_as_what_it_stands_for():
    moved = {"zai": Backend(id="zai", base_url="https://proxy.example/v4")}
    glm = provider("zai", "glm-4.7")
    assert await PriceList(lambda: moved).cost(glm, USAGE, NOON) == await cost(glm, USAGE)


async def test_a_plan_that_is_paid_by_the_month_has_no_price_by_the_token():
    plan = {"zai": Backend(id="zai", base_url="https://api.z.ai/api/coding/paas/v4")}
    assert await PriceList(lambda: plan).cost(provider("zai", "glm-4.7"), USAGE, NOON) is None


async def test_one_model_has_each_providers_own_price():
    usage = Usage(input=1_000_000)
    assert await cost(provider("groq", "openai/gpt-oss-120b"), usage) == Decimal("0.15")
    assert await cost(provider("cerebras", "gpt-oss-120b"), usage) == Decimal("0.35")
    moonshot = await cost(provider("moonshot", "kimi-k2.6"), usage)
    assert moonshot == await cost(provider("moonshotai", "kimi-k2.6"), usage) == Decimal("0.95")


async def test_tokens_of_a_cache_without_a_price_cost_as_input():
    llama = provider("groq", "llama-3.3-70b-versatile")
    price = await PriceList(lambda: BACKENDS).price(llama, NOON)
    assert price
    assert (price.cache_read, price.cache_write) == (None, None)
    assert await cost(llama, USAGE) == price.cost(USAGE)


@pytest.mark.parametrize(
    ("backend", "model"),
    [
        *((known.id, model) for known in KNOWN_BACKENDS.values() for model in known.models),
        *SHORT_NAMES.values(),
    ],
)
async def test_every_model_that_is_offered_unasked_has_a_price(backend: str, model: str):
    price = await PriceList(lambda: BACKENDS).price(provider(backend, model), NOON)
    assert price
    assert price.output > 0
    assert isinstance(await cost(provider(backend, model), USAGE), Decimal)


async def test_many_at_once_may_be_the_first():
    found: list[Decimal | None] = []
    prices = PriceList(lambda: BACKENDS)

    async def ask() -> None:
        found.append(await prices.cost(provider("groq", "llama-3.3-70b-versatile"), USAGE, NOON))

    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(ask)
    assert len(found) == 5
    assert len(set(found)) == 1


async def test_the_list_is_not_loaded_before_it_is_needed(tmp_path: Path):
    program = (
        "import sys, goent.composition.app, goent.cli.main, goent.daemon.daemon_server, goent.mcp.server;"
        "sys.exit('genai_prices' in sys.modules)"
    )
    done = await run_command([sys.executable, "-c", program], cwd=tmp_path, env={}, timeout=60)
    assert (done.exit, done.errors) == (0, "")
