"""Which model does go-ent's own agent take? Pure: nothing is asked but the values."""

from decimal import Decimal
from pathlib import Path

import pytest
from msgspec.structs import replace
from routing_ground import DEEPSEEK, GLM, HAIKU, KIMI, SONNET, a_provider, a_task, settings

from goent.domain.errors import NoRoute
from goent.domain.settings import AgentSettings, Settings
from goent.domain.task_profile import COMPLEXITIES, Complexity
from goent.domain.types import Price, Provider
from goent.routing.pins import provider_for_tier, tier_for, tier_reason


@pytest.mark.spec("A19")
@pytest.mark.parametrize("complexity", ["trivial", "simple"])
@pytest.mark.parametrize("named", [0, 1])
def test_a_little_task_in_one_file_is_for_haiku(complexity: Complexity, named: int) -> None:
    assert tier_for(a_task("fix", complexity, named=named)) == "haiku"


@pytest.mark.spec("A20")
@pytest.mark.parametrize("complexity", COMPLEXITIES)
def test_several_files_are_for_sonnet(complexity: Complexity) -> None:
    assert tier_for(a_task("fix", complexity, named=2)) == "sonnet"


@pytest.mark.spec("A20")
@pytest.mark.parametrize("complexity", ["medium", "complex", "high"])
def test_complex_logic_is_for_sonnet(complexity: Complexity) -> None:
    assert tier_for(a_task("fix", complexity, named=1)) == "sonnet"


def test_the_reason_says_what_the_task_is() -> None:
    assert tier_reason(a_task("fix", "simple", named=1)) == "haiku, because the task is simple"
    assert tier_reason(a_task("fix", "simple", named=3)) == (
        "sonnet, because the task is simple and names 3 files"
    )


def test_a_tier_is_first_of_all_a_provider_of_that_name() -> None:
    other = a_provider("x", "claude-haiku-9", cost=0.01)
    assert provider_for_tier("haiku", settings(providers=(other, HAIKU))) == (
        HAIKU,
        "the provider named 'haiku'",
    )


def test_a_tier_is_else_a_provider_whose_model_has_the_word() -> None:
    dear = a_provider("dear", "claude-sonnet-4", cost=9)
    fair = a_provider("fair", "Claude-Sonnet-5", cost=3)
    found, reason = provider_for_tier("sonnet", settings(providers=(GLM, dear, fair)))
    assert found == fair
    assert reason == "fair, whose model 'Claude-Sonnet-5' is a sonnet"


def test_without_a_haiku_the_cheapest_is_meant_and_without_a_sonnet_the_default() -> None:
    held = settings(providers=(KIMI, GLM, DEEPSEEK), default="glm")
    assert provider_for_tier("haiku", held) == (
        DEEPSEEK,
        "the cheapest, deepseek, because no provider has a haiku",
    )
    assert provider_for_tier("sonnet", held) == (
        GLM,
        "the default, glm, because no provider has a sonnet",
    )


def test_prices_from_outside_count_where_the_entry_has_none() -> None:
    plain = Provider(name="plain", backend="b", model="m")
    other = Provider(name="other", backend="b", model="n")
    held = settings(providers=(plain, other), default="plain")
    assert provider_for_tier("haiku", held)[0] == plain  # nobody's price is known
    cheap = Price(input=Decimal("0.1"), output=Decimal("0.2"))
    assert provider_for_tier("haiku", held, {"other": cheap})[0] == other


def test_without_a_default_the_first_provider_stands_for_a_tier() -> None:
    found, reason = provider_for_tier("sonnet", settings(providers=(KIMI, GLM), default=None))
    assert found == KIMI
    assert "none is default" in reason


@pytest.mark.parametrize(
    ("word", "model"),
    [
        ("glm", "glm-4"),
        ("moonshot/kimi-k2", "kimi-k2"),
        ("kimi-k2", "kimi-k2"),
        ("anthropic/sonnet", "claude-sonnet-5"),
        ("moonshot/glm-9", "glm-9"),
        ("glm/glm-9", "glm-9"),
    ],
)
def test_any_other_word_is_a_pin(word: str, model: str) -> None:
    found, reason = provider_for_tier(word, settings())
    assert (found.model, reason) == (model, "asked for")


@pytest.mark.parametrize("word", ["opus", "nobody/x"])
def test_an_unknown_model_is_refused_with_the_names_there_are(word: str) -> None:
    with pytest.raises(NoRoute, match="glm, kimi, haiku, sonnet, deepseek"):
        provider_for_tier(word, settings())


def test_with_no_provider_at_all_the_remedy_is_told() -> None:
    with pytest.raises(NoRoute, match="go-ent init"):
        provider_for_tier("haiku", Settings(project=Path("/project")))


@pytest.mark.parametrize("word", ["gemini", "gemini/pro"])
def test_another_agent_is_no_model(word: str) -> None:
    gemini = Provider(name="gemini/pro", backend="gemini", model="pro", method="agent")
    held = replace(
        settings(providers=(gemini, SONNET)), agents={"gemini": AgentSettings(command=("gemini",))}
    )
    with pytest.raises(NoRoute, match="is another agent"):
        provider_for_tier(word, held)
    assert provider_for_tier("haiku", held)[0] == SONNET
