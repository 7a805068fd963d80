"""Finds programs on the PATH, and runs short ones.

Empty and relative entries of the PATH are ignored: they mean the working directory, which is somebody's
repository. Short programs, such as git, start nothing that outlives them, so their group is enough to end
them; whatever a worker or a user wrote is run by `run_command`, which ends its whole tree.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import anyio

from goent.domain.errors import EnvironmentTrouble
from goent.domain.types import Value


def find_program(name: str, environ: Mapping[str, str]) -> str | None:
    """A program's path; None if there is none. A name with a slash is a path, and is not searched for."""
    if "/" in name:
        return shutil.which(name)
    return shutil.which(name, path=safe_path(environ.get("PATH", os.defpath)))


def safe_path(path: str) -> str:
    """The PATH without the entries that depend on the working directory."""
    return os.pathsep.join(each for each in path.split(os.pathsep) if each.startswith("/"))


def path_outside(path: str, folder: Path) -> str:
    """The PATH without the entries in a folder where workers write."""
    here = folder.resolve()
    outside = (
        each for each in path.split(os.pathsep) if not Path(each).resolve().is_relative_to(here)
    )
    return os.pathsep.join(outside)


def locate_command(
    command: Sequence[str | bytes], environ: Mapping[str, str]
) -> tuple[str | bytes, ...]:
    """The command with its program's full path. Raises `FileNotFoundError` if there is none."""
    name = os.fsdecode(command[0])
    if "/" in name or "\0" in name:  # the system explains best what cannot be started
        return tuple(command)
    found = find_program(name, environ)
    if found is None:
        raise FileNotFoundError(2, "there is no such program in an absolute folder of the PATH")
    return (found, *command[1:])


class ShortResult(Value, frozen=True, kw_only=True):
    """How a short program ended; `exit` is None if it did not end in time."""

    exit: int | None
    output: bytes
    errors: str


async def run_short(
    command: Sequence[str | bytes],
    *,
    cwd: Path,
    env: Mapping[str, str],
    timeout: float,  # noqa: ASYNC109 (running out of time is an outcome here, not an exception)
    stdin: bytes = b"",
) -> ShortResult:
    """Run to the end, to the time limit or until cancelled; then the command is ended."""
    process = _start_short(command, cwd, env)
    late, read = True, False

    def talk() -> tuple[bytes, bytes]:
        nonlocal read
        read = True
        return process.communicate(stdin)

    try:
        with anyio.move_on_after(timeout):
            output, errors = await anyio.to_thread.run_sync(talk, abandon_on_cancel=True)
            late = False
            return ShortResult(
                exit=process.returncode, output=output, errors=errors.decode(errors="replace")
            )
    finally:
        if late:  # the reading thread ends with the process
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if not read:  # cancelled before a thread was free
                process.communicate()
    return ShortResult(exit=None, output=b"", errors=f"still running after {timeout:g} s: ended")


def _start_short(
    command: Sequence[str | bytes], cwd: Path, env: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            locate_command(command, env),
            cwd=cwd,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise EnvironmentTrouble(start_failure_message(command, cwd, error)) from None


def start_failure_message(command: Sequence[str | bytes], cwd: Path, error: Exception) -> str:
    """Why a program did not start; the system reports a missing folder like a missing program."""
    gone = isinstance(error, FileNotFoundError) and not cwd.is_dir()
    why = "there is no such folder" if gone else getattr(error, "strerror", None) or error
    return f"cannot start {command[0]!r} in {str(cwd)!r}: {why}"
