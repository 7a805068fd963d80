"""A silent turn of the real OpenCode: what is at work is left alone, what is not is ended."""

import signal
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from world import World, a_world, kill, told

from goent.domain.events import Noticed, TurnEnded
from goent.testing.script import Script, call, case, openai, say

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

UNTIL = "while [ ! -e {file} ]; do sleep 0.1; done"
SCRIPT = Script(
    providers={
        "moonshot": openai(
            case("think long", say("At last.").having(gate="slow")),
            case(
                "work in silence",
                call("bash", command=UNTIL.format(file="go"), description="w"),
                say("Ran."),
            ),
            case("be stopped", say("Too late.").having(gate="stopped")),
            case("say hello", say("Hello.")),
            models=("glm-4",),
            key="sk-moonshot-real-key",
        )
    }
)
CONFIG = """\
opencode: {profile: hermetic}
limits: {stall_s: 1, cancel_grace_s: 2}
daemon: {idle_exit_s: 120}
"""


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[World]:
    async with a_world(tmp_path_factory.mktemp("silent"), SCRIPT, config=CONFIG) as world:
        yield world


async def spawn(lead: Client, task: str) -> str:
    asked = {"task": task, "permissions": "auto"}
    return told(await lead.call_tool("worker_spawn", asked))["worker_id"]


async def result(lead: Client, worker: str) -> dict[str, Any]:
    waited = told(await lead.call_tool("worker_wait", {"worker_ids": [worker], "timeout_s": 60}))
    assert not waited["timed_out"], waited
    return told(await lead.call_tool("worker_result", {"worker_id": worker}))


async def looks(world: World, worker: str, words: str, n: int) -> list[str]:
    """What was told of the silence, once there are so many that say this."""
    with anyio.fail_after(60):
        while True:
            events = [envelope.event for envelope in await world.journal(worker)]
            assert not any(isinstance(event, TurnEnded) for event in events), events
            told = [e.text for e in events if isinstance(e, Noticed) and words in e.text]
            if len(told) >= n:
                return told
            await anyio.sleep(0.1)


@pytest.mark.spec("P25")
async def test_a_model_that_is_slow_is_waited_for(world: World) -> None:
    async with world.client() as lead:
        worker = await spawn(lead, "think long")
        said = await looks(world, worker, "still working: it has waited", 3)
        assert all(text.startswith("no events for 1 s; still working") for text in said)
        world.models.open_gate("slow")
        done = await result(lead, worker)
        assert (done["state"], done["text"]) == ("completed", "At last.")


@pytest.mark.spec("P25")
async def test_a_tool_that_is_silent_is_waited_for(world: World) -> None:
    async with world.client() as lead:
        worker = await spawn(lead, "work in silence")
        await looks(world, worker, "still working: its tool is running", 3)
        (world.project / "go").touch()
        done = await result(lead, worker)
        assert (done["state"], done["text"]) == ("completed", "Ran.")


@pytest.mark.spec("P25")
async def test_an_opencode_that_stands_still_is_told_of_and_its_turn_ended(world: World) -> None:
    """Stopped, it neither computes nor waits for a model: its answer has been in the pipe."""
    async with world.client() as lead:
        worker = await spawn(lead, "be stopped")
        await world.models.at_gate("stopped", timeout=60)
        (opencode,) = [pid for pid in world.processes() if b"acp" in words_of(pid)]
        kill(opencode, signal.SIGSTOP)
        world.models.open_gate("stopped")
        done = await result(lead, worker)
        assert (done["state"], done["failure"]["kind"]) == ("failed", "stalled")
        events = [envelope.event for envelope in await world.journal(worker)]
        lifeless = [e.text for e in events if isinstance(e, Noticed) and "stalled" in e.text]
        assert len(lifeless) == 2, "told at the first look, ended after the second"
        assert all("OpenCode used 0.00 s of CPU" in text for text in lifeless)
        kill(opencode)
        again = await result(lead, await spawn(lead, "say hello"))
        assert (again["state"], again["text"]) == ("completed", "Hello.")


def words_of(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return []
