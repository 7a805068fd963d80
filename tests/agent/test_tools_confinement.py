"""Commands can write in the session's directories and temporary folders, and nowhere else."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tool_bench import a_bench, names_in

from goent.domain.sandbox_port import SandboxStrictness
from goent.sandbox.confinement import LAUNCHER

pytestmark = pytest.mark.anyio

PYTHON = f"{sys.executable} -I -S -c"
LEVELS: tuple[SandboxStrictness, ...] = ("auto", "landlock")


@pytest.fixture
def inside() -> Iterator[Path]:
    """Its neighbour is outside. Not in a temporary folder: there a command sees nothing of ours."""
    with TemporaryDirectory(prefix="go-ent-test-", dir=Path.home()) as name:
        for each in ("inside", "outside", "extra"):
            Path(name, each).mkdir()
        Path(name, "outside", "kept").write_text("kept\n")
        yield Path(name, "inside")


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest) -> SandboxStrictness:
    return request.param


@pytest.mark.parametrize(
    "command",
    [
        "echo x > ../outside/new",
        "echo x >> ../outside/kept",
        ": > ../outside/kept",
        "truncate -s 0 ../outside/kept",
        "rm ../outside/kept",
        "mv ../outside/kept .",
        "mkdir ../outside/new",
        "ln -s x ../outside/new",
        "touch new && ln new ../outside/new",
        "mkfifo ../outside/new",
        "ln -s ../outside link && echo x > link/new",
        "ln -s ../outside/kept link && echo x > link",
        "(setsid bash -c 'bash -c \"echo x > ../outside/new\"')",
        f"""{PYTHON} 'open("../outside/new", "w")'""",
        f"""{PYTHON} 'import os; os.truncate("../outside/kept", 0)'""",
        f"""{PYTHON} 'import os; ("../outside/kept").rename("../outside/new")'""",
        "cd ../outside && echo x > new",
        "cp /dev/null /etc/goent-test-was-here",
        "mknod /dev/goent-test-was-here p",
    ],
)
async def test_a_write_outside_fails(inside: Path, level: SandboxStrictness, command: str):
    async with a_bench(inside, level=level) as bench:
        done = await bench.call("Bash", command=command)
    assert done.exit
    assert names_in(inside.parent / "outside") == ["kept"]
    assert (inside.parent / "outside" / "kept").read_text() == "kept\n"
    assert not Path("/etc/goent-test-was-here").exists()
    assert not Path("/dev/goent-test-was-here").exists()


async def test_a_refused_write_says_what_can_be_done(inside: Path, level: SandboxStrictness):
    async with a_bench(inside, level=level) as bench:
        told = await bench.said("Bash", command="echo x > ../outside/new")
    assert "Permission denied" in told or "Read-only file system" in told
    assert f"only below {inside}" in told
    assert "set unconfined" in told


async def test_writes_inside_temporary_and_where_it_is_granted_succeed(
    inside: Path, level: SandboxStrictness
):
    extra, file = inside.parent / "extra", inside.parent / "outside" / "kept"
    command = """
        set -e
        mkdir -p a/b && echo x > a/b/c && mv a/b/c . && ln c d && rm -r a && ln -s c e && mkfifo f
        mkdir p q && touch p/z && ln p/z q/z && mv p/z q/y && test ! -e p/z
        echo x > "$TMPDIR/t" && mv "$TMPDIR/t" . && echo x > ../extra/y && mv ../extra/y y
        echo x > "$(mktemp)"
        echo granted > ../outside/kept
        echo x > /dev/null; echo x > /dev/stderr; cat <(echo process) > g; echo h | tee >(cat > h)
    """
    granted = (extra, file, inside.parent / "nothing")
    async with a_bench(inside, level=level, writable=granted) as bench:
        done = await bench.call("Bash", command=command)
        assert done.exit == 0, done.text
    assert file.read_text() == "granted\n"
    assert {"c", "d", "e", "f", "g", "t", "y"} <= set(names_in(inside))


async def test_temporary_files_are_gone_with_the_session(inside: Path, level: SandboxStrictness):
    async with a_bench(inside, level=level) as bench:
        await bench.said("Bash", command='mkdir -p "$TMPDIR/a/b" && touch "$TMPDIR/a/b/c"')
        await bench.said("Bash", command='chmod 0 "$TMPDIR/a/b" "$TMPDIR/a"')
    assert not list(inside.parent.rglob("c"))


async def test_reading_and_running_are_not_confined(inside: Path, level: SandboxStrictness):
    async with a_bench(inside, level=level) as bench:
        assert await bench.said("Bash", command="cat ../outside/kept") == "kept"
        assert await bench.said("Bash", command="git --version | cut -c1-3") == "git"


async def test_what_the_agent_has_in_its_environment_is_not_to_be_seen(
    inside: Path, level: SandboxStrictness
):
    async with a_bench(inside, level=level) as bench:
        done = await bench.call("Bash", command="cat /proc/$PPID/environ")
    assert done.exit == 1
    assert "Permission denied" in done.text


async def test_unconfined_is_unconfined(inside: Path):
    async with a_bench(inside) as bench:
        done = await bench.call("Bash", command="echo x > ../outside/new", unconfined=True)
    assert done.exit == 0
    assert (inside.parent / "outside" / "new").exists()


async def test_background_commands_are_confined_too(inside: Path, level: SandboxStrictness):
    async with a_bench(inside, level=level) as bench:
        await bench.call("Bash", command="sleep 2; echo x > ../outside/new", background=True)
        assert (await bench.over("bg_1")).exit == 1
    assert not (inside.parent / "outside" / "new").exists()


async def test_without_a_sandbox_it_is_told_and_works(inside: Path):
    async with a_bench(inside, level="off") as bench:
        assert "are not confined" in bench.tools["Bash"].description
        first = await bench.said("Bash", command="echo x > ../outside/new; echo 1; echo 2 >&2; cat")
        second = await bench.said("Bash", command="echo again")
    assert first == "1\n2\n(not confined: no sandbox is available here)"
    assert second == "again"


async def test_what_commands_can_do_is_in_the_description(inside: Path):
    async with a_bench(inside) as bench:
        assert "can write only in the working directory" in bench.tools["Bash"].description


def test_who_cannot_be_confined_is_not_run(inside: Path):
    script = (
        "import sys; from goent.sandbox import launcher\n"
        "launcher._RESTRICT_SELF = -1\n"  # a call that no kernel has
        f"launcher.main(['--landlock', '--write', {str(inside)!r}, '--', '/bin/sh', '-c', 'touch ran'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=inside, capture_output=True, text=True, check=False
    )
    assert done.returncode == 126
    assert "was not started" in done.stderr
    assert names_in(inside) == []


def test_the_launcher_loads_little():
    """Every command pays for it: `typing` or `platform` alone would take as long as all the rest."""
    command = [sys.executable, "-I", "-S", "-X", "importtime", str(LAUNCHER)]
    said = subprocess.run([*command, "--", "/bin/true"], capture_output=True, text=True, check=True)
    loaded = {line.rpartition("|")[2].strip() for line in said.stderr.splitlines()}
    assert "ctypes" in loaded
    assert not loaded & {"typing", "platform", "re", "collections", "functools"}
