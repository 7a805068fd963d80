"""A worker on go-ent's own agent whose provider, or whose process, gives out in mid-turn."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from world import World, a_world, kill, told

from goent.testing.script import Fault, Script, Step, call, case, openai, say

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

DOWN = Step(fault=Fault(status=503, retry_after=0))
SCRIPT = Script(
    providers={
        "moonshot": openai(
            case("write it down", DOWN, DOWN),
            case(
                "work and fall",
                call("Write", file_path="{cwd}/half.txt", content="half\n"),
                say("x").having(gate="falling"),
            ),
            models=("glm-4",),
            key="sk-moonshot-real-key",
        ),
        "deepseek": openai(
            case(
                "write it down", call("Write", file_path="{cwd}/n.txt", content="n\n"), say("Done.")
            ),
            case("continues it", say("Gone on.")),
            models=("deepseek-coder",),
            key="sk-deepseek-real-key",
        ),
    }
)
PROVIDERS = """\
providers:
  glm: {provider: moonshot, model: glm-4, fallbacks: [deepseek]}
  deepseek: {provider: deepseek, model: deepseek-coder}
"""
CONFIG = "opencode: {profile: hermetic, warm: false}\n"
BY_AGENT = {"method": "agent", "provider": "glm", "permissions": "auto", "allow_fallback": True}


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[World]:
    async with a_world(tmp_path_factory.mktemp("agents"), SCRIPT, config=CONFIG) as world:
        (world.project / ".goent" / "providers.yaml").write_text(PROVIDERS)
        world.trust()
        yield world


async def test_a_provider_that_is_down_is_replaced_without_the_agent_knowing(world: World) -> None:
    async with world.client() as lead:
        task = {"task": "write it down", "wait_s": 120, **BY_AGENT}
        result = told(await lead.call_tool("worker_spawn", task))["result"]
        assert (result["state"], result["text"]) == ("completed", "Done.")
        assert "deepseek" in {move["to_provider"] for move in result["failovers"]}
        assert (world.project / "n.txt").read_text() == "n\n"


async def test_a_lost_process_goes_on_with_the_fallback_in_the_same_session(world: World) -> None:
    async with world.client() as lead:
        task = {"task": "work and fall", **BY_AGENT}
        worker = told(await lead.call_tool("worker_spawn", task))["worker_id"]
        await world.models.at_gate("falling", timeout=60)
        for pid in world.processes():
            if b"\0acp\0" in Path(f"/proc/{pid}/cmdline").read_bytes():
                kill(pid)
        told(await lead.call_tool("worker_wait", {"worker_ids": [worker], "timeout_s": 60}))
        result = told(await lead.call_tool("worker_result", {"worker_id": worker}))
        assert (result["state"], result["text"]) == ("completed", "Gone on."), result
        assert [move["to_provider"] for move in result["failovers"]] == ["deepseek"]
        assert "half.txt" in str(world.models.calls[-1].request), "it knows what was done"
