"""Which servers want no key, and who may say so."""

import json

import pytest
from ground import Ground

from goent.domain.settings import Backend
from goent.domain.types import Secret

OWN = "~/.config/go-ent/providers.yaml"
OPENCODE = "~/.config/opencode/opencode.json"


def offer(backend: str, url: str | None, **options: object) -> str:
    told = {"baseURL": url, **options} if url else options
    package = "@ai-sdk/openai-compatible"
    return json.dumps(
        {"provider": {backend: {"npm": package, "options": told, "models": {"m": {}}}}}
    )


@pytest.mark.parametrize(
    ("name", "port"), [("ollama", 11434), ("lmstudio", 1234), ("vllm", 8000), ("llama.cpp", 8080)]
)
def test_a_known_server_needs_no_more_than_its_name(ground: Ground, name: str, port: int) -> None:
    ground.write(OWN, f"providers:\n  own: {{provider: {name}, model: qwen3}}\n")
    backend = ground.load().backends[name]
    assert backend == Backend(
        id=name, base_url=f"http://127.0.0.1:{port}/v1", local=True, source="providers.yaml"
    )
    assert backend.is_held({})


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost:9/v1",
        "http://127.0.0.1:9/v1",
        "http://[::1]:9/v1",
        "http://192.168.1.20:11434/v1",
        "http://gpu-box:8000/v1",
        "http://gpu.local:8000/v1",
    ],
)
def test_a_near_address_without_a_key_is_a_local_server(ground: Ground, url: str) -> None:
    ground.write(OPENCODE, offer("mine", url))
    assert ground.load().backends["mine"].local


@pytest.mark.parametrize(
    "url",
    [
        "https://models.example/v1",
        "http://127.0.0.1.models.example/v1",
        "http://localhost.example/v1",
        "http://8.8.8.8/v1",
    ],
)
def test_a_far_address_is_not(ground: Ground, url: str) -> None:
    """OpenCode may know of a login for it."""
    ground.write(OPENCODE, offer("mine", url))
    backend = ground.load().backends["mine"]
    assert not backend.local
    assert not backend.is_held({})


def test_a_server_that_has_a_key_is_asked_with_it(ground: Ground) -> None:
    ground.write(OPENCODE, offer("mine", "http://127.0.0.1:9/v1", apiKey="sk-own"))
    backend = ground.load().backends["mine"]
    assert not backend.local
    assert backend.resolve_key({}) == "sk-own"


@pytest.mark.parametrize("word", ["ollama", "EMPTY", "mine"])
def test_a_word_in_the_place_of_a_key_is_none(ground: Ground, word: str) -> None:
    """Otherwise it would be a secret, and gone from everything that workers say."""
    ground.write(OPENCODE, offer("mine", "http://127.0.0.1:9/v1", apiKey=word))
    backend = ground.load().backends["mine"]
    assert backend.local
    assert backend.key is None


def test_a_login_in_a_header_is_opencodes_to_use(ground: Ground) -> None:
    headers = {"Authorization": "Bearer own"}
    ground.write(OPENCODE, offer("mine", "http://127.0.0.1:9/v1", headers=headers))
    assert not ground.load().backends["mine"].local


def test_the_file_may_say_that_a_server_elsewhere_wants_no_key(ground: Ground) -> None:
    url = "https://models.example/v1"
    ground.write(
        OWN, f"providers:\n  own: {{provider: far, model: m, base_url: '{url}', local: true}}\n"
    )
    assert ground.load().backends["far"].local


def test_the_file_may_say_that_a_near_server_is_none_of_these(ground: Ground) -> None:
    ground.write(OWN, "providers:\n  own: {provider: ollama, model: m, local: false}\n")
    backend = ground.load().backends["ollama"]
    assert (backend.local, backend.base_url) == (False, "http://127.0.0.1:11434/v1")


def test_no_key_goes_to_a_local_server_that_bears_a_known_name(ground: Ground) -> None:
    ground.write(
        OWN,
        "providers:\n  own:\n    {provider: openai, model: m, base_url: 'http://127.0.0.1:9/v1', "
        "local: true}\n",
    )
    backend = ground.load(OPENAI_API_KEY="sk-real").backends["openai"]
    assert backend.local
    assert backend.resolve_key({"OPENAI_API_KEY": "sk-real"}) is None


def test_a_named_key_is_needed_even_there(ground: Ground) -> None:
    ground.write(
        OWN, "providers:\n  own: {provider: vllm, model: m, local: true, api_key_env: VLLM_KEY}\n"
    )
    backend = ground.load().backends["vllm"]
    assert backend.lacks_key({})
    assert not backend.is_held({})
    assert backend.resolve_key({"VLLM_KEY": "sk-own"}) == "sk-own"


def test_local_needs_an_address(ground: Ground) -> None:
    ground.write(OWN, "providers:\n  own: {provider: mine, model: m, local: true}\n")
    (mistake,) = ground.mistakes()
    assert mistake.startswith(
        "~/.config/go-ent/providers.yaml:2: providers.own.local: needs a base_url"
    )


@pytest.mark.parametrize(
    "entry",
    [
        "{provider: ollama, model: qwen3}",  # an address that nobody wrote down
        "{provider: mine, model: m, base_url: 'http://127.0.0.1:9/v1'}",
        "{provider: anthropic, model: haiku, local: true, base_url: 'http://127.0.0.1:9/v1'}",
    ],
)
def test_a_repository_names_no_server_before_it_is_trusted(ground: Ground, entry: str) -> None:
    ground.write(".goent/providers.yaml", f"providers:\n  own: {entry}\n")
    settings = ground.load_untrusted()
    assert not any(backend.local for backend in settings.backends.values())
    assert [act.kind for act in settings.withheld] == ["address"]
    assert any(backend.local for backend in ground.load().backends.values())


def test_a_repository_may_choose_among_the_users_own_servers(ground: Ground) -> None:
    ground.write(OWN, "providers:\n  mine: {provider: ollama, model: llama3}\n")
    ground.write(".goent/providers.yaml", "providers:\n  own: {provider: ollama, model: qwen3}\n")
    settings = ground.load_untrusted()
    assert settings.withheld == ()
    assert [p.name for p in settings.providers] == ["mine", "own"]


def test_headers_of_opencode_json_are_kept_with_the_backend(ground: Ground) -> None:
    headers = {"X-Team": "blue", "X-Token": "{env:TEAM_TOKEN}"}
    ground.write(OPENCODE, offer("mine", "http://127.0.0.1:9/v1", headers=headers))
    settings = ground.load(TEAM_TOKEN="t-1")
    backend = settings.backends["mine"]
    assert backend.headers == (("X-Team", Secret("blue")), ("X-Token", Secret("t-1")))
    assert "TEAM_TOKEN" in settings.key_names, "workers do not get it"
    assert backend.secrets({}) == ("t-1",)


def test_options_of_a_model_are_kept_with_it(ground: Ground) -> None:
    options = {"reasoningEffort": "high", "extra": {"deep": [1, 2.5, True, None, "{env:WORD}"]}}
    models = {"m": {"options": options}, "n": {}}
    told = {
        "provider": {"mine": {"options": {"baseURL": "http://127.0.0.1:9/v1"}, "models": models}}
    }
    ground.write(OPENCODE, json.dumps(told))
    ground.write(OWN, "providers:\n  short: {provider: mine, model: m}\n")
    providers = {p.name: p for p in ground.load(WORD="w").providers}
    expected = {"reasoningEffort": "high", "extra": {"deep": [1, 2.5, True, None, "w"]}}
    assert json.loads(providers["short"].options) == expected
    assert providers["mine/n"].options == b""
