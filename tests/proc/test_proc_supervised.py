"""Nothing that we start outlives us, however we end."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from goent.domain.errors import WorkerCrashed
from goent.proc.child_process import supervised
from goent.proc.process_table import (
    marked_environment,
    marked_processes,
    new_mark,
    new_owner,
    sweep_dead_owners,
)
from goent.system.process_protection import MARK_VARIABLE

pytestmark = pytest.mark.anyio
ENV = dict(os.environ)

# A tree as a worker makes it: a child in a session of its own, and one forked off twice.
TREE = "setsid sleep 300 & (setsid sh -c 'sleep 300' &) ; echo ready; exec sleep 300"
STUBBORN = "trap '' TERM; setsid sh -c \"trap '' TERM; while :; do sleep 0.2; done\" & echo ready; while :; do sleep 0.2; done"


@pytest.fixture
def mark() -> str:
    return new_mark(new_owner("tests"))


def living(mark: str) -> int:
    return len(list(marked_processes(mark)))


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(20):
        while not condition():  # noqa: ASYNC110 (processes announce nothing)
            await anyio.sleep(0.01)


@pytest.mark.spec("P02", "E14")
async def test_leaving_the_context_ends_grandchildren_in_sessions_of_their_own(
    tmp_path: Path, mark: str
) -> None:
    async with supervised(["sh", "-c", TREE], cwd=tmp_path, env=ENV, mark=mark, grace=0.3) as it:
        assert await it.stdout.receive() == b"ready\n"
        await until(lambda: living(mark) >= 3)
    assert living(mark) == 0
    assert it.returncode == -signal.SIGTERM


async def test_grandchildren_of_a_killed_child_are_ended_too(tmp_path: Path, mark: str) -> None:
    async with supervised(["sh", "-c", TREE], cwd=tmp_path, env=ENV, mark=mark, grace=0.3) as it:
        await it.stdout.receive()
        await until(lambda: living(mark) >= 3)
        os.kill(it.pid, signal.SIGKILL)
        assert await it.wait() == -signal.SIGKILL
        assert living(mark) >= 2
    assert living(mark) == 0


async def test_cancellation_ends_the_tree_before_it_goes_on(tmp_path: Path, mark: str) -> None:
    with anyio.CancelScope() as scope:
        async with supervised(
            ["sh", "-c", TREE], cwd=tmp_path, env=ENV, mark=mark, grace=0.3
        ) as it:
            await it.stdout.receive()
            scope.cancel()
            await anyio.sleep_forever()
    assert living(mark) == 0


async def test_a_process_that_ignores_sigterm_is_killed_in_bounded_time(
    tmp_path: Path, mark: str
) -> None:
    with anyio.fail_after(20):
        async with supervised(
            ["sh", "-c", STUBBORN], cwd=tmp_path, env=ENV, mark=mark, grace=0.3
        ) as it:
            await it.stdout.receive()
    assert it.returncode == -signal.SIGKILL
    assert living(mark) == 0


async def test_a_process_that_starts_another_when_told_to_end_gets_nowhere(
    tmp_path: Path, mark: str
) -> None:
    script = "trap 'setsid sleep 300 &' TERM; echo ready; while :; do sleep 0.1; done"
    async with supervised(["sh", "-c", script], cwd=tmp_path, env=ENV, mark=mark, grace=0.3) as it:
        await it.stdout.receive()
    assert living(mark) == 0


async def test_the_end_of_input_is_asked_for_before_any_signal(tmp_path: Path, mark: str) -> None:
    async with supervised(["cat"], cwd=tmp_path, env=ENV, mark=mark, grace=0.3) as it:
        await it.stdin.send(b"hello")
        assert await it.stdout.receive() == b"hello"
    assert it.returncode == 0


async def test_a_chatty_stderr_never_blocks_and_its_tail_is_kept(tmp_path: Path, mark: str) -> None:
    script = "import sys; sys.stderr.write('x' * 3_000_000 + 'the end'); sys.stdout.write('done')"
    async with supervised(
        [sys.executable, "-c", script], cwd=tmp_path, env=ENV, mark=mark, grace=0.3
    ) as it:
        with anyio.fail_after(20):
            assert await it.stdout.receive() == b"done"
            assert await it.wait() == 0
        await until(lambda: it.stderr.endswith("the end"))
    assert len(it.stderr) <= 16 * 1024


async def test_output_that_nobody_read_leaves_no_pipe_open(tmp_path: Path, mark: str) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    command = ["sh", "-c", "head -c 1000000 /dev/zero; exec sleep 60"]
    async with supervised(command, cwd=tmp_path, env=ENV, mark=mark, grace=0.1) as child:
        assert await child.stdout.receive(1)
        await child.stdout.aclose()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


async def test_a_command_that_cannot_start_says_which_and_where(tmp_path: Path, mark: str) -> None:
    with pytest.raises(WorkerCrashed, match=r"'/no/such/program' in .*No such file"):
        async with supervised(["/no/such/program"], cwd=tmp_path, env={}, mark=mark):
            pass


async def test_an_error_in_the_body_arrives_as_it_is(tmp_path: Path, mark: str) -> None:
    with pytest.raises(ZeroDivisionError):
        async with supervised(["cat"], cwd=tmp_path, env=ENV, mark=mark, grace=0.3):
            _ = 1 / 0
    assert living(mark) == 0


OWNER = """
import anyio, os, sys
from pathlib import Path
from goent.proc.process_table import new_mark, new_owner
from goent.proc.child_process import supervised
async def main():
    owner = new_owner(sys.argv[1])
    async with supervised(["sh", "-c", sys.argv[2]], cwd=Path("."), env=dict(os.environ), mark=new_mark(owner)) as it:
        await it.stdout.receive()
        print(owner, flush=True)
        await anyio.sleep_forever()
anyio.run(main)
"""


@pytest.mark.spec("P02")
async def test_what_a_killed_go_ent_left_behind_is_swept_by_the_next(
    tmp_path: Path, mark: str
) -> None:
    key = f"sweep-{os.getpid()}"
    command = [sys.executable, "-c", OWNER, key, TREE]
    async with supervised(command, cwd=tmp_path, env=ENV, mark=mark, grace=0.3) as it:
        owner = (await it.stdout.receive()).decode().strip()
        await until(lambda: living(owner) >= 3)
        assert sweep_dead_owners(key) == []  # its owner lives

        os.kill(it.pid, signal.SIGKILL)
        await it.wait()
        orphans = set(marked_processes(owner))
        assert len(orphans) >= 3
        assert sweep_dead_owners("another-project") == []
        assert set(sweep_dead_owners(key)) == orphans
        assert living(owner) == 0


async def test_a_mark_that_names_nobody_is_left_alone(tmp_path: Path) -> None:
    """Whoever sets that variable by hand keeps no go-ent from sweeping."""
    async with supervised(["cat"], cwd=tmp_path, env=ENV, mark="somebody") as it:
        assert it.pid not in sweep_dead_owners(f"sweep-{os.getpid()}")


async def test_the_owner_of_an_inner_go_ent_finds_its_processes(tmp_path: Path, mark: str) -> None:
    command = [sys.executable, "-c", OWNER, "inner", TREE]
    async with supervised(command, cwd=tmp_path, env=ENV, mark=mark, grace=0.3) as it:
        owner = (await it.stdout.receive()).decode().strip()
        await until(lambda: living(owner) >= 3)
        os.kill(it.pid, signal.SIGKILL)  # the inner one has no time to clean up
    assert living(owner) == 0


def test_one_mark_is_not_the_beginning_of_another(mark: str) -> None:
    assert list(marked_processes(mark[:-1])) == []
    assert mark in marked_environment({}, mark)[MARK_VARIABLE].split(" ")
