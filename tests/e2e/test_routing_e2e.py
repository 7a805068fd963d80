"""Tasks find their providers: the real daemon and OpenCode, several providers by one scripted server."""

import time
from collections.abc import AsyncGenerator
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from mcp import Client
from msgspec.structs import replace
from world import World, a_world, refusal, told

from goent.domain.events import WorkerSpawned
from goent.domain.task_profile import TaskSample
from goent.domain.types import Usage
from goent.providers.track_record import SqliteHistory
from goent.system.project_folders import state_dir
from goent.testing.script import Script, anthropic, case, openai, say

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]

ANSWER = (case(None, say("Answered by {model}.")),)
SCRIPT = Script(
    providers={
        "moonshot": openai(*ANSWER, models=("glm-4", "kimi-k2"), key="sk-moonshot-real-key"),
        "deepseek": openai(*ANSWER, models=("deepseek-coder",), key="sk-deepseek-real-key"),
        "claude": anthropic(*ANSWER, models=("claude-haiku",), key="sk-ant-real-key"),
    }
)
PROVIDERS = """
providers:
  glm: {provider: moonshot, model: glm-4, context_limit: 128000, price: {input: 0.6, output: 2.2}}
  kimi: {provider: moonshot, model: kimi-k2, context_limit: 1000000, price: {input: 1, output: 4}}
  deepseek: {provider: deepseek, model: deepseek-coder, context_limit: 128000, price: {input: 0.3, output: 1}}
  haiku: {provider: claude, model: claude-haiku, context_limit: 200000, price: {input: 1, output: 5}}
"""
TYPO = "Fix the typo in README.md"
REFACTORING = "Refactor the parser: extract the reader of dates into a class of its own"
ENDPOINT = "Add an endpoint for exports to the server"
QUESTION = "What is the difference between a mutex and a semaphore?"


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[World]:
    async with a_world(tmp_path_factory.mktemp("routing"), SCRIPT) as world:
        (world.project / ".goent" / "providers.yaml").write_text(PROVIDERS)
        world.trust()
        (world.project / "README.md").write_text("Helo.\n")
        words = "the quick brown fox jumps over the lazy dog. " * 8_000
        (world.project / "night.log").write_text(words)
        yield world


async def handed_over(lead: Client, task: str, **more: object) -> dict[str, Any]:
    asked = {"task": task, "permissions": "auto", "wait_s": 150, **more}
    return told(await lead.call_tool("worker_spawn", asked))


@pytest.mark.spec("P16")
async def test_a_small_task_is_done_by_a_cheap_fast_provider_by_cli(world: World) -> None:
    async with world.client() as lead:
        spawned = await handed_over(lead, TYPO)
    assert (spawned["provider"], spawned["method"]) == ("haiku", "cli")
    assert spawned["result"]["text"] == "Answered by claude-haiku."
    assert spawned["result"]["evidence"] == "refuted", (
        "it was asked to fix something, and only spoke"
    )
    assert "cheapest fast one" in spawned["reason"] and "trivial" in spawned["reason"]
    low, high = spawned["estimate"]["cost_usd"]
    assert 0 < low < high and spawned["estimate"]["source"] == "estimate"


@pytest.mark.spec("P16")
async def test_a_question_is_answered_by_api_without_opencode(world: World) -> None:
    async with world.client() as lead:
        spawned = await handed_over(lead, QUESTION)
    assert spawned["method"] == "api"
    assert spawned["result"]["text"].startswith("Answered by ")
    assert spawned["result"]["evidence"] == "claimed"
    request = world.models.calls[-1].request
    assert request and not request.tools


@pytest.mark.spec("P16")
async def test_by_default_a_small_task_that_only_reads_is_done_by_cli_and_read_only(
    world: World,
) -> None:
    async with world.client() as lead:
        asked = {"task": "Explain what README.md says", "wait_s": 150}
        spawned = told(await lead.call_tool("worker_spawn", asked))
        assert (spawned["provider"], spawned["method"]) == ("haiku", "cli"), spawned["reason"]
        assert spawned["result"]["text"] == "Answered by claude-haiku."
        born = (await world.journal(spawned["worker_id"]))[0].event
        assert isinstance(born, WorkerSpawned) and born.permissions == "readonly"

        for more in ({"task": TYPO}, {**asked, "permissions": "ask", "wait_s": 0}):
            spawned = told(await lead.call_tool("worker_spawn", more))
            assert spawned["method"] == "acp"
            assert "by acp, because it may have to ask, and cli cannot" in spawned["reason"]


@pytest.mark.spec("P17")
async def test_much_to_read_is_read_by_kimi_over_acp(world: World) -> None:
    async with world.client() as lead:
        spawned = await handed_over(lead, "Read night.log and tell what went wrong")
    assert (spawned["provider"], spawned["method"]) == ("kimi", "acp")
    assert spawned["result"]["text"] == "Answered by kimi-k2."
    assert "tokens of context, above 50,000" in spawned["reason"]


@pytest.mark.spec("P18")
async def test_refactoring_of_code_is_done_by_deepseek_over_acp(world: World) -> None:
    async with world.client() as lead:
        spawned = await handed_over(lead, REFACTORING)
    assert (spawned["provider"], spawned["method"]) == ("deepseek", "acp")
    assert spawned["result"]["text"] == "Answered by deepseek-coder."
    assert spawned["result"]["evidence"] == "refuted"
    assert "neither edited a file nor used a tool" in str(spawned["result"]["notes"])


@pytest.mark.spec("P19")
async def test_a_pin_is_obeyed_or_refused_and_never_bent(world: World) -> None:
    async with world.client() as lead:
        spawned = await handed_over(lead, REFACTORING, provider="glm", method="acp")
        assert (spawned["provider"], spawned["reason"]) == ("glm", "asked for")
        assert spawned["result"]["text"] == "Answered by glm-4."
        pin = {"task": TYPO, "provider": "gpt"}
        refused = await lead.call_tool("worker_spawn", pin)
        assert refused.is_error and "unknown provider 'gpt'; there are: glm" in refusal(refused)


@pytest.mark.spec("P20")
async def test_rules_decide_are_read_again_and_a_mistake_leaves_them_in_force(
    world: World,
) -> None:
    rules = world.project / ".goent" / "routing.yaml"
    good = "routing_rules:\n  - match: {type: refactor}\n    provider: kimi\n    method: acp\n"
    try:
        rules.write_text(good)
        async with world.client() as lead:
            spawned = await handed_over(lead, REFACTORING)
            assert spawned["provider"] == "kimi"
            assert spawned["reason"].startswith("rule 1: matches (refactor)")
            assert spawned["result"]["text"] == "Answered by kimi-k2."

            rules.write_text(good.replace("kimi", "kimmi"))
            again = await handed_over(lead, REFACTORING)
            assert (again["provider"], again["state"]) == ("kimi", "completed")
            (warning,) = [w for w in again["warnings"] if "routing.yaml" in w]
            assert "routing.yaml:3: routing_rules[0].provider: unknown provider 'kimmi'" in warning

        listed = await world.go_ent("routes")
        assert "kimi" in listed.out and "routing.yaml:3" in listed.out
        rules.write_text(good)
        explained = await world.go_ent("routes", "explain", TYPO, "--json")
        steps = msgspec.json.decode(explained.out)["steps"]
        assert steps[0]["name"] == "rule 1" and not steps[0]["decided"]
        assert "not refactor" in steps[0]["why"]
    finally:
        rules.unlink()


@pytest.mark.spec("P28")
async def test_a_recommendation_names_the_best_why_and_what_else(world: World) -> None:
    async with world.client() as lead:
        told_ = told(await lead.call_tool("provider_recommend", {"task": REFACTORING}))
        small = told(await lead.call_tool("provider_recommend", {"task": TYPO}))
        large = told(
            await lead.call_tool(
                "provider_recommend", {"task": REFACTORING, "context_tokens": 300_000}
            )
        )
    assert (told_["provider"], told_["method"]) == ("deepseek", "acp")
    assert "DeepSeek" in told_["rationale"] and told_["features"]["type"] == "refactor"
    others = {each["provider"]: each["estimate"]["cost_usd"] for each in told_["alternatives"]}
    assert set(others) == {"glm", "kimi", "haiku"}
    assert all(low < high for low, high in others.values())
    assert any("Do not delegate" in advice for advice in small["advice"])
    assert large["provider"] == "kimi" and large["alternatives"] == []
    by_hand = await world.go_ent("recommend", REFACTORING)
    assert by_hand.exit == 0 and "deepseek (deepseek-coder) by acp" in by_hand.out
    day = await world.go_ent("routes", "replay", "--json")
    told_day = msgspec.json.decode(day.out)
    assert len(told_day["tasks"]) == 25 and 0 < told_day["router_usd"] < told_day["best_usd"]


async def test_what_was_verified_and_refuted_changes_who_gets_the_next_one(world: World) -> None:
    good = TaskSample(
        at=time.time(),
        provider="kimi",
        backend="moonshot",
        model="kimi-k2",
        method="acp",
        type="implement",
        complexity="medium",
        size=60.0,
        cost_usd=Decimal("0.05"),
        usage=Usage(),
        seconds=40.0,
        state="completed",
        evidence="verified",
    )
    bad = replace(good, provider="glm", model="glm-4", state="failed", evidence="refuted")
    async with world.client() as lead:
        before = told(await lead.call_tool("provider_recommend", {"task": ENDPOINT}))
        async with SqliteHistory.open(state_dir(world.env) / "history.db") as history:
            for sample in (good, bad) * 15:
                await history.add(sample)
        after = told(await lead.call_tool("provider_recommend", {"task": ENDPOINT}))
        pinned = await handed_over(lead, ENDPOINT, provider="glm", method="acp", verify=["true"])
    assert (before["provider"], after["provider"]) == ("glm", "kimi")
    assert "by outcomes: kimi rather than glm: kimi 15 of 15 good" in after["rationale"]
    assert (pinned["provider"], pinned["result"]["evidence"]) == ("glm", "verified")
    explained = await world.go_ent("routes", "explain", ENDPOINT)
    assert "learning" in explained.out and "▶" in explained.out
    learned = await world.go_ent("routes", "learned")
    assert learned.exit == 0 and "kimi instead of glm" in learned.out
    (world.project / ".goent" / "config.yaml").write_text("learning: off\n")
    off = await world.go_ent("routes", "explain", ENDPOINT, "--json")
    assert msgspec.json.decode(off.out)["provider"] == "glm"
