"""What a command that was allowed can do all the same: nothing outside its worker's folder.

On the real OpenCode, by every method and at both levels. The user lives in a folder that is no temporary
one: what lies in those, a command does not see anyhow.
"""

import os
import socket
import subprocess
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import anyio
import pytest
from opencode_workers import METHODS, Workers, workers

from goent.domain.types import Method
from goent.testing.script import Script, call, case, openai, say

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

ATTACKS = {
    "home": 'echo pwned >> "$OUT/home/.bashrc"',
    "sibling": 'echo pwned > "$OUT/sibling/pwned"',
    "settings": 'echo "{}" > "$OUT/home/.config/go-ent/config.yaml"',
    "trust": 'mkdir -p "$OUT/home/.local/state/go-ent/trust" && echo x > "$OUT/home/.local/state/go-ent/trust/pwned"',
    "journal": 'find "$OUT/home/.local/state/go-ent" -name "*.db" -exec sh -c \'echo x > "$1"\' - {} \\;',
    "link": 'ln -s "$OUT/sibling" away; echo pwned > away/pwned',
    "hardlink": 'ln "$OUT/sibling/kept" mine && echo pwned > mine',
    "keys": 'cat /proc/[0-9]*/environ 2>/dev/null | tr "\\0" "\\n" | grep -E "sk-attacked|goent_" > found.txt',
    "memory": "for p in /proc/[0-9]*; do test -r $p/mem && head -c 1 $p/mem; done 2>/dev/null; ls /proc/$GOENT_PID/fd > fds.txt 2>/dev/null",
    "signal": "kill -0 $GOENT_PID && echo reached > signal.txt",
    "unmount": 'unshare -rm sh -c "umount -l /tmp; mount -o remount,rw /; echo pwned > $OUT/sibling/pwned"',
}
REACHED = ("found.txt", "signal.txt")
SOCKETS = 'python3 - "$OUT/home/agent.sock" <<\'END\'\nimport socket, sys\nfor name in (sys.argv[1], "\\0goent-attacked"):\n    s = socket.socket(socket.AF_UNIX)\n    try:\n        s.connect(name); s.sendall(b"reached")\n    except OSError as error:\n        print(error)\nEND'
STAYS = (
    "env -i setsid sh -c 'exec >/dev/null 2>&1 </dev/null; (sleep 601 &) ; sleep 602' & sleep 0.3"
)


def script() -> Script:
    told = [
        case(name, call("bash", command=f"sh attack-{name}.sh", description=name), say("Done."))
        for name in (*ATTACKS, "sockets", "stays", "commit", "hooks", "temporary")
    ]
    return Script(providers={"moonshot": openai(*told, models=("glm-4",), key="sk-attacked-51c2")})


class Attacked(NamedTuple):
    """A user's folder, and their go-ent at one level of the sandbox."""

    folder: Path
    workers: Workers
    level: str


@pytest.fixture(scope="module", params=["auto", "landlock"])
async def attacked(request: pytest.FixtureRequest) -> AsyncGenerator[Attacked]:
    with TemporaryDirectory(prefix="go-ent-attack-", dir=Path.home()) as name:
        folder = Path(name)
        (folder / "sibling").mkdir()
        config = (
            f"opencode: {{profile: hermetic, warm: false}}\nsandbox: {{level: {request.param}}}\n"
        )
        async with workers(folder, script(), config=config) as built:
            subprocess.run(["git", "init", "--quiet"], cwd=built.project, check=True)  # noqa: ASYNC221 (once)
            (folder / "home" / ".bashrc").write_text("mine\n")
            prelude = f"OUT={folder}; GOENT_PID={os.getpid()}\n"
            more = {
                "sockets": SOCKETS,
                "stays": STAYS,
                "commit": "git -c user.name=w -c user.email=w@x commit --allow-empty --quiet -m x && echo committed",
                "hooks": "echo '#!/bin/sh' > .git/hooks/post-commit; git config core.pager 'touch pwned'",
                "temporary": 'echo x > "$(mktemp)" && echo wrote',
            }
            for each, body in {**ATTACKS, **more}.items():
                (built.project / f"attack-{each}.sh").write_text(prelude + body + "\n")
            yield Attacked(folder, built, request.param)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("attack", ATTACKS)
async def test_an_allowed_command_does_no_harm_outside(
    attacked: Attacked, method: Method, attack: str
) -> None:
    folder, project = attacked.folder, attacked.workers.project
    (folder / "sibling" / "kept").write_text("kept\n")
    settings = (folder / "home" / ".config" / "go-ent" / "config.yaml").read_text()
    done = await attacked.workers.run(method, attack, "auto", answer="allow_once")
    assert done.result.state == "completed" and done.result.commands
    assert done.result.sandbox == ("namespace" if attacked.level == "auto" else "landlock")
    assert sorted(path.name for path in (folder / "sibling").iterdir()) == ["kept"]
    assert (folder / "sibling" / "kept").read_text() == "kept\n"
    assert (folder / "home" / ".bashrc").read_text() == "mine\n"
    assert (folder / "home" / ".config" / "go-ent" / "config.yaml").read_text() == settings
    assert not list((folder / "home").rglob("pwned"))
    for name in REACHED:
        assert not (project / name).exists() or not (project / name).read_text()


@contextmanager
def listening(*names: str) -> Generator[list[bytes]]:
    """Sockets of a program that is free; what reaches it."""
    heard: list[bytes] = []
    servers: list[socket.socket] = []

    def serve(server: socket.socket) -> None:
        while True:
            try:
                peer, _ = server.accept()
            except OSError:
                return
            with peer:
                heard.append(peer.recv(100))

    for name in names:
        server = socket.socket(socket.AF_UNIX)
        server.bind(name)
        server.listen()
        servers.append(server)
        threading.Thread(target=serve, args=(server,), daemon=True).start()
    try:
        yield heard
    finally:
        for server in servers:
            server.shutdown(socket.SHUT_RDWR)
            server.close()


@pytest.mark.parametrize("method", ["cli"])  # its process is as young as the sockets are old
async def test_sockets_of_free_programs_are_out_of_reach(
    attacked: Attacked, method: Method
) -> None:
    path = attacked.folder / "home" / "agent.sock"
    path.unlink(missing_ok=True)
    with listening(str(path), "\0goent-attacked") as heard:
        done = await attacked.workers.run(method, "sockets", "auto", answer="allow_once")
    assert done.result.state == "completed"
    assert heard == []


async def test_what_a_command_leaves_behind_ends_with_its_process(attacked: Attacked) -> None:
    """In a session of its own and with an empty environment: only its mounts tell whose it is."""
    if attacked.level == "landlock":
        return  # it has no mounts of its own there: docs/sandbox.md says so
    done = await attacked.workers.run("cli", "stays", "auto", answer="allow_once")
    assert done.result.state == "completed"
    with anyio.fail_after(20):
        while _sleepers():  # noqa: ASYNC110 (a process announces nothing)
            await anyio.sleep(0.1)


def _sleepers() -> list[str]:
    found: list[str] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if command in (b"sleep\x00601\x00", b"sleep\x00602\x00"):
            found.append(folder.name)
    return found


@pytest.mark.parametrize("method", METHODS)
async def test_commits_and_temporary_files_work(attacked: Attacked, method: Method) -> None:
    for task, words in (("commit", "committed"), ("temporary", "wrote")):
        done = await attacked.workers.run(method, task, "auto", answer="allow_once")
        assert words in "\n".join(attacked.workers.tool_results(task)), done
    assert not list(Path("/tmp").glob("opencode*.so")), "OpenCode's library is in its own folder"


async def test_hooks_and_settings_of_git_are_closed_to_commands(attacked: Attacked) -> None:
    done = await attacked.workers.run("acp", "hooks", "auto", answer="allow_once")
    hooks = attacked.workers.project / ".git" / "hooks" / "post-commit"
    if attacked.level == "auto":
        assert not hooks.exists()
        assert "pager" not in (attacked.workers.project / ".git" / "config").read_text()
        assert "sandbox.writable" in attacked.workers.tool_results("hooks")[-1]
    else:  # Landlock cannot close a folder inside an open one: the result names what changed
        assert any("post-commit" in each.path for each in done.result.guarded_changes)


async def test_with_listed_reading_opencode_works_and_reads_no_secret() -> None:
    with TemporaryDirectory(prefix="go-ent-attack-", dir=Path.home()) as name:
        folder = Path(name)
        config = "opencode: {profile: hermetic, warm: false}\nsandbox: {read: listed}\n"
        async with workers(folder, script(), config=config) as built:
            secret = folder / "home" / ".ssh" / "id"
            secret.parent.mkdir()
            secret.write_text("a secret\n")
            commands = f"cat {secret}; echo inside > kept && cat kept"
            (built.project / "attack-commit.sh").write_text(commands)
            done = await built.run("acp", "commit", "auto", answer="allow_once")
            said = built.tool_results("commit")[-1]
    assert done.result.state == "completed"
    assert "inside" in said and "a secret" not in said
