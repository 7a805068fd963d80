"""Workers on go-ent's own agent: a `go-ent acp` of its own each, through MCP and the daemon."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from world import World, a_world, kill, refusal, told

from goent.domain.types import Usage
from goent.system.project_lock import lock_holder
from goent.testing.script import Script, anthropic, call, case, openai, say

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

SPENT = Usage(input=1000, output=100)
CASES = (
    case(
        "write hello",
        call("Write", file_path="{cwd}/hello.txt", content="hi\n").having(usage=SPENT),
        say("Written.", usage=SPENT),
    ),
    case("run it", call("Bash", command="echo ran > ran.txt"), say("It ran.")),
    case("which model", say("{model}", usage=SPENT)),
    case("and now", say("Still here.", usage=SPENT)),
    *(
        case(f"slow {name}", say("Half of it.").having(gate=name))
        for name in ("one", "two", "three")
    ),
    case(
        "write away", call("Write", file_path="{cwd}/../away.txt", content="x"), say("Not there.")
    ),
    case("read away", call("Read", file_path="{cwd}/../home/secret.txt"), say("Not read.")),
    case(
        "leave the cage", call("Bash", command="touch ../away.txt", unconfined=True), say("Inside.")
    ),
    case("look only", call("Bash", command="touch x"), say("I could not.")),
)
SCRIPT = Script(
    providers={
        "moonshot": openai(*CASES, models=("glm-4",), key="sk-moonshot-real-key"),
        "claude": anthropic(
            *CASES, models=("claude-haiku-4", "claude-sonnet-4"), key="sk-ant-real-key"
        ),
    }
)
CONFIG = "opencode: {profile: hermetic, warm: false}\ndefault_provider: moonshot/glm-4\n"


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[World]:
    async with a_world(tmp_path_factory.mktemp("own"), SCRIPT, config=CONFIG) as world:
        yield world


async def spawn(lead: Client, task: str, **more: object) -> dict[str, Any]:
    asked = {"task": task, "model": "moonshot/glm-4", "wait_s": 60, **more}
    return told(await lead.call_tool("agent_spawn_acp", asked))


def last_request(world: World) -> str:
    return str(world.models.calls[-1].request)


@pytest.mark.spec("A16", "A21")
async def test_a_worker_on_the_own_agent_does_its_task_and_is_paid_for(world: World) -> None:
    async with world.client() as lead:
        spawned = await spawn(lead, "write hello", permissions="edit")
        assert (spawned["method"], spawned["model"]) == ("agent", "glm-4")
        result = spawned["result"]
        assert (result["state"], result["text"]) == ("completed", "Written.")
        assert (world.project / "hello.txt").read_text() == "hi\n"
        assert [file["path"] for file in result["files"]] == ["hello.txt"]
        assert result["usage"]["input"] == 2000
        (used,) = result["models_used"]
        assert (used["provider"], used["calls"]) == ("moonshot/glm-4", 2)


@pytest.mark.spec("A17")
async def test_a_further_prompt_goes_to_the_same_session(world: World) -> None:
    async with world.client() as lead:
        worker = (await spawn(lead, "which model"))["worker_id"]
        again = told(
            await lead.call_tool(
                "agent_prompt_acp", {"worker_id": worker, "prompt": "and now", "wait_s": 60}
            )
        )
        assert (again["turn"], again["result"]["text"]) == (2, "Still here.")
        assert "which model" in last_request(world), "the model is told what was said before"


@pytest.mark.spec("A18")
async def test_a_cancelled_worker_stops_and_takes_another_prompt(world: World) -> None:
    async with world.client() as lead:
        worker = (await spawn(lead, "slow one", wait_s=0))["worker_id"]
        await world.models.at_gate("one")
        cancelled = told(await lead.call_tool("agent_cancel_acp", {"worker_id": worker}))
        assert cancelled["state"] == "cancelled"
        world.models.open_gate("one")
        again = told(
            await lead.call_tool(
                "agent_prompt_acp", {"worker_id": worker, "prompt": "and now", "wait_s": 60}
            )
        )
        assert again["result"]["text"] == "Still here."


@pytest.mark.spec("A19", "A20")
@pytest.mark.parametrize(
    ("task", "model"),
    [
        ("Fix the typo in README.md: which model", "claude-haiku-4"),
        (
            (
                "Refactor the parser across src/a.py, src/b.py and src/c.py and rework the protocol "
                "between them, with tests: which model"
            ),
            "claude-sonnet-4",
        ),
    ],
)
async def test_without_a_model_the_task_decides_the_tier(
    world: World, task: str, model: str
) -> None:
    async with world.client() as lead:
        spawned = await spawn(lead, task, model=None)
        assert (spawned["model"], spawned["result"]["text"]) == (model, model)
        assert spawned["reason"].startswith(model.split("-")[1] + ", because the task is ")


async def test_what_it_may_not_do_unasked_is_asked_of_its_owner(world: World) -> None:
    async with world.client() as lead:
        worker = (await spawn(lead, "run it", permissions="edit", wait_s=0))["worker_id"]
        waited = told(await lead.call_tool("worker_wait", {"worker_ids": [worker]}))
        question = waited["workers"][0]["permission"]
        assert question["tool"] == "bash" and "echo ran > ran.txt" in question["detail"]
        answer = {"worker_id": worker, "permission_id": question["id"], "option": "allow_once"}
        told(await lead.call_tool("worker_answer", answer))
        told(await lead.call_tool("worker_wait", {"worker_ids": [worker]}))
        result = told(await lead.call_tool("worker_result", {"worker_id": worker}))
        assert (result["state"], result["text"]) == ("completed", "It ran.")
        assert (world.project / "ran.txt").read_text() == "ran\n"
        assert [command["exit"] for command in result["commands"]] == [0]


@pytest.mark.parametrize("task", ["write away", "read away", "leave the cage"])
async def test_outside_is_asked_even_where_all_inside_is_allowed(world: World, task: str) -> None:
    (world.home / "secret.txt").write_text("s3cret\n")
    async with world.client() as lead:
        worker = (await spawn(lead, task, permissions="auto", wait_s=0))["worker_id"]
        waited = told(await lead.call_tool("worker_wait", {"worker_ids": [worker]}))
        question = waited["workers"][0]["permission"]
        assert question["tool"] == "external_directory"
        answer = {"worker_id": worker, "permission_id": question["id"], "option": "reject"}
        told(await lead.call_tool("worker_answer", answer))
        told(await lead.call_tool("worker_wait", {"worker_ids": [worker]}))
        result = told(await lead.call_tool("worker_result", {"worker_id": worker}))
        assert result["state"] == "completed", "the model was told, and went on"
        assert not (world.project.parent / "away.txt").exists()
        assert "s3cret" not in last_request(world)


async def test_what_a_rule_refuses_is_told_to_the_model_which_goes_on(world: World) -> None:
    async with world.client() as lead:
        spawned = await spawn(lead, "look only", permissions="readonly")
        assert (spawned["state"], spawned["result"]["text"]) == ("completed", "I could not.")
        assert not (world.project / "x").exists()


@pytest.mark.spec("A16")
@pytest.mark.parametrize("tools", [["Read", "Grep"], []])
async def test_tools_that_are_not_allowed_are_not_there(world: World, tools: list[str]) -> None:
    async with world.client() as lead:
        spawned = await spawn(lead, "look only", allowed_tools=tools, permissions="auto")
        assert spawned["result"]["text"] == "I could not."
        assert not (world.project / "x").exists()
        sent = world.models.calls[-1].request
        assert sent and sorted(sent.tools) == sorted(tools)
        refused = await lead.call_tool(
            "agent_spawn_acp", {"task": "x", "allowed_tools": ["Saw"], "model": "moonshot/glm-4"}
        )
        assert "there is no tool 'Saw'" in refusal(refused)


async def test_the_command_line_names_the_tools_too(world: World) -> None:
    asked = ("run", "--method", "agent", "--model", "moonshot/glm-4", "--allowed-tools")
    ended = await world.go_ent(*asked, "Read,Saw", "look only")
    assert ended.exit == 2 and "there is no tool 'Saw'" in ended.err
    for tools in ("Read, Grep", ""):
        ended = await world.go_ent(*asked, tools, "--json", "look only")
        assert (ended.exit, json.loads(ended.out)["text"]) == (0, "I could not.")
        assert not (world.project / "x").exists()


async def test_a_repository_puts_no_modules_in_the_agents_way(world: World) -> None:
    planted = world.project / "msgspec.py"
    planted.write_text("raise SystemExit('planted')\n")
    async with world.client() as lead:
        assert (await spawn(lead, "which model"))["state"] == "completed"
    planted.unlink()


async def test_no_key_reaches_the_agent(world: World) -> None:
    async with world.client() as lead:
        worker = (await spawn(lead, "slow two", wait_s=0))["worker_id"]
        await world.models.at_gate("two")
        agents = [pid for pid in world.processes() if b"\0acp\0" in _of(pid, "cmdline")]
        assert agents
        for pid in agents:
            environ = _of(pid, "environ")
            assert b"sk-moonshot" not in environ and b"sk-ant" not in environ
        told(await lead.call_tool("worker_cancel", {"worker_id": worker, "close": True}))
        world.models.open_gate("two")


async def test_a_killed_agent_fails_its_turn_and_goes_on_at_the_next_prompt(world: World) -> None:
    async with world.client() as lead:
        worker = (await spawn(lead, "which model"))["worker_id"]
        asked = {"worker_id": worker, "prompt": "slow three"}
        told(await lead.call_tool("agent_prompt_acp", asked))
        await world.models.at_gate("three")
        for pid in world.processes():
            if b"\0acp\0" in _of(pid, "cmdline"):
                kill(pid)
        told(await lead.call_tool("worker_wait", {"worker_ids": [worker]}))
        result = told(await lead.call_tool("worker_result", {"worker_id": worker}))
        assert result["failure"]["kind"] == "worker_crashed"
        world.models.open_gate("three")
        asked = {"worker_id": worker, "prompt": "and now", "wait_s": 60}
        again = told(await lead.call_tool("agent_prompt_acp", asked))
        assert again["result"]["text"] == "Still here."
        assert "which model" in last_request(world)


async def test_its_session_outlives_the_daemon(world: World) -> None:
    async with world.client() as lead:
        worker = (await spawn(lead, "which model"))["worker_id"]
        held = lock_holder(world.socket.parent)
        assert held and held.pid
        kill(held.pid)
    async with world.client() as lead:
        asked = {"worker_id": worker, "prompt": "and now", "wait_s": 60}
        again = told(await lead.call_tool("agent_prompt_acp", asked))
        assert again["result"]["text"] == "Still here."
        assert "which model" in last_request(world)


async def test_the_other_tools_know_such_workers_and_these_know_no_others(world: World) -> None:
    async with world.client() as lead:
        other = told(
            await lead.call_tool(
                "worker_spawn", {"task": "which model", "method": "api", "model": "moonshot/glm-4"}
            )
        )["worker_id"]
        refused = await lead.call_tool("agent_cancel_acp", {"worker_id": other})
        assert "runs by 'api', not on an agent" in refusal(refused)


def _of(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""
