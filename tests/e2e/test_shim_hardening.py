"""The shim between a client and a daemon that dies at the worst moments, and a client that does."""

import json
import signal
import subprocess
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from hardening import (
    HANDSHAKE,
    MODERN,
    RawShim,
    a_busy_worker,
    a_shim,
    end,
    line,
    pid_of_daemon,
    until,
)
from world import World, a_cold_world, kill

from goent.proc import process_table

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

INITIALIZED = b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n'
TUNED = """
import sys
from pathlib import Path
from goent.daemon import shim
shim.MAX_RESTARTS, shim.RESTART_WINDOW_S = 1, float({seconds})
sys.exit(shim.run_shim(Path.cwd()))
"""


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with a_cold_world(tmp_path) as world:
        yield world


async def introduce(shim: RawShim, era: str, worker: str = "") -> dict[str, object]:
    """The client's first words, and what every later request of it carries."""
    if era == "modern":
        await shim.ask(1, "server/discover", MODERN)
        assert "result" in await shim.answer()
        return MODERN
    await shim.ask(1, "initialize", HANDSHAKE)
    assert "result" in await shim.answer()
    await shim.send(INITIALIZED)
    for number, method in ((11, "subscribe"), (12, "unsubscribe"), (13, "subscribe")):
        await shim.ask(number, f"resources/{method}", {"uri": f"worker://{worker}/output"})
        assert "result" in await shim.answer()
    return {}


@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_what_is_under_way_is_answered_once_and_the_rest_goes_on(
    world: World, era: str
) -> None:
    worker = await a_busy_worker(world)
    async with a_shim(world) as shim:
        always = await introduce(shim, era, worker)
        waiting = {"name": "worker_wait", "arguments": {"worker_ids": [worker], "timeout_s": 60}}
        for number in (2, 3, 4):
            await shim.ask(number, "tools/call", {**always, **waiting})
        half = line(5, "tools/list", always)
        await shim.send(half[:20])
        await end(await pid_of_daemon(world))
        lost = [await shim.answer() for _ in range(3)]
        assert sorted(one["id"] for one in lost) == [2, 3, 4]
        assert all("daemon ended while" in one["error"]["message"] for one in lost)
        await shim.send(half[20:])
        listed = await shim.answer()
        assert listed["id"] == 5 and listed["result"]["tools"]

        await end(await pid_of_daemon(world))
        await until(world.socket.exists)
        await end(await pid_of_daemon(world))
        await shim.ask(6, "tools/list", always)
        assert (await shim.answer())["id"] == 6, "nothing of the two handshakes in between"
        assert await shim.done() == 0


@pytest.mark.parametrize(
    ("method", "params"), [("initialize", HANDSHAKE), ("server/discover", MODERN)]
)
async def test_a_daemon_that_dies_before_the_handshake_is_not_noticed(
    world: World, method: str, params: dict[str, object]
) -> None:
    await world.go_ent("ps")
    pid = await pid_of_daemon(world)
    async with a_shim(world) as shim:
        await shim.ask(0, "ping")
        await shim.answer()
        kill(pid, signal.SIGSTOP)
        await shim.ask(1, method, params)
        await anyio.wait_all_tasks_blocked()
        kill(pid)
        answer = await shim.answer()
        assert answer["id"] == 1 and "result" in answer, answer
        assert await shim.done() == 0


async def test_a_handshake_that_was_refused_is_not_said_again(world: World) -> None:
    async with a_shim(world) as shim:
        await introduce(shim, "modern")
        await shim.ask(2, "initialize", HANDSHAKE)
        assert "error" in await shim.answer()
        await end(await pid_of_daemon(world))
        await shim.ask(3, "tools/list", MODERN)
        assert "result" in await shim.answer()


@pytest.mark.parametrize(("seconds", "survives"), [(60, False), (0, True)])
async def test_only_deaths_in_quick_succession_are_too_many(
    world: World, seconds: int, survives: bool
) -> None:
    program = TUNED.format(seconds=seconds)
    async with a_shim(world, program=program, stderr=subprocess.PIPE) as shim:
        for number in (1, 2):
            await shim.ask(number, "tools/list", MODERN)
            assert (await shim.answer())["id"] == number
            await end(await pid_of_daemon(world))
        answer: dict[str, Any] = {"id": 3}
        # It may have given up before it reads that.
        with suppress(anyio.IncompleteRead, anyio.BrokenResourceError):
            await shim.ask(3, "tools/list", MODERN)
            answer = await shim.answer()
        assert answer["id"] == 3 and ("result" in answer) == survives, answer
        assert await shim.done() == (0 if survives else 3)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
async def test_workers_outlive_the_shim_that_asked_for_them(
    world: World, number: signal.Signals
) -> None:
    async with a_shim(world) as shim:
        spawn = {"name": "worker_spawn", "arguments": {"task": "hold"}}
        await shim.ask(1, "tools/call", {**MODERN, **spawn})
        worker = (await shim.answer())["result"]["structuredContent"]["worker_id"]
        kill(shim.process.pid, number)
        assert await shim.done() == (-9 if number == signal.SIGKILL else 0)
    status = json.loads((await world.go_ent("status", worker, "--json")).out)
    assert (status["state"], status["open"]) == ("starting", True)


async def test_workers_outlive_the_client_and_the_shim_does_not(world: World) -> None:
    worker = await a_busy_worker(world)
    async with a_shim(world) as shim:
        await introduce(shim, "handshake", worker)
        assert await shim.done() == 0, "the end of its input is the end of its client"
        assert process_table.start_time(shim.process.pid) is None
    status = json.loads((await world.go_ent("status", worker, "--json")).out)
    assert status["open"]
