"""Starts processes that cannot outlive go-ent: supervised children, and commands run to their end.

A server reads no input, and most commands read none, so they would outlive a go-ent that was killed
until the next one sweeps. A shell stands guard beside them: its own input ends with go-ent, and then it
ends every process that carries the mark.

A worker is a tree: `opencode` starts shells in sessions of their own, shells start servers. When the
context of a child closes, its input is closed first. Every process that still carries its mark, and
every process in its group, then gets SIGTERM, and after a grace period SIGKILL. Every wait is bounded
and shielded from cancellation.
"""

import asyncio
import os
import re
import signal
import subprocess
from collections.abc import AsyncGenerator, Callable, Collection, Generator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO, Protocol, Self

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream, Process
from anyio.lowlevel import checkpoint

from goent.domain.errors import WorkerCrashed
from goent.domain.sandbox_port import CommandSandbox
from goent.domain.settings import LimitSettings
from goent.domain.types import Check, Value
from goent.domain.verification import is_blank
from goent.proc import process_table
from goent.proc.process_table import (
    POLL_S,
    marked_command,
    marked_environment,
    marked_processes,
    new_mark,
    new_owner,
    send_group_signal,
    send_signal,
)
from goent.proc.programs import locate_command, start_failure_message
from goent.system.process_protection import MARK_VARIABLE

GUARD_OWNER = "guard"


# A line on its input means a normal end; the end of input without one, that go-ent is dead. A process in
# the middle of exec has no environment for a moment, so all are checked several times. A process that is
# closed to others has its mark among its arguments.
_GUARD_SCRIPT = r"""
trap '' HUP INT TERM
if read -r _; then exit; fi
trap - HUP INT TERM
for ask in TERM KILL KILL KILL; do
  for folder in /proc/[0-9]*; do
    { tr '\0' '\n' <"$folder/environ" | grep -Eq "^$1=(.* )?$2( |\$)" ||
      tr '\0' '\n' <"$folder/cmdline" | grep -Eq "^-X$1=(.* )?$2( |\$)"
    } && kill -$ask "${folder#/proc/}"
  done
  sleep 1
done 2>/dev/null
"""


@asynccontextmanager
async def guarded(mark: str) -> AsyncGenerator[None]:
    """Guard the processes with this mark; enter before the first is started. Without /proc it does nothing."""
    async with _guard(re.escape(mark), new_mark(mark.rpartition("/")[0])):
        yield


@asynccontextmanager
async def all_guarded(owner: str) -> AsyncGenerator[None]:
    """Guard all processes with a mark of this owner."""
    # The guard's own mark has another owner: it must not end itself.
    async with _guard(f"{re.escape(owner)}/[0-9]+", new_mark(new_owner(GUARD_OWNER))):
        yield


@asynccontextmanager
async def _guard(marks: str, own: str) -> AsyncGenerator[None]:
    command = ["/bin/sh", "-c", _GUARD_SCRIPT, "guard", MARK_VARIABLE, marks]
    env = {"PATH": "/usr/bin:/bin"}
    async with supervised(command, cwd=Path("/"), env=env, mark=own) as guard:
        try:
            yield
        finally:
            with (
                anyio.CancelScope(shield=True),
                suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError),
            ):
                await guard.stdin.send(b"well\n")


CHUNK = 256 * 1024


class PipeTail:
    """Reads a pipe without a task of its own, and keeps the last of it. The child gets `writer`."""

    def __init__(self, kept: int) -> None:
        self.ended = anyio.Event()
        self._kept = kept
        self._bytes = bytearray()
        self._reader, self.writer = os.pipe()
        self._loop = asyncio.get_running_loop()
        os.set_blocking(self._reader, False)
        self._loop.add_reader(self._reader, self._read)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close_writer()
        self._close_reader()

    def close_writer(self) -> None:
        """Once the child has it: the end of the pipe is seen when nobody holds it any more."""
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1

    @property
    def text(self) -> str:
        """So far."""
        return self._bytes[-self._kept :].decode(errors="replace")

    def _read(self) -> None:
        try:
            data = os.read(self._reader, CHUNK)
        except BlockingIOError:
            return
        self._bytes += data
        if len(self._bytes) > 2 * self._kept:
            del self._bytes[: -self._kept]
        if not data:
            self._close_reader()

    def _close_reader(self) -> None:
        if self._reader >= 0:
            self._loop.remove_reader(self._reader)
            os.close(self._reader)
            self._reader = -1
            self.ended.set()


FIRST_POLL_S = 0.004  # before the first check whether a child has ended


class ChildProcess(Protocol):
    """A process started by go-ent. `earlier_processes` were present before it was started."""

    @property
    def pid(self) -> int: ...

    @property
    def mark(self) -> str: ...

    @property
    def inner_mark(self) -> str:
        """The mark of its sandbox, which it cannot remove; empty without one."""
        ...

    @property
    def earlier_processes(self) -> Collection[int]: ...

    @property
    def returncode(self) -> int | None: ...


async def wait_for_exit(child: ChildProcess) -> int:
    """The exit code, once there is one."""
    pause = FIRST_POLL_S
    while (code := child.returncode) is None:
        await anyio.sleep(pause)
        pause = min(2 * pause, POLL_S)
    return code


async def end_tree(child: ChildProcess, grace: float) -> None:
    """End the child and everything it started; `grace` seconds pass between SIGTERM and SIGKILL."""
    for ask in (signal.SIGTERM, signal.SIGKILL):
        with anyio.move_on_after(grace):
            await _signal_until_gone(child, ask)
            return


async def _signal_until_gone(child: ChildProcess, ask: signal.Signals) -> None:
    signalled: set[int] = set()
    send_group_signal(child.pid, ask)
    while (living := _known_living(child)) != set():
        for pid in (living or set()) - signalled:
            send_signal(pid, ask)
        # SIGKILL is repeated: a process that forked at the last moment left a child without a signal.
        signalled = set() if ask is signal.SIGKILL else living or signalled
        await anyio.sleep(POLL_S)


def _known_living(child: ChildProcess) -> set[int] | None:
    """The processes to end; None if that is unknown, for lack of descriptors."""
    try:
        # A process that forked and ended during the first look left a child that was not seen.
        return _living_processes(child) or _living_processes(child)
    except OSError:
        return None


def _living_processes(child: ChildProcess) -> set[int]:
    own = {child.pid} if child.returncode is None else set[int]()
    inner = (
        marked_processes(child.inner_mark, but=child.earlier_processes) if child.inner_mark else ()
    )
    return own | set(marked_processes(child.mark, but=child.earlier_processes)) | set(inner)


GRACE_S = 2.0  # between the end of input, SIGTERM and SIGKILL
DRAIN_S = 0.5  # for the last output, if an unmarked process holds the pipe open
STDERR_KEPT = 16 * 1024


class SupervisedProcess:
    """A running child. It exists only inside `supervised`."""

    def __init__(
        self,
        process: Process,
        mark: str,
        stderr: PipeTail,
        before: Collection[int],
        inner_mark: str,
    ) -> None:
        assert process.stdin and process.stdout
        self.stdin: ByteSendStream = process.stdin
        self.output = ChildOutput(process.stdout)
        self.pid = process.pid
        self.mark = mark
        self._process = process
        self._stderr = stderr
        self.earlier_processes = before
        self.inner_mark = inner_mark

    @property
    def stdout(self) -> ByteReceiveStream:
        return self.output

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    @property
    def stderr(self) -> str:
        """The end of standard error, so far."""
        return self._stderr.text.strip()

    async def wait(self) -> int:
        """The exit code, once there is one."""
        # asyncio's own wait() returns only when every pipe is closed, and a grandchild can hold
        # one open; the return code itself is set immediately.
        return await wait_for_exit(self)


@asynccontextmanager
async def supervised(
    command: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    mark: str,
    inner_mark: str = "",
    grace: float = GRACE_S,
) -> AsyncGenerator[SupervisedProcess]:
    """Leaving the context leaves no process behind, however it is left.

    `inner_mark` is that of its sandbox: it also finds processes that cleared their environment.
    """
    with PipeTail(STDERR_KEPT) as stderr:
        before = process_table.present_processes()
        environ = marked_environment(env, mark)
        process = await _start_supervised(marked_command(command, mark), cwd, environ, stderr)
        child = SupervisedProcess(process, mark, stderr, before, inner_mark)
        try:
            yield child
        finally:
            with anyio.CancelScope(shield=True):
                await _close_child(child, grace)
                await child.output.drain()


async def _start_supervised(
    command: Sequence[str], cwd: Path, env: Mapping[str, str], stderr: PipeTail
) -> Process:
    process: Process | None = None
    try:
        with anyio.CancelScope(shield=True):  # a child started halfway would have no owner
            process = await anyio.open_process(
                locate_command(command, env),
                cwd=cwd,
                env=env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr.writer,
                start_new_session=True,
            )
    except OSError as error:
        raise WorkerCrashed(start_failure_message(command, cwd, error)) from error
    finally:
        stderr.close_writer()
    assert process
    return process


async def _close_child(child: SupervisedProcess, grace: float) -> None:
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        await child.stdin.aclose()
    with anyio.move_on_after(grace):
        await child.wait()  # only the child itself sees the end of its input
    await end_tree(child, grace)


class ChildOutput(ByteReceiveStream):
    """A child's standard output. The pipe stays open until the child is gone."""

    def __init__(self, stream: ByteReceiveStream) -> None:
        self._stream = stream
        self._closed = False

    async def receive(self, max_bytes: int = 65536) -> bytes:
        if self._closed:
            raise anyio.ClosedResourceError
        return await self._stream.receive(max_bytes)

    async def aclose(self) -> None:
        self._closed = True
        await checkpoint()

    async def drain(self) -> None:
        """Read the rest: only then does asyncio see the end of the pipe and release it."""
        with anyio.move_on_after(DRAIN_S), suppress(anyio.EndOfStream, anyio.BrokenResourceError):
            while True:
                await self._stream.receive()
        await self._stream.aclose()


COMMAND_OWNER = "command"  # of the marks of these processes
PIPE_BYTES = 32 * 1024  # fit into a pipe that nobody reads
MAX_OUTPUT = 1024 * 1024


class CompletedCommand(Value, frozen=True, kw_only=True):
    """How a command ended. `exit` is None if it did not end in time; the texts may be cut at the start."""

    exit: int | None
    output: str
    errors: str


async def run_command(  # noqa: PLR0913 (how a command is run)
    command: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    timeout: float,  # noqa: ASYNC109 (running out of time is an outcome here, not an exception)
    stdin: bytes = b"",
    max_output: int = MAX_OUTPUT,
    inner_mark: str = "",
) -> CompletedCommand:
    """Run to the end or to the time limit, then end whatever the command left running.

    `inner_mark` is that of its sandbox, see `supervised`. Raises `WorkerCrashed` if it cannot be started.
    """
    code: int | None = None
    with ExitStack() as stack:
        with _errors_as_crash(command, cwd):
            output = stack.enter_context(PipeTail(max_output))
            errors = stack.enter_context(PipeTail(STDERR_KEPT))
            child = _start_command(command, cwd, env, stdin, output, errors)
            child.inner_mark = inner_mark
        try:
            with anyio.move_on_after(timeout):
                code = await wait_for_exit(child)
                with anyio.move_on_after(DRAIN_S):
                    await output.ended.wait()
                    await errors.ended.wait()
        finally:
            with anyio.CancelScope(shield=True):
                await end_tree(child, DRAIN_S)
    return CompletedCommand(exit=code, output=output.text, errors=errors.text.strip())


class _CommandChild:
    """A `ChildProcess` that is polled, so it needs neither a task nor a thread."""

    def __init__(
        self, process: "subprocess.Popen[bytes]", mark: str, before: Collection[int]
    ) -> None:
        self.pid = process.pid
        self.mark = mark
        self.earlier_processes = before
        self.inner_mark = ""
        self._process = process

    @property
    def returncode(self) -> int | None:
        return self._process.poll()


def _start_command(
    command: Sequence[str],
    cwd: Path,
    env: Mapping[str, str],
    stdin: bytes,
    output: PipeTail,
    errors: PipeTail,
) -> _CommandChild:
    try:
        mark = new_mark(new_owner(COMMAND_OWNER))
        before = process_table.present_processes()
        with _stdin_source(stdin) as source:
            process = subprocess.Popen(
                locate_command(command, env),
                cwd=cwd,
                env=marked_environment(env, mark),
                stdin=source,
                stdout=output.writer,
                stderr=errors.writer,
                start_new_session=True,
            )
    finally:
        output.close_writer()
        errors.close_writer()
    return _CommandChild(process, mark, before)


@contextmanager
def _errors_as_crash(command: Sequence[str], cwd: Path) -> Generator[None]:
    try:
        yield
    except (OSError, ValueError) as error:  # ValueError: a NUL among the words
        raise WorkerCrashed(start_failure_message(command, cwd, error)) from error


@contextmanager
def _stdin_source(data: bytes) -> Generator[BinaryIO | int]:
    """Standard input, complete before the command starts: nothing has to feed it."""
    if not data:
        yield subprocess.DEVNULL
        return
    if len(data) <= PIPE_BYTES:
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


VERIFY_TIMEOUT_S = LimitSettings().verify_s


TAIL_CHARS = 4000


NOT_FOUND_EXIT = 127  # a shell's exit code for an unknown command


EMPTY_COMMAND_REASON = (
    "its variables are empty here, so it would check nothing and always pass: set them"
)


_VARIABLE = re.compile(r"\$(?P<brace>\{)?(?P<name>[A-Za-z_]\w*)(?(brace)\})", re.ASCII)


class ShellVerifier:
    """Runs verify commands by `sh -c`, one after the other, all of them.

    `environ` is their environment, without keys. A command that has not ended within `time_limit`
    seconds is ended, together with what it started.
    """

    def __init__(
        self,
        environ: Callable[[], Mapping[str, str]],
        sandbox: CommandSandbox,
        *,
        time_limit: Callable[[], float] = lambda: VERIFY_TIMEOUT_S,
    ) -> None:
        self._environ = environ
        self._sandbox = sandbox
        self._time_limit = time_limit

    async def verify(self, commands: Sequence[str], cwd: Path) -> tuple[Check, ...]:
        return tuple([await self._check(command, cwd) for command in commands])

    async def _check(self, command: str, cwd: Path) -> Check:
        limit, environ = self._time_limit(), self._environ()
        if is_blank(_VARIABLE.sub(lambda found: environ.get(found["name"], ""), command)):
            return Check(command=command, exit=NOT_FOUND_EXIT, tail=EMPTY_COMMAND_REASON)
        words = ["sh", "-c", f"exec 2>&1\n{command}"]
        async with self._sandbox.command(words, cwd=cwd, env=environ) as start:
            done = await run_command(
                start.command,
                cwd=cwd,
                env=start.env,
                timeout=limit,
                max_output=TAIL_CHARS,
                inner_mark=start.mark,
            )
        late = f"\nstill running after {limit:g} s: ended" if done.exit is None else ""
        said = (done.output + late or done.errors).strip()
        hint = start.explain(said) if done.exit else ""
        return Check(command=command, exit=done.exit, tail=f"{said}\n{hint}".strip())
