"""What a confined process prepares for the next one, or finds beside the rules: no way out of its folder.

At both levels, on the launcher itself. On the real OpenCode: `test_sandbox.py`.
"""

import os
import pty
import shlex
import socket
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest
from opencode import opencode_binary
from sandboxed import a_sandbox

from goent.agents.opencode_program import opencode_data_folders, opencode_settings_folders
from goent.domain.sandbox_port import SandboxSettings, SandboxStrictness
from goent.proc.child_process import run_command
from goent.sandbox.process_sandbox import ProcessSandbox, SandboxedAgent

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

LEVELS: tuple[SandboxStrictness, ...] = ("auto", "landlock")
GIT = "git -c user.name=w -c user.email=w@x"
PYTHON = f"{sys.executable} -I -S -c"


class Home(NamedTuple):
    """A user's, with a repository, a linked worktree of it, and another repository that is not its business."""

    folder: Path
    level: SandboxStrictness

    @property
    def project(self) -> Path:
        return self.folder / "project"

    @property
    def worktree(self) -> Path:
        return self.folder / "worktree"

    @property
    def other(self) -> Path:
        return self.folder / "other"

    def sandbox(self, settings: SandboxSettings | None = None) -> ProcessSandbox:
        return a_sandbox(self.folder, settings, level=self.level)

    @property
    def env(self) -> dict[str, str]:
        return {"HOME": str(self.folder), "PATH": os.environ["PATH"]}

    async def command(
        self, script: str, cwd: Path | None = None, settings: SandboxSettings | None = None
    ) -> str:
        """What a verify command says."""
        cwd = cwd or self.project
        words = ["sh", "-c", f"exec 2>&1\n{script}"]
        async with self.sandbox(settings).command(words, cwd=cwd, env=self.env) as start:
            done = await run_command(start.command, cwd=cwd, env=start.env, timeout=60)
        return done.output + done.errors

    async def agent(
        self,
        command: Sequence[str],
        cwd: Path | None = None,
        settings: SandboxSettings | None = None,
        *,
        more: dict[str, str] | None = None,
        port: int | None = None,
        foreign: bool = False,
    ) -> str:
        """What a long-lived process says."""
        cwd, sandbox = cwd or self.project, self.sandbox(settings)
        await sandbox.level()
        agent = SandboxedAgent(
            command=tuple(command),
            env={**self.env, **(more or {})},
            roots=sandbox.writable_folders(cwd),
            data_folders=opencode_data_folders(self.env),
            ports=(port,) if port else (),
            is_foreign=foreign,
        )
        async with sandbox.agent(agent) as start:
            done = await run_command(start.command, cwd=cwd, env=start.env, timeout=60)
        return done.output + done.errors

    async def agent_by_shell(
        self, script: str, cwd: Path | None = None, settings: SandboxSettings | None = None
    ) -> str:
        return await self.agent(["/bin/sh", "-c", f"exec 2>&1\n{script}"], cwd, settings)

    async def agents_command(
        self, script: str, cwd: Path | None = None, settings: SandboxSettings | None = None
    ) -> str:
        """What a command in such a process says, confined again by its shell."""
        cwd, sandbox = cwd or self.project, self.sandbox(settings)
        await sandbox.level()
        limits = sandbox.shell_variables(cwd, self.env)
        words = (str(sandbox.shell()), "-c", f"exec 2>&1\n{script}")
        return await self.agent(words, cwd, settings, more=limits)


@pytest.fixture(params=LEVELS)
def home(request: pytest.FixtureRequest) -> Generator[Home]:
    """Not in a temporary folder: there a command sees nothing of ours."""
    with TemporaryDirectory(prefix="go-ent-ways-", dir=Path.home()) as name:
        home = Home(Path(name).resolve(), request.param)
        (home.folder / ".bashrc").write_text("mine\n")
        for folder in (home.project, home.other):
            _sh(
                f"git init -q {folder.name} && {GIT} -C {folder.name} commit -qm x --allow-empty",
                home,
            )
        (home.project / "sub").mkdir()
        _sh("git -C project worktree add -q ../worktree", home)
        yield home


def _sh(script: str, home: Home) -> None:
    subprocess.run(["sh", "-c", script], cwd=home.folder, env=home.env, check=True)


@pytest.mark.parametrize("target", ["", "other", "other/.git", "project"])
@pytest.mark.parametrize("place", ["project", "worktree", "plain"])
async def test_a_git_file_that_names_a_folder_opens_nothing(
    home: Home, place: str, target: str
) -> None:
    """A worker can write any path into its `.git`; what runs next must not be let in there."""
    folder, named = home.folder / place, home.folder / target
    folder.mkdir(exist_ok=True)
    await home.command(f"mv .git was; rm -f .git; echo 'gitdir: {named}' > .git", folder)
    probe = f"echo pwned >> {home.folder}/.bashrc; touch {home.other}/.git/hooks/x {home.other}/.git/refs/heads/x {home.project}/.git/hooks/x"
    await home.command(probe, folder)
    await home.agents_command(probe, folder)
    _assert_untouched(home)


async def test_a_worktrees_record_that_names_another_repository_opens_nothing(home: Home) -> None:
    record = home.project / ".git" / "worktrees" / "worktree"
    await home.command(f"echo {home.other}/.git > {record}/commondir", home.worktree)
    probe = f"touch {home.other}/.git/refs/heads/x {home.other}/.git/objects/x"
    await home.command(probe, home.worktree)
    await home.agents_command(probe, home.worktree)
    _assert_untouched(home)


async def test_a_folder_that_became_a_link_is_no_workspace(home: Home) -> None:
    sub = home.project / "sub"
    await home.command(f"mv {sub} {sub}-was; ln -s {home.other} {sub}", sub)
    assert sub.is_symlink()
    said = await home.command("touch x .git/refs/heads/x", sub)
    assert "has become a link" in said
    _assert_untouched(home)


async def test_a_folder_of_the_settings_that_became_a_link_opens_nothing(home: Home) -> None:
    settings = SandboxSettings(level=home.level, writable=(home.project / "build",))
    make = "rmdir build; ln -s ../other build && echo linked"
    assert "linked" in await home.command(make, settings=settings)
    assert "written" not in await home.command("echo > build/x && echo written", settings=settings)
    assert not (home.other / "x").exists()


async def test_a_socket_that_a_worker_made_opens_no_others(home: Home) -> None:
    settings = SandboxSettings(level=home.level, writable=(home.project / "agent.sock",))
    make = f"""{PYTHON} 'import os, stat; os.mknod("agent.sock", stat.S_IFSOCK | 0o600)'"""
    await home.command(make, settings=settings)
    assert (home.project / "agent.sock").is_socket()
    reach = f"{PYTHON} 'import socket; socket.socket(socket.AF_UNIX); print(1 + 1)'"
    said = await home.command(reach, settings=settings)
    assert ("2" in said.split()) == (home.level == "auto"), said


async def test_links_of_the_users_own_on_the_way_home_do_not_matter(
    home: Home, tmp_path: Path
) -> None:
    link = tmp_path / "link"
    link.symlink_to(home.folder)
    linked = Home(link, home.level)
    for way in (linked.command, linked.agents_command):
        assert await way("touch y && pwd", linked.project) == f"{home.project}\n"


async def test_a_home_that_is_a_repository_is_no_workspace_of_what_lies_in_it(home: Home) -> None:
    _sh("git init -q .", home)
    plain = home.folder / "plain"
    plain.mkdir()
    said = await home.command(f"echo x > mine; echo pwned >> {home.folder}/.bashrc", plain)
    assert (plain / "mine").exists(), said
    _assert_untouched(home)


async def test_whoever_works_in_the_home_folder_does_not_change_go_ents_settings(
    home: Home,
) -> None:
    config, trust = home.folder / ".config/go-ent", home.folder / ".local/state/go-ent/trust"
    for folder in (config, trust):
        folder.mkdir(parents=True)
        (folder / "kept").write_text("mine\n")
    (home.folder / "notes").write_text("old\n")
    script = (
        f"for d in {config} {trust}; do echo x > $d/kept; echo x > $d/new; mv $d $d-was; done; "
        f"mv {home.folder}/.config {home.folder}/c; echo new > {home.folder}/notes"
    )
    for way in (home.command, home.agent_by_shell, home.agents_command):
        await way(script, home.folder)
        for folder in (config, trust):
            assert [(path.name, path.read_text()) for path in folder.iterdir()] == [
                ("kept", "mine\n")
            ]
    assert (home.folder / "notes").read_text() == "new\n"


async def test_go_ent_itself_is_closed_where_it_is_installed_in_a_project(home: Home) -> None:
    if home.level == "landlock":
        return  # it could only close the project's own folder with it: docs/sandbox.md says so
    settings = SandboxSettings(level=home.level, writable=(Path(sys.prefix).parent,))
    probe = Path(sys.prefix, f"{home.folder.name}.pth")
    for way in (home.command, home.agent_by_shell, home.agents_command):
        said = await way(f"touch {probe}", home.project, settings)
        assert not probe.exists() and "Read-only" in said


def _assert_untouched(home: Home) -> None:
    assert (home.folder / ".bashrc").read_text() == "mine\n"
    git = home.other / ".git"
    assert not [path for path in git.rglob("x") if path.is_file()]
    assert not (home.other / "x").exists()
    assert not (home.project / ".git" / "hooks" / "x").exists()


async def test_a_closed_folder_is_not_replaced_by_renaming_what_is_around_it(home: Home) -> None:
    workflows = home.project / ".github" / "workflows"
    workflows.mkdir(parents=True)
    (workflows / "ci.yml").write_text("mine\n")
    await home.command(
        "mv .git g; cp -r g .git; echo evil > .git/hooks/post-commit;"
        "mv .github h; mkdir -p .github/workflows; echo evil > .github/workflows/ci.yml"
    )
    if home.level == "auto":  # Landlock cannot close them: the result names what changed
        assert not (home.project / ".git" / "hooks" / "post-commit").exists()
        assert (workflows / "ci.yml").read_text() == "mine\n"


async def test_what_git_obeys_in_a_worktrees_record_is_closed(home: Home) -> None:
    record = home.project / ".git" / "worktrees" / "worktree"
    before = {path.name: path.read_text() for path in (record / "commondir", record / "gitdir")}
    await home.command(
        f"for f in {record}/commondir {record}/gitdir; do echo /x > $f; done", home.worktree
    )
    await home.command(f"for f in {record}/commondir {record}/gitdir; do echo /x > $f; done")
    if home.level == "auto":
        assert {name: (record / name).read_text() for name in before} == before


@pytest.mark.parametrize("read", ["all", "listed"])
@pytest.mark.parametrize("place", ["project", "worktree"])
async def test_commits_and_branches_work_in_every_checkout(
    home: Home, place: str, read: str
) -> None:
    settings = SandboxSettings(level=home.level, read="listed" if read == "listed" else "all")
    script = (
        f"{GIT} commit -q --allow-empty -m x && git checkout -q -b $B && git log -1 --format=%s $B"
    )
    for number, way in enumerate((home.command, home.agents_command)):
        said = await way(f"B=new{number}; {script}", home.folder / place, settings)
        assert said.strip() == "x", said


async def test_an_agents_own_process_writes_where_its_worker_works(home: Home) -> None:
    """Also without mounts, and for an agent that runs its commands by itself."""
    script = f"echo pwned >> {home.folder}/.bashrc; touch {home.other}/x; echo fine > {home.project}/fine"
    await home.agent_by_shell(script)
    assert (home.project / "fine").exists()
    _assert_untouched(home)


async def test_go_ents_own_files_are_hidden_from_agents_that_run_commands_by_themselves(
    home: Home,
) -> None:
    if home.level == "landlock":
        return  # it would hide what is new beside them as well: docs/sandbox.md says so
    config = home.folder / ".config" / "go-ent" / "config.yaml"
    journal = home.folder / ".local" / "state" / "go-ent" / "projects" / "test" / "journal.db"
    for path in (config, journal):
        path.parent.mkdir(parents=True)
        path.write_text("secret\n")
    said = await home.agent(["/bin/sh", "-c", f"cat {config} {journal}"], foreign=True)
    assert "secret" not in said


SECRETS = (
    *(".ssh/id_ed25519", ".aws/credentials", ".config/gh/hosts.yml", ".config/git/credentials"),
    *(".bashrc", ".zshenv", ".local/share/uv/credentials/credentials.toml", ".netrc", ".npmrc"),
    *(".cargo/credentials.toml", "other/.env"),
)


async def test_listed_reading_closes_what_holds_credentials(home: Home) -> None:
    settings = SandboxSettings(level=home.level, read="listed")
    for name in SECRETS:
        (home.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (home.folder / name).write_text("secret\n")
    (home.project / "mine").write_text("readable\n")
    names = shlex.join(["mine", *(str(home.folder / name) for name in SECRETS)])
    tool = home.folder / "tool.sh"  # who is started from a home is not let into all of it
    tool.write_text(f"#!/bin/sh\ncat {names} 2>&1\n")
    tool.chmod(0o755)
    agents = await home.agent([str(tool)], settings=settings)
    for said in (
        agents,
        await home.command(f"cat {names}", settings=settings),
        await home.agents_command(f"cat {names}", settings=settings),
    ):
        assert "readable" in said and "secret" not in said, said


async def test_what_is_hidden_stays_so_in_a_folder_that_the_settings_open(home: Home) -> None:
    config = home.folder / ".config"
    files = [config / "go-ent" / "config.yaml", config / "opencode" / "opencode.json"]
    for file in files:
        file.parent.mkdir(parents=True)
        file.write_text("secret")
    read = SandboxSettings(level=home.level, read="listed", readable=(config,))
    for settings in (read, SandboxSettings(level=home.level, writable=(config,))):
        said = await home.command(f"cat {' '.join(map(str, files))}", settings=settings)
        assert "secret" not in said


async def test_terminals_of_the_user_are_not_there(home: Home) -> None:
    if home.level == "landlock":
        return  # it cannot tell them from the command's own: docs/sandbox.md says so
    ours, theirs = pty.openpty()
    try:
        opened = "import os, sys; os.open(sys.argv[1], os.O_WRONLY | os.O_NOCTTY)"
        said = await home.command(f'{PYTHON} "{opened}" {os.ttyname(theirs)}')
        assert "No such file" in said
        assert "works" in await home.command(
            f"{PYTHON} 'import pty; pty.openpty(); print(\"works\")'"
        )
    finally:
        os.close(ours)
        os.close(theirs)


SENDERS = {
    "tcp": "socket.create_connection(to)",
    "udp": "socket.socket(2, 2).sendto(b'x', to)",
    "mptcp": "socket.socket(2, 1, 262).connect(to)",
    "fast open": "socket.socket(2, 1).sendto(b'x', 0x20000000, to)",
    "fast open by message": "socket.socket(2, 1).sendmsg([b'x'], [], 0x20000000, to)",
    "virtual machine": "socket.socket(40, 1)",
}


async def test_an_agent_without_a_network_reaches_the_gateway_alone(home: Home) -> None:
    settings = SandboxSettings(level=home.level, network="gateway")
    tries = "\n".join(
        f"try: {code}\nexcept OSError as error: print('refused')\nelse: print('{name} went out')"
        for name, code in SENDERS.items()
    )
    with (
        closing(socket.create_server(("127.0.0.1", 0))) as gate,
        closing(socket.create_server(("127.0.0.1", 0))) as elsewhere,
    ):
        port = gate.getsockname()[1]
        program = (
            f"import socket\nsocket.create_connection(('127.0.0.1', {port}))\nprint('reached')\n"
            f"to = {elsewhere.getsockname()!r}\n{tries}"
        )
        said = await home.agent(
            [sys.executable, "-I", "-S", "-c", program], settings=settings, port=port
        )
    assert said.split() == ["reached", *["refused"] * len(SENDERS)]


async def test_a_pair_of_datagram_sockets_reaches_nobody(home: Home) -> None:
    """Where Unix sockets are refused: unlike other pairs, such a one can be connected anew."""
    if home.level == "auto":
        return  # sockets of others are out of sight there
    program = "import socket; socket.socketpair(); print('pair'); socket.socketpair(1, 2)"
    said = await home.command(f'{PYTHON} "{program}"')
    assert "pair" in said and "Permission denied" in said


async def test_what_every_opencode_obeys_is_read_only_for_a_workers(home: Home) -> None:
    """Its settings, and its plugins above all: the user's own OpenCode runs them, in no sandbox."""
    (folder,) = opencode_settings_folders(home.env)
    plugins = folder / "plugin"
    plugins.mkdir()
    script = f"touch {plugins}/x.js {folder}/opencode.json; {opencode_binary()} models 2>&1"
    said = await home.agent_by_shell(script)
    assert "opencode/" in said, said
    assert sorted(path.name for path in folder.rglob("*")) == [".gitignore", "plugin"]
