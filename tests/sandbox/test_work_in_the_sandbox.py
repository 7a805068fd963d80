"""What a legitimate user does in the sandbox: it works, or a line says which setting allows it."""

import os
import re
import socket
import subprocess
from collections.abc import Generator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest
from sandboxed import a_sandbox, in_an_agent

from goent.config.settings_loader import load_settings
from goent.domain.sandbox_port import SandboxSettings, SandboxStrictness
from goent.domain.types import Check
from goent.proc.child_process import ShellVerifier
from goent.sandbox.process_sandbox import ProcessSandbox

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

PYTHON = "python3 -c"
LISTEN = (
    f"{PYTHON} \"import socket; s = socket.create_server(('127.0.0.1', 0)); "
    'socket.create_connection(s.getsockname()); print(1)"'
)


class User(NamedTuple):
    """Somebody whose home is in no temporary folder."""

    home: Path
    project: Path
    level: SandboxStrictness

    def sandbox(self, config: str = "") -> ProcessSandbox:
        """As their settings file has it."""
        file = self.home / ".config" / "go-ent" / "config.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(config)
        settings = load_settings(self.project, {"HOME": str(self.home)}).sandbox
        confined = SandboxSettings(
            level=self.level,
            writable=settings.writable,
            read=settings.read,
            readable=settings.readable,
            network=settings.network,
        )
        return a_sandbox(self.home, confined)

    async def verify(self, command: str, config: str = "", **more: str) -> Check:
        env = {"HOME": str(self.home), "PATH": os.environ["PATH"], **more}
        verifier = ShellVerifier(lambda: env, self.sandbox(config))
        return (await verifier.verify([command], self.project))[0]


@pytest.fixture(params=["auto", "landlock"])
def user(request: pytest.FixtureRequest) -> Generator[User]:
    with TemporaryDirectory(prefix="go-ent-user-", dir=Path.home()) as name:
        home, project = Path(name, "home"), Path(name, "project")
        for path in (home / ".cache", home / ".ssh", project / "a", project / "b"):
            path.mkdir(parents=True)
        (home / ".ssh" / "id").write_text("secret\n")
        subprocess.run(["git", "init", "--quiet", "-b", "main"], cwd=project, check=True)
        yield User(home, project, request.param)


async def test_files_move_between_folders(user: User) -> None:
    move = f"echo 1 > a/x; {PYTHON} \"import os; os.rename('a/x', 'b/x')\""
    done = await in_an_agent(user.sandbox(), user.project, move)
    assert (done.exit, done.errors) == (0, "")
    assert (user.project / "b" / "x").exists()


async def test_branches_commits_and_stashes_work(user: User) -> None:
    said = "git -c user.name=u -c user.email=u@x"
    steps = (
        f"{said} commit -q --allow-empty -m one && git checkout -q -b two && echo 1 > a/f && git add a",
        f"{said} stash -q && {said} stash pop -q && {said} commit -q -m two",
        "git checkout -q main && git merge -q --ff-only two && git tag t && git log --format=%s",
    )
    done = await in_an_agent(user.sandbox(), user.project, " && ".join(steps))
    assert (done.exit, done.output) == (0, "two\none\n"), done.errors


async def test_listed_reading_leaves_the_project_and_the_tools(user: User) -> None:
    sandbox = user.sandbox("sandbox: {read: listed}\n")
    for command in ("git status && make --version", f"{PYTHON} 'print(1)'", "echo x > a/x"):
        done = await in_an_agent(sandbox, user.project, command)
        assert done.exit == 0, (command, done)
    done = await in_an_agent(sandbox, user.project, "cat ~/.ssh/id; ls ~/.ssh")
    assert "secret" not in done.output and "id" not in done.output.split()


async def test_a_program_that_listens_can_be_reached(user: User) -> None:
    done = await in_an_agent(user.sandbox(), user.project, LISTEN)
    assert done.output == "1\n", done
    alone = await user.verify(LISTEN, "sandbox: {network: off}\n")
    if user.level == "landlock":  # without a network of its own it gets no sockets
        assert alone.exit and "`sandbox: {network: all}`" in alone.tail
    else:
        assert alone.exit == 0, alone


# What somebody's verify command does, and the setting that it is told about.
REFUSED = {
    "mkdir -p ~/.cache/tool && echo 1 > ~/.cache/tool/f": "~/.cache/tool",
    "npm cache verify": "~/.npm",
    f"{PYTHON} \"import os, pathlib; os.makedirs(pathlib.Path.home() / '.tool/deep')\"": "~/.tool",
    'mkdir "$HOME/.cache/two words" && echo 1': '"~/.cache/two words"',
}


@pytest.mark.parametrize("command", REFUSED)
async def test_a_refused_command_is_told_the_setting_that_allows_it(
    user: User, command: str
) -> None:
    refused = await user.verify(command)
    assert refused.exit and refused.tail.count("go-ent's sandbox") == 1, refused
    setting = re.search(r"`(sandbox: \{.*\})` in ~/.config/go-ent/config.yaml\)$", refused.tail)
    assert setting and setting[1] == f"sandbox: {{writable: [{REFUSED[command]}]}}", refused
    allowed = await user.verify(command.replace("mkdir ", "mkdir -p "), setting[1])
    assert allowed.exit == 0, allowed


async def test_the_other_entries_stay_where_one_is_added(user: User) -> None:
    refused = await user.verify("mkdir ~/.tool", "sandbox: {writable: [~/.npm]}\n")
    assert "add ~/.tool to `sandbox.writable` in" in refused.tail


async def test_shared_memory_is_there_or_its_setting_is_named(user: User) -> None:
    lock = f'{PYTHON} "import multiprocessing; multiprocessing.Lock()"'
    first = await user.verify(lock)
    if user.level == "landlock":
        assert "`sandbox: {writable: [/dev/shm]}`" in first.tail
        first = await user.verify(lock, "sandbox: {writable: [/dev/shm]}\n")
    assert first.exit == 0, first


async def test_a_socket_that_is_opened_is_named_and_reached(user: User) -> None:
    path = user.home / "agent.sock"
    asks = (
        f'{PYTHON} "import os, socket; socket.socket(socket.AF_UNIX).connect'
        "(os.environ['SSH_AUTH_SOCK'])\""
    )
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        refused = await user.verify(asks, SSH_AUTH_SOCK=str(path))
        assert refused.exit, refused
        config = "sandbox: {writable: [~/agent.sock]}\n"
        allowed = await user.verify(asks, config, SSH_AUTH_SOCK=str(path))
    assert allowed.exit == 0, allowed


async def test_an_entry_that_names_no_folder_is_not_made_one(user: User) -> None:
    config = "sandbox: {writable: [~/agent.sock, ~/.cache/new/deep]}\n"
    assert (await user.verify("touch ~/.cache/new/deep/f", config)).exit == 0
    assert not (user.home / "agent.sock").exists()


async def test_what_is_opened_below_the_home_is_opened_in_a_private_one(user: User) -> None:
    private = user.home / ".local" / "state" / "go-ent" / "private-home"
    private.mkdir(parents=True)
    env = {"HOME": str(private), "PATH": os.environ["PATH"]}
    sandbox = user.sandbox("sandbox: {writable: [~/.npm]}\n")
    done = await in_an_agent(sandbox, user.project, "touch ~/.npm/f && touch ~/f", env=env)
    assert done.exit != 0 and not (private / "f").exists()
    assert (private / ".npm" / "f").exists()
