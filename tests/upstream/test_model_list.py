"""What the user's own servers are asked for their models, by stand-ins for each of them."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from model_server import ModelServer, Routes, llama_cpp, lm_studio, ollama, vllm

from goent.config.provider_catalogue import with_served_models
from goent.domain.local_servers import ModelListing, ServedModel
from goent.domain.settings import Backend, Settings
from goent.domain.types import Provider, Secret
from goent.providers.connections import Connections
from goent.providers.model_list import ModelLists

pytestmark = pytest.mark.anyio


def settings_of(url: str, name: str = "own", *written: Provider) -> Settings:
    backend = Backend(id=name, base_url=url, local=True)
    return Settings(project=Path("/p"), backends={name: backend}, providers=written)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Heard:
    """Where the listings go."""

    def __init__(self) -> None:
        self.listings: Mapping[str, ModelListing] = {}

    def __call__(self, listings: Mapping[str, ModelListing]) -> None:
        self.listings = listings


async def listing_of(routes: Routes) -> tuple[ModelListing, ModelServer]:
    async with ModelServer.open(routes) as server, Connections.open() as connections:
        heard = Heard()
        settings = settings_of(server.base_url)
        lists = ModelLists(
            connections, settings=lambda: settings, environ=dict[str, str], on_update=heard
        )
        await lists.refresh()
        return heard.listings["own"], server


CASES: list[tuple[Routes, dict[str, int]]] = [
    (ollama({"qwen3:8b": 40_960, "nomic-embed-text": 2048}), {"qwen3:8b": 40_960}),
    (ollama({"qwen3:8b": 40_960}, loaded={"qwen3:8b": 4096}), {"qwen3:8b": 4096}),
    (lm_studio({"qwen3-8b": 32_768, "text-embed": 2048}), {"qwen3-8b": 32_768}),
    (lm_studio({"qwen3-8b": 32_768}, loaded={"qwen3-8b": 8192}), {"qwen3-8b": 8192}),
    (vllm("Qwen/Qwen3-8B", 16_384), {"Qwen/Qwen3-8B": 16_384}),
    (llama_cpp("gemma-4", 8192), {"gemma-4": 8192}),
]
NAMES = ["ollama", "ollama-loaded", "lmstudio", "lmstudio-loaded", "vllm", "llama.cpp"]


@pytest.mark.parametrize(("routes", "windows"), CASES, ids=NAMES)
async def test_each_server_tells_its_models_and_windows(
    routes: Routes, windows: dict[str, int]
) -> None:
    listing, server = await listing_of(routes)
    assert {model.name: model.window for model in listing.models} == windows
    assert not listing.trouble
    assert not any("authorization" in asked.headers for asked in server.asked)


async def test_a_modelfile_that_sets_the_window_is_believed() -> None:
    routes = dict(ollama({"mine": 131_072}))
    routes["POST /api/show mine"] = {
        "parameters": "num_ctx                        16384",
        "model_info": {"llama.context_length": 131_072},
    }
    listing, _ = await listing_of(routes)
    assert listing.models == (ServedModel(name="mine", window=16_384),)


async def test_a_server_of_another_kind_is_listed_without_windows() -> None:
    listing, _ = await listing_of({"GET /v1/models": {"data": [{"id": "some-model"}]}})
    assert listing.models == (ServedModel(name="some-model"),)


async def test_a_server_without_a_list_says_what_is_wrong() -> None:
    listing, _ = await listing_of({})
    assert listing.models == ()
    assert "has no list of models: check its base_url" in listing.trouble


async def test_a_server_is_asked_again_only_after_a_while() -> None:
    clock, heard = Clock(), Heard()
    async with ModelServer.open(vllm("m", 4096)) as server, Connections.open() as connections:
        settings = settings_of(server.base_url)
        lists = ModelLists(
            connections,
            settings=lambda: settings,
            environ=dict[str, str],
            on_update=heard,
            clock=clock,
        )
        await lists.refresh()
        await lists.refresh()
        assert len(server.calls("GET /v1/models")) == 1
        clock.now = 11.0
        await lists.refresh()
        assert len(server.calls("GET /v1/models")) == 2


async def test_a_server_that_is_gone_keeps_its_models_and_is_told_of() -> None:
    clock, heard = Clock(), Heard()
    async with Connections.open() as connections:
        async with ModelServer.open(ollama({"qwen3": 4096})) as server:
            settings = settings_of(server.base_url, "ollama")
            lists = ModelLists(
                connections,
                settings=lambda: settings,
                environ=dict[str, str],
                on_update=heard,
                clock=clock,
            )
            await lists.refresh()
        clock.now = 11.0
        await lists.refresh()
        assert [model.name for model in heard.listings["ollama"].models] == ["qwen3"]
        assert lists.trouble("ollama") == (
            f"Ollama is not running at {server.base_url}: start it with `ollama serve`, or "
            "correct its base_url"
        )


async def test_only_local_backends_are_asked() -> None:
    """Whatever else the settings name: a list of models could be a paid provider's."""
    async with ModelServer.open(vllm("m", 4096)) as server, Connections.open() as connections:
        far = Backend(id="far", base_url=server.base_url, key=Secret("sk-own"))
        settings = Settings(project=Path("/p"), backends={"far": far})
        lists = ModelLists(
            connections, settings=lambda: settings, environ=dict[str, str], on_update=Heard()
        )
        await lists.refresh()
        assert server.asked == []


# What comes of it

URL = "http://127.0.0.1:9/v1"


def listed(*models: ServedModel) -> dict[str, ModelListing]:
    return {"own": ModelListing(base_url=URL, models=models)}


def test_models_that_nobody_wrote_down_are_providers_too() -> None:
    mine = Provider(name="mine", backend="own", model="qwen3")
    told = listed(ServedModel(name="qwen3:latest", window=8192), ServedModel(name="tiny"))
    merged = with_served_models(settings_of(URL, "own", mine), told)
    assert merged.providers == (
        Provider(name="mine", backend="own", model="qwen3", context_limit=8192),
        Provider(name="own/tiny", backend="own", model="tiny", listed=True),
    )


def test_a_window_that_a_file_gives_holds() -> None:
    mine = Provider(name="mine", backend="own", model="qwen3", context_limit=4096)
    merged = with_served_models(
        settings_of(URL, "own", mine), listed(ServedModel(name="qwen3", window=8192))
    )
    assert merged.providers == (mine,)


def test_the_only_model_there_is_is_the_default() -> None:
    merged = with_served_models(settings_of(URL), listed(ServedModel(name="qwen3")))
    assert merged.default_provider == "own/qwen3"
    assert not merged.providers[0].listed


def test_what_a_server_told_is_forgotten_when_the_address_changes() -> None:
    settings = settings_of("http://127.0.0.1:10/v1")
    assert with_served_models(settings, listed(ServedModel(name="qwen3"))) is settings
