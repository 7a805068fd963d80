"""Budgets through the real daemon and the real OpenCode: warned of, refused, and kept."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from world import World, a_world, refusal, told

from goent.domain.types import Usage
from goent.testing.script import Script, anthropic, call, case, openai, say

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240), pytest.mark.spec("P35")]

DEAR = Usage(input=2_000_000, output=10)  # $2 on glm
WRITE = call("write", filePath="{cwd}/made.txt", content="made\n").having(usage=DEAR)
CASES = (
    case("spend a lot", WRITE, say("Done.")),
    case("a long answer", say("Long.", usage=DEAR)),
    case("a small thing", say("Small.", usage=Usage(input=100, output=10))),
)
SCRIPT = Script(
    providers={
        "moonshot": openai(*CASES, models=("glm-4",), key="sk-moonshot-real-key"),
        "claude": anthropic(*CASES, models=("claude-x",), key="sk-ant-real-key"),
        "deepseek": openai(*CASES, models=("coder",), key="sk-deepseek-real-key"),
    }
)
PROVIDERS = """
providers:
  glm: {provider: moonshot, model: glm-4, price: {input: 1, output: 2}}
  claude: {provider: claude, model: claude-x, price: {input: 1, output: 2}}
  tenth: {provider: deepseek, model: coder, price: {input: 0.1, output: 0.2}}
"""
CONFIG = "opencode: {profile: hermetic}\ndefault_provider: glm\n"


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[World]:
    async with a_world(tmp_path_factory.mktemp("budgets"), SCRIPT, config=CONFIG) as world:
        (world.project / ".goent" / "providers.yaml").write_text(PROVIDERS)
        world.trust()
        yield world


def budget(world: World, words: str) -> None:
    """The daemon reads it anew."""
    (world.project / ".goent" / "config.yaml").write_text(f"{CONFIG}budget: {{{words}}}\n")


async def finished(lead: Client, task: str, **more: object) -> dict[str, Any]:
    asked = {"task": task, "permissions": "auto", "wait_s": 150, **more}
    spawned = told(await lead.call_tool("worker_spawn", asked))
    assert spawned["result"], spawned
    return {**spawned["result"], "warnings": spawned["warnings"]}


async def refused(lead: Client, **more: object) -> str:
    answer = await lead.call_tool("worker_spawn", {"task": "a small thing", **more})
    assert answer.is_error
    return refusal(answer)


@pytest.mark.parametrize("provider", ["glm", "claude"])
@pytest.mark.parametrize("method", ["acp", "cli", "serve"])
async def test_opencode_is_stopped_before_the_call_that_would_overspend(
    world: World, provider: str, method: str
) -> None:
    budget(world, "")
    before = len(world.models.calls)
    made = world.project / "made.txt"
    made.unlink(missing_ok=True)
    async with world.client() as lead:
        result = await finished(
            lead, "spend a lot", provider=provider, method=method, budget_usd=1.5
        )
    assert (result["state"], result["failure"]["kind"]) == ("failed", "budget_exceeded")
    assert "$1.50 (budget_usd), has no room for the next call" in result["failure"]["message"]
    assert "$2.00 spent" in result["failure"]["message"]
    assert "provider 'tenth'" in result["failure"]["message"]
    assert not result["failure"]["retryable"]
    assert len(world.models.calls) == before + 1, "the call that was paid for, and no other"
    assert made.read_text() == "made\n", "what it did so far is kept"
    assert result["cost_usd"] == pytest.approx(2.00002)


async def test_the_api_method_is_held_to_the_same_limit(world: World) -> None:
    budget(world, "")
    async with world.client() as lead:
        asked = {"task": "a long answer", "method": "api", "budget_usd": 2.001, "wait_s": 60}
        spawned = told(await lead.call_tool("worker_spawn", asked))
        before = len(world.models.calls)
        prompt = {"worker_id": spawned["worker_id"], "prompt": "a small thing", "wait_s": 60}
        again = told(await lead.call_tool("worker_prompt", prompt))
        assert again["result"]["failure"]["kind"] == "budget_exceeded"
        assert "has no room for the next call" in again["result"]["failure"]["message"]
        spawned = told(await lead.call_tool("worker_spawn", {**asked, "budget_usd": 1}))
        prompt = {"worker_id": spawned["worker_id"], "prompt": "a small thing"}
        used_up = await lead.call_tool("worker_prompt", prompt)
        assert used_up.is_error and "$1.00 (budget_usd), is used up" in refusal(used_up)
    assert len(world.models.calls) == before + 1


async def test_a_soft_budget_warns_and_suggests_before_money_is_spent(world: World) -> None:
    budget(world, "per_task: 0.01")
    async with world.client() as lead:
        result = await finished(lead, "a small thing")
    assert result["state"] == "completed"
    (warning,) = result["warnings"]
    assert "the budget of task w-" in warning and "$0.01 (budget.per_task)" in warning
    assert "provider 'tenth' would fit, at about $0.008" in warning


async def test_a_hard_budget_refuses_before_the_start_what_is_known_to_be_too_much(
    world: World,
) -> None:
    budget(world, "per_task: 0.04, hard: true")
    (world.project / "long.txt").write_text("word " * 50_000)
    before = len(world.models.calls)
    async with world.client() as lead:
        words = await refused(lead, files=["long.txt"])
        assert "has no room for this task on 'glm'" in words and "'tenth' would fit" in words
        least = await refused(lead, files=["long.txt"], budget_usd=0.001)
        assert "cheapest route, provider 'tenth'" in least
        asked = {"files": ["long.txt"], "provider": "tenth", "method": "api"}
        assert (await finished(lead, "a small thing", **asked))["state"] == "completed"
    assert len(world.models.calls) == before + 1


async def test_an_estimate_above_a_hard_budget_is_a_warning(world: World) -> None:
    budget(world, "")
    async with world.client() as lead:
        asked = {"provider": "glm", "method": "acp", "budget_usd": 0.05}
        result = await finished(lead, "a small thing", **asked)
    assert result["state"] == "completed"
    (warning,) = result["warnings"]
    assert "$0.05 (budget_usd), may not be enough" in warning and "'tenth' would fit" in warning


@pytest.mark.spec("P34")
async def test_the_report_says_how_the_budgets_stand(world: World) -> None:
    budget(world, "per_day: 50, per_project: 100")
    costs = json.loads((await world.go_ent("costs", "--json")).out)
    day, project = costs["budgets"]
    assert (day["scope"], day["limit_usd"], day["held_usd"], day["hard"]) == ("day", 50, 0, False)
    assert (project["scope"], project["key"]) == ("project", str(world.project))
    assert day["spent_usd"] == project["spent_usd"] == pytest.approx(costs["total_usd"])
    shown = (await world.go_ent("costs")).out
    assert "of $50.00 a day" in shown and "of $100.00 for the project" in shown


STEP = call("write", filePath="{cwd}/step-{n}.txt", content="made\n").having(usage=DEAR)
LOGGED_IN = Script(
    providers={
        "gone": openai(
            case("spend a lot", STEP, STEP, STEP.having(gate="never"), say("Done.")),
            models=("nothing",),
            key="sk-gone-real-key",
        )
    }
)


async def test_a_provider_that_goes_direct_is_refused_or_stopped_at_its_next_step(
    tmp_path: Path,
) -> None:
    """Its key is OpenCode's own login: go-ent has none, and hears of its calls afterwards."""
    config = "opencode: {profile: user}\ndaemon: {idle_exit_s: 120}\n"
    async with a_world(tmp_path, LOGGED_IN, config=config) as world:
        theirs = world.home / ".config" / "opencode" / "opencode.json"
        known = json.loads(theirs.read_text())
        del known["provider"]["gone"]["options"]["apiKey"]
        theirs.write_text(json.dumps(known))
        login = world.home / ".local" / "share" / "opencode" / "auth.json"
        login.parent.mkdir(parents=True)
        login.write_text(json.dumps({"gone": {"type": "api", "key": "sk-gone-real-key"}}))
        async with world.client() as lead:
            asked = {"task": "spend a lot", "permissions": "auto", "budget_usd": 0.15}
            answer = await lead.call_tool("worker_spawn", asked)
            assert answer.is_error and "budget: {direct: stop}" in refusal(answer)
            (world.project / ".goent" / "config.yaml").write_text(
                f"{config}budget: {{direct: stop}}\n"
            )
            world.trust()
            result = await finished(lead, "spend a lot", budget_usd=0.15)
        assert (result["state"], result["failure"]["kind"]) == ("failed", "budget_exceeded")
        assert "$0.15 (budget_usd), is used up" in result["failure"]["message"]
        assert len(world.models.calls) <= 3, "not a step more than was under way"
        assert result["files"], "what it did so far is kept"
        assert result["cost_usd"] >= 0.2
