"""What becomes of those who are connected when a daemon ends, or who find another go-ent there."""

import json
import os
import re
import signal
import time
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest
from hardening import (
    MODERN,
    RawShim,
    a_busy_worker,
    a_shim,
    another_installation,
    end,
    pid_of_daemon,
    until,
)
from world import COLD, GO_ENT, Ended, World, a_cold_world, a_world, kill, told

from goent import __version__
from goent.domain.events import TextDelta
from goent.system.project_folders import log_path
from goent.system.project_lock import lock_holder
from goent.testing.script import Fault, Script, case, openai, say

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with a_cold_world(tmp_path) as world:
        yield world


def wait_for(worker: str) -> dict[str, object]:
    arguments = {"worker_ids": [worker], "timeout_s": 60}
    return {**MODERN, "name": "worker_wait", "arguments": arguments}


async def heard(shim: RawShim, number: int) -> dict[str, object]:
    """The answer to a request; progress on the way is passed over."""
    while (message := await shim.answer()).get("id") != number:
        assert "method" in message, message
    return message


# Who holds the project


async def test_beside_an_embedded_go_ent_a_command_says_at_once_who_holds_the_project(
    world: World,
) -> None:
    async with world.client(args=("mcp", "--embedded")) as lead:
        await lead.list_tools()
        held = lock_holder(world.socket.parent)
        assert held and held.kind == "embedded"
        begun = time.monotonic()
        refused = await world.go_ent("ps")
        assert time.monotonic() - begun < 20, "it does not wait for what will not come"
        assert refused.exit == 3 and f"(process {held.pid}, since " in refused.err
        assert f"kill {held.pid}" in refused.err and "without --embedded" in refused.err
        for command in ("status", "stop"):
            assert f"process {held.pid}" in (await world.go_ent("daemon", command)).err
        second = await world.go_ent("mcp", "--embedded")
        assert second.exit == 3 and f"process {held.pid}" in second.err
        async with a_shim(world) as shim:
            await shim.ask(1, "initialize")
            assert f"process {held.pid}" in (await shim.answer())["error"]["message"]
    assert (await world.go_ent("ps")).exit == 0, "and when it is gone, all is well"
    assert (held := lock_holder(world.socket.parent)) and held.pid == await pid_of_daemon(world)


# A daemon that is stopped


async def test_whoever_waits_hears_how_the_worker_ended(world: World) -> None:
    worker = await a_busy_worker(world)
    ended: list[Ended] = []

    async def wait() -> None:
        ended.append(await world.go_ent("wait", worker, "--json"))

    async with a_shim(world) as shim, anyio.create_task_group() as group:
        group.start_soon(wait)
        await shim.ask(1, "tools/call", wait_for(worker))
        await shim.ask(2, "tools/list", MODERN)
        await heard(shim, 2)
        old = await pid_of_daemon(world)
        await until(lambda: "wait" in _our_commands())
        assert (await world.go_ent("daemon", "stop", "--force")).exit == 0
        answer = await heard(shim, 1)
        assert _state(answer) == "cancelled", answer
        await shim.ask(3, "tools/call", wait_for(worker))
        assert _state(await heard(shim, 3)) == "cancelled", "the next daemon knows it as well"
        assert await pid_of_daemon(world) != old
    assert ended[0].exit == 1 and ended[0].err == ""
    assert json.loads(ended[0].out)["workers"][0]["state"] == "cancelled"


def _our_commands() -> str:
    """The command lines of what this process has started; nobody can see where a go-ent works."""
    found: list[bytes] = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            stat = (process / "stat").read_text().rpartition(")")[2].split()
            if int(stat[1]) == os.getpid():
                found.append((process / "cmdline").read_bytes())
        except OSError:
            continue
    return b"\n".join(found).replace(b"\0", b" ").decode()


def _state(answer: dict[str, object]) -> str:
    told = re.search(r'"state":\s*"(\w+)"', json.dumps(answer.get("result")))
    return told[1] if told else ""


SLOW_TO_END = """
import anyio, goent.workers.orchestrator as o
part = o.Orchestrator.part
async def slowly(self, *, handover=False):
    self.refuse_new_work()
    while not __import__('os').path.exists({gate!r}):
        await anyio.sleep(0.02)
    await part(self, handover=handover)
o.Orchestrator.part = slowly
"""


async def test_work_that_comes_while_a_daemon_ends_is_done_by_the_next_one(world: World) -> None:
    gate = world.home / "gate"
    with another_installation(world, SLOW_TO_END.format(gate=str(gate))):
        await world.go_ent("ps")
        old = await pid_of_daemon(world)
    async with a_shim(world) as shim:
        await shim.ask(1, "tools/list", MODERN)
        await heard(shim, 1)
        kill(old, signal.SIGTERM)
        await until(lambda: not world.socket.exists())
        await shim.ask(2, "tools/call", {**MODERN, "name": "worker_list"})
        assert "result" in await heard(shim, 2), "what only looks is still answered"
        spawn = {"name": "worker_spawn", "arguments": {"task": "hold"}}
        await shim.ask(3, "tools/call", {**MODERN, **spawn})
        gate.touch()
        answer = await heard(shim, 3)
        worker = re.search(r"w-\w{5}", json.dumps(answer.get("result")))
        assert worker, answer
        listed = json.loads((await world.go_ent("ps", "--json")).out)["workers"]
        assert [one["worker_id"] for one in listed] == [worker[0]], "once, not twice"
        assert await pid_of_daemon(world) != old


# Another version


async def test_an_upgrade_waits_for_turns_and_keeps_open_workers(tmp_path: Path) -> None:
    other = "0.0.1"
    script = Script(
        providers={
            "moonshot": openai(
                case("wait", say("Now.").having(gate="go")),
                case(None, say("Hello.")),
                key="sk-moonshot-real-key",
            )
        }
    )
    async with a_world(tmp_path, script) as world:
        with another_installation(world, f"import goent; goent.__version__ = {other!r}"):
            started = await world.go_ent("run", "--detach", "--json", "wait")
        worker = json.loads(started.out)["worker_id"]
        before = await world.daemon()
        assert before and before.version == other
        seen = await world.go_ent("status", worker, "--json")
        assert f"is {other} and has workers; it is used" in seen.err
        world.models.open_gate("go")
        waited = await world.go_ent("wait", worker, "--json")
        assert json.loads(waited.out)["workers"][0]["state"] == "completed"

        async with world.client() as lead:
            after = await world.daemon()
            assert after and after.version == __version__ and after.pid != before.pid
            listed = told(await lead.call_tool("worker_status", {"worker_id": worker}))
            assert (listed["state"], listed["open"]) == ("completed", True)
            again = {"worker_id": worker, "prompt": "and now?", "wait_s": 60}
            prompted = told(await lead.call_tool("worker_prompt", again))
            assert prompted["result"]["text"] == "Hello.", prompted
        asked = world.models.calls[-1].request
        assert asked and any("wait" in message.text for message in asked.messages)
        events = [type(e.event).__name__ for e in await world.journal(worker)]
        assert "WorkerClosed" not in events


async def test_what_a_running_daemon_of_another_version_does_not_know_is_said(
    world: World,
) -> None:
    older = "import goent, goent.operations.operation_table as o; goent.__version__ = '0.0.1'\n"
    older += "init = o.Operations.__init__\n"
    older += "def less(self, *a, **k): init(self, *a, **k); del self.table['cost_report']\n"
    older += "o.Operations.__init__ = less\n"
    with another_installation(world, older):
        await a_busy_worker(world)
    refused = await world.go_ent("costs")
    assert refused.exit == 3 and "daemon is go-ent 0.0.1, this is" in refused.err, refused


# A daemon that dies while somebody looks on


async def has_spoken(world: World, worker: str) -> bool:
    return any(isinstance(one.event, TextDelta) for one in await world.journal(worker))


async def test_the_line_that_a_worker_had_begun_is_shown_when_its_daemon_dies(
    tmp_path: Path,
) -> None:
    silence = Fault(kind="hang", after=1)
    script = Script(
        providers={
            "moonshot": openai(
                case(None, say("The first half of a line").having(fault=silence)),
                key="sk-moonshot-real-key",
            )
        }
    )
    async with a_world(tmp_path, script, config=COLD) as world:
        async with await anyio.open_process(
            [*GO_ENT, "run", "--method", "api", "speak"], cwd=world.project, env=world.env
        ) as running:
            assert running.stdout and running.stderr
            title = (await running.stdout.receive()).decode()
            worker = title.split()[0]
            with anyio.fail_after(60):
                while not await has_spoken(world, worker):  # noqa: ASYNC110 (the file tells nobody)
                    await anyio.sleep(0.1)
            await end(await pid_of_daemon(world))
            shown = b"".join([chunk async for chunk in running.stdout]).decode()
            said = b"".join([chunk async for chunk in running.stderr]).decode()
            assert await running.wait() == 3
        assert "The first" in shown
        assert "the daemon ended unexpectedly" in said and f"the turn of {worker}" in said
        assert f"go-ent output {worker}" in said and f"go-ent prompt {worker}" in said


# Keys


async def test_the_first_key_stays_and_others_are_told(world: World) -> None:
    first, other = "sk-moonshot-real-key", "sk-moonshot-another-key"
    await a_busy_worker(world)
    world.env["MOONSHOT_API_KEY"] = other
    spawned = await world.go_ent("run", "--detach", "--json", "hold")
    (warning,) = json.loads(spawned.out)["warnings"]
    assert "MOONSHOT_API_KEY differs here" in warning and warning in spawned.err
    checked = json.loads((await world.go_ent("doctor", "--json")).out)["findings"]
    (finding,) = [one for one in checked if one["subject"] == "key MOONSHOT_API_KEY"]
    assert finding["verdict"] == "note"
    log = log_path(world.key, world.env).read_text()
    assert log.count("a client's key is not used") == 1
    for text in (spawned.out, spawned.err, json.dumps(checked), log):
        assert first not in text and other not in text
    assert (await world.go_ent("daemon", "stop", "--force")).exit == 0
    spawned = await world.go_ent("run", "--detach", "--json", "hold")
    assert json.loads(spawned.out)["warnings"] == [], "the next daemon has the key of its client"
