"""Any ACP agent of the configuration as a worker, through MCP and the daemon."""

import json
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from world import PLAIN, World, a_world, kill, refusal, told

from goent.system.project_lock import lock_holder

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

ACTOR = Path(__file__).parent.parent / "drivers" / "agent_actor.py"
CONFIG = """\
opencode: {{profile: hermetic, warm: false}}
limits: {{cancel_grace_s: 3}}
agents:
  actor: {{command: [{python}, {actor}, --keep, {kept}], models: [small, large]}}
  broken: {{command: [{python}, {actor}, --at-start, exit]}}
  missing: {{command: [/no/such/agent]}}
sandbox: {{writable: [{kept}]}}
"""
BASH = {"kind": "execute", "title": "make", "rawInput": {"command": "make"}}


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[World]:
    folder = tmp_path_factory.mktemp("agents")
    kept = folder / "kept"
    kept.mkdir()
    config = CONFIG.format(python=sys.executable, actor=ACTOR, kept=kept)
    async with a_world(folder, PLAIN, config=config) as world:
        yield world


async def spawn(lead: Client, task: str, **more: object) -> dict[str, Any]:
    asked = {"task": task, "provider": "actor", "wait_s": 60, **more}
    return told(await lead.call_tool("worker_spawn", asked))


async def prompt(lead: Client, worker: str, text: str) -> dict[str, Any]:
    asked = {"worker_id": worker, "prompt": text, "wait_s": 60}
    return told(await lead.call_tool("agent_prompt_acp", asked))


async def test_another_agent_is_a_worker_like_any_other(world: World) -> None:
    async with world.client() as lead:
        listed = told(await lead.call_tool("provider_list", {}))["providers"]
        actor = next(p for p in listed if p["name"] == "actor")
        assert (actor["method"], actor["model"], actor["health"]) == ("agent", "small", "direct")

        spawned = await spawn(lead, "say hello")
        assert (spawned["method"], spawned["provider"]) == ("agent", "actor")
        assert spawned["result"]["text"] == "hello"
        worker = spawned["worker_id"]
        again = await prompt(lead, worker, "history")
        assert again["result"]["text"] == "say hello | history"
        large = await spawn(lead, "model", model="large")
        assert large["result"]["text"] == "large"


@pytest.mark.spec("E20")
async def test_another_agent_can_be_evaluated(world: World) -> None:
    targets = {"name": "other", "provider": "goent", "subprovider": "actor", "model": "large"}
    tests = [
        {"id": task, "input": task, "assertions": [{"type": "equals", "value": said}]}
        for task, said in (("say hello", "hello"), ("model", "large"))
    ]
    (world.project / ".goent" / "targets.yaml").write_text(json.dumps({"targets": [targets]}))
    (world.project / "agents.eval.yaml").write_text(json.dumps({"tests": tests}))
    ended = await world.go_ent("eval", "run", "agents.eval.yaml", "--json", seconds=60)
    assert ended.exit == 0, ended.err


async def test_its_costs_are_told_as_estimates(world: World) -> None:
    async with world.client() as lead:
        told_costs = {"costs": [0.25], "usage": {"inputTokens": 10, "outputTokens": 5}}
        spawned = await spawn(lead, f"spend {json.dumps(told_costs)}")
        assert spawned["result"]["cost_usd"] == 0.25
        status = told(await lead.call_tool("worker_status", {"worker_id": spawned["worker_id"]}))
        assert status["cost_source"] == "estimate"
        report = told(await lead.call_tool("cost_report", {"by": "provider"}))
        assert any(line["key"] == "actor" for line in report["rows"])


async def test_its_turn_can_be_cancelled_and_its_questions_answered(world: World) -> None:
    async with world.client() as lead:
        worker = (await spawn(lead, "say hi"))["worker_id"]
        asked = {"worker_id": worker, "prompt": "wait"}
        told(await lead.call_tool("agent_prompt_acp", asked))
        await _said(lead, worker, "waiting")
        cancelled = told(await lead.call_tool("agent_cancel_acp", {"worker_id": worker}))
        assert cancelled["state"] == "cancelled"

        asked = {"worker_id": worker, "prompt": f"ask {json.dumps([BASH])}"}
        told(await lead.call_tool("agent_prompt_acp", asked))
        waited = told(await lead.call_tool("worker_wait", {"worker_ids": [worker]}))
        question = waited["workers"][0]["permission"]
        assert (question["tool"], question["detail"]) == ("bash", "make")
        answer = {"worker_id": worker, "permission_id": question["id"], "option": "reject"}
        told(await lead.call_tool("worker_answer", answer))
        told(await lead.call_tool("worker_wait", {"worker_ids": [worker]}))
        result = told(await lead.call_tool("worker_result", {"worker_id": worker}))
        assert (result["state"], result["text"]) == ("completed", "[n]")


async def test_one_that_dies_fails_its_turn_and_goes_on(world: World) -> None:
    async with world.client() as lead:
        spawned = await spawn(lead, "die 7")
        failure = spawned["result"]["failure"]
        assert failure["kind"] == "worker_crashed" and "out of luck" in failure["message"]
        worker = spawned["worker_id"]
        assert (await prompt(lead, worker, "history"))["result"]["text"] == "die 7 | history"


async def test_its_session_outlives_the_daemon(world: World) -> None:
    async with world.client() as lead:
        worker = (await spawn(lead, "say before"))["worker_id"]
        held = lock_holder(world.socket.parent)
        assert held and held.pid
        kill(held.pid)
    async with world.client() as lead:
        again = await prompt(lead, worker, "history")
        assert again["result"]["text"] == "say before | history"


@pytest.mark.parametrize(
    ("provider", "words"),
    [("broken", "ended with code 3: no config found"), ("missing", "cannot start")],
)
async def test_one_that_cannot_start_is_a_failure_with_the_reason(
    world: World, provider: str, words: str
) -> None:
    async with world.client() as lead:
        spawned = await spawn(lead, "say x", provider=provider)
        assert spawned["state"] == "failed"
        assert words in spawned["result"]["failure"]["message"]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"method": "cli"}, "runs only by the method 'agent'"),
        ({"allowed_tools": []}, "allowed_tools are for go-ent's own agent"),
        ({"allowed_tools": ["Read"]}, "allowed_tools are for go-ent's own agent"),
        ({"provider": None, "allowed_tools": ["Read"]}, "allowed_tools are for go-ent's own agent"),
    ],
)
async def test_what_an_agent_cannot_do_is_refused(
    world: World, asked: dict[str, object], words: str
) -> None:
    async with world.client() as lead:
        task = {"task": "say x", "provider": "actor", **asked}
        refused = await lead.call_tool("worker_spawn", task)
        assert words in refusal(refused)


async def test_the_command_line_knows_agents(world: World) -> None:
    ended = await world.go_ent("providers")
    assert ended.exit == 0 and "actor/large" in ended.out
    ended = await world.go_ent("run", "--provider", "actor", "--json", "say hi")
    assert json.loads(ended.out)["text"] == "hi"


@pytest.mark.parametrize(
    ("direct", "words"), [("refuse", "do not pass through go-ent"), ("stop", "is used up")]
)
async def test_a_hard_budget_refuses_an_agent_or_stops_it(
    tmp_path: Path, direct: str, words: str
) -> None:
    config = CONFIG.format(python=sys.executable, actor=ACTOR, kept=tmp_path)
    config += f"budget: {{per_task: 1, hard: true, direct: {direct}}}\n"
    async with a_world(tmp_path, PLAIN, config=config) as world, world.client() as lead:
        task = {"task": 'spend {"costs": [0.4, 1.2]}', "provider": "actor", "wait_s": 60}
        answer = await lead.call_tool("worker_spawn", task)
        if direct == "refuse":
            assert words in refusal(answer)
            return
        failure = told(answer)["result"]["failure"]
        assert failure["kind"] == "budget_exceeded" and words in failure["message"]


async def test_the_doctor_looks_for_an_agents_command(world: World) -> None:
    ended = await world.go_ent("doctor", "--json")
    findings = {f["subject"]: f for f in json.loads(ended.out)["findings"]}
    assert findings["provider actor"]["verdict"] == "fine"
    missing = findings["provider missing"]
    assert missing["verdict"] == "note" and "/no/such/agent" in missing["text"]


async def _said(lead: Client, worker: str, text: str) -> None:
    with anyio.fail_after(30):
        while True:
            output = told(await lead.call_tool("worker_output", {"worker_id": worker}))
            if text in output["text"]:
                return
            await anyio.sleep(0.05)
