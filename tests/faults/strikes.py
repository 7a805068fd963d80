"""What can go wrong around running workers, and how a test makes it so."""

import json
import random
import resource
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import anyio
from anyio.streams.text import TextReceiveStream
from world import World, kill

from goent.proc import process_table

LEAD = Path(__file__).with_name("lead_process.py")
CLOCK = """
import time
real = time.time
def shifted():
    with open({file!r}) as file:
        return real() + float(file.read())
time.time = shifted
"""
JUMPS = (40 * 86_400.0, 3_600.0, -3_600.0, -40 * 86_400.0)


@dataclass
class Scene:
    """Where a story plays: the world, the lead in its own process, and what was done to them."""

    world: World
    rng: random.Random
    lead: int
    shim: int = 0
    told: list[str | None] = field(default_factory=list[str | None])
    daemons_killed: int = 0

    @property
    def clock(self) -> Path:
        return self.world.home / "clock"

    async def daemon(self) -> int:
        """Of the daemon that runs, or that now starts."""
        with anyio.fail_after(60):
            while not (info := await self.world.daemon()):
                await self.world.go_ent("ps")
        return info.pid

    def opencodes(self) -> list[int]:
        return [pid for pid in self.world.processes() if b"\0acp\0" in _cmdline(pid)]

    async def a_while(self) -> None:
        await anyio.sleep(self.rng.uniform(0.1, 1.5))


@asynccontextmanager
async def a_scene(
    world: World, tasks: list[dict[str, object]], rng: random.Random
) -> AsyncGenerator[Scene]:
    """The lead has been started; it is gone on leaving, and so is its shim."""
    clock = world.home / "clock"
    clock.write_text("0")
    (world.home / "sitecustomize.py").write_text(CLOCK.format(file=str(clock)))
    world.env["PYTHONPATH"] = str(world.home)
    command = [sys.executable, str(LEAD), json.dumps(tasks)]
    async with (
        await anyio.open_process(command, cwd=world.project, env=world.env, stderr=None) as lead,
        anyio.create_task_group() as group,
    ):
        scene = Scene(world=world, rng=rng, lead=lead.pid)
        assert lead.stdout
        await group.start(_listen, scene, TextReceiveStream(lead.stdout))
        try:
            yield scene
        finally:
            kill(lead.pid)
            with anyio.CancelScope(shield=True), anyio.fail_after(20):
                while process_table.start_time(scene.shim):  # noqa: ASYNC110 (nobody tells of its end)
                    await anyio.sleep(0.05)
            group.cancel_scope.cancel()


async def _listen(
    scene: Scene, stdout: TextReceiveStream, *, task_status: anyio.abc.TaskStatus[None]
) -> None:
    text = ""
    with suppress(anyio.BrokenResourceError):
        async for piece in stdout:
            *lines, text = (text + piece).split("\n")
            for line in lines:
                if scene.shim:
                    scene.told.append(json.loads(line))
                else:
                    scene.shim = int(line)
                    task_status.started()


# Somebody is killed


async def the_daemon_is_killed(scene: Scene) -> None:
    kill(await scene.daemon())
    scene.daemons_killed += 1


async def opencode_is_killed(scene: Scene) -> None:
    for pid in scene.opencodes():
        kill(pid)


async def the_shim_is_killed(scene: Scene) -> None:
    kill(scene.shim)


async def the_client_is_killed(scene: Scene) -> None:
    kill(scene.lead)


# Somebody does not answer for a while


async def the_daemon_is_stopped(scene: Scene) -> None:
    await _stop([await scene.daemon()], scene)


async def opencode_is_stopped(scene: Scene) -> None:
    await _stop(scene.opencodes(), scene)


async def _stop(pids: list[int], scene: Scene) -> None:
    for pid in pids:
        kill(pid, signal.SIGSTOP)
    try:
        await scene.a_while()
    finally:
        for pid in pids:
            kill(pid, signal.SIGCONT)


# The machine fails


async def the_disk_is_full(scene: Scene) -> None:
    """For the daemon: none of its files takes another byte."""
    pid = await scene.daemon()
    everything = resource.RLIM_INFINITY
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (1, everything))
    try:
        await scene.a_while()
    finally:
        with suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (everything, everything))


async def the_clock_jumps(scene: Scene) -> None:
    """The clock on go-ent's wall; a worker's own is not ours to set."""
    fresh = scene.clock.with_name("clock.new")
    fresh.write_text(str(scene.rng.choice(JUMPS)))
    fresh.replace(scene.clock)


def _cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


Strike = Callable[[Scene], Awaitable[None]]
FAULTS: dict[str, Strike] = {
    strike.__name__.replace("_", " "): strike
    for strike in (
        the_daemon_is_killed,
        opencode_is_killed,
        the_shim_is_killed,
        the_client_is_killed,
        the_daemon_is_stopped,
        opencode_is_stopped,
        the_disk_is_full,
        the_clock_jumps,
    )
}
