"""A key that a go-ent process holds is read by no other process of the same user: not from its
environment, not from its memory, not by a debugger, not from a core."""

import ctypes
import json
import os
import resource
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio.abc import Process
from bench.tree import memory_of
from found import holding
from world import COLD, GO_ENT, World, a_cold_world, a_world, kill

from goent.proc import process_table
from goent.system.project_lock import lock_holder
from goent.testing.script import Script, case, openai, say

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.timeout(100),
    pytest.mark.ordinary_user,
]

KEY = "sk-moonshot-real-key"
PTRACE_ATTACH, PTRACE_DETACH = 16, 17
HELD = Script(
    providers={"moonshot": openai(case("wait", say("Done.").having(gate="held")), key=KEY)}
)


def is_closed(pid: int) -> bool:
    """Neither environment nor memory nor descriptors can be read, and no debugger gets hold of it."""
    names = ("environ", "mem", "maps", "auxv", "smaps_rollup", "fd")
    return not any(_is_read(Path(f"/proc/{pid}/{name}")) for name in names) and not _is_traced(pid)


def _is_read(path: Path) -> bool:
    try:
        if path.is_dir():
            return any(path.iterdir())
        os.close(os.open(path, os.O_RDONLY))
        return path.name == "mem" or path.read_bytes() != b""
    except PermissionError:
        return False


def _is_traced(pid: int) -> bool:
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    if ptrace(PTRACE_ATTACH, pid, None, None) != 0:
        return False
    os.waitpid(pid, 0)
    ptrace(PTRACE_DETACH, pid, None, None)
    return True


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with a_cold_world(tmp_path) as world:
        assert KEY in world.env.values()
        yield world


@asynccontextmanager
async def running(world: World, *args: str) -> AsyncGenerator[Process]:
    async with await anyio.open_process(
        [*GO_ENT, *args], cwd=world.project, env=world.env
    ) as process:
        try:
            yield process
        finally:
            kill(process.pid)


async def until_closed(pid: int) -> None:
    """Python itself takes a moment to start."""
    with anyio.fail_after(20):
        while not is_closed(pid):  # noqa: ASYNC110 (a process announces nothing)
            await anyio.sleep(0.02)


def daemon_of(world: World) -> int:
    held = lock_holder(world.socket.parent)
    assert held and held.pid
    return held.pid


def test_this_is_no_root() -> None:
    assert os.geteuid() != 0
    status = Path("/proc/self/status").read_text()
    assert "CapEff:\t0000000000000000" in status and "NoNewPrivs:\t0" in status


async def test_the_means_of_these_tests_work_on_a_process_that_is_open() -> None:
    command = [sys.executable, "-c", "print(flush=True); input()"]
    async with await anyio.open_process(command, env={"MOONSHOT_API_KEY": KEY}) as victim:
        assert victim.stdout
        await victim.stdout.receive()
        assert holding(KEY, [Path(f"/proc/{victim.pid}/environ")])
        assert not is_closed(victim.pid)
        victim.kill()


async def test_the_daemon_is_closed_and_was_started_without_the_key(world: World) -> None:
    assert (await world.go_ent("ps")).exit == 0
    pid = daemon_of(world)
    assert is_closed(pid)
    async with await anyio.connect_unix(world.socket) as stream:
        greeting = json.loads(await stream.receive())
    assert "MOONSHOT_API_KEY" in greeting["fingerprints"], "it has the key, all the same"


async def test_the_daemon_is_not_given_the_key_by_its_environment(world: World) -> None:
    """Looked at where the daemon cannot close itself: by a Python that starts slowly."""
    slow = world.home / "slow"
    slow.mkdir()
    note = slow / "note"
    (slow / "sitecustomize.py").write_text(
        "import os, sys\n"
        "if 'serve-daemon' in sys.orig_argv or 'goent.daemon.daemon_server' in sys.orig_argv:\n"
        f"    open({str(note)!r}, 'wb').write(open('/proc/self/environ', 'rb').read())\n"
    )
    world.env["PYTHONPATH"] = str(slow)
    world.env["GITHUB_TOKEN"] = "ghp-another-secret"
    assert (await world.go_ent("ps")).exit == 0
    assert b"PATH=" in note.read_bytes()
    assert not holding(KEY, [note]) and not holding("ghp-another-secret", [note])


@pytest.mark.parametrize(
    "args",
    [("mcp",), ("mcp", "--http"), ("mcp", "--embedded"), ("acp",)],
    ids=" ".join,
)
async def test_what_serves_a_client_is_closed(world: World, args: tuple[str, ...]) -> None:
    async with running(world, *args) as process:
        await until_closed(process.pid)


async def test_a_command_that_waits_is_closed(world: World) -> None:
    async with running(world, "run", "wait") as process:
        await until_closed(process.pid)
        await anyio.sleep(0.5)
        assert is_closed(process.pid), "and stays so"


@pytest.mark.parametrize("number", [signal.SIGABRT, signal.SIGQUIT, signal.SIGSEGV])
async def test_a_signal_makes_no_core(world: World, number: signal.Signals) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (most, most))
    assert (await world.go_ent("ps")).exit == 0
    pid = daemon_of(world)
    resource.prlimit(pid, resource.RLIMIT_CORE, (most, most))
    os.kill(pid, number)
    with anyio.fail_after(20):
        while process_table.start_time(pid):  # noqa: ASYNC110 (a process announces nothing)
            await anyio.sleep(0.02)
    assert not [path for path in world.project.rglob("core*") if path.is_file()]


async def test_a_worker_of_the_own_agent_is_found_after_kill_9(tmp_path: Path) -> None:
    """In its sandbox its user can look into it, but it has no key to show."""
    async with a_world(tmp_path, HELD, config=COLD) as world:
        task = (
            "run",
            "--detach",
            "--json",
            "--method",
            "agent",
            "--model",
            "moonshot/glm-4",
            "wait",
        )
        assert (await world.go_ent(*task)).exit == 0
        await world.models.at_gate("held", timeout=60)
        (agent,) = world.processes()
        assert not holding(KEY, [Path(f"/proc/{agent}/environ")])
        os.kill(agent, signal.SIGSTOP)  # so that it does not notice the end of its input
        daemon = daemon_of(world)
        os.kill(daemon, signal.SIGKILL)
        with anyio.fail_after(20):
            while process_table.start_time(daemon):  # noqa: ASYNC110 (a process announces nothing)
                await anyio.sleep(0.02)
        assert (await world.go_ent("ps")).exit == 0, "the next daemon sweeps"
        assert process_table.start_time(agent) is None


async def test_memory_is_measured_of_a_process_that_is_closed(world: World) -> None:
    assert (await world.go_ent("ps")).exit == 0
    assert memory_of(daemon_of(world)) > 10_000_000
