"""Starts and owns one OpenCode process with an HTTP server in it, whichever protocol it speaks.

The first process of a data folder creates its database there, and two that do so at the same time
can break each other. So one creates it while the others wait, in this go-ent and in those of other
projects.
"""

import fcntl
import os
import signal
import socket
import stat
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import ClassVar, Self

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup

from goent.agents.opencode_program import OPENCODE_NAME, check_program
from goent.agents.process_vitals import EXIT_CODE_TIMEOUT_S, without_colours
from goent.domain.errors import EnvironmentTrouble, WorkerCrashed, WorkerError
from goent.domain.ports import Gate, WorkerSpec
from goent.opencode.call_guard import ProcessGuard
from goent.opencode.event_stream import EventKinds, EventRouter
from goent.opencode.opencode_turn import database_error
from goent.opencode.process_launch import OpenCodeLaunch
from goent.opencode.server_api import OpenCodeClient
from goent.opencode.session import BaseSession
from goent.proc.child_process import SupervisedProcess, supervised
from goent.proc.concurrency import task_group
from goent.proc.process_table import send_signal

LOCK_POLL_S = 0.1
LOCK_TIMEOUT_S = 90.0  # then starting beside another first start is the smaller evil
OTHERS_BITS = 0o077
BOOT_TIMEOUT_S = 60.0  # for a directory


class OpenCodeProcess(ABC):
    """One OpenCode process, which exists only inside `running`; `gone` is set when it has ended."""

    event_kinds: ClassVar[EventKinds]

    def __init__(
        self,
        child: SupervisedProcess,
        client: OpenCodeClient,
        tasks: TaskGroup,
        launch: OpenCodeLaunch,
    ) -> None:
        self.client = client
        self.router = EventRouter(client, self.event_kinds)
        self.token = launch.token
        self.pid = child.pid
        self.gone = anyio.Event()
        self.guard = ProcessGuard(launch.shell_variables, launch.hint)
        self._child = child
        self._tasks = tasks
        self._launch = launch
        self._is_first = not launch.database.exists()
        self._kill_reason = ""

    @classmethod
    @asynccontextmanager
    async def running(cls, launch: OpenCodeLaunch, mark: str) -> AsyncGenerator[Self]:
        """Ready for sessions on entry; raises a `WorkerError` if it does not get there."""
        await check_program(launch.program, launch.env, patience=launch.start_timeout)
        port = launch.port or free_port()
        command = [str(launch.program), *cls._arguments(launch, port)]
        env = await to_thread.run_sync(launch.variables)
        async with (
            launch.confined(command, env, port) as start,
            supervised(
                start.command, cwd=launch.cwd, env=start.env, mark=mark, inner_mark=start.mark
            ) as child,
            OpenCodeClient.at(_server_url(launch.hostname, port), launch.password) as client,
            task_group() as tasks,
        ):
            process = cls(child, client, tasks, launch)
            await process._wait_until_ready(launch.start_timeout)
            try:
                yield process
            finally:
                tasks.cancel_scope.cancel()

    @classmethod
    @abstractmethod
    def _arguments(cls, launch: OpenCodeLaunch, port: int) -> Sequence[str]:
        """The program's arguments."""

    @abstractmethod
    async def _connect(self) -> None:
        """Return when it answers; raises `WorkerCrashed` if it ends before."""

    @abstractmethod
    async def open(
        self,
        spec: WorkerSpec,
        *,
        direct: bool,
        instructions: Sequence[Path],
        earlier: BaseSession | None,
    ) -> BaseSession:
        """Open a worker's session; `earlier` is the same one in a process that it has left."""

    @abstractmethod
    async def boot(self, gate: Gate, cwd: Path) -> None:
        """Load a directory, which takes seconds, before the first real prompt there.

        A throwaway session prompts the gate's own model, which costs nothing.
        """

    async def dispose(self, cwd: Path) -> None:
        """Free the memory of a directory; it can be booted again."""
        self.guard.unloaded(str(cwd))
        await self.client.dispose(str(cwd))

    def kill(self, reason: str) -> None:
        """End it immediately: it does not answer any more."""
        self._kill_reason = reason
        send_signal(self.pid, signal.SIGKILL)

    async def is_ending(self) -> bool:
        """Whether it is gone, or about to be: its server breaks a moment before its pipes do."""
        with anyio.move_on_after(EXIT_CODE_TIMEOUT_S):
            await self.gone.wait()
        return self.gone.is_set()

    async def crash(self) -> WorkerCrashed:
        """How it ended, as an error."""
        with anyio.move_on_after(EXIT_CODE_TIMEOUT_S):
            await self._child.wait()
            await self.gone.wait()
        code = self._child.returncode
        stderr = without_colours(self._child.stderr)
        ending = f"ended with code {code}" if code is not None else "hung up"
        ending = self._kill_reason or ending
        # A killed process had no last words: what stands there is about other sessions.
        last = f": {stderr[-500:]}" if stderr and (code is None or code >= 0) else ""
        return WorkerCrashed(
            f"{OPENCODE_NAME} (pid {self.pid}) {ending}{last}", returncode=code, stderr=stderr
        )

    async def _wait_until_ready(self, timeout: float) -> None:  # noqa: ASYNC109 (its own error)
        try:
            with anyio.fail_after(timeout):
                await self._connect()
                await self._follow_events()
        except TimeoutError:
            message = f"{OPENCODE_NAME} (pid {self.pid}) was not ready within {timeout:g} s"
            raise WorkerCrashed(message, stderr=self._child.stderr) from None
        except WorkerCrashed:
            raise await self._failed_start() from None

    async def _follow_events(self) -> None:
        """Receive the events of all sessions, before there is one."""
        await self._tasks.start(self.router.run)

    async def _failed_start(self) -> WorkerError:
        crash = await self.crash()
        # Two first starts on one database look the same, and are retried.
        unusable = None if self._is_first else database_error(crash.stderr, self._launch.database)
        return unusable or crash


def free_port() -> int:
    """A port for OpenCode, which does not report the one it takes. A lost race is retried."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _server_url(hostname: str, port: int) -> str:
    """The address of a server that listens there; one that listens everywhere is here too."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(hostname, hostname)  # noqa: S104 (a setting's value)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@asynccontextmanager
async def first_start(database: Path) -> AsyncGenerator[Callable[[], None]]:
    """Wait for any other first start; the next one may begin on leaving, or when `done` is called."""
    try:
        database.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        make_private(database)
        folder = os.open(database.parent, os.O_RDONLY)
    except OSError as error:
        raise EnvironmentTrouble(
            f"OpenCode's data folder {str(database.parent)!r} cannot be used: {error.strerror}"
        ) from error

    def done() -> None:
        make_private(database)
        fcntl.flock(folder, fcntl.LOCK_UN)

    try:
        with anyio.move_on_after(LOCK_TIMEOUT_S):
            while not _try_lock(folder):  # noqa: ASYNC110 (a file lock can only be polled)
                await anyio.sleep(LOCK_POLL_S)
        if await anyio.Path(database).exists():
            done()
        yield done
    finally:
        os.close(folder)


def make_private(database: Path) -> None:
    """Take group and world access from the database, which OpenCode creates with mode 644.

    Files that SQLite creates beside the database get the database's mode.
    """
    for end in ("", "-wal", "-shm"):
        path = database.with_name(f"{database.name}{end}")
        with suppress(OSError):  # missing, or on a file system without modes
            info = path.lstat()
            ours = info.st_uid == os.geteuid() and not stat.S_ISLNK(info.st_mode)
            if ours and info.st_mode & OTHERS_BITS:
                path.chmod(stat.S_IMODE(info.st_mode) & ~OTHERS_BITS)


def _try_lock(folder: int) -> bool:
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
