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

KEPT_BYTES = 30_000  # bytes
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")


class OutputBuffer:
    """The beginning and the end of a flood."""

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
            return _decode_output(self._head + self._tail)
        notice = f"\n[... {left_out:,} bytes left out ...]\n"
        return _decode_output(self._head) + notice + _decode_output(self._tail[-self._half :])

    def take_new_text(self) -> str:
        """What was said since it was taken last."""
        text = self.text
        self._head.clear()
        self._tail.clear()
        self.total = 0
        return text


def _decode_output(data: bytearray) -> str:
    return plain_output(data.decode(errors="replace"))


def plain_output(text: str) -> str:
    """Without colours and cursor movements; of a line that was written over, the last version."""
    text = _ESCAPES.sub("", text).replace("\r\n", "\n")
    if "\r" not in text:
        return text
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))


GRACE_S = 1.0  # seconds between one way of asking a command to end and the next
DRAIN_S = 0.5  # seconds for the last output, should a child of the command hold the pipe open
REPORT_S = 0.2  # seconds between one report and the next
POLL_S = 0.05
FIRST_POLL_S = 0.002
QUIET_ENVIRONMENT = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_PAGER": "cat",
    "GIT_EDITOR": "true",  # there is nobody to type a message
    "PAGER": "cat",
    "NO_COLOR": "1",
    "TERM": "dumb",
}
_COLOUR_VARIABLES = frozenset({"FORCE_COLOR", "CLICOLOR_FORCE", "COLORTERM", "LS_COLORS"})
# Without a sandbox there is nothing to set up: the shell joins the streams by itself.
_PLAIN_SCRIPT = 'exec 2>&1 </dev/null; exec "$0" -c "$1"'


class CommandExit(Value, frozen=True, kw_only=True):
    """`exit` is None if it was `late`, or if nobody knows; `left`: it had left something running."""

    exit: int | None
    timed_out: bool = False
    left_running: bool = False


class CommandLaunch(Value, frozen=True, kw_only=True):
    """What is started for a command."""

    command: tuple[str, ...]
    env: Mapping[str, str]
    mark: str


class CommandShell:
    """Starts commands of one session."""

    def __init__(self, desk: ToolContext) -> None:
        self.cwd = desk.cwd
        self._desk = desk
        self._shell = find_absolute_program("bash", "/bin:/usr/bin:/usr/local/bin") or "/bin/sh"

    @property
    def confines(self) -> bool:
        """Whether commands are confined."""
        return self._desk.sandbox is not None and self._desk.sandbox.confines

    @property
    def writable(self) -> tuple[Path, ...]:
        """Below which folders a confined command can write."""
        return tuple(dict.fromkeys((self.cwd, *self._desk.roots, *self._desk.writable)))

    async def launch(
        self, command: str, *, unconfined: bool, at_client: bool = False
    ) -> CommandLaunch:
        mark = new_mark(self._desk.owner)
        env = {
            name: value
            for name, value in self._desk.environ.items()
            if name not in _COLOUR_VARIABLES
        }
        env |= {"PWD": str(self.cwd), **QUIET_ENVIRONMENT}
        limits = None if unconfined else self._desk.sandbox
        options = await limits.options() if limits else ()
        if not options and not at_client:
            program = ("/bin/sh", "-c", _PLAIN_SCRIPT, self._shell, command)
            return CommandLaunch(command=program, env=env, mark=mark)
        if limits:
            env |= limits.variables
        if at_client:  # where keys may be in the environment that ours is put over
            options = (*options, "--only", " ".join([*env, MARK_VARIABLE]))
        readable = str(Path(__file__).with_name("go-ent-command"))
        if at_client and os.access(readable, os.X_OK):
            env |= {
                "GOENT_PYTHON": sys.executable,
                "GOENT_LAUNCHER": str(LAUNCHER),
                "GOENT_SHELL": self._shell,
                OPTIONS_VARIABLE: OPTIONS_SEPARATOR.join(options),
            }
            return CommandLaunch(command=(readable, command), env=env, mark=mark)
        program = (*launcher_command(), *options, "--quiet", "--", self._shell, "-c", command)
        return CommandLaunch(command=program, env=env, mark=mark)

    @asynccontextmanager
    async def started(self, launch: CommandLaunch) -> AsyncGenerator[SupervisedProcess]:
        """Leaving leaves nothing running. Raises `ToolMistake` if it cannot be started."""
        try:
            async with supervised(
                launch.command, cwd=self.cwd, env=launch.env, mark=launch.mark, grace=GRACE_S
            ) as process:
                try:
                    yield process
                finally:
                    # It hears no end of input, which is what `supervised` begins with.
                    _ask_to_end(launch.mark, process)
        except WorkerCrashed as error:
            raise ToolMistake(f"{error}. A very long command belongs into a file.") from None

    async def run(
        self,
        launch: CommandLaunch,
        said: OutputBuffer,
        limit: float | None,
        tell: Callable[[], Awaitable[None]] | None = None,
    ) -> CommandExit:
        """Run to the end, or to the time limit; `tell` is called when there is something new."""
        code, left = None, False
        async with self.started(launch) as process:
            try:
                with anyio.move_on_after(limit):
                    async with anyio.create_task_group() as tasks:
                        if tell:
                            tasks.start_soon(_report_output, said, tell)
                        heard = await tasks.start(_read_pipe, process.stdout, said)
                        code = await wait_for_exit(process)
                        with anyio.move_on_after(DRAIN_S):
                            await heard.wait()
                        left = bool(list(marked_processes(launch.mark)))
                        tasks.cancel_scope.cancel()
            except ExceptionGroup as failed:  # whoever is told has failed
                raise failed.exceptions[0] from None
        return CommandExit(exit=code, timed_out=code is None, left_running=left)


def find_absolute_program(name: str, path: str) -> str | None:
    """Where it lies. Of folders that are relative to somewhere nothing is run."""
    for folder in path.split(os.pathsep):
        file = Path(folder, name)
        if file.is_absolute() and file.is_file() and os.access(file, os.X_OK):
            return str(file)
    return None


async def end_marked(mark: str) -> None:
    """End whoever carries the mark: asked first, then made to."""
    for ask in (signal.SIGTERM, signal.SIGKILL):
        with anyio.move_on_after(GRACE_S):
            while living := list(marked_processes(mark)):
                for pid in living:
                    send_signal(pid, ask)
                await anyio.sleep(POLL_S)
            return


def _ask_to_end(mark: str, process: SupervisedProcess) -> None:
    if process.returncode is None:
        for pid in {process.pid, *marked_processes(mark)}:
            send_signal(pid, signal.SIGTERM)


async def wait_for_exit(process: SupervisedProcess) -> int:
    """Its exit code as a shell tells it, the sooner the shorter it runs."""
    pause = FIRST_POLL_S
    while (code := process.returncode) is None:
        await anyio.sleep(pause)
        pause = min(REPORT_S, pause * 1.2)
    return code if code >= 0 else 128 - code


async def _read_pipe(
    pipe: ByteReceiveStream, said: OutputBuffer, *, task_status: TaskStatus[anyio.Event]
) -> None:
    ended = anyio.Event()
    task_status.started(ended)
    with suppress(anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
        while True:
            said.add(await pipe.receive())
    ended.set()


async def _report_output(said: OutputBuffer, tell: Callable[[], Awaitable[None]]) -> None:
    told = 0
    while True:
        await anyio.sleep(REPORT_S)
        if said.total != told:
            told = said.total
            await tell()
