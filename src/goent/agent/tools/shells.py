"""How does a command of the session's run: confined, marked, and ended with what it started?"""

import os
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
from anyio.abc import ByteReceiveStream, TaskStatus

from goent.agent.ports import Desk, ToolMistake
from goent.agent.tools.outputs import Kept
from goent.domain.errors import WorkerCrashed
from goent.domain.types import Value
from goent.proc.marks import MARK, marked, new_mark, send
from goent.proc.supervised import Supervised, supervised
from goent.sandbox.confinement import LAUNCHER, OPTIONS, SEPARATOR, launcher

GRACE = 1.0  # seconds between one way of asking a command to end and the next
DRAIN = 0.5  # seconds for the last output, should a child of the command hold the pipe open
TOLD = 0.2  # seconds between one report and the next
POLL = 0.05
FIRST_LOOK = 0.002
QUIET = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_PAGER": "cat",
    "GIT_EDITOR": "true",  # there is nobody to type a message
    "PAGER": "cat",
    "NO_COLOR": "1",
    "TERM": "dumb",
}
_COLOURFUL = frozenset({"FORCE_COLOR", "CLICOLOR_FORCE", "COLORTERM", "LS_COLORS"})
# Without a sandbox there is nothing to set up: the shell joins the streams by itself.
_PLAIN = 'exec 2>&1 </dev/null; exec "$0" -c "$1"'


class Exit(Value, frozen=True, kw_only=True):
    """`exit` is None if it was `late`, or if nobody knows; `left`: it had left something running."""

    exit: int | None
    late: bool = False
    left: bool = False


class Launch(Value, frozen=True, kw_only=True):
    """What is started for a command."""

    command: tuple[str, ...]
    env: Mapping[str, str]
    mark: str


class Shell:
    """Starts commands of one session."""

    def __init__(self, desk: Desk) -> None:
        self.cwd = desk.cwd
        self._desk = desk
        self._shell = program("bash", "/bin:/usr/bin:/usr/local/bin") or "/bin/sh"

    @property
    def confines(self) -> bool:
        """Whether commands are confined."""
        return self._desk.sandbox is not None and self._desk.sandbox.confines

    @property
    def writable(self) -> tuple[Path, ...]:
        """Below which folders a confined command can write."""
        return tuple(dict.fromkeys((self.cwd, *self._desk.roots, *self._desk.writable)))

    async def launch(self, command: str, *, unconfined: bool, at_client: bool = False) -> Launch:
        mark = new_mark(self._desk.owner)
        env = {name: value for name, value in self._desk.environ.items() if name not in _COLOURFUL}
        env |= {"PWD": str(self.cwd), **QUIET}
        limits = None if unconfined else self._desk.sandbox
        options = await limits.options() if limits else ()
        if not options and not at_client:
            program = ("/bin/sh", "-c", _PLAIN, self._shell, command)
            return Launch(command=program, env=env, mark=mark)
        if limits:
            env |= limits.variables
        if at_client:  # where keys may be in the environment that ours is put over
            options = (*options, "--only", " ".join([*env, MARK]))
        readable = str(Path(__file__).with_name("go-ent-command"))
        if at_client and os.access(readable, os.X_OK):
            env |= {
                "GOENT_PYTHON": sys.executable,
                "GOENT_LAUNCHER": str(LAUNCHER),
                "GOENT_SHELL": self._shell,
                OPTIONS: SEPARATOR.join(options),
            }
            return Launch(command=(readable, command), env=env, mark=mark)
        program = (*launcher(), *options, "--quiet", "--", self._shell, "-c", command)
        return Launch(command=program, env=env, mark=mark)

    @asynccontextmanager
    async def started(self, launch: Launch) -> AsyncGenerator[Supervised]:
        """Leaving leaves nothing running. Raises `ToolMistake` if it cannot be started."""
        try:
            async with supervised(
                launch.command, cwd=self.cwd, env=launch.env, mark=launch.mark, grace=GRACE
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
        launch: Launch,
        said: Kept,
        limit: float | None,
        tell: Callable[[], Awaitable[None]] | None = None,
    ) -> Exit:
        """Run to the end, or to the time limit; `tell` is called when there is something new."""
        code, left = None, False
        async with self.started(launch) as process:
            try:
                with anyio.move_on_after(limit):
                    async with anyio.create_task_group() as tasks:
                        if tell:
                            tasks.start_soon(_telling, said, tell)
                        heard = await tasks.start(_reading, process.stdout, said)
                        code = await ended(process)
                        with anyio.move_on_after(DRAIN):
                            await heard.wait()
                        left = bool(list(marked(launch.mark)))
                        tasks.cancel_scope.cancel()
            except ExceptionGroup as failed:  # whoever is told has failed
                raise failed.exceptions[0] from None
        return Exit(exit=code, late=code is None, left=left)


def program(name: str, path: str) -> str | None:
    """Where it lies. Of folders that are relative to somewhere nothing is run."""
    for folder in path.split(os.pathsep):
        file = Path(folder, name)
        if file.is_absolute() and file.is_file() and os.access(file, os.X_OK):
            return str(file)
    return None


async def sweep(mark: str) -> None:
    """End whoever carries the mark: asked first, then made to."""
    for ask in (signal.SIGTERM, signal.SIGKILL):
        with anyio.move_on_after(GRACE):
            while living := list(marked(mark)):
                for pid in living:
                    send(pid, ask)
                await anyio.sleep(POLL)
            return


def _ask_to_end(mark: str, process: Supervised) -> None:
    if process.returncode is None:
        for pid in {process.pid, *marked(mark)}:
            send(pid, signal.SIGTERM)


async def ended(process: Supervised) -> int:
    """Its exit code as a shell tells it, the sooner the shorter it runs."""
    pause = FIRST_LOOK
    while (code := process.returncode) is None:
        await anyio.sleep(pause)
        pause = min(TOLD, pause * 1.2)
    return code if code >= 0 else 128 - code


async def _reading(
    pipe: ByteReceiveStream, said: Kept, *, task_status: TaskStatus[anyio.Event]
) -> None:
    ended = anyio.Event()
    task_status.started(ended)
    with suppress(anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
        while True:
            said.add(await pipe.receive())
    ended.set()


async def _telling(said: Kept, tell: Callable[[], Awaitable[None]]) -> None:
    told = 0
    while True:
        await anyio.sleep(TOLD)
        if said.total != told:
            told = said.total
            await tell()
