"""The real OpenCode as a lead: it hands tasks over by `go-ent mcp`, and reads what comes back."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import pytest
from opencode import LIGHT, opencode_binary
from world import GO_ENT, World, a_world

from goent.testing.hermetic_opencode import hermetic_env, opencode_config
from goent.testing.script import Script, call, case, openai, say

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]
SCRIPT = Script(
    providers={
        "moonshot": openai(
            case("sum it up", say("The sum of it.")),
            case("answer shortly", say("Short.")),
            models=("glm-4",),
            key="sk-moonshot-real-key",
        ),
        "lead": openai(
            case(
                "hand it over",
                call("go-ent_provider_recommend", task="sum it up"),
                call("go-ent_worker_spawn", task="sum it up", wait_s=60),
                call("go-ent_agent_spawn_acp", task="answer shortly", wait_s=60),
                call("go-ent_worker_spawn", task="sum it up", provider="nobody"),
                say("Handed over."),
            ),
            models=("leader",),
            key="sk-lead-real-key",
        ),
    }
)
PROVIDERS = """
providers:
  glm: {provider: moonshot, model: glm-4, method: api, price: {input: 1, output: 5}}
"""
CONFIG = "opencode: {profile: hermetic, warm: false}\ndefault_provider: glm\n"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with a_world(tmp_path, SCRIPT, config=CONFIG) as world:
        (world.project / ".goent" / "providers.yaml").write_text(PROVIDERS)
        world.trust()
        yield world


async def lead(world: World, prompt: str) -> str:
    """What `opencode run` prints, with go-ent as its MCP server."""
    config: dict[str, Any] = json.loads(opencode_config(world.models, model="lead/leader"))
    server = {"type": "local", "command": [*GO_ENT, "mcp"], "environment": world.env}
    config["mcp"] = {"go-ent": {**server, "enabled": True, "timeout": 100_000}}
    path = world.home.parent / "lead.json"
    path.write_text(json.dumps(config))
    env = hermetic_env(world.home.parent / "lead") | LIGHT
    env |= {"OPENCODE_CONFIG": str(path), "PWD": str(world.project)}
    command = [str(opencode_binary()), "run", "--format=json", prompt]
    with anyio.fail_after(150):
        done = await anyio.run_process(command, cwd=world.project, env=env, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


async def test_it_spawns_workers_whose_price_is_known(world: World) -> None:
    printed = [json.loads(line) for line in (await lead(world, "hand it over")).splitlines()]
    parts = [event["part"] for event in printed if event["type"] == "tool_use"]
    recommended, spawned, agent, refused = (
        (part["state"].get("output") or part["state"].get("error")) for part in parts
    )
    for answer in (recommended, spawned, agent):
        assert json.loads(answer)["estimate"]["cost_usd"], answer
    assert json.loads(spawned)["result"]["text"] == "The sum of it."
    assert json.loads(agent)["result"]["text"] == "Short."
    assert "unknown provider 'nobody'" in refused
    ended = await world.go_ent("ps", "--json")
    assert len(json.loads(ended.out)["workers"]) == 2, "none was begun twice"
