"""Short commands: what they said, how they ended, and nothing left running."""

import os
import resource
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import anyio
import pytest
from sandboxed import a_sandbox

from goent.domain.errors import WorkerCrashed
from goent.domain.types import Check
from goent.proc.child_process import CompletedCommand, ShellVerifier, run_command
from goent.proc.process_table import marked_processes, new_owner, start_time

pytestmark = pytest.mark.anyio


async def shell(
    script: str, cwd: Path, *, limit: float = 10, stdin: bytes = b""
) -> CompletedCommand:
    return await run_command(
        ["sh", "-c", script], cwd=cwd, env=dict(os.environ), timeout=limit, stdin=stdin
    )


async def test_output_errors_and_exit_code_come_apart(tmp_path: Path) -> None:
    done = await shell("cat; echo oops >&2; exit 3", tmp_path, stdin=b"in\n")
    assert done == CompletedCommand(exit=3, output="in\n", errors="oops")


async def test_a_command_that_takes_too_long_has_no_exit_code_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    done = await shell("echo begun; setsid sleep 300 & sleep 300", tmp_path, limit=2)
    assert done.exit is None
    assert done.output == "begun\n"
    assert list(marked_processes(new_owner("command"))) == []


async def test_a_background_child_that_holds_the_pipe_does_not_hold_us(tmp_path: Path) -> None:
    with anyio.fail_after(30):
        done = await shell("sleep 300 & echo done", tmp_path, limit=60)
    assert (done.exit, done.output) == (0, "done\n")
    assert list(marked_processes(new_owner("command"))) == []


@contextmanager
def descriptors_left(count: int) -> Generator[None]:
    """So many more can be opened, and no other."""
    usual = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (len(list(Path("/proc/self/fd").iterdir())) + 64, usual[1])
    )
    taken: list[int] = []
    try:
        with suppress(OSError):
            while True:
                taken.append(os.dup(0))
        for _ in range(count):
            os.close(taken.pop())
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, usual)


@pytest.mark.parametrize("count", range(12))
async def test_for_want_of_descriptors_a_command_fails_as_one_that_cannot_be_started(
    tmp_path: Path, count: int
) -> None:
    outcomes: list[str] = []
    with descriptors_left(count):
        try:
            outcomes.append((await shell("setsid sleep 300 & echo fine", tmp_path)).output)
        except WorkerCrashed as error:
            outcomes.append(str(error))
    assert outcomes == ["fine\n"] or "Too many open files" in outcomes[0]
    assert list(marked_processes(new_owner("command"))) == []


async def test_of_endless_output_the_end_is_kept(tmp_path: Path) -> None:
    done = await run_command(
        ["sh", "-c", "yes x | head -c 2000000; echo end"],
        cwd=tmp_path,
        env=dict(os.environ),
        timeout=10,
        max_output=100,
    )
    assert len(done.output) == 100
    assert done.output.endswith("x\nend\n")


async def test_every_verify_command_runs_and_says_how_it_ended(tmp_path: Path) -> None:
    verifier = ShellVerifier(
        lambda: dict(os.environ), a_sandbox(tmp_path / "home"), time_limit=lambda: 2
    )
    checks = await verifier.verify(["echo fine", "echo bad >&2; false", "sleep 60"], tmp_path)
    assert checks[:2] == (
        Check(command="echo fine", exit=0, tail="fine"),
        Check(command="echo bad >&2; false", exit=1, tail="bad"),
    )
    assert checks[2].exit is None
    assert "2 s" in checks[2].tail


async def test_a_verify_command_that_daemonises_ends_with_its_answer(tmp_path: Path) -> None:
    """In a session of its own, without a parent, and deaf to a polite end."""
    verifier = ShellVerifier(lambda: dict(os.environ), a_sandbox(tmp_path / "home"))
    daemon = "trap '' TERM HUP; echo $$ > pid; exec > /dev/null 2>&1; while :; do sleep 1; done"
    command = (
        f'(setsid sh -c "{daemon.replace("$", chr(92) + "$")}" &); until [ -s pid ]; do :; done'
    )
    with anyio.fail_after(30):
        (check,) = await verifier.verify([command], tmp_path)
    assert check.exit == 0
    assert start_time(int((tmp_path / "pid").read_text())) is None
    assert list(marked_processes(new_owner("command"))) == []


async def test_a_verify_command_that_hangs_ends_with_all_that_it_started(tmp_path: Path) -> None:
    verifier = ShellVerifier(
        lambda: dict(os.environ), a_sandbox(tmp_path / "home"), time_limit=lambda: 0.5
    )
    (check,) = await verifier.verify(["echo begun; setsid sleep 300 & exec sleep 300"], tmp_path)
    assert (check.exit, check.tail) == (None, "begun\n\nstill running after 0.5 s: ended")
    assert list(marked_processes(new_owner("command"))) == []


async def test_verify_commands_see_the_environment_they_are_given(tmp_path: Path) -> None:
    verifier = ShellVerifier(
        lambda: {"PATH": os.environ["PATH"], "COLOUR": "green"}, a_sandbox(tmp_path / "home")
    )
    (check,) = await verifier.verify(['echo "$COLOUR ${HOME-none}"'], tmp_path)
    assert check.tail == "green none"
