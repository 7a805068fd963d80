"""acpx, a client that others made, drives the real `go-ent acp` from the command line."""

import os
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from world import Ended, World, a_world

from goent.proc import process_table
from goent.testing.script import Script, call, case, openai, say

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]
TESTS = Path(__file__).parent.parent
ACPX = TESTS / "npm/node_modules/.bin/acpx"
AGENT = f"{sys.executable} -m goent acp --model moonshot/glm-4"
JSON = ("--format", "json", "--json-strict")
SCRIPT = Script(
    providers={
        "moonshot": openai(
            case("Say hello", say("Hello there.")),
            case("Say more", say("There is no more.")),
            case(
                "Make a note",
                call("Write", file_path="note.txt", content="noted\n"),
                call("Bash", command="cat note.txt; echo $((6 * 7))"),
                say("The note is made."),
            ),
            case("Ask the server", call("mcp__rough__t"), say("It said so.")),
            case("Think long", say("Too late.").having(gate="long")),
            case("Be one", call("Write", file_path="one.txt", content="1"), say("I am one.")),
            case("Be two", call("Write", file_path="two.txt", content="2"), say("I am two.")),
            models=("glm-4",),
            key="sk-moonshot-real-key",
        )
    }
)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with a_world(tmp_path, SCRIPT) as world:
        yield world
        await nobody_is_left(world)


async def acpx(world: World, *arguments: str) -> Ended:
    command = [str(ACPX), "--agent", AGENT, "--cwd", str(world.project), "--ttl", "1", *arguments]
    # A Node that setup.py had to bring is beside our Python.
    env = {**world.env, "PATH": f"{world.env['PATH']}{os.pathsep}{Path(sys.executable).parent}"}
    with anyio.fail_after(200):
        done = await anyio.run_process(command, cwd=world.project, env=env, check=False)
    return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())


async def nobody_is_left(world: World) -> None:
    """acpx keeps an agent for the second that it was told; then both go, and all they started."""
    needle = f"HOME={world.home}"
    with anyio.fail_after(60):
        while [pid for pid, environ in process_table.environments(needle) if needle in environ]:  # noqa: ASYNC110 (a process announces nothing)
            await anyio.sleep(0.05)


def messages(ended: Ended) -> list[dict[str, Any]]:
    """All that went over the wire, in both directions."""
    return [msgspec.json.decode(line, type=dict[str, Any]) for line in ended.out.splitlines()]


def asked(ended: Ended, method: str) -> list[dict[str, Any]]:
    return [m["params"] for m in messages(ended) if m.get("method") == method]


def updates(ended: Ended, kind: str) -> list[dict[str, Any]]:
    told = (params["update"] for params in asked(ended, "session/update"))
    return [update for update in told if update["sessionUpdate"] == kind]


def stop_reason(ended: Ended) -> str:
    results = (m["result"] for m in messages(ended) if isinstance(m.get("result"), dict))
    return next(result["stopReason"] for result in results if "stopReason" in result)


@pytest.mark.spec("A07", "A13")
async def test_acpx_gets_the_text_of_an_answer(world: World) -> None:
    said = await acpx(world, "--format", "quiet", "exec", "Say hello.")
    assert (said.exit, said.out.strip()) == (0, "Hello there.")


@pytest.mark.spec("A09", "A11", "A13")
async def test_acpx_approves_and_the_tools_do_their_work_through_it(world: World) -> None:
    done = await acpx(world, *JSON, "--approve-all", "exec", "Make a note.")
    assert done.exit == 0, done
    assert stop_reason(done) == "end_turn"
    assert (world.project / "note.txt").read_text() == "noted\n"
    assert len(asked(done, "session/request_permission")) == 2
    assert asked(done, "fs/write_text_file") and asked(done, "terminal/create"), "acpx offers both"
    ends = [u for u in updates(done, "tool_call_update") if u.get("status") == "completed"]
    assert [end["kind"] for end in ends] == ["edit", "execute"]
    assert ends[0]["content"][0]["newText"] == "noted\n"
    assert "42" in ends[1]["rawOutput"]["output"]


@pytest.mark.spec("A10", "A13")
async def test_acpx_denies_and_nothing_is_done(world: World) -> None:
    done = await acpx(world, *JSON, "--deny-all", "exec", "Make a note.")
    assert stop_reason(done) == "end_turn", "the model is told, and goes on"
    assert not (world.project / "note.txt").exists()
    assert asked(done, "session/request_permission")
    assert not asked(done, "fs/write_text_file") and not asked(done, "terminal/create")
    ends = [u["status"] for u in updates(done, "tool_call_update") if u.get("rawOutput")]
    assert ends == ["failed", "failed"]


async def test_a_tool_that_is_not_allowed_is_not_run_for_acpx(world: World) -> None:
    only_read = f"{AGENT} --allowed-tools Read"
    done = await acpx(world, "--agent", only_read, *JSON, "--approve-all", "exec", "Make a note.")
    assert stop_reason(done) == "end_turn"
    assert not (world.project / "note.txt").exists()
    assert not asked(done, "session/request_permission")


async def test_an_mcp_server_that_acpx_names_lends_its_tools(world: World) -> None:
    server = {
        "name": "rough",
        "command": sys.executable,
        "args": ["-S", str(TESTS / "agent/rough_server.py"), "noisy"],
        "env": [],
    }
    config = world.home / "servers.json"
    config.write_bytes(msgspec.json.encode({"mcpServers": [server]}))
    arguments = ("--mcp-config", str(config), *JSON, "--approve-all", "exec", "Ask the server.")
    done = await acpx(world, *arguments)
    [end] = [u for u in updates(done, "tool_call_update") if u.get("status") == "completed"]
    assert end["rawOutput"]["output"] == "fine"


@pytest.mark.spec("A08", "A13")
async def test_acpx_cancels_a_turn_and_the_session_goes_on(world: World) -> None:
    await acpx(world, "sessions", "ensure", "--name", "long")
    turns: list[Ended] = []

    async def think() -> None:
        turns.append(await acpx(world, *JSON, "prompt", "-s", "long", "Think long."))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(think)
        await world.models.at_gate("long", timeout=100)
        assert (await acpx(world, "cancel", "-s", "long")).exit == 0
    assert stop_reason(turns[0]) == "cancelled"
    await nobody_is_left(world)  # acpx refuses a prompt while what it keeps is shutting down
    after = await acpx(world, "--format", "quiet", "prompt", "-s", "long", "Say hello.")
    assert after.out.strip() == "Hello there."


@pytest.mark.spec("A13")
async def test_acpx_comes_back_to_a_session_after_its_agent_has_ended(world: World) -> None:
    made = await acpx(world, "sessions", "ensure", "--name", "kept")
    session = made.out.split()[0]
    first = await acpx(world, *JSON, "prompt", "-s", "kept", "Say hello.")
    await nobody_is_left(world)
    second = await acpx(world, *JSON, "prompt", "-s", "kept", "Say more.")
    for turn in (first, second):  # the first finds the session that `ensure` left
        opened = asked(turn, "session/resume") or asked(turn, "session/load")
        assert [params["sessionId"] for params in opened] == [session]
        assert not asked(turn, "session/new")
    heard = str(world.models.calls[-1].request)
    assert "Say hello." in heard and "Hello there." in heard


@pytest.mark.spec("A13", "A22")
async def test_two_of_acpx_work_side_by_side(world: World) -> None:
    said: dict[str, str] = {}

    async def turn(name: str) -> None:
        await acpx(world, "sessions", "ensure", "--name", name)
        done = await acpx(
            world, "--approve-all", "--format", "quiet", "prompt", "-s", name, f"Be {name}."
        )
        said[name] = done.out.strip()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(turn, "one")
        tasks.start_soon(turn, "two")
    assert said == {"one": "I am one.", "two": "I am two."}
    assert (world.project / "one.txt").read_text() == "1"
    assert (world.project / "two.txt").read_text() == "2"
