"""A provider fails in the middle of a worker's session on the real OpenCode; another one goes on."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from mcp import Client
from world import World, a_world, told

from goent.domain.events import FailedOver
from goent.domain.types import Usage
from goent.testing.script import Fault, Script, Step, anthropic, call, case, fail, openai, say

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180), pytest.mark.spec("P37")]

LIMITED = Fault(status=429, retry_after=3600, message="slow down")
WRITE = call("write", filePath="{cwd}/made.txt", content="made\n")
STORM = (case("storm", WRITE, Step(fault=LIMITED)),)
BROKEN = (
    case("break off", say("one two three four").having(chunk=4, fault=Fault(kind="cut", after=2))),
)
GOOD = (
    case("storm", WRITE, say("Done by {model}.", usage=Usage(input=70, output=7))),
    case("break off", say("one two three four")),
)
SCRIPT = Script(
    providers={
        "moonshot": openai(*STORM, *BROKEN, models=("glm-4",), key="sk-moonshot-real-key"),
        "deepseek": openai(*GOOD, models=("deepseek-coder",), key="sk-deepseek-real-key"),
        "claude": anthropic(*GOOD, models=("claude-x",), key="sk-ant-real-key"),
        "gone": openai(case(None, fail(503)), models=("nothing",), key="sk-gone-real-key"),
    }
)
PROVIDERS = """
providers:
  glm: {provider: moonshot, model: glm-4, fallbacks: [spare]}
  spare: {provider: deepseek, model: deepseek-coder}
  other: {provider: gone, model: nothing, fallbacks: [claude]}
  claude: {provider: claude, model: claude-x}
"""


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[World]:
    config = "opencode: {profile: hermetic}\ndefault_provider: glm\n"
    async with a_world(tmp_path_factory.mktemp("failover"), SCRIPT, config=config) as world:
        (world.project / ".goent" / "providers.yaml").write_text(PROVIDERS)
        world.trust()
        yield world


async def finished(lead: Client, task: str, **more: object) -> dict[str, Any]:
    asked = {"task": task, "permissions": "auto", "wait_s": 120, **more}
    spawned = told(await lead.call_tool("worker_spawn", asked))
    return told(await lead.call_tool("worker_result", {"worker_id": spawned["worker_id"]}))


@pytest.mark.spec("P37", "P38", "P33")
async def test_a_storm_of_429_ends_in_a_finished_task_on_the_fallback(world: World) -> None:
    async with world.client() as lead:
        result = await finished(lead, "storm; make it")
    assert (result["state"], result["text"]) == ("completed", "Done by deepseek-coder.")
    (moved,) = result["failovers"]
    assert (moved["from_provider"], moved["to_provider"]) == ("glm", "spare")
    assert "slow down" in moved["reason"]
    assert {use["provider"] for use in result["models_used"]} == {"glm", "spare"}
    events = [envelope.event for envelope in await world.journal(result["worker_id"])]
    assert len([event for event in events if isinstance(event, FailedOver)]) == 1
    first, *_ = world.models.calls
    assert {c.session for c in world.models.calls if c.provider == "moonshot"} == {first.session}
    taken_over = next(c for c in world.models.calls if c.provider == "deepseek")
    assert taken_over.request
    roles = [message.role for message in taken_over.request.messages]
    assert roles[-3:] == ["user", "assistant", "tool"], "the context is there"
    assert (world.project / "made.txt").read_text() == "made\n"
    billed = world.models.billed("moonshot") + world.models.billed("deepseek")
    assert result["usage"]["input"] == billed.input


async def test_a_text_that_breaks_off_is_told_once(world: World) -> None:
    async with world.client() as lead:
        result = await finished(lead, "break off", provider="glm", allow_fallback=True)
    assert (result["state"], result["text"]) == ("completed", "one two three four")


async def test_a_pinned_task_stays_and_names_who_would_be_next(world: World) -> None:
    async with world.client() as lead:
        result = await finished(lead, "storm; stay", provider="glm")
    assert (result["state"], result["failovers"]) == ("failed", [])
    failure = result["failure"]
    assert (failure["kind"], failure["retry_with"]) == ("rate_limited", "spare")


async def test_a_fallback_that_speaks_the_other_dialect_does_the_work(world: World) -> None:
    async with world.client() as lead:
        result = await finished(lead, "storm; translate", provider="other", allow_fallback=True)
    assert (result["state"], result["text"]) == ("completed", "Done by claude-x.")
    assert [use["provider"] for use in result["models_used"]] == ["claude"]
