"""Looking at new processes alone leaves out the old ones, and no other; and who lives is told from who does not."""

import errno
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from goent.proc import process_table
from goent.proc.process_table import marked_environment, marked_processes, new_mark, new_owner

WAITS = [sys.executable, "-c", "print('ready', flush=True); input()"]


@contextmanager
def waiting(mark: str) -> Generator[int]:
    with subprocess.Popen(
        WAITS,
        env=marked_environment({}, mark),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin and process.stdout
        process.stdout.readline()
        yield process.pid
        process.stdin.write(b"\n")
        process.stdin.flush()


def test_who_was_there_before_is_left_out_and_who_came_later_is_found() -> None:
    owner = new_owner("table-test")
    with waiting(new_mark(owner)) as older:
        before = process_table.present_processes()
        with waiting(new_mark(owner)) as younger:
            assert set(marked_processes(owner)) == {older, younger}
            assert set(marked_processes(owner, but=before)) == {younger}


def test_who_becomes_another_program_again_and_again_is_always_found(tmp_path: Path) -> None:
    """In the middle of exec a process has no environment to read."""
    loop = tmp_path / "loop.sh"
    loop.write_text('#!/bin/sh\nexec "$0"\n')
    loop.chmod(0o700)
    mark = new_mark(new_owner("table-test"))
    before = process_table.present_processes()
    env = marked_environment({"PATH": os.environ["PATH"]}, mark)
    with subprocess.Popen([loop], env=env) as process:
        try:
            found = [list(marked_processes(mark, but=before)) for _ in range(500)]
        finally:
            process.kill()
    assert all(each == [process.pid] for each in found)
    assert list(marked_processes(mark, but=before)) == []


STARVED = """
import resource, sys
from goent.proc import process_table
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (3, most))
print(process_table.is_owner_alive(sys.argv[1]))
try:
    process_table.start_time(int(sys.argv[2]))
except OSError as error:
    print(error.strerror)
"""


def test_who_has_no_descriptors_left_takes_nobody_for_dead() -> None:
    command = [sys.executable, "-c", STARVED, new_owner("table-test"), str(os.getpid())]
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    assert told.stdout.splitlines() == ["True", os.strerror(errno.EMFILE)]


def test_who_has_ended_is_dead_and_so_is_who_had_the_number_before() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert not process_table.is_alive(process.pid), "a zombie"
    assert not process_table.is_alive(process.pid)
    since = process_table.start_time(os.getpid())
    assert process_table.is_alive(os.getpid(), since)
    assert not process_table.is_alive(os.getpid(), f"{since}0")
