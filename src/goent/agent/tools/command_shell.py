"""Runs a session's commands: confined, marked, and ended together with everything they started."""

import os
import re
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
from anyio.abc import ByteReceiveStream, TaskStatus

from goent.agent.agent_ports import ToolContext, ToolMistake
from goent.domain.errors import WorkerCrashed
from goent.domain.types import Value
from goent.proc.child_process import SupervisedProcess, supervised
from goent.proc.process_table import marked_processes, new_mark, send_signal
from goent.sandbox.confinement import (
    LAUNCHER,
    OPTIONS_SEPARATOR,
    OPTIONS_VARIABLE,
    launcher_command,
)
from goent.system.process_protection import MARK_VARIABLE

KEPT_BYTES = 30_000
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")


class OutputBuffer:
    """Keeps the beginning and the end of a command's output."""

    def __init__(self, kept: int = KEPT_BYTES) -> None:
        self._half = kept // 2
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    def add(self, data: bytes) -> None:
        self.total += len(data)
        room = self._half - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 4 * self._half:
            del self._tail[: -self._half]

    @property
    def text(self) -> str:
        left_out = self.total - len(self._head) - self._half
        if left_out <= 0:
            return plain_output((self._head + self._tail).decode(errors="replace"))
        head, tail = self._head, self._tail[-self._half :]
        notice = f"\n[... {left_out:,} bytes left out ...]\n"
        return (
            plain_output(head.decode(errors="replace"))
            + notice
            + plain_output(tail.decode(errors="replace"))
        )

    def take_new_text(self) -> str:
        """The output since the last call."""
        text = self.text
        self._head.clear()
        self._tail.clear()
        self.total = 0
        return text


def plain_output(text: str) -> str:
    """Without colours and cursor movements; of an overwritten line, the last version."""
    text = _ESCAPES.sub("", text).replace("\r\n", "\n")
    if "\r" not in text:
        return text
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))


GRACE_S = 1.0  # between the steps of ending a command
DRAIN_S = 0.5  # for the last output, if a child of the command holds the pipe open
REPORT_S = 0.2  # between progress reports
POLL_S = 0.05
FIRST_POLL_S = 0.002
QUIET_ENVIRONMENT = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_PAGER": "cat",
    "GIT_EDITOR": "true",  # nobody can type a message
    "PAGER": "cat",
    "NO_COLOR": "1",
    "TERM": "dumb",
}
_COLOUR_VARIABLES = frozenset({"FORCE_COLOR", "CLICOLOR_FORCE", "COLORTERM", "LS_COLORS"})
# Without a sandbox the launcher is not needed: the shell joins the streams itself.
_PLAIN_SCRIPT = 'exec 2>&1 </dev/null; exec "$0" -c "$1"'


class CommandExit(Value, frozen=True, kw_only=True):
    """How a command ended; `exit` is None if it timed out, or is unknown."""

    exit: int | None
    timed_out: bool = False
    left_running: bool = False


class CommandLaunch(Value, frozen=True, kw_only=True):
    """The process to start for a command."""

    command: tuple[str, ...]
    env: Mapping[str, str]
    mark: str


class CommandShell:
    """Starts the commands of one session."""

    def __init__(self, context: ToolContext) -> None:
        self.cwd = context.cwd
        self._context = context
        self._shell = find_absolute_program("bash", "/bin:/usr/bin:/usr/local/bin") or "/bin/sh"

    @property
    def confines(self) -> bool:
        return self._context.sandbox is not None and self._context.sandbox.confines

    @property
    def writable(self) -> tuple[Path, ...]:
        """The folders below which a confined command can write."""
        return tuple(dict.fromkeys((self.cwd, *self._context.roots, *self._context.writable)))

    async def launch(
        self, command: str, *, unconfined: bool, at_client: bool = False
    ) -> CommandLaunch:
        mark = new_mark(self._context.owner)
        inherited = self._context.environ.items()
        env = {name: value for name, value in inherited if name not in _COLOUR_VARIABLES}
        env |= {"PWD": str(self.cwd), **QUIET_ENVIRONMENT}
        limits = None if unconfined else self._context.sandbox
        options = await limits.options() if limits else ()
        if not options and not at_client:
            program = ("/bin/sh", "-c", _PLAIN_SCRIPT, self._shell, command)
            return CommandLaunch(command=program, env=env, mark=mark)
        if limits:
            env |= limits.variables
        if at_client:  # whose own environment, below ours, may contain keys
            options = (*options, "--only", " ".join([*env, MARK_VARIABLE]))
        # Shown in the client's terminal, a short command is easier to read than the launcher's.
        wrapper = str(Path(__file__).with_name("go-ent-command"))
        if at_client and os.access(wrapper, os.X_OK):
            env |= {
                "GOENT_PYTHON": sys.executable,
                "GOENT_LAUNCHER": str(LAUNCHER),
                "GOENT_SHELL": self._shell,
                OPTIONS_VARIABLE: OPTIONS_SEPARATOR.join(options),
            }
            return CommandLaunch(command=(wrapper, command), env=env, mark=mark)
        program = (*launcher_command(), *options, "--quiet", "--", self._shell, "-c", command)
        return CommandLaunch(command=program, env=env, mark=mark)

    @asynccontextmanager
    async def started(self, launch: CommandLaunch) -> AsyncGenerator[SupervisedProcess]:
        """Leaving ends everything it started. Raises `ToolMistake` if it cannot be started."""
        try:
            async with supervised(
                launch.command, cwd=self.cwd, env=launch.env, mark=launch.mark, grace=GRACE_S
            ) as process:
                try:
                    yield process
                finally:
                    # `supervised` begins with the end of input, which a command does not notice.
                    if process.returncode is None:
                        for pid in {process.pid, *marked_processes(launch.mark)}:
                            send_signal(pid, signal.SIGTERM)
        except WorkerCrashed as error:
            raise ToolMistake(f"{error}. Put a very long command into a file.") from None

    async def run(
        self,
        launch: CommandLaunch,
        output: OutputBuffer,
        limit: float | None,
        report: Callable[[], Awaitable[None]] | None = None,
    ) -> CommandExit:
        """Runs to the end, or to the time limit; calls `report` when there is new output."""
        code, left = None, False
        async with self.started(launch) as process:
            try:
                with anyio.move_on_after(limit):
                    async with anyio.create_task_group() as tasks:
                        if report:
                            tasks.start_soon(_report_output, output, report)
                        drained = await tasks.start(_read_pipe, process.stdout, output)
                        code = await wait_for_exit(process)
                        with anyio.move_on_after(DRAIN_S):
                            await drained.wait()
                        left = bool(list(marked_processes(launch.mark)))
                        tasks.cancel_scope.cancel()
            except ExceptionGroup as failed:  # of `report`
                raise failed.exceptions[0] from None
        return CommandExit(exit=code, timed_out=code is None, left_running=left)


def find_absolute_program(name: str, path: str) -> str | None:
    """The program's absolute path; relative folders in `path` are skipped."""
    for folder in path.split(os.pathsep):
        file = Path(folder, name)
        if file.is_absolute() and file.is_file() and os.access(file, os.X_OK):
            return str(file)
    return None


async def end_marked(mark: str) -> None:
    """Ends all processes with the mark: SIGTERM first, then SIGKILL."""
    for each in (signal.SIGTERM, signal.SIGKILL):
        with anyio.move_on_after(GRACE_S):
            while running := list(marked_processes(mark)):
                for pid in running:
                    send_signal(pid, each)
                await anyio.sleep(POLL_S)
            return


async def wait_for_exit(process: SupervisedProcess) -> int:
    """The exit code as a shell reports it; polls more often in the beginning."""
    pause = FIRST_POLL_S
    while (code := process.returncode) is None:
        await anyio.sleep(pause)
        pause = min(REPORT_S, pause * 1.2)
    return code if code >= 0 else 128 - code


async def _read_pipe(
    pipe: ByteReceiveStream, output: OutputBuffer, *, task_status: TaskStatus[anyio.Event]
) -> None:
    ended = anyio.Event()
    task_status.started(ended)
    with suppress(anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
        while True:
            output.add(await pipe.receive())
    ended.set()


async def _report_output(output: OutputBuffer, report: Callable[[], Awaitable[None]]) -> None:
    reported = 0
    while True:
        await anyio.sleep(REPORT_S)
        if output.total != reported:
            reported = output.total
            await report()
