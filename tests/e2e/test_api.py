"""A lead over MCP, and workers that are nothing but a model: both dialects, no OpenCode."""

from collections.abc import AsyncGenerator

import pytest
from world import World, a_world, told

from goent.domain.types import Usage
from goent.testing.script import Script, anthropic, case, fail, openai, say

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

CASES = (
    case("sum it up", say("{model} sums up.", usage=Usage(input=900, output=40, cache_read=100))),
    case("shorter", say("Short.", usage=Usage(input=950, output=4))),
    case("hold on", say("x").having(gate="held")),
    case("fall silent", fail("hang")),
)
SCRIPT = Script(
    providers={
        "claude": anthropic(*CASES, models=("claude-haiku",), key="sk-ant-real-key"),
        "moonshot": openai(*CASES, models=("glm-4",), key="sk-moonshot-real-key"),
    }
)
PROVIDERS = """
providers:
  haiku: {provider: claude, model: claude-haiku, method: api, price: {input: 1, output: 5, cache_read: 0.1}}
  glm: {provider: moonshot, model: glm-4, price: {input: 1, output: 5, cache_read: 0.1}}
"""


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[World]:
    config = "opencode: {profile: hermetic, warm: false}\n"
    async with a_world(tmp_path_factory.mktemp("api"), SCRIPT, config=config) as world:
        (world.project / ".goent" / "providers.yaml").write_text(PROVIDERS)
        world.trust()
        yield world


@pytest.mark.parametrize(
    ("provider", "model"),
    [
        pytest.param("haiku", "claude-haiku", marks=pytest.mark.spec("P10", "P33")),
        pytest.param("glm", "glm-4", marks=pytest.mark.spec("P11", "P33")),
    ],
)
async def test_one_call_answers_and_a_further_prompt_remembers(
    world: World, provider: str, model: str
) -> None:
    asked = {"task": "sum it up", "method": "api", "provider": provider, "temperature": 0.25}
    async with world.client() as lead:
        spawned = told(await lead.call_tool("worker_spawn", asked))
        result = spawned["result"]
        assert (spawned["method"], result["state"]) == ("api", "completed"), "it was waited for"
        assert result["text"] == f"{model} sums up."
        assert result["usage"]["cache_read"] == 100
        assert result["cost_usd"] == pytest.approx(0.00111)
        more = {"worker_id": spawned["worker_id"], "prompt": "shorter", "wait_s": 60}
        again = told(await lead.call_tool("worker_prompt", more))
    assert (again["turn"], again["result"]["text"]) == (2, "Short.")
    last = world.models.calls[-1].request
    assert last
    assert last.temperature == 0.25
    roles = [message.role for message in last.messages]
    assert roles == ["user", "assistant", "user"], "the conversation is sent along"
    assert world.processes() == [], "no OpenCode was started"


@pytest.mark.spec("P25")
async def test_a_cancel_closes_the_connection_at_once(world: World) -> None:
    asked = {"task": "hold on", "method": "api", "provider": "haiku", "wait_s": 0}
    async with world.client() as lead:
        worker = told(await lead.call_tool("worker_spawn", asked))["worker_id"]
        await world.models.at_gate("held", timeout=30)
        cancelled = told(await lead.call_tool("worker_cancel", {"worker_id": worker}))
    assert cancelled["state"] == "cancelled"
    await world.models.wait_for(lambda call: call.case == "hold on" and call.disconnected)


async def test_a_silent_provider_is_given_up_after_the_time_that_the_settings_say(
    world: World,
) -> None:
    """Without the setting it would be minutes. It holds from the next call on."""
    settings = world.project / ".goent" / "providers.yaml"
    settings.write_text(f"{PROVIDERS}health: {{silence_timeout: 1, max_retries: 0}}\n")
    world.trust()
    try:
        asked = {"task": "fall silent", "method": "api", "provider": "glm", "wait_s": 0}
        async with world.client() as lead:
            worker = told(await lead.call_tool("worker_spawn", asked))["worker_id"]
            await world.models.wait_for(
                lambda call: call.case == "fall silent" and call.disconnected
            )
            told(await lead.call_tool("worker_cancel", {"worker_id": worker}))
    finally:
        settings.write_text(PROVIDERS)
        world.trust()
