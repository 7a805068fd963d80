"""Whatever is killed, the books are right: journal, processes, prompts, tokens.

Each seed is a story: some workers on the real OpenCode, and one fault at a moment of the seed's
choosing. `GOENT_SEEDS=20 pytest tests/faults` tells more of them; `make soak` does.
"""

import os
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest
from mcp import Client, MCPError
from scripted_project import assert_grammar
from world import World, a_world, kill, told

from goent.domain.types import Usage
from goent.testing import Script, call, case, openai, say

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

SEEDS = int(os.environ.get("GOENT_SEEDS", "1"))
WORKERS = 3
CASES = tuple(
    case(
        f"task {n};",
        call("bash", command=f"sleep 0.{n + 2}; echo {n} >> log-{n}", description="x"),
        call("write", filePath=f"{{cwd}}/out-{n}.txt", content="x\n"),
        say(f"Done {n}."),
    )
    for n in range(WORKERS)
)
SCRIPT = Script(
    providers={"moonshot": openai(*CASES, case(None, say("I go on.")), key="sk-moonshot-real-key")}
)
Fault = Callable[[World], Awaitable[None]]


async def the_daemon_is_killed(world: World) -> None:
    info = await world.daemon()
    assert info
    kill(info.pid)


async def opencode_is_killed(world: World) -> None:
    for pid in world.processes():
        if b"\0acp\0" in _cmdline(pid):
            kill(pid)


def _cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.spec("P02", "P25", "P29")
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("fault", [the_daemon_is_killed, opencode_is_killed])
async def test_after_a_fault_the_books_are_right(tmp_path: Path, fault: Fault, seed: int) -> None:
    moment = random.Random(seed).randint(1, 2 * WORKERS)
    async with a_world(tmp_path, SCRIPT) as world:
        async with world.client() as lead:
            workers = [await _spawn(lead, n) for n in range(WORKERS)]
            await world.models.called(moment, timeout=60)
            await fault(world)
            await _until_ended(lead, workers)
        await world.end()
        for worker in workers:
            assert_grammar([envelope.event for envelope in await world.journal(worker)])
        assert world.processes() == []
        _assert_no_prompt_was_repeated(world)
        _assert_tokens(world, await _usage(world, workers))


async def _spawn(lead: Client, n: int) -> str:
    task = {"task": f"task {n}; do it", "permissions": "auto"}
    return told(await lead.call_tool("worker_spawn", task))["worker_id"]


async def _until_ended(lead: Client, workers: list[str]) -> None:
    with anyio.fail_after(120):
        while True:
            try:
                request = {"worker_ids": workers, "timeout_s": 60}
                waited = told(await lead.call_tool("worker_wait", request))
            except MCPError:
                continue  # the daemon died under the call: the shim has another
            if not waited["timed_out"]:
                return


def _assert_no_prompt_was_repeated(world: World) -> None:
    for n in range(WORKERS):
        sessions: set[str | None] = set()
        for made in world.models.calls:
            if made.request is None:
                continue
            asked = [m for m in made.request.messages if f"task {n}; do it" in m.text]
            assert len([m for m in asked if m.role == "user"]) <= 1
            if asked:
                sessions.add(made.session)
        assert len(sessions) <= 1, "one prompt, one session"


async def _usage(world: World, workers: list[str]) -> Usage:
    total = Usage()
    for worker in workers:
        for envelope in await world.journal(worker):
            usage = getattr(envelope.event, "usage", None)
            if isinstance(usage, Usage):
                total += usage
    return total


def _assert_tokens(world: World, counted: Usage) -> None:
    """What was answered whole is counted; of a call that was cut nobody can know."""
    whole = Usage()
    for made in world.models.calls:
        if made.usage and not made.disconnected:
            whole += made.usage
    assert counted.input <= world.models.billed().input
    assert counted.input >= whole.input - 100 * WORKERS, "at most a call per worker was cut"
