"""What `providers.yaml` may say, in today's words and in older ones."""

from decimal import Decimal

import pytest
from ground import Ground

from goent.config.provider_settings import SHORT_NAMES
from goent.domain.errors import ConfigError
from goent.domain.settings import Backend, BudgetSettings, HealthSettings
from goent.domain.types import Price, Provider, RateLimits

WHOLE = """
providers:
  glm:
    method: cli
    provider: moonshot
    model: glm-4
    context_limit: 128000
    best_for: [bulk_implementation, mass_file_edits]
    price: {input: 0.6, output: 2.2, cache_read: 0.11, cache_write: 0}
    base_url: https://models.example/v1/
    api_key_env: MOONSHOT_API_KEY
    fallbacks: [deepseek]
    limits: {concurrency: 8, rpm: 60, tpm: 200_000}
  deepseek: {provider: deepseek, model: deepseek-coder}
defaults: {implementation: glm, large_context: glm, simple_tasks: deepseek}
health: {check_interval: 10, worker_timeout: 100, max_retries: 1, retry_delay: 0.5, probe: true, silence_timeout: 45}
budget: {per_task: 0.50, per_day: 20.00, per_project: 100, hard: true}
"""


def test_every_field_is_read(ground: Ground) -> None:
    ground.write(".goent/providers.yaml", WHOLE)
    settings = ground.load()
    assert settings.providers == (
        Provider(
            name="glm",
            backend="moonshot",
            model="glm-4",
            method="cli",
            context_limit=128_000,
            best_for=("bulk_implementation", "mass_file_edits"),
            price=Price(
                input=Decimal("0.6"),
                output=Decimal("2.2"),
                cache_read=Decimal("0.11"),
                cache_write=Decimal(0),
            ),
            fallbacks=("deepseek",),
            limits=RateLimits(concurrency=8, rpm=60, tpm=200_000),
        ),
        Provider(name="deepseek", backend="deepseek", model="deepseek-coder"),
    )
    assert settings.backends["moonshot"] == Backend(
        id="moonshot",
        base_url="https://models.example/v1",
        key_env="MOONSHOT_API_KEY",
        source="providers.yaml",
    )
    assert settings.default_provider == "glm"
    assert settings.defaults["simple_tasks"] == "deepseek"
    assert settings.health == HealthSettings(
        check_interval=10,
        worker_timeout=100,
        max_retries=1,
        retry_delay=0.5,
        probe=True,
        silence_timeout=45,
    )
    assert settings.budget == BudgetSettings(
        per_task=Decimal("0.5"), per_day=Decimal(20), per_project=Decimal(100), hard=True
    )


@pytest.mark.parametrize(
    "spelling",
    [
        "price: {input: 0.01, output: 0.01}",
        "cost_per_1m_tokens: 0.01",
        "cost: {per_1k_tokens: 0.00001}",
        "cost: {per_1k_tokens: 1e-5}",
        "cost: {per_1m_tokens: 0.01}",
        'cost: "$0.01/1M tokens"',
        'cost: "$0.00001 / 1K tokens"',
        "cost: 0.01/1m token",
    ],
)
def test_older_spellings_of_the_price_mean_input_and_output(ground: Ground, spelling: str) -> None:
    ground.write(
        ".goent/providers.yaml", f"providers: {{a: {{provider: b, model: c, {spelling}}}}}"
    )
    assert ground.load().providers[0].price == Price(input=Decimal("0.01"), output=Decimal("0.01"))


def test_money_keeps_every_digit(ground: Ground) -> None:
    ground.write(
        ".goent/providers.yaml",
        "providers: {a: {provider: b, model: c, price: {input: 0.1234567890123456789, output: 0}}}",
    )
    price = ground.load().providers[0].price
    assert price
    assert str(price.input) == "0.1234567890123456789"


def test_no_price_is_unknown_and_not_zero(ground: Ground) -> None:
    ground.write(".goent/providers.yaml", "providers: {a: {provider: b, model: c}}")
    assert ground.load().providers[0].price is None


def test_a_later_file_changes_the_price_in_another_spelling(ground: Ground) -> None:
    entry = "providers: {a: {provider: b, model: c, cost_per_1m_tokens: 5}}"
    ground.write("~/.config/go-ent/providers.yaml", entry)
    ground.write(".goent/providers.yaml", "providers: {a: {price: {input: 1, output: 2}}}")
    assert ground.load().providers[0].price == Price(input=Decimal(1), output=Decimal(2))


def test_a_backend_that_nobody_knows_goes_direct(ground: Ground) -> None:
    entry = "providers: {a: {provider: elsewhere, model: c, api_key_env: ELSEWHERE_KEY}}"
    ground.write(".goent/providers.yaml", entry)
    backend = ground.load(ELSEWHERE_KEY="k").backends["elsewhere"]
    assert backend == Backend(id="elsewhere", source="providers.yaml")


def test_a_well_known_backend_needs_no_address(ground: Ground) -> None:
    ground.write(".goent/providers.yaml", "providers: {a: {provider: moonshot, model: kimi-k2}}")
    backend = ground.load().backends["moonshot"]
    assert (backend.base_url, backend.key_env) == ("https://api.moonshot.ai/v1", "MOONSHOT_API_KEY")


def test_an_entry_takes_its_window_from_the_table_where_it_has_none(ground: Ground) -> None:
    entry = "providers: {cheap: {provider: anthropic, model: claude-haiku-4-5, method: api}}"
    ground.write(".goent/providers.yaml", entry)
    provider = ground.load(ANTHROPIC_API_KEY="k").providers[0]
    assert (provider.name, provider.method, provider.context_limit) == ("cheap", "api", 200_000)
    assert provider.price is None, "that is for the price list to say"


@pytest.mark.parametrize("name", sorted(SHORT_NAMES))
def test_a_short_name_is_a_model_of_its_own_backend(ground: Ground, name: str) -> None:
    backend, model = SHORT_NAMES[name]
    ground.write(
        ".goent/providers.yaml", f"providers: {{a: {{provider: {backend}, model: {name}}}}}"
    )
    assert ground.load().providers[0].model == model


@pytest.mark.parametrize(
    "entry",
    ["provider: ollama", "provider: anthropic, base_url: 'https://proxy.example/v1'"],
)
def test_elsewhere_a_short_name_is_a_name_like_any_other(ground: Ground, entry: str) -> None:
    ground.write(".goent/providers.yaml", f"providers: {{a: {{{entry}, model: haiku}}}}")
    assert ground.load().providers[0].model == "haiku"


def test_a_short_name_of_another_backend_is_a_mistake(ground: Ground) -> None:
    ground.write(".goent/providers.yaml", "providers: {a: {provider: zai, model: haiku}}")
    with pytest.raises(
        ConfigError, match=r"short for anthropic/claude-haiku-4-5.*such as 'glm-4\.7'"
    ):
        ground.load()
