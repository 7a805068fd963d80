"""Commands can write in the session's directories and temporary folders, and nowhere else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tool_bench import a_bench, names_in

from goent.agent.tools import confine, shells

pytestmark = pytest.mark.anyio

PYTHON = f"{sys.executable} -I -S -c"


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Its neighbour is outside, although the tests' own folders are temporary ones."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(shells, "TEMPORARY", (str(tmp_path / "temporary"),))
    monkeypatch.delenv("TMPDIR", raising=False)
    for name in ("inside", "outside", "extra"):
        (tmp_path / name).mkdir()
    (tmp_path / "outside" / "kept").write_text("kept\n")
    return tmp_path / "inside"


def test_the_kernel_has_landlock():
    assert confine.abi() > 0


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
async def test_a_write_outside_fails(inside: Path, command: str):
    async with a_bench(inside) as bench:
        done = await bench.call("Bash", command=command)
    assert done.exit
    assert names_in(inside.parent / "outside") == ["kept"]
    assert (inside.parent / "outside" / "kept").read_text() == "kept\n"
    assert not Path("/etc/goent-test-was-here").exists()
    assert not Path("/dev/goent-test-was-here").exists()


async def test_a_refused_write_says_what_can_be_done(inside: Path):
    async with a_bench(inside) as bench:
        told = await bench.said("Bash", command="echo x > ../outside/new")
    assert "Permission denied" in told
    assert f"only below {inside}" in told
    assert "set unconfined" in told


async def test_writes_inside_temporary_and_where_it_is_granted_succeed(inside: Path):
    extra, file = inside.parent / "extra", inside.parent / "outside" / "kept"
    command = """
        set -e
        mkdir -p a/b && echo x > a/b/c && mv a/b/c . && ln c d && rm -r a && ln -s c e && mkfifo f
        mkdir p q && touch p/z && ln p/z q/z && mv p/z q/y && test ! -e p/z
        echo x > "$TEMPORARY/t" && mv "$TEMPORARY/t" . && echo x > ../extra/y && mv ../extra/y y
        echo granted > ../outside/kept
        echo x > /dev/null; echo x > /dev/stderr; cat <(echo process) > g; echo h | tee >(cat > h)
    """
    async with a_bench(
        inside,
        environ={"TEMPORARY": str(inside.parent / "temporary")},
        writable=(extra, file, inside.parent / "nothing"),
    ) as bench:
        done = await bench.call("Bash", command=command)
        assert done.exit == 0, done.text
    assert file.read_text() == "granted\n"
    assert {"c", "d", "e", "f", "g", "t", "y"} <= set(names_in(inside))


async def test_the_folder_for_temporary_files_may_be_elsewhere(inside: Path):
    there = inside.parent / "extra"
    async with a_bench(inside, environ={"TMPDIR": str(there)}) as bench:
        done = await bench.call("Bash", command='echo x > "$(mktemp)" && echo fine')
    assert done.text == "fine"
    assert len(names_in(there)) == 1


async def test_reading_and_running_are_not_confined(inside: Path):
    async with a_bench(inside) as bench:
        assert await bench.said("Bash", command="cat ../outside/kept") == "kept"
        assert await bench.said("Bash", command="git --version | cut -c1-3") == "git"


async def test_what_the_agent_has_in_its_environment_is_not_to_be_seen(inside: Path):
    async with a_bench(inside) as bench:
        done = await bench.call("Bash", command="cat /proc/$PPID/environ")
    assert done.exit == 1
    assert "Permission denied" in done.text


async def test_unconfined_is_unconfined(inside: Path):
    async with a_bench(inside) as bench:
        done = await bench.call("Bash", command="echo x > ../outside/new", unconfined=True)
    assert done.exit == 0
    assert (inside.parent / "outside" / "new").exists()


async def test_background_commands_are_confined_too(inside: Path):
    async with a_bench(inside) as bench:
        await bench.call("Bash", command="sleep 2; echo x > ../outside/new", background=True)
        assert (await bench.over("bg_1")).exit == 1
    assert not (inside.parent / "outside" / "new").exists()


async def test_a_system_without_landlock_is_told_and_works(
    inside: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(confine, "abi", lambda: 0)
    async with a_bench(inside) as bench:
        assert "cannot confine" in bench.tools["Bash"].description
        first = await bench.said("Bash", command="echo x > ../outside/new; echo 1; echo 2 >&2; cat")
        second = await bench.said("Bash", command="echo again")
    assert first == "1\n2\n(not confined: this system has no Landlock)"
    assert second == "again"


async def test_what_commands_can_do_is_in_the_description(inside: Path):
    async with a_bench(inside) as bench:
        assert "can write only in the working directory" in bench.tools["Bash"].description


def test_who_cannot_be_confined_is_not_run(inside: Path):
    script = (
        "import sys; from goent.agent.tools import confine\n"
        "confine._RESTRICT = -1\n"  # a call that no kernel has
        "confine.main(['/bin/sh', '-c', 'touch ran'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=inside,
        env={**os.environ, confine.WRITE: os.fsencode(inside).hex()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "was not run" in done.stderr
    assert names_in(inside) == []
