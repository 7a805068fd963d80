"""Model servers of the user's own, without any key, by every method: metered, free, under a hard budget."""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from acp_process import a_wire
from model_server import ModelServer, Routes, llama_cpp, lm_studio, ollama, vllm
from world import World, a_cold_world, a_world, told

from goent.domain.types import Usage
from goent.testing.script import Script, case, openai, say

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]

SPENT = Usage(input=800, output=90)
MODELS = {
    "ollama": "qwen3:8b",
    "lmstudio": "qwen3-8b",
    "vllm": "Qwen/Qwen3-8B",
    "llama.cpp": "gemma-4",
}
ROUTES: Mapping[str, Routes] = {
    "ollama": ollama({"qwen3:8b": 40_960, "llama3.2:3b": 131_072, "nomic-embed-text": 2048}),
    "lmstudio": lm_studio({"qwen3-8b": 32_768}, loaded={"qwen3-8b": 16_384}),
    "vllm": vllm("Qwen/Qwen3-8B", 65_536),
    "llama.cpp": llama_cpp("gemma-4", 24_576),
}
# Which server each method works on.
WAYS = {"acp": "ollama", "cli": "lmstudio", "serve": "vllm", "api": "llama.cpp", "agent": "ollama"}
SCRIPT = Script(
    providers={
        "behind": openai(
            case("sum it up", say("{model} sums up.", usage=SPENT)), models=tuple(MODELS.values())
        )
    }
)
CONFIG = (
    "opencode: {profile: hermetic, warm: false}\n"
    "budget: {per_task: 0.01, per_day: 0.01, hard: true}\n"
)
Servers = Mapping[str, ModelServer]


def write_down(world: World, servers: Servers) -> None:
    """All that the user has to say, in their own file; the key of no one else is anywhere."""
    lines = [
        f"  {name}: {{provider: {name}, model: '{MODELS[name]}', base_url: '{server.base_url}'}}"
        for name, server in servers.items()
    ]
    own = world.home / ".config" / "go-ent" / "providers.yaml"
    own.parent.mkdir(exist_ok=True)
    own.write_text("\n".join(["providers:", *lines, ""]))
    (world.home / ".config" / "opencode" / "opencode.json").unlink()


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[World]:
    async with a_world(tmp_path_factory.mktemp("local"), SCRIPT, config=CONFIG) as world:
        yield world


@pytest.fixture(scope="module")
async def servers(world: World) -> AsyncGenerator[Servers]:
    async with AsyncExitStack() as stack:
        behind = f"{world.models.url}/behind/v1"
        found = {
            name: await stack.enter_async_context(ModelServer.open(routes, script=behind))
            for name, routes in ROUTES.items()
        }
        write_down(world, found)
        yield found


@pytest.fixture(scope="module")
async def results(world: World, servers: Servers) -> Mapping[str, dict[str, Any]]:
    del servers
    found: dict[str, dict[str, Any]] = {}
    async with world.client() as lead:
        workers: dict[str, str] = {}
        for method, server in WAYS.items():
            asked = {"task": "sum it up", "method": method, "provider": server, "wait_s": 0}
            workers[method] = told(await lead.call_tool("worker_spawn", asked))["worker_id"]
        waits = {"worker_ids": [*workers.values()], "timeout_s": 200}
        assert not told(await lead.call_tool("worker_wait", waits))["timed_out"]
        for method, worker in workers.items():
            result = await lead.call_tool("worker_result", {"worker_id": worker})
            found[method] = told(result)
    return found


@pytest.mark.spec("P01", "P34", "P35")
@pytest.mark.parametrize("method", WAYS)
async def test_every_method_works_without_a_key_and_is_metered(
    results: Mapping[str, dict[str, Any]], servers: Servers, method: str
) -> None:
    result, server = results[method], WAYS[method]
    assert (result["state"], result["text"]) == ("completed", f"{MODELS[server]} sums up."), result
    assert (result["usage"]["input"], result["usage"]["output"]) == (800, 90)
    assert result["cost_usd"] == 0
    assert not result.get("warnings")
    sent = servers[server].calls()
    assert sent
    assert not any({"authorization", "x-api-key"} & call.headers.keys() for call in sent)


async def test_an_editors_agent_needs_no_key_either(world: World, servers: Servers) -> None:
    async with a_wire(world, "--model", "lmstudio") as wire:
        await wire.result("initialize", protocolVersion=1)
        number = await wire.begin("session/new", cwd=str(world.project), mcpServers=[])
        session = (await wire.reply(number))["result"]["sessionId"]
        words = [{"type": "text", "text": "sum it up"}]
        number = await wire.begin("session/prompt", sessionId=session, prompt=words)
        assert (await wire.reply(number))["result"]["stopReason"] == "end_turn"
    assert "authorization" not in servers["lmstudio"].calls()[-1].headers


async def test_the_books_know_every_call_and_that_it_was_free(
    world: World, results: Mapping[str, dict[str, Any]]
) -> None:
    del results
    report = json.loads((await world.go_ent("costs", "--by", "provider", "--json")).out)
    assert (report["total_usd"], report["unknown_calls"]) == (0, 0)
    rows = {row["key"]: row for row in report["rows"]}
    assert rows.keys() == MODELS.keys()
    assert all(row["usage"]["input"] >= 800 for row in rows.values())


async def test_the_list_shows_what_the_servers_offer(world: World, servers: Servers) -> None:
    del servers
    listed = json.loads((await world.go_ent("providers", "--json")).out)["providers"]
    seen = {p["name"]: (p["health"], p["context_limit"], p["price"]["input"]) for p in listed}
    assert seen == {
        "ollama": ("ready", 40_960, 0),
        "lmstudio": ("ready", 16_384, 0),
        "vllm": ("ready", 65_536, 0),
        "llama.cpp": ("ready", 24_576, 0),
        "ollama/llama3.2:3b": ("ready", 131_072, 0),  # pulled, and in no file
    }


# What may be wrong, without OpenCode


async def test_a_server_that_does_not_run_is_named_at_once(tmp_path: Path) -> None:
    async with a_cold_world(tmp_path) as world:
        async with ModelServer.open(ROUTES["ollama"]) as server:
            write_down(world, {"ollama": server})
        ended = await world.go_ent("run", "--method", "api", "--provider", "ollama", "Say hi.")
        line = f"Ollama is not running at {server.base_url}: start it with `ollama serve`"
        assert ended.exit == 1
        assert line in ended.out + ended.err
        assert "is asked again" not in ended.out + ended.err
        listed = await world.go_ent("providers")
        assert f"ollama is down: {line}" in listed.out
        assert "free" in listed.out


async def test_a_model_that_was_not_pulled_is_named_with_its_remedy(tmp_path: Path) -> None:
    async with a_cold_world(tmp_path) as world, ModelServer.open(ROUTES["ollama"]) as server:
        write_down(world, {"ollama": server})
        ended = await world.go_ent(
            "run", "--method", "api", "--provider", "ollama", "--model", "mistral", "Say hi."
        )
        assert ended.exit == 1
        line = (
            f"Ollama at {server.base_url} has no model 'mistral': get it with `ollama pull mistral`"
        )
        assert line in ended.out + ended.err


# What opencode.json says of a provider, without OpenCode


@pytest.mark.parametrize("method", ["api", "agent"])
async def test_headers_and_options_of_opencode_json_reach_the_provider(
    tmp_path: Path, method: str
) -> None:
    async with a_cold_world(tmp_path) as world, ModelServer.open({}) as server:
        headers = {"X-Team": "blue", "X-Team-Token": "{env:TEAM_TOKEN}"}
        options = {"reasoningEffort": "high", "chat_template_kwargs": {"thinking": False}}
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": server.base_url, "headers": headers},
            "models": {"moonshot-1": {"options": options}},
        }
        file = world.home / ".config" / "opencode" / "opencode.json"
        file.write_text(json.dumps({"provider": {"mine": provider}}))
        world.env["TEAM_TOKEN"] = "sk-team-0123456789"
        await world.go_ent("run", "--method", method, "--provider", "mine", "--json", "Say hi.")
        (call,) = server.calls()
    assert (call.headers["x-team"], call.headers["x-team-token"]) == ("blue", "sk-team-0123456789")
    body = json.loads(call.body)
    assert body["reasoning_effort"] == "high"
    assert body["chat_template_kwargs"] == {"thinking": False}
