"""How does a short command run, and what did it say?"""

import os
import subprocess
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO

import anyio

from goent.domain.errors import WorkerCrashed
from goent.domain.types import Value
from goent.proc import table
from goent.proc.marks import marked_environment, new_mark, new_owner
from goent.proc.programs import located
from goent.proc.short import cannot_start
from goent.proc.supervised import STDERR_KEPT
from goent.proc.tail import Tail
from goent.proc.trees import bring_down, exit_of

COMMAND = "command"  # whose marks these processes carry
PIPE = 32 * 1024  # bytes that surely fit into a pipe that nobody reads
MAX_OUTPUT = 1024 * 1024
DRAIN = 0.5  # seconds for the last output, should a child of the command hold the pipe open


class Completed(Value, frozen=True, kw_only=True):
    """`exit` is None if the command did not end in time; the texts are the last of what it said."""

    exit: int | None
    output: str
    errors: str


async def run(  # noqa: PLR0913 (how a command is run)
    command: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    timeout: float,  # noqa: ASYNC109 (running out of time is an outcome here, not an exception)
    stdin: bytes = b"",
    max_output: int = MAX_OUTPUT,
    inner_mark: str = "",
) -> Completed:
    """Run to the end or to the time limit; what the command left running ends with it.

    `inner_mark` is that of its sandbox, see `supervised`.

    Raises `WorkerCrashed` if it cannot be started.
    """
    code: int | None = None
    with ExitStack() as stack:
        with _translated(command, cwd):
            output = stack.enter_context(Tail(max_output))
            errors = stack.enter_context(Tail(STDERR_KEPT))
            child = _start(command, cwd, env, stdin, output, errors)
            child.inner_mark = inner_mark
        try:
            with anyio.move_on_after(timeout):
                code = await exit_of(child)
                with anyio.move_on_after(DRAIN):
                    await output.ended.wait()
                    await errors.ended.wait()
        finally:
            with anyio.CancelScope(shield=True):
                await bring_down(child, DRAIN)
    return Completed(exit=code, output=output.text, errors=errors.text.strip())


class _Command:
    """The port `Child`: asked now and then whether it has ended, so it needs no task and no thread."""

    def __init__(
        self, process: "subprocess.Popen[bytes]", mark: str, before: Collection[int]
    ) -> None:
        self.pid = process.pid
        self.mark = mark
        self.before = before
        self.inner_mark = ""
        self._process = process

    @property
    def returncode(self) -> int | None:
        return self._process.poll()


def _start(
    command: Sequence[str],
    cwd: Path,
    env: Mapping[str, str],
    stdin: bytes,
    output: Tail,
    errors: Tail,
) -> _Command:
    try:
        mark = new_mark(new_owner(COMMAND))
        before = table.present()
        with _input(stdin) as told:
            process = subprocess.Popen(
                located(command, env),
                cwd=cwd,
                env=marked_environment(env, mark),
                stdin=told,
                stdout=output.writer,
                stderr=errors.writer,
                start_new_session=True,
            )
    finally:
        output.close_writer()
        errors.close_writer()
    return _Command(process, mark, before)


@contextmanager
def _translated(command: Sequence[str], cwd: Path) -> Generator[None]:
    try:
        yield
    except (OSError, ValueError) as error:  # ValueError: a NUL among the words
        raise WorkerCrashed(cannot_start(command, cwd, error)) from error


@contextmanager
def _input(data: bytes) -> Generator[BinaryIO | int]:
    """Whole before the command begins: nobody has to feed it, and one that does not read it troubles nobody."""
    if not data:
        yield subprocess.DEVNULL
        return
    if len(data) <= PIPE:
        reader, writer = os.pipe()
        os.write(writer, data)
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            yield pipe
        return
    with TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        yield file
