"""One task by every method, for a lead over MCP and at a terminal: the same result, the same bill."""

import json
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import anyio
import pytest
from mcp import Client
from world import World, a_world, told

from goent.domain.types import Usage
from goent.testing.script import Script, ScriptedCost, case, openai, say

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

METHODS = ("acp", "cli", "serve", "api", "agent")
# What would be a command to OpenCode, and what would be an option to a shell's program.
STARTS = {"mcp": "/init", "terminal": "-rf --help"}
PRICE = ScriptedCost()
SPENT = Usage(input=800, output=90, cache_read=200, reasoning=10)
SCRIPT = Script(
    providers={
        "moonshot": openai(
            case("sum it up", say("{model} sums up.", think="Well.", usage=SPENT)),
            models=("glm-4",),
            key="sk-moonshot-real-key",
        )
    }
)
Results = Mapping[tuple[str, str], dict[str, Any]]


def task(way: str, method: str) -> str:
    """The same words; the beginning and the end tell the calls at the provider apart."""
    return f"{STARTS[way]} sum it up `by` ${method} "


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[World]:
    config = "opencode: {profile: hermetic, warm: false}\nlimits: {workers: 8}\n"
    async with a_world(tmp_path_factory.mktemp("ways"), SCRIPT, config=config) as world:
        yield world


@pytest.fixture(scope="module")
async def results(world: World) -> Results:
    """All at once, for the sake of four programs that start."""
    found: dict[tuple[str, str], dict[str, Any]] = {}

    async def at_a_terminal(method: str) -> None:
        how = ("--json", "--permissions", "auto", "--method", method)
        ended = await world.go_ent("run", *how, "--", task("terminal", method), seconds=120)
        assert (ended.exit, ended.err) == (0, ""), ended
        found["terminal", method] = json.loads(ended.out)

    async with world.client() as lead:
        workers = {method: await spawn(lead, method) for method in METHODS}
        async with anyio.create_task_group() as tasks:
            for method in METHODS:
                tasks.start_soon(at_a_terminal, method)
            waits = {"worker_ids": [*workers.values()], "timeout_s": 120}
            assert not told(await lead.call_tool("worker_wait", waits))["timed_out"]
        for method, worker in workers.items():
            result = await lead.call_tool("worker_result", {"worker_id": worker})
            found["mcp", method] = told(result)
    return found


async def spawn(lead: Client, method: str) -> str:
    asked = {"task": task("mcp", method), "method": method, "permissions": "auto", "wait_s": 0}
    spawned = told(await lead.call_tool("worker_spawn", asked))
    assert (spawned["method"], spawned["state"]) == (method, "starting")
    return str(spawned["worker_id"])


@pytest.mark.parametrize("way", STARTS)
@pytest.mark.parametrize(
    "method",
    [
        pytest.param("acp", marks=pytest.mark.spec("P01", "P05", "P33")),
        pytest.param("cli", marks=pytest.mark.spec("P07", "P33")),
        pytest.param("serve", marks=pytest.mark.spec("P01", "P33")),
        pytest.param("api", marks=pytest.mark.spec("P11", "P33")),
    ],
)
async def test_one_task_has_one_result_and_costs_what_the_provider_counted(
    world: World, results: Results, way: str, method: str
) -> None:
    result = results[way, method]
    (call,) = [c for c in world.models.calls if c.request and task(way, method) in c.request.prompt]
    assert (result["state"], result["text"]) == ("completed", "glm-4 sums up.")
    assert result["usage"] == counted(call.usage)
    assert result["cost_usd"] == pytest.approx(bill(call.usage))
    (used,) = result["models_used"]
    assert (used["calls"], used["usage"]) == (1, result["usage"])
    own = {"worker_id": result["worker_id"], "output": result["output"]}
    assert result["sandbox"] == (None if method == "api" else results["mcp", "acp"]["sandbox"])
    assert result == {**results["mcp", "acp"], **own, "sandbox": result["sandbox"]}


@pytest.mark.spec("P33", "P34")
async def test_the_books_are_the_providers_books(world: World, results: Results) -> None:
    assert len(world.models.calls) == len(results)
    report = json.loads((await world.go_ent("costs", "--by", "provider", "--json")).out)
    billed = world.models.billed()
    assert billed == sum([SPENT] * len(results), Usage())
    assert report["total_usd"] == pytest.approx(bill(billed))
    (row,) = report["rows"]
    assert row["usage"] == counted(billed)


def counted(usage: Usage) -> dict[str, int]:
    return {
        "input": usage.input,
        "output": usage.output,
        "cache_read": usage.cache_read,
        "cache_write": usage.cache_write,
        "reasoning": usage.reasoning,
    }


def bill(usage: Usage) -> float:
    """In USD, by the price that OpenCode's configuration names."""
    said = PRICE.output * (usage.output + usage.reasoning)
    read = PRICE.input * usage.input + PRICE.cache_read * usage.cache_read
    return (said + read) / 1_000_000
