"""A project's files name providers for a whole team: each teammate has keys for some of them."""

import re
from pathlib import Path

import pytest
from ground import Ground

from goent.routing.pins import fallbacks_of

ROOT = Path(__file__).parents[2]
EXAMPLES = re.findall(
    r"^```yaml\n(.+?)^```", (ROOT / "docs/configuration.md").read_text(), re.MULTILINE | re.DOTALL
)
KEYS: tuple[dict[str, str], ...] = (
    {},
    {"ZHIPU_API_KEY": "k"},
    {"DEEPSEEK_API_KEY": "k"},
    {"ANTHROPIC_API_KEY": "k"},
)


def file_of(example: str) -> str:
    first = re.search(r"^(\w+):", example, re.MULTILINE)
    assert first
    names = {"providers": "providers", "routing_rules": "routing", "rules": "routing"}
    return f".goent/{names.get(first.group(1), 'config')}.yaml"


@pytest.mark.parametrize("keys", KEYS, ids=[next(iter(keys), "no key") for keys in KEYS])
@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_every_example_of_the_page_is_valid_whoever_reads_it(
    ground: Ground, example: str, keys: dict[str, str]
) -> None:
    ground.write(file_of(example), example)
    ground.load(**keys)


def test_a_fallback_without_a_key_is_left_out_with_a_warning(ground: Ground) -> None:
    ground.write(
        ".goent/providers.yaml",
        "providers:\n  glm: {provider: zai, model: glm-4.7, fallbacks: [deepseek, theirs/model]}\n",
    )
    settings = ground.load(ZHIPU_API_KEY="k")
    glm = next(each for each in settings.providers if each.name == "glm")
    assert fallbacks_of(glm, settings) == ()
    first, second = settings.warnings
    assert first.startswith(".goent/providers.yaml:2: providers.glm.fallbacks[0]: 'deepseek' ")
    assert first.endswith("is left out, because nothing here provides it: set DEEPSEEK_API_KEY")
    assert "'theirs/model' is left out" in second and "your opencode.json" in second
    settings = ground.load(ZHIPU_API_KEY="k", DEEPSEEK_API_KEY="k")
    assert [each.name for each in fallbacks_of(glm, settings)] == ["deepseek"]
    assert not [each for each in settings.warnings if "deepseek" in each]


def test_a_default_without_a_key_leaves_the_choice_open(ground: Ground) -> None:
    ground.write(".goent/config.yaml", "default_provider: sonnet\n")
    ground.write(".goent/providers.yaml", "defaults: {simple_tasks: haiku, implementation: kimi}\n")
    settings = ground.load(ZHIPU_API_KEY="k")
    assert (settings.default_provider, settings.default_chosen) == ("glm", False)
    assert not settings.defaults
    assert [each.split("'")[1] for each in settings.warnings] == ["kimi", "haiku", "sonnet"]
    settings = ground.load(ANTHROPIC_API_KEY="k")
    assert (settings.default_provider, settings.default_chosen) == ("sonnet", True)
    assert settings.defaults == {"simple_tasks": "haiku"}
