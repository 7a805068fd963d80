"""The daemon under bad circumstances: crowds, other versions, bad folders, signals, full disks."""

import json
import os
import resource
import shutil
import signal
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import pytest
from hardening import (
    a_busy_worker,
    a_shim,
    another_installation,
    end,
    mounted,
    pid_of_daemon,
    read_only,
    until,
)
from world import COLD, Ended, World, a_cold_world, kill

from goent import __version__
from goent.daemon.daemon_connection import LOG_LIMIT
from goent.proc import process_table
from goent.system.project_folders import log_path

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

KNOCK = """
import json, sys
from pathlib import Path
from goent.daemon.daemon_connection import connect
stop = b'{"jsonrpc": "2.0", "id": 1, "method": "daemon_stop", "params": {"if_idle": true}}\\n'
pids = set()
for _ in range(4):
    connection = connect(Path.cwd(), "control")
    pids.add(connection.hello["pid"])
    connection.socket.sendall(stop)
    assert json.loads(connection.socket.makefile("rb").readline())["result"]["stopping"]
sys.exit(0 if len(pids) == 4 else f"not four daemons: {pids}")
"""


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with a_cold_world(tmp_path) as world:
        yield world


def log_of(world: World) -> Path:
    return log_path(world.key, world.env)


def look_often(world: World) -> None:
    """A daemon that is to end early looks around more often than every five seconds."""
    config = world.project / ".goent" / "config.yaml"
    config.write_text(f"{COLD}daemon: {{idle_exit_s: 8}}\n")


def starts(world: World) -> int:
    return log_of(world).read_text().count(" serves ")


# Starting and ending


async def test_of_ten_commands_at_once_one_starts_the_daemon(world: World) -> None:
    ended: list[Ended] = []

    async def ps() -> None:
        ended.append(await world.go_ent("ps", "--json"))

    async with anyio.create_task_group() as group:
        for _ in range(10):
            group.start_soon(ps)
    assert [(one.exit, one.err) for one in ended] == [(0, "")] * 10
    assert starts(world) == 1


async def test_who_comes_just_as_the_daemon_ends_gets_a_new_one(world: World) -> None:
    done = await anyio.run_process(
        [sys.executable, "-c", KNOCK], cwd=world.project, env=world.env, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_a_signal_ends_the_workers_first_however_often_it_comes(
    world: World, number: signal.Signals
) -> None:
    worker = await a_busy_worker(world)
    pid = await pid_of_daemon(world)
    kill(pid, number)
    await until(lambda: not world.socket.exists())
    kill(pid, number)
    await until(lambda: process_table.start_time(pid) is None)
    assert world.processes() == []
    counts = Counter(type(envelope.event).__name__ for envelope in await world.journal(worker))
    assert (counts["TurnStarted"], counts["TurnEnded"], counts["WorkerClosed"]) == (1, 1, 1)


async def test_a_stopped_daemon_is_called_stuck_and_can_be_ended(world: World) -> None:
    await world.go_ent("ps")
    pid = await pid_of_daemon(world)
    kill(pid, signal.SIGSTOP)
    with another_installation(
        world,
        "import goent.daemon.daemon_connection; goent.daemon.daemon_connection.CONNECT_TIMEOUT_S = 1.0",
    ):
        stuck = await world.go_ent("ps")
        assert stuck.exit == 3 and "is stuck" in stuck.err and "daemon stop --force" in stuck.err
        ended = await world.go_ent("daemon", "stop", "--force")
    assert ended.exit == 0 and process_table.start_time(pid) is None
    assert (await world.go_ent("ps")).exit == 0


# Other versions


@pytest.mark.parametrize("other", ["0.0.1", "99.0.0"])
async def test_an_idle_daemon_of_another_version_is_replaced(world: World, other: str) -> None:
    with another_installation(world, f"import goent; goent.__version__ = {other!r}"):
        assert (await world.go_ent("ps")).exit == 0
    before = await world.daemon()
    assert before and before.version == other, "asking how it is does not replace it"
    assert (await world.go_ent("ps")).err == ""
    after = await world.daemon()
    assert after and after.version == __version__ and process_table.start_time(before.pid) is None


@pytest.mark.parametrize("other", ["0.0.1", "99.0.0"])
async def test_another_version_waits_for_the_workers(world: World, other: str) -> None:
    with another_installation(world, f"import goent; goent.__version__ = {other!r}"):
        worker = await a_busy_worker(world)
    listed = await world.go_ent("ps", "--json")
    assert json.loads(listed.out)["workers"][0]["worker_id"] == worker
    assert listed.exit == 0 and f"is {other} and has workers; it is used" in listed.err
    old = await pid_of_daemon(world)
    assert (await world.go_ent("cancel", "--close", worker)).exit == 0
    assert (await world.go_ent("ps")).err == ""
    assert await pid_of_daemon(world) != old


async def test_another_protocol_is_refused_with_the_remedy(world: World) -> None:
    with another_installation(
        world, "import goent.daemon.daemon_connection; goent.daemon.daemon_connection.PROTOCOL = 2"
    ):
        assert (await world.go_ent("ps")).exit == 0
        pid = await pid_of_daemon(world)
    refused = await world.go_ent("ps")
    assert refused.exit == 3 and "speaks protocol 2, this go-ent 1" in refused.err
    assert (await world.go_ent("daemon", "stop", "--force")).exit == 0
    assert process_table.start_time(pid) is None


# Folders and files


@pytest.fixture
def sealed() -> Generator[Path]:
    """Of a short name: a socket must fit in, or another folder is taken."""
    with TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.mark.parametrize(
    "variables", [["XDG_STATE_HOME"], ["XDG_RUNTIME_DIR", "TMPDIR"]], ids=["state", "runtime"]
)
async def test_a_folder_that_cannot_be_written_is_named(
    world: World, sealed: Path, variables: list[str]
) -> None:
    before = dict(world.env)
    world.env.update(dict.fromkeys(variables, str(sealed)))
    with read_only(sealed):
        refused = await world.go_ent("ps")
        assert refused.exit == 3 and str(sealed) in refused.err and variables[0] in refused.err
        assert "Traceback" not in refused.err
        async with a_shim(world) as shim:
            await shim.ask(1, "initialize")
            answer = await shim.answer()
            assert answer["id"] == 1 and str(sealed) in answer["error"]["message"]
            assert await shim.done() == 3
    world.env.update(before)


async def test_without_the_runtime_folder_the_temporary_one_serves(
    world: World, sealed: Path
) -> None:
    before = world.env["XDG_RUNTIME_DIR"]
    world.env["XDG_RUNTIME_DIR"] = str(sealed)
    with read_only(sealed):
        assert (await world.go_ent("ps")).exit == 0
        assert not world.socket.is_relative_to(sealed)
        await world.end()
    world.env["XDG_RUNTIME_DIR"] = before


@pytest.mark.parametrize("name", ["a b", "tschüß ☃", "two\nlines", "-x", "/".join(["d" * 200] * 9)])
async def test_a_projects_path_may_be_odd_or_long(world: World, name: str) -> None:
    world.project = world.project / name
    (world.project / ".goent").mkdir(parents=True)
    (world.project / ".goent" / "config.yaml").write_text(COLD)
    assert (await world.go_ent("ps")).exit == 0
    info = await world.daemon()
    assert info and info.project == str(world.project)


async def test_a_path_that_is_not_utf8_is_refused(world: World) -> None:
    odd = Path(os.fsdecode(os.fsencode(world.project) + b"/\xff"))
    odd.mkdir()
    home, world.project = world.project, odd
    refused = await world.go_ent("ps")
    assert refused.exit == 2 and "is not UTF-8: rename" in refused.err
    world.project = home


def renamed(folder: Path) -> None:
    folder.rename(f"{folder}-renamed")


@pytest.mark.parametrize("change", [shutil.rmtree, renamed])
async def test_a_daemon_whose_project_is_gone_ends_by_itself(
    world: World, change: Callable[[Path], object]
) -> None:
    look_often(world)
    await world.go_ent("ps")
    pid = await pid_of_daemon(world)
    change(world.project)
    await until(lambda: process_table.start_time(pid) is None)
    assert "idle for 0 s" in log_of(world).read_text()
    world.project.mkdir(exist_ok=True)
    assert (await world.go_ent("ps")).exit == 0, "and a new folder of that name is served again"


async def test_a_daemon_whose_socket_was_swept_away_ends_by_itself(world: World) -> None:
    look_often(world)
    await world.go_ent("ps")
    pid = await pid_of_daemon(world)
    world.socket.unlink()
    await until(lambda: process_table.start_time(pid) is None)
    assert "idle for 0 s" in log_of(world).read_text()


async def test_what_a_reboot_leaves_behind_is_no_trouble(world: World) -> None:
    await world.go_ent("ps")
    await end(await pid_of_daemon(world))
    assert world.socket.is_socket(), "nobody removed it"
    (world.socket.parent / "lock").write_text("1\n")
    assert (await world.go_ent("ps")).err == ""
    await world.end()
    world.socket.symlink_to(world.home / "nowhere")
    assert (await world.go_ent("ps")).err == ""


@pytest.mark.parametrize("name", ["sock", "lock"])
async def test_a_folder_in_the_way_is_named(world: World, name: str) -> None:
    (world.socket.parent / name / "x").mkdir(parents=True)
    refused = await world.go_ent("ps")
    assert refused.exit == 3 and str(world.socket.parent / name) in refused.err
    shutil.rmtree(world.socket.parent / name)
    assert (await world.go_ent("ps")).exit == 0


ONCE_ANSWERED = ("run", "--json", "--method", "api", "--verify", "true", "say hello")


@pytest.mark.parametrize(
    "command",
    [("run", "--json", "hold"), ("run", "--json", "--method", "cli", "hold"), ONCE_ANSWERED],
    ids=["acp", "cli", "verify"],
)
async def test_what_is_in_the_way_of_a_sandbox_is_named(
    world: World, command: tuple[str, ...]
) -> None:
    await world.go_ent("ps")
    folder = log_of(world).with_name("tmp")
    folder.write_text("in the way")
    ended = await world.go_ent(*command)
    failure = json.loads(ended.out)["failure"]
    assert failure["kind"] == "worker_crashed"
    assert f"no temporary folder in '{folder}'" in failure["message"]
    assert "free some space, or check its owner and mode" in failure["message"]
    assert "internal error" not in failure["message"]


# The log and the disk


async def test_the_log_is_put_aside_when_it_has_grown_long(world: World) -> None:
    look_often(world)
    log, old = log_of(world), log_of(world).with_name("daemon.log.1")
    for _ in ("when the daemon starts", "while it runs"):
        with log.open("a") as grown:
            grown.truncate(LOG_LIMIT + 1)
        assert (await world.go_ent("ps")).exit == 0
        await until(lambda: old.exists() and log.exists())
        assert log.stat().st_size < LOG_LIMIT < old.stat().st_size
        old.unlink()
    assert b"sk-moonshot" not in log.read_bytes()


@contextmanager
def a_disk(folder: Path) -> Generator[Callable[[int, bool], None]]:
    """A function that fills and frees the disk, as the daemon sees it."""

    def limit(pid: int, full: bool) -> None:
        size = 1 if full else resource.RLIM_INFINITY
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def fill(_: int, full: bool) -> None:
        filler = folder / "filler"
        if not full:
            filler.unlink()
            return
        with filler.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(1024))

    if os.geteuid():
        yield limit
        return
    with mounted(folder, "size=4m"):
        yield fill


async def test_a_full_disk_loses_nothing_and_names_itself(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    with a_disk(small) as set_full:
        async with a_cold_world(tmp_path) as world:
            world.env["XDG_STATE_HOME"] = str(small)
            before = await a_busy_worker(world)
            pid = await pid_of_daemon(world)
            set_full(pid, True)
            refused = [await world.go_ent("run", "--detach", "x" * 100_000) for _ in range(2)]
            for one in refused:
                assert one.exit == 3 and "journal.db" in one.err and "full" in one.err, one
            set_full(pid, False)
            assert (await world.go_ent("cancel", "--close", before)).exit == 0
            after = await a_busy_worker(world)
            listed = json.loads((await world.go_ent("ps", "--json", "--all")).out)["workers"]
            assert len(listed) == 4 and await pid_of_daemon(world) == pid
            for worker in (one["worker_id"] for one in listed if one["worker_id"] != after):
                events = [type(e.event).__name__ for e in await world.journal(worker)]
                assert events[-1] == "WorkerClosed" and events.count("WorkerClosed") == 1
                assert events.count("TurnStarted") == events.count("TurnEnded")
            await world.end()
