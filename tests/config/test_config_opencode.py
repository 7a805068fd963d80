"""What the user's own OpenCode files give, and that they are left as they are."""

import json
from decimal import Decimal

import pytest
from ground import Ground

from goent.domain.settings import Backend
from goent.domain.types import Price, Secret

USUAL = "~/.config/opencode/opencode.json"
MANY = """{
  // three providers in one file
  "$schema": "https://opencode.ai/config.json",
  "model": "moonshot/kimi-k2",
  "provider": {
    "moonshot": {
      "npm": "@ai-sdk/openai-compatible",
      "options": {"baseURL": "https://models.example/v1/", "apiKey": "{env:MOON_KEY}"},
      "models": {
        "glm-4": {"cost": {"input": 0.6, "output": 2.2, "cache_read": 0.11}, "limit": {"context": 128000, "output": 8192}},
        "kimi-k2": {}, /* no price here */
      },
    },
    "deepseek": {"options": {"apiKey": "sk-literal"}, "models": {"deepseek-coder": {}}},
    "claude": {"npm": "@ai-sdk/anthropic", "options": {"baseURL": "http://127.0.0.1:9/v1", "apiKey": "{file:keys/claude}"}},
  },
}
"""


@pytest.mark.spec("P12")
def test_one_file_with_many_providers_is_read_and_left_as_it_is(ground: Ground) -> None:
    path = ground.write(USUAL, MANY)
    key = ground.write("~/.config/opencode/keys/claude", "sk-from-file\n")
    before = (path.read_bytes(), path.stat().st_mtime_ns, sorted(path.parent.iterdir()))

    settings = ground.load()

    assert settings.backends == {
        "moonshot": Backend(
            id="moonshot",
            base_url="https://models.example/v1",
            key_env="MOON_KEY",
            npm="@ai-sdk/openai-compatible",
            source="opencode.json",
        ),
        "deepseek": Backend(
            id="deepseek",
            base_url="https://api.deepseek.com",
            key=Secret("sk-literal"),
            source="opencode.json",
        ),
        "claude": Backend(
            id="claude",
            dialect="anthropic",
            base_url="http://127.0.0.1:9/v1",
            key=Secret("sk-from-file"),
            npm="@ai-sdk/anthropic",
            source="opencode.json",
        ),
    }
    glm, kimi, coder = settings.providers[:3]
    assert (glm.name, glm.context_limit) == ("moonshot/glm-4", 128_000)
    assert glm.price == Price(
        input=Decimal("0.6"), output=Decimal("2.2"), cache_read=Decimal("0.11")
    )
    assert (kimi.opencode_model, kimi.price) == ("moonshot/kimi-k2", None)
    assert coder.opencode_model == "deepseek/deepseek-coder"
    assert settings.default_provider == "moonshot/kimi-k2"
    assert settings.opencode.config_path == path
    assert settings.files == (path,)
    assert (path.read_bytes(), path.stat().st_mtime_ns, sorted(path.parent.iterdir())) == before
    assert key.read_text(encoding="utf-8") == "sk-from-file\n"


def test_a_key_does_not_show_in_the_settings(ground: Ground) -> None:
    ground.write(USUAL, MANY)
    ground.write("~/.config/opencode/keys/claude", "sk-from-file")
    shown = repr(ground.load())
    assert "sk-literal" not in shown
    assert "sk-from-file" not in shown


def test_a_named_file_that_does_not_exist_is_a_mistake(ground: Ground) -> None:
    ground.write(USUAL, "{}")
    assert ground.mistakes(OPENCODE_CONFIG="/nowhere/opencode.json") == [
        "environment: OPENCODE_CONFIG: there is no file '/nowhere/opencode.json'; correct the path"
    ]


def test_the_named_file_goes_before_the_usual_one(ground: Ground) -> None:
    ground.write(USUAL, '{"provider": {"usual": {}}}')
    by_variable = ground.write("~/variable.json", '{"provider": {"variable": {}}}')
    assert set(ground.load().backends) == {"usual"}
    assert set(ground.load(OPENCODE_CONFIG=str(by_variable)).backends) == {"variable"}

    ground.write("~/file.jsonc", '{"provider": {"file": {}}}')
    ground.write(".goent/providers.yaml", "opencode_config_path: ~/file.jsonc")
    settings = ground.load(OPENCODE_CONFIG=str(by_variable))
    assert set(settings.backends) == {"file"}
    assert settings.opencode.config_path == ground.home / "file.jsonc"


def test_the_usual_file_may_end_in_jsonc_and_live_where_xdg_says(ground: Ground) -> None:
    ground.write("~/elsewhere/opencode/opencode.jsonc", '{"provider": {"a": {}}}')
    assert set(ground.load(XDG_CONFIG_HOME=str(ground.home / "elsewhere")).backends) == {"a"}


def test_a_repositorys_own_file_is_no_source(ground: Ground) -> None:
    evil = '{"model": "evil/x", "provider": {"evil": {"options": {"baseURL": "http://evil/"}}}}'
    ground.write("opencode.json", evil)
    ground.write(".opencode/opencode.json", evil)
    settings = ground.load()
    assert (settings.backends, settings.providers) == ({}, ())


@pytest.mark.parametrize(
    ("limits", "left"),
    [
        ('"enabled_providers": ["a"]', {"a"}),
        ('"disabled_providers": ["a"]', {"b", "openai"}),
        ('"enabled_providers": []', set[str]()),
    ],
)
def test_what_opencode_does_not_offer_is_not_used(
    ground: Ground, limits: str, left: set[str]
) -> None:
    models = '{"models": {"m": {}}}'
    ground.write(USUAL, f'{{{limits}, "provider": {{"a": {models}, "b": {models}}}}}')
    settings = ground.load(OPENAI_API_KEY="k")
    assert set(settings.backends) == left
    assert {provider.backend for provider in settings.providers} == left


def test_hidden_models_are_not_offered(ground: Ground) -> None:
    models = '"models": {"x": {}, "y": {}, "z": {}}'
    ground.write(
        USUAL,
        f'{{"provider": {{"a": {{"whitelist": ["x", "y"], "blacklist": ["y"], {models}}}}}}}',
    )
    assert [provider.name for provider in ground.load().providers] == ["a/x"]


def test_variables_and_files_are_put_in_wherever_they_stand(ground: Ground) -> None:
    ground.write("~/.url", "http://from.file")
    options = {"baseURL": "{file:~/.url}/{env:PART}/", "apiKey": "key-{env:PART}"}
    ground.write(USUAL, json.dumps({"provider": {"a": {"options": options}}}))
    backend = ground.load(PART="v1").backends["a"]
    assert (backend.base_url, backend.key) == ("http://from.file/v1", Secret("key-v1"))


def test_a_backend_in_a_foreign_wire_format_is_left_to_opencode(ground: Ground) -> None:
    options = {"baseURL": "https://google.example", "apiKey": "{env:GOOGLE_KEY}"}
    offer = {"npm": "@ai-sdk/google", "options": options}
    ground.write(USUAL, json.dumps({"provider": {"google": offer}}))
    settings = ground.load(GOOGLE_KEY="k")
    assert settings.backends["google"].base_url is None
    assert "GOOGLE_KEY" not in settings.key_names


def test_the_model_of_opencode_is_a_provider_though_only_its_catalogue_knows_it(
    ground: Ground,
) -> None:
    ground.write(USUAL, '{"model": "opencode/big-pickle"}')
    settings = ground.load()
    assert settings.default_provider == "opencode/big-pickle"
    assert settings.backends["opencode"] == Backend(id="opencode", source="opencode.json")


def test_of_opencodes_logins_only_the_names_are_taken(ground: Ground) -> None:
    logins = {"anthropic": {"type": "oauth", "refresh": "SECRET"}, "github-copilot": {}}
    ground.write("~/.local/share/opencode/auth.json", json.dumps(logins))
    settings = ground.load()
    assert settings.backends == {
        "anthropic": Backend(id="anthropic", dialect="anthropic", source="login"),
        "github-copilot": Backend(id="github-copilot", source="login"),
    }
    assert "haiku" in {provider.name for provider in settings.providers}
    assert "SECRET" not in repr(settings)


def test_logins_are_found_where_xdg_says(ground: Ground) -> None:
    ground.write("~/data/opencode/auth.json", '{"openai": {}}')
    assert set(ground.load(XDG_DATA_HOME=str(ground.home / "data")).backends) == {"openai"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{\n"a": }', "2: invalid JSON: expected a value"),
        ('{\n"a": 1\n"b": 2}', "3: invalid JSON: expected ',' or '}'"),
        ('{"a" 1}', "1: invalid JSON: expected ':'"),
        ("{a: 1}", "1: invalid JSON: a value, a quote or a comment is broken"),
        ("{1: 1}", "1: invalid JSON: expected a key in double quotes"),
        ('{"a": "sk-secret', "1: invalid JSON: a value, a quote or a comment is broken"),
        ('{"a": "\\x"}', "1: invalid JSON: a string holds a broken escape"),
        ('{"a": "\\ud800"}', "1: invalid JSON: a string holds a broken escape"),
        ('{\n\n"a": [1,', "3: invalid JSON: the file ends too early"),
        ("{} {}", "1: invalid JSON: something follows the end"),
        ("[" * 100, "1: invalid JSON: nested too deeply"),
        ("", "1: invalid JSON: the file ends too early"),
        (
            '{"provider": {"a": {"options": {"apiKey": "{file:nowhere}"}}}}',
            (
                "1: provider.a.options.apiKey: the file 'nowhere' cannot be read: "
                "No such file or directory; OpenCode needs it too"
            ),
        ),
        (
            '{"provider": {"a": {"models": {"m": {"cost": {"input": "x", "output": 1}}}}}}',
            "1: provider.a.models.m.cost.input: expected a number, not 'x'",
        ),
        ('{"provider": []}', "1: provider: expected a table, not a list"),
    ],
)
def test_a_mistake_in_the_file_is_named_with_its_line(
    ground: Ground, text: str, message: str
) -> None:
    ground.write(USUAL, text)
    assert ground.mistakes() == [f"~/.config/opencode/opencode.json:{message}"]


def test_settings_that_only_opencode_understands_are_left_alone(ground: Ground) -> None:
    ground.write(USUAL, '{"theme": "x", "agent": {"build": {"model": 5}}, "model": ""}')
    assert ground.load().providers == ()
