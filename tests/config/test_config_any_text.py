"""Whatever a file holds: settings come out, or a `ConfigError`."""

import re
import tempfile
from pathlib import Path

import pytest
import yaml
from ground import Ground
from hypothesis import given, settings
from hypothesis import strategies as st

from goent.config import file_syntax
from goent.config.file_syntax import parse_jsonc, parse_yaml
from goent.config.settings_tree import Problems, SettingPlace, Table
from goent.domain.errors import ConfigError

WORDS = [
    *("providers", "provider", "model", "price", "cost", "input", "base_url", "fallbacks"),
    *("routing_rules", "rules", "match", "action", "type", "files", "keywords", "priority"),
    *("permissions", "preset", "budget", "per_day", "limits", "workers", "agents", "command"),
    *("opencode", "config_path", "default", "anthropic", "glm"),
]
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.sampled_from(WORDS), st.text()
)
TREES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(WORDS), inner, max_size=4),
    ),
    max_leaves=12,
)
BYTES = st.one_of(
    st.text().map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.binary(),
    st.text(alphabet="[]{}:,-&*!|>'\"#%@`?ab1 \t\n").map(str.encode),
    TREES.map(lambda tree: yaml.safe_dump(tree).encode("utf-8", "replace")),
)


PLACE = re.compile(r"[^\s:]+\.(yaml|json)(:\d+)?[: ]|environment")


def mistakes(ground: Ground) -> list[str]:
    try:
        ground.load()
    except ConfigError as error:
        return str(error).splitlines()
    return []


@settings(max_examples=150, deadline=None)
@given(config=BYTES, providers=BYTES, routing=BYTES, opencode=BYTES)
def test_no_text_raises_anything_but_a_config_error(
    config: bytes, providers: bytes, routing: bytes, opencode: bytes
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        ground = Ground(Path(folder))
        for name, content in (
            (".goent/config.yaml", config),
            (".goent/providers.yaml", providers),
            (".goent/routing.yaml", routing),
            ("~/.config/opencode/opencode.json", opencode),
        ):
            ground.write(name, "").write_bytes(content)
        for mistake in mistakes(ground):
            assert PLACE.match(mistake), mistake


@pytest.mark.parametrize("text", ["[", "- ", "{a: ", "? "])
@pytest.mark.parametrize("loader", [yaml.SafeLoader, yaml.CSafeLoader])
def test_deep_nesting_is_a_mistake_with_either_parser(
    monkeypatch: pytest.MonkeyPatch, text: str, loader: type
) -> None:
    monkeypatch.setattr(file_syntax, "_YamlLoader", loader)
    problems = Problems()
    assert parse_yaml(text * 1_000_000, SettingPlace(file="f"), problems) == Table(
        place=SettingPlace(file="f")
    )
    assert problems.unreadable


@settings(max_examples=100, deadline=None)
@given(st.text())
def test_any_text_is_json_or_a_mistake(text: str) -> None:
    problems = Problems()
    tree = parse_jsonc(text, SettingPlace(file="f"), problems)
    assert tree.entries == {} or not problems.unreadable
