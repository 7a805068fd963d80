"""Gemini CLI as a lead: it hands tasks over by `go-ent mcp`, and reads what comes back."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import pytest
from gemini_model import DONE, GeminiModel, a_gemini_model
from mcp_peers import NODE, NPM
from world import GO_ENT, World, a_world

from goent.testing.script import Script, case, openai, say

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]
GEMINI = NPM / "node_modules" / "@google" / "gemini-cli" / "bundle" / "gemini.js"
SCRIPT = Script(
    providers={
        "moonshot": openai(
            case("sum it up", say("The sum of it.")),
            case("answer shortly", say("Short.")),
            models=("glm-4",),
            key="sk-moonshot-real-key",
        )
    }
)
PROVIDERS = """
providers:
  glm: {provider: moonshot, model: glm-4, method: api, price: {input: 1, output: 5}}
"""
CONFIG = "opencode: {profile: hermetic, warm: false}\ndefault_provider: glm\n"
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("provider_recommend", {"task": "sum it up"}),
    ("worker_spawn", {"task": "sum it up", "wait_s": 60}),
    ("agent_spawn_acp", {"task": "answer shortly", "wait_s": 60}),
    ("worker_spawn", {"task": "sum it up", "provider": "nobody"}),
]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with a_world(tmp_path, SCRIPT, config=CONFIG) as world:
        (world.project / ".goent" / "providers.yaml").write_text(PROVIDERS)
        world.trust()
        yield world


async def gemini(world: World, model: GeminiModel, prompt: str) -> str:
    """What it prints. Its own address is a dead one: it can reach nothing but the model."""
    home = world.home.parent / "lead"
    (home / ".gemini").mkdir(parents=True)
    server = {"command": GO_ENT[0], "args": [*GO_ENT[1:], "mcp"], "env": world.env, "trust": True}
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "general": {"enableAutoUpdate": False},
        "mcpServers": {"go-ent": server},
    }
    (home / ".gemini" / "settings.json").write_text(json.dumps(settings))
    env = {
        "HOME": str(home),
        "PATH": world.env["PATH"],
        "GEMINI_API_KEY": "sk-lead-real-key",
        "GOOGLE_GEMINI_BASE_URL": model.url,
        "HTTPS_PROXY": "http://127.0.0.1:9",
        "NO_PROXY": "127.0.0.1",
    }
    command = [str(NODE), str(GEMINI), "--skip-trust", "-m", "gemini-2.5-flash", "-p", prompt]
    with anyio.fail_after(240):
        done = await anyio.run_process(command, cwd=world.project, env=env, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


async def test_it_spawns_workers_whose_price_is_known(world: World) -> None:
    with a_gemini_model(CALLS) as model:
        assert DONE in await gemini(world, model, "hand it over")
    recommended, spawned, agent, refused = (json.dumps(each) for each in model.results)
    for answer in (recommended, spawned, agent):
        assert "cost_usd" in answer and "does not match" not in answer, answer
    assert "The sum of it." in spawned and "Short." in agent
    assert "unknown provider 'nobody'" in refused
    ended = await world.go_ent("ps", "--json")
    assert len(json.loads(ended.out)["workers"]) == 2, "none was begun twice"
