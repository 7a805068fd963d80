"""What one daemon learns of a provider holds for the next one, and for those of other projects."""

from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import pytest
from world import World, a_world, refusal, told

from goent.testing.script import (
    Fault,
    Script,
    ScriptedProvider,
    ScriptedRateLimits,
    ScriptedRateWindow,
    Step,
    case,
    openai,
    say,
)

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

LIMITED = Step(fault=Fault(status=429, retry_after=3600, message="slow down"))
SCRIPT = Script(
    providers={
        "moonshot": openai(case(None, LIMITED), models=("glm-4",), key="sk-moonshot-real-key"),
        "deepseek": openai(
            case(None, say("Done by {model}.")),
            models=("deepseek-coder",),
            key="sk-deepseek-real-key",
        ),
        "claude": ScriptedProvider(
            dialect="anthropic",
            cases=(case(None, say("The last one.")),),
            models=("claude-x",),
            key="sk-ant-real-key",
            limits=ScriptedRateLimits(
                requests=ScriptedRateWindow(limit=50, remaining=0, reset=1800)
            ),
        ),
    }
)
PROVIDERS = """
providers:
  glm: {provider: moonshot, model: glm-4, method: api, fallbacks: [spare], price: {input: 1, output: 2}}
  spare: {provider: deepseek, model: deepseek-coder, method: api, limits: {concurrency: 3, rpm: 60}}
  sonnet: {provider: claude, model: claude-x, method: api, fallbacks: [spare]}
"""
CONFIG = "opencode: {profile: hermetic, warm: false}\ndefault_provider: glm\n"


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[World]:
    async with a_world(tmp_path_factory.mktemp("health"), SCRIPT, config=CONFIG) as world:
        (world.project / ".goent" / "providers.yaml").write_text(PROVIDERS)
        world.trust()
        yield world


@pytest.fixture(scope="module")
async def neighbour(world: World) -> AsyncGenerator[World]:
    """Another project of the same user's, with a daemon of its own."""
    folder = world.project.parent / "neighbour" / ".goent"
    folder.mkdir(parents=True)
    for file in (world.project / ".goent").iterdir():
        (folder / file.name).write_text(file.read_text())
    other = replace(world, project=folder.parent)
    other.trust()
    yield other
    await other.end()


async def result_of(world: World, **asked: object) -> dict[str, Any]:
    async with world.client() as lead:
        asked = {"task": "say something", "method": "api", "wait_s": 60, **asked}
        spawned = told(await lead.call_tool("worker_spawn", asked))
        result = told(await lead.call_tool("worker_result", {"worker_id": spawned["worker_id"]}))
    return {**result, "warnings": spawned["warnings"]}


def calls(world: World, provider: str) -> int:
    return len([call for call in world.models.calls if call.provider == provider])


async def listed(world: World, name: str) -> dict[str, Any]:
    async with world.client() as lead:
        found = told(await lead.call_tool("provider_list", {}))["providers"]
    return next(p for p in found if p["name"] == name)


@pytest.mark.spec("P37", "P38", "P36")
async def test_a_rate_limit_is_remembered_by_the_next_daemon_and_by_the_neighbours(
    world: World, neighbour: World
) -> None:
    result = await result_of(world)
    assert (result["text"], calls(world, "moonshot")) == ("Done by deepseek-coder.", 1)
    await world.end()
    for project in (world, neighbour):
        again = await result_of(project)
        assert again["text"] == "Done by deepseek-coder."
        assert [used["provider"] for used in again["models_used"]] == ["spare"]
        (passed_over,) = again["warnings"]
        assert "limited until" in passed_over and "slow down" in passed_over
        glm = await listed(project, "glm")
        assert (glm["health"], glm["cooldown_until"] is not None) == ("limited", True)
    assert calls(world, "moonshot") == 1, "nobody asked it again"


@pytest.mark.spec("P38")
async def test_a_pinned_task_is_told_until_when_and_nobody_is_asked(world: World) -> None:
    before = calls(world, "moonshot")
    result = await result_of(world, provider="glm")
    failure = result["failure"]
    assert (failure["kind"], failure["retry_with"]) == ("rate_limited", "spare")
    assert "rate limited until" in failure["message"]
    assert "go-ent providers reset glm" in failure["message"]
    assert calls(world, "moonshot") == before


async def test_who_mended_it_need_not_wait(world: World) -> None:
    before = calls(world, "moonshot")
    assert (await world.go_ent("providers", "reset", "glm")).out == "forgot: glm\n"
    assert (await listed(world, "glm"))["health"] == "ready"
    await result_of(world)
    assert calls(world, "moonshot") == before + 1
    unknown = await world.go_ent("providers", "reset", "nobody")
    assert (unknown.exit, "unknown provider 'nobody'" in unknown.err) == (2, True)


@pytest.mark.spec("P38")
async def test_a_good_answer_that_was_the_last_for_now_is_heeded(world: World) -> None:
    first = await result_of(world, provider="sonnet", allow_fallback=True)
    assert first["text"] == "The last one."
    second = await result_of(world, provider="sonnet", allow_fallback=True)
    assert second["text"] == "Done by deepseek-coder.", "before it had to refuse"
    assert calls(world, "claude") == 1


@pytest.mark.spec("P27")
async def test_the_list_is_complete(world: World) -> None:
    glm, spare = await listed(world, "glm"), await listed(world, "spare")
    assert {"name", "backend", "model", "method", "capabilities", "context_limit", "price"} <= set(
        glm
    )
    assert glm["cost_estimate"] > 0
    assert (spare["health"], spare["cooldown_until"], spare["in_use"]) == ("ready", None, 0)
    assert spare["limits"] == {"concurrency": 3, "rpm": 60}
    async with world.client() as lead:
        odd = await lead.call_tool("provider_list", {"healthy": True})
        assert odd.is_error and "healthy" in refusal(odd)
