"""How does a command of our own run that is over in a moment? Bytes in, bytes out.

For programs that start nothing that lives on, such as git: their group is enough to end them.
What a worker or a user wrote runs by `run`, which sweeps.
"""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import anyio

from goent.domain.errors import EnvironmentTrouble
from goent.domain.types import Value
from goent.proc.programs import located


class Said(Value, frozen=True, kw_only=True):
    """`exit` is None if the command did not end in time."""

    exit: int | None
    output: bytes
    errors: str


async def short(
    command: Sequence[str | bytes],
    *,
    cwd: Path,
    env: Mapping[str, str],
    timeout: float,  # noqa: ASYNC109 (running out of time is an outcome here, not an exception)
    stdin: bytes = b"",
) -> Said:
    """Run to the end or to the time limit. Cancelled, the command is ended too."""
    process = _start(command, cwd, env)
    late, read = True, False

    def talk() -> tuple[bytes, bytes]:
        nonlocal read
        read = True
        return process.communicate(stdin)

    try:
        with anyio.move_on_after(timeout):
            output, errors = await anyio.to_thread.run_sync(talk, abandon_on_cancel=True)
            late = False
            return Said(
                exit=process.returncode, output=output, errors=errors.decode(errors="replace")
            )
    finally:
        if late:  # the thread that reads ends with the process
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if not read:  # cancelled before a thread was free
                process.communicate()
    return Said(exit=None, output=b"", errors=f"still running after {timeout:g} s: ended")


def _start(
    command: Sequence[str | bytes], cwd: Path, env: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            located(command, env),
            cwd=cwd,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise EnvironmentTrouble(cannot_start(command, cwd, error)) from None


def cannot_start(command: Sequence[str | bytes], cwd: Path, error: Exception) -> str:
    """Why, in words; a folder that is not there looks to the system like a program that is not."""
    gone = isinstance(error, FileNotFoundError) and not cwd.is_dir()
    why = "there is no such folder" if gone else getattr(error, "strerror", None) or error
    return f"cannot start {command[0]!r} in {str(cwd)!r}: {why}"
