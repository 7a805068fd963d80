"""A client sends its keys to the user's own daemon and to nobody else who listens in its place."""

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from socket import gethostname

import anyio
import pytest
from confined import NO_NEW_PRIVS, USER_NAMESPACE
from world import World, a_cold_world, kill

from goent import __version__
from goent.system.daemon_environment import is_key_name
from goent.system.project_folders import project_state_dir

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60), pytest.mark.ordinary_user]

KEY = "sk-moonshot-real-key"
BESIDE_JOURNAL, BESIDE_SOCKET = "beside the journal", "beside the socket"
FALSE = """
import ctypes, fcntl, json, os, socket, sys
given = json.loads(sys.argv[1])
ENTER
folder = given["folder"]
said = {"kind": "daemon", "pid": given["pid"] or os.getpid(), "since": 0, **given["said"]}
if given["lock"]:
    lock = open(f"{given['lock']}/lock", "w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    lock.write(json.dumps(said))
    lock.flush()
listener = socket.socket(socket.AF_UNIX)
listener.bind(f"{folder}/sock")
listener.listen()
print("listening", flush=True)
while True:
    client, _ = listener.accept()
    hello = {"goent": 1, "version": given["version"], "kind": "daemon", "keys": given["keys"]}
    try:
        client.sendall(json.dumps(hello).encode() + b"\\n")
        print(json.dumps(client.makefile("rb").readline().decode()), flush=True)
    except OSError:
        print('""', flush=True)
    client.close()
"""


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with a_cold_world(tmp_path) as world:
        yield world


@asynccontextmanager
async def false_daemon(
    world: World,
    *,
    enter: str = "",
    keys: str = "MOONSHOT_API_KEY",
    lock: str = BESIDE_SOCKET,
    pid: int = 0,
    folder: Path | None = None,
) -> AsyncGenerator[list[str]]:
    """Yields what clients said to it. It listens in `folder`, usually where a daemon would."""
    said: list[str] = []
    folder = folder or world.socket.parent
    state = project_state_dir(world.key, world.env)
    given = {
        "folder": str(folder),
        "keys": keys,
        "lock": {BESIDE_SOCKET: str(folder), BESIDE_JOURNAL: str(state)}.get(lock, ""),
        "said": {"host": gethostname(), "socket": f"{folder}/sock"}
        if lock == BESIDE_JOURNAL
        else {},
        "pid": pid,
    }
    told = json.dumps({**given, "version": __version__})
    command = [sys.executable, "-c", FALSE.replace("ENTER", enter), told]
    async with await anyio.open_process(command) as process, anyio.create_task_group() as group:
        assert process.stdout
        assert await process.stdout.receive() == b"listening\n"

        async def listen() -> None:
            assert process.stdout
            async for chunk in process.stdout:
                said.extend(json.loads(line) for line in chunk.splitlines())

        group.start_soon(listen)
        try:
            yield said
        finally:
            kill(process.pid)
            group.cancel_scope.cancel()
    (folder / "sock").unlink(missing_ok=True)


@pytest.mark.parametrize("lock", [BESIDE_JOURNAL, BESIDE_SOCKET])
@pytest.mark.parametrize(
    ("enter", "pid", "why"),
    [
        (NO_NEW_PRIVS, 0, "it has NoNewPrivs, as everything that a worker starts"),
        ("", 1, "(process 1, since "),
    ],
    ids=["of a worker", "beside the lock's holder"],
)
async def test_a_false_daemon_is_told_nothing(
    world: World, enter: str, lock: str, pid: int, why: str
) -> None:
    async with false_daemon(world, enter=enter, lock=lock, pid=pid) as said:
        for command in ("ps", "providers", "mcp"):
            ended = await world.go_ent(command)
            assert ended.exit == 3, ended
            assert "is not your daemon: " in ended.err and why in ended.err, ended.err
            assert "Nothing was sent to it" in ended.err and "daemon stop --force" in ended.err
        assert not any(said), "it heard nothing at all"


async def test_without_the_lock_a_false_daemon_is_not_even_asked(world: World) -> None:
    """The user's own takes its place."""
    async with false_daemon(world, lock="") as said:
        assert (await world.go_ent("ps")).exit == 0
        info = await world.daemon()
        assert info and info.socket == str(world.socket)
        assert not any(said)
        await world.end()


@pytest.mark.parametrize("mode", [0o770, 0o707])
async def test_an_address_where_others_can_listen_is_not_followed(
    world: World, tmp_path: Path, mode: int
) -> None:
    planted = tmp_path / "p"
    planted.mkdir()
    planted.chmod(mode)
    async with false_daemon(world, lock=BESIDE_JOURNAL, folder=planted) as said:
        ended = await world.go_ent("ps")
        assert (
            ended.exit == 3 and "where other users can write: nothing was sent to it" in ended.err
        )
        assert not any(said)


async def test_a_lock_that_others_could_have_written_is_not_believed(world: World) -> None:
    lock = project_state_dir(world.key, world.env) / "lock"
    lock.write_text("{}")
    lock.chmod(0o666)
    ended = await world.go_ent("ps")
    assert ended.exit == 3 and f"{str(lock)!r} can be written by others" in ended.err
    lock.unlink()
    lock.symlink_to(world.home / "elsewhere")
    ended = await world.go_ent("ps")
    assert ended.exit == 3 and str(lock) in ended.err and not (world.home / "elsewhere").exists()
    lock.unlink()


async def test_a_daemon_in_another_user_namespace_is_told_nothing(world: World) -> None:
    """Where the system lets nobody make one, this one is an ordinary process."""
    entered = f"print({USER_NAMESPACE}, file=open(given['folder'] + '/entered', 'w'))"
    async with false_daemon(world, enter=entered) as said:
        ended = await world.go_ent("ps")
        if (world.socket.parent / "entered").read_text() == "0\n":
            assert ended.exit == 3 and "it is in another user namespace" in ended.err
            assert not any(said)


async def test_only_variables_that_are_keys_are_sent(world: World) -> None:
    world.env |= {
        "SSH_AUTH_SOCK": "/run/agent",
        "DATABASE_URL": "postgres://user:password@host",
        "MY_GLM": "a key by another name",
        "AWS_SECRET_ACCESS_KEY": "aws",
    }
    (world.project / ".goent" / "providers.yaml").write_text("# api_key_env: MY_GLM\n")
    keys = (
        "PATH HOME SSH_AUTH_SOCK DATABASE_URL MY_GL MY_GLM MOONSHOT_API_KEY AWS_SECRET_ACCESS_KEY"
    )
    async with false_daemon(world, keys=keys) as said:
        await world.go_ent("daemon", "status")
        with anyio.fail_after(10):
            while not said:  # noqa: ASYNC110 (lines come as they come)
                await anyio.sleep(0.02)
    sent = json.loads(said[0])["env"]
    assert sorted(sent) == ["AWS_SECRET_ACCESS_KEY", "MOONSHOT_API_KEY", "MY_GLM"]


def test_names_of_keys() -> None:
    keys = (
        "MOONSHOT_API_KEY",
        "OPENAI_APIKEY",
        "CLAUDE_KEY",
        "AWS_ACCESS_KEY_ID",
        "GITHUB_TOKEN",
        "TOKEN",
        "DB_PASSWORD",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "npm_config__auth",
    )
    others = (
        "PATH",
        "HOME",
        "SSH_AUTH_SOCK",
        "KEYBOARD",
        "MONKEY",
        "TOKENIZERS_PARALLELISM",
        "EDITOR",
    )
    assert all(map(is_key_name, keys)) and not any(map(is_key_name, others))
