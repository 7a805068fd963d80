"""Every tool, called well and badly by the clients that leads are built on: no answer is refused.

A client checks each result against the schema that it was given, by the draft that it knows.
"""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from mcp_peers import COMMANDS, MODES, Peer, a_peer
from real_git import a_repository
from world import World, a_world

from goent.mcp.server import DESCRIPTIONS
from goent.testing.script import Script, call, case, openai, say

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]
NAMES = [*COMMANDS, *MODES]
PEERS = pytest.mark.parametrize("name", NAMES)
SCRIPT = Script(
    providers={
        "moonshot": openai(
            case("sum it up", say("The sum.")),
            case("shorter", say("Short.")),
            *(case(f"hold for ({name})", say("Held.").having(gate=name)) for name in NAMES),
            case("run it", call("Bash", command="echo ran"), say("It ran.")),
            case("write one", call("Write", file_path="one.txt", content="1\n"), say("Written.")),
            models=("glm-4",),
            key="sk-moonshot-real-key",
        )
    }
)
CONFIG = "opencode: {profile: hermetic, warm: false}\ndefault_provider: glm\n"
PROVIDERS = """\
providers:
  glm: {provider: moonshot, model: glm-4, method: api, price: {input: 1, output: 5}}
  coder: {provider: moonshot, model: glm-4, method: agent, price: {input: 1, output: 5}}
"""
TARGETS = """\
targets:
  - {name: good, provider: mock, response: yes it is}
  - {name: bad, provider: mock, response: never}
"""
SUITE = """\
tests:
  - {id: c1, input: is it, assertions: [{type: contains, value: "yes"}]}
  - {id: c2, input: is it, assertions: [{type: contains, value: it is}]}
  - {id: c3, input: is it, assertions: [{type: contains, value: e}]}
"""
BAD: dict[str, dict[str, Any]] = {
    "worker_spawn": {"task": "x", "provider": "nobody"},
    "worker_prompt": {"worker_id": "w-none1", "prompt": "x"},
    "worker_status": {"worker_id": "w-none1"},
    "worker_output": {"worker_id": "w-none1"},
    "worker_wait": {"worker_ids": ["w-none1"]},
    "worker_result": {"worker_id": "w-none1"},
    "worker_answer": {"worker_id": "w-none1", "permission_id": "p1", "option": "reject"},
    "worker_cancel": {"worker_id": "w-none1"},
    "worker_list": {"limit": 0},
    "provider_list": {"healthy": True},
    "provider_recommend": {"task": "x", "budget_usd": -1},
    "agent_spawn_acp": {"task": "x", "model": "nobody"},
    "agent_prompt_acp": {"worker_id": "w-none1", "prompt": "x"},
    "agent_cancel_acp": {"worker_id": "w-none1"},
    "cost_report": {"by": "moon"},
    "swarm_spawn": {"tasks": []},
    "swarm_status": {"swarm_id": "s-none1"},
    "swarm_wait": {"swarm_id": "s-none1"},
    "swarm_result": {"swarm_id": "s-none1"},
    "swarm_retry": {"swarm_id": "s-none1"},
    "swarm_cancel": {"swarm_id": "s-none1"},
    "swarm_merge": {"swarm_id": "s-none1"},
    "eval_run": {"suites": ["nothing.eval.yaml"]},
    "eval_status": {"run_id": "none"},
    "eval_compare": {"before": "none", "after": "none", "targets": ["one"]},
}


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[World]:
    folder: Path = tmp_path_factory.mktemp("peers")
    async with a_world(folder, SCRIPT, config=CONFIG) as world:
        (world.project / ".goent" / "providers.yaml").write_text(PROVIDERS)
        (world.project / ".goent" / "targets.yaml").write_text(TARGETS)
        (world.project / "demo.eval.yaml").write_text(SUITE)
        a_repository(world.project)
        world.trust()
        yield world


async def good(peer: Peer, tool: str, **arguments: Any) -> dict[str, Any]:
    answer = await peer.call(tool, arguments)
    assert answer.thrown is None, f"{tool}: {answer.thrown}"
    assert answer.error is None, f"{tool}: {answer.error}"
    assert answer.structured is not None
    return answer.structured


@PEERS
async def test_every_tools_bad_calls_are_refused_in_words(world: World, name: str) -> None:
    async with a_peer(world, name) as peer:
        assert set(peer.tools) == set(DESCRIPTIONS) == set(BAD)
        for tool, arguments in BAD.items():
            for wrong in (arguments, {"nobody_knows": 1}, {**arguments, "worker_id": 7}):
                answer = await peer.call(tool, wrong)
                assert answer.thrown is None, f"{tool}: {answer.thrown}"
                assert answer.error, f"{tool} took {wrong}"


@PEERS
async def test_workers(world: World, name: str) -> None:
    async with a_peer(world, name) as peer:
        assert (await good(peer, "provider_list"))["providers"]
        advice = await good(peer, "provider_recommend", task="sum it up")
        assert advice["estimate"]["cost_usd"]
        spawned = await good(peer, "worker_spawn", task="sum it up", wait_s=60)
        assert spawned["estimate"]["cost_usd"] and spawned["result"]["text"] == "The sum."
        worker = {"worker_id": spawned["worker_id"]}
        for tool in ("worker_status", "worker_output", "worker_result"):
            await good(peer, tool, **worker)
        await good(peer, "worker_wait", worker_ids=[spawned["worker_id"]])
        again = await good(peer, "worker_prompt", **worker, prompt="shorter", wait_s=60)
        assert again["result"]["text"] == "Short."
        await good(peer, "worker_cancel", **worker, close=True)
        assert (await good(peer, "worker_list"))["workers"]
        for by in ("provider", "model", "worker", "day"):
            assert (await good(peer, "cost_report", by=by))["rows"]


@PEERS
async def test_workers_on_an_agent_and_their_questions(world: World, name: str) -> None:
    async with a_peer(world, name) as peer:
        asked = {"task": "run it", "permissions": "ask", "wait_s": 60}
        spawned = await good(peer, "agent_spawn_acp", **asked)
        assert (spawned["state"], bool(spawned["estimate"]["cost_usd"])) == ("waiting", True)
        worker = {"worker_id": spawned["worker_id"]}
        question = (await good(peer, "worker_status", **worker))["permission"]
        answer = {"permission_id": question["id"], "option": "allow_once"}
        await good(peer, "worker_answer", **worker, **answer)
        (waited,) = (await good(peer, "worker_wait", worker_ids=[*worker.values()]))["workers"]
        assert waited["state"] == "completed"
        result = await good(peer, "worker_result", **worker)
        assert [command["exit"] for command in result["commands"]] == [0]
        await good(peer, "agent_prompt_acp", **worker, prompt="shorter", wait_s=60)
        await good(peer, "agent_cancel_acp", **worker)


@PEERS
async def test_swarms(world: World, name: str) -> None:
    async with a_peer(world, name) as peer:
        tasks = [
            {"id": "one", "prompt": "write one", "provider": "coder"},
            {"id": "held", "prompt": f"hold for ({name})", "after": ["one"]},
        ]
        spawned = await good(peer, "swarm_spawn", tasks=tasks, permissions="edit")
        swarm = {"swarm_id": spawned["swarm_id"]}
        await world.models.at_gate(name, timeout=60)
        await good(peer, "swarm_status", **swarm)
        await good(peer, "swarm_wait", **swarm, timeout_s=0)
        await good(peer, "swarm_cancel", **swarm)
        world.models.open_gate(name)
        await good(peer, "swarm_retry", **swarm)
        assert (await good(peer, "swarm_wait", **swarm, timeout_s=60))["state"] == "completed"
        for whole in (False, True):
            assert (await good(peer, "swarm_result", **swarm, whole=whole))["tasks"]
        await good(peer, "swarm_merge", **swarm, dry_run=True)
        assert (await good(peer, "swarm_merge", **swarm))["branch"]


@PEERS
async def test_evaluations(world: World, name: str) -> None:
    async with a_peer(world, name) as peer:
        runs: list[str] = []
        for target in ("good", "bad"):
            run = await good(peer, "eval_run", suites=["demo.eval.yaml"], target=[target])
            runs.append(run["run_id"])
            ended = await good(peer, "eval_status", run_id=run["run_id"], wait_s=60)
            assert ended["state"] == "finished", ended
        sides = {"before": runs[0], "after": runs[1], "targets": ["good", "bad"]}
        compared = await good(peer, "eval_compare", **sides)
        assert (compared["cases"], compared["losses"]) == (3, 2)
        assert compared["interval"], "two numbers, as the estimates of cost are"
