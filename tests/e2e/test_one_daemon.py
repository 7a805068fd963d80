"""One project has one daemon, in whatever environment its clients were started."""

import json
import os
import pwd
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest
from hardening import another_installation, pid_of_daemon, until
from mcp import Client, StdioServerParameters
from world import COLD, GO_ENT, World, a_cold_world, a_world, kill, told

from goent.domain.events import TurnEnded
from goent.proc import process_table
from goent.system.project_folders import home_dir, project_state_dir, runtime_dir
from goent.system.project_lock import find_holder, lock_holder
from goent.testing.script import Script, case, openai, say

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

# Which daemon serves, by process number, for each environment and folder.
ASK = """
import json, os, sys
from pathlib import Path
from goent.daemon.daemon_connection import connect
pids = {}
for name, (env, cwd) in json.loads(sys.argv[1]).items():
    os.environ.clear()
    os.environ.update(env)
    connection = connect(Path(cwd), "control", start=False)
    pids[name] = connection.hello["pid"]
    connection.socket.close()
print(json.dumps(pids))
"""
MINIMAL = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")
SURROUNDINGS = (
    *("usual", "no XDG_RUNTIME_DIR", "no TMPDIR", "another TMPDIR", "neither", "minimal"),
    *("another runtime folder", "XDG_STATE_HOME spelled out", "XDG_STATE_HOME elsewhere"),
    *("HOME through a link", "project through a link", "a subfolder"),
)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with a_cold_world(tmp_path) as world:
        yield world


def surroundings(world: World) -> dict[str, tuple[dict[str, str], Path]]:
    """Environments in which the same user comes to the same project."""
    home, env = world.home, {"LOGNAME": "u", "USER": "u", "SHELL": "/bin/sh", "TERM": "xterm"}
    env |= world.env
    link, project = home.with_name("home-link"), world.project.with_name("project-link")
    link.symlink_to(home)
    project.symlink_to(world.project)
    for folder in (home / "tmp2", home / "run2", world.project / "src"):
        folder.mkdir(0o700)

    def without(*names: str) -> dict[str, str]:
        return {name: value for name, value in env.items() if name not in names}

    changed = (
        env,
        without("XDG_RUNTIME_DIR"),
        without("TMPDIR"),
        {**without("XDG_RUNTIME_DIR"), "TMPDIR": str(home / "tmp2")},
        without("XDG_RUNTIME_DIR", "TMPDIR"),
        {name: env[name] for name in (*MINIMAL, "GOENT_OPENCODE")},
        {**env, "XDG_RUNTIME_DIR": str(home / "run2")},
        {**env, "XDG_STATE_HOME": str(home / ".local" / "state")},
        {**env, "XDG_STATE_HOME": str(home / "state")},
        {**env, "HOME": str(link)},
        env,
        env,
    )
    places = {"project through a link": project, "a subfolder": world.project / "src"}
    named = dict(zip(SURROUNDINGS, changed, strict=True))
    return {name: (each, places.get(name, world.project)) for name, each in named.items()}


def answering(asked: dict[str, tuple[dict[str, str], Path]]) -> dict[str, int]:
    told = json.dumps({name: (env, str(cwd)) for name, (env, cwd) in asked.items()})
    command = [sys.executable, "-c", ASK, told]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("starter", SURROUNDINGS)
async def test_whoever_comes_finds_the_daemon(world: World, starter: str) -> None:
    """Every pair of environments: of who started the daemon, and of who comes after."""
    asked = surroundings(world)
    env, cwd = asked[starter]
    async with await anyio.open_process([*GO_ENT, "ps"], cwd=cwd, env=env) as started:
        assert await started.wait() == 0
    try:
        pids = answering(asked)
        assert set(pids.values()) == {pids[starter]}, pids
        held = find_holder(world.key, env)
        assert held and held.pid == pids[starter] and held.socket and held.socket.is_socket()
        assert len(os.fsencode(held.socket)) <= 100
        assert (held.socket.stat().st_mode & 0o777, held.socket.parent.stat().st_mode & 0o777) == (
            *(0o600, 0o700),
        )
    finally:
        async with await anyio.open_process(
            [*GO_ENT, "daemon", "stop", "--force"], cwd=world.project, env=world.env
        ) as stopped:
            assert await stopped.wait() == 0, "a stop finds it, too"


async def test_commands_started_together_in_different_environments_start_one(world: World) -> None:
    asked = surroundings(world)
    ended: list[tuple[str, int | None]] = []

    async def ps(name: str, env: dict[str, str], cwd: Path) -> None:
        async with await anyio.open_process([*GO_ENT, "ps"], cwd=cwd, env=env) as started:
            ended.append((name, await started.wait()))

    async with anyio.create_task_group() as group:
        for name, (env, cwd) in asked.items():
            group.start_soon(ps, name, env, cwd)
    assert sorted(ended) == sorted((name, 0) for name in asked)
    assert len(set(answering(asked).values())) == 1
    held = find_holder(world.key, world.env)
    assert held
    log = Path(held.state) / "projects" / world.key / "daemon.log"
    assert log.read_text().count(" serves ") == 1
    assert (await world.go_ent("daemon", "stop", "--force")).exit == 0


SCRIPT = Script(
    providers={
        "moonshot": openai(
            case("wait", say("Done.").having(gate="held")),
            models=("glm-4",),
            key="sk-moonshot-real-key",
        )
    }
)


@pytest.mark.spec("P02")
async def test_a_look_from_a_terminal_ends_no_worker_of_a_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client is the MCP SDK with the environment that it gives to servers by default."""
    async with a_world(tmp_path, SCRIPT, config=COLD) as world:
        monkeypatch.setenv("HOME", str(world.home))
        given = {name: world.env[name] for name in ("MOONSHOT_API_KEY", "GOENT_OPENCODE")}
        server = StdioServerParameters(
            command=GO_ENT[0], args=[*GO_ENT[1:], "mcp"], env=given, cwd=world.project
        )
        async with Client(server, mode="auto") as lead:
            task = {"task": "wait", "method": "api", "model": "moonshot/glm-4", "wait_s": 0}
            worker = told(await lead.call_tool("worker_spawn", task))["worker_id"]
            await world.models.at_gate("held")
            listed = await world.go_ent("ps", "--json")
            assert listed.err == ""
            seen = {one["worker_id"]: one["state"] for one in json.loads(listed.out)["workers"]}
            assert seen == {worker: "running"}
            world.models.open_gate("held")
            waited = told(await lead.call_tool("worker_wait", {"worker_ids": [worker]}))
            assert waited["workers"][0]["state"] == "completed"
        events = [envelope.event for envelope in await world.journal(worker)]
        assert len([event for event in events if isinstance(event, TurnEnded)]) == 1
        assert (await world.go_ent("daemon", "stop", "--force")).exit == 0


def test_without_home_the_user_database_tells(tmp_path: Path) -> None:
    entry = Path(pwd.getpwuid(os.geteuid()).pw_dir)
    for given in ({}, {"HOME": ""}, {"HOME": "here"}):
        assert home_dir(given) == entry
    assert home_dir({"HOME": str(tmp_path)}) == tmp_path


NO_HOME = """
mount --bind {passwd} /etc/passwd
cd {project}
{go_ent} ps --json >/dev/null || exit 4
one=$({go_ent} daemon status --json)
two=$(env -u HOME {go_ent} daemon status --json)
three=$(env HOME= {go_ent} ps --json >/dev/null; env HOME= {go_ent} daemon status --json)
{go_ent} daemon stop --force >/dev/null
env -u HOME {go_ent} ps --json >/dev/null || exit 5
four=$({go_ent} daemon status --json)
five=$(env -u HOME {go_ent} daemon status --json)
{go_ent} daemon stop --force >/dev/null
echo "[$one, $two, $three, $four, $five]"
"""


async def test_a_client_without_home_finds_the_same_daemon(world: World, tmp_path: Path) -> None:
    """In a namespace where the user database has the world's home."""
    passwd = tmp_path / "passwd"
    passwd.write_text(f"root:x:0:0::{world.home}:/bin/sh\n")
    script = NO_HOME.format(passwd=passwd, project=world.project, go_ent=" ".join(GO_ENT))
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script]
    done = await anyio.run_process(command, env=world.env, check=False)
    assert done.returncode == 0, done.stderr
    first, second, third, fourth, fifth = (each["pid"] for each in json.loads(done.stdout))
    assert first == second == third != fourth == fifth


# Whoever else holds the project


EARLIER = """
import goent.system.project_lock as lock, goent.daemon.daemon_server as daemon, json, os, time
def take(key, environ, kind):
    folder = lock.runtime_dir(key, environ)
    fd = lock.take_lock(folder)
    if fd is None:
        return None
    words = {"kind": kind, "pid": os.getpid(), "since": time.time()}
    (folder / "lock").write_text(json.dumps(words))
    return lock.ProjectLock({folder / "lock": fd}, folder / "sock")
lock.lock_project = daemon.lock_project = take
"""


@pytest.mark.parametrize("moved", [False, True], ids=["same environment", "another"])
async def test_a_daemon_of_the_earlier_layout_is_used_while_it_works_then_replaced(
    world: World, moved: bool
) -> None:
    """It locks the folder of its socket alone, wherever that is."""
    before = dict(world.env)
    if moved:
        world.env |= {"XDG_RUNTIME_DIR": str(world.home / "run2")}
        (world.home / "run2").mkdir(0o700)
    with another_installation(world, EARLIER):
        started = await world.go_ent("run", "--detach", "--json", "hold")
        worker = json.loads(started.out)["worker_id"]
        old = await pid_of_daemon(world)
    assert lock_holder(project_state_dir(world.key, world.env)) is None
    world.env = before
    listed = await world.go_ent("ps", "--json")
    assert [one["worker_id"] for one in json.loads(listed.out)["workers"]] == [worker]
    assert "of an earlier build, and has workers; it is used until they are done" in listed.err
    embedded = await world.go_ent("mcp", "--embedded")
    assert embedded.exit == 3 and f"process {old}" in embedded.err, embedded
    assert (await world.go_ent("cancel", "--close", worker)).exit == 0
    assert (await world.go_ent("ps")).err == ""
    held = lock_holder(project_state_dir(world.key, world.env))
    assert held and held.pid != old
    await until(lambda: process_table.start_time(old) is None)


async def test_an_embedded_go_ent_in_another_environment_is_named(world: World) -> None:
    env = {name: world.env[name] for name in ("HOME", "PATH", "GOENT_OPENCODE")}
    command = [*GO_ENT, "mcp", "--embedded"]
    async with await anyio.open_process(command, cwd=world.project, env=env) as embedded:
        await until(lambda: find_holder(world.key, world.env))
        refused = await world.go_ent("ps")
        assert refused.exit == 3 and f"process {embedded.pid}" in refused.err
        kill(embedded.pid, signal.SIGTERM)


async def test_a_holder_on_another_machine_is_named(world: World) -> None:
    """A home on a network drive, or one that a container shares."""
    folder = project_state_dir(world.key, world.env)
    socket = str(world.home / "run3" / "sock")
    words = {"kind": "daemon", "pid": 4242, "since": 0, "host": "elsewhere", "socket": socket}
    hold = f"""
        import fcntl, sys
        lock = open({str(folder / "lock")!r}, "w")
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write({json.dumps(words)!r})
        lock.flush()
        print("held", flush=True)
        sys.stdin.read()
    """
    command = [sys.executable, "-c", textwrap.dedent(hold)]
    async with await anyio.open_process(command) as process:
        assert process.stdout and await process.stdout.receive() in (b"held", b"held\n")
        refused = await world.go_ent("ps")
        assert refused.exit == 3 and "process 4242 on elsewhere" in refused.err, refused
        assert "XDG_STATE_HOME" in refused.err
        kill(process.pid)


async def test_what_a_killed_daemon_wrote_into_its_lock_is_not_believed(world: World) -> None:
    await world.go_ent("ps")
    first = await pid_of_daemon(world)
    kill(first)
    await until(lambda: find_holder(world.key, world.env) is None)
    minimal = {name: world.env[name] for name in ("HOME", "PATH", "GOENT_OPENCODE")}
    async with await anyio.open_process([*GO_ENT, "ps"], cwd=world.project, env=minimal) as again:
        assert await again.wait() == 0
    held = find_holder(world.key, world.env)
    assert held and held.pid != first and held.socket
    assert held.socket.parent == runtime_dir(world.key, minimal), "not where the first listened"
    assert (await world.go_ent("daemon", "stop", "--force")).exit == 0
