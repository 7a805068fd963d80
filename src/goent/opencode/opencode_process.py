"""Runs one OpenCode process: its first start, its server, its ACP line, its warm directories.

The first process of a data folder makes its database there, and two that do so at once can break
each other. So one makes it while the others wait, in this go-ent and in those of other projects.

OpenCode boots a directory with the first prompt there that reaches a model, which takes seconds.
So a throwaway session asks the gate's own model, which costs nothing, and is deleted.
"""

import fcntl
import os
import re
import signal
import socket
import stat
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Protocol

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup

from goent.acp.agent_messages import (
    AnyUpdate,
    PermissionCancelled,
    PermissionOutcome,
    PermissionRequest,
)
from goent.acp.client_messages import AuthMethod
from goent.acp.message_parts import AcpText
from goent.agents.agent_connection import AgentConnection, choose_login
from goent.agents.opencode_program import OPENCODE_NAME, check_program, check_version
from goent.domain.errors import EnvironmentTrouble, ProtocolError, WorkerCrashed, WorkerError
from goent.domain.ports import Gate, WorkerSpec
from goent.opencode.call_guard import ProcessGuard
from goent.opencode.config_overlay import WARM
from goent.opencode.event_stream import EVENTS_BESIDE_ACP, EventRouter, SessionListener
from goent.opencode.opencode_turn import database_error
from goent.opencode.process_launch import OpenCodeLaunch
from goent.opencode.server_api import OpenCodeClient
from goent.opencode.session import BaseSession
from goent.proc.child_process import SupervisedProcess, supervised
from goent.proc.concurrency import task_group
from goent.proc.process_table import send_signal
from goent.rpc.json_rpc import RpcError

POLL_S = 0.1
OTHERS = 0o077
LOCK_TIMEOUT_S = 90.0  # seconds; then a start beside another one is the smaller evil


@asynccontextmanager
async def first_start(database: Path) -> AsyncGenerator[Callable[[], None]]:
    """Entered when nobody makes the database; left, or `done` called, once it is made."""
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
            while not _try_lock(folder):  # noqa: ASYNC110 (a lock of another process announces nothing)
                await anyio.sleep(POLL_S)
        if _is_made(database):
            done()
        yield done
    finally:
        os.close(folder)


def make_private(database: Path) -> None:
    """Nobody else is to read what OpenCode keeps: it gives its database mode 644.

    What SQLite makes anew beside the database gets the database's mode.
    """
    for end in ("", "-wal", "-shm"):
        path = database.with_name(f"{database.name}{end}")
        with suppress(OSError):  # it is not there, or its file system knows no modes
            info = path.lstat()
            ours = info.st_uid == os.geteuid() and not stat.S_ISLNK(info.st_mode)
            if ours and info.st_mode & OTHERS:
                path.chmod(stat.S_IMODE(info.st_mode) & ~OTHERS)


def _is_made(database: Path) -> bool:
    return database.exists()


def _try_lock(folder: int) -> bool:
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


LAST_WORDS = 2.0  # seconds for the exit code, once the line is dead
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class HostProcess(ABC):
    """One process with OpenCode's HTTP server in it; `gone` is set when it has ended."""

    def __init__(
        self, child: SupervisedProcess, inner: OpenCodeClient, launch: OpenCodeLaunch
    ) -> None:
        self.client = inner
        self.token = launch.token
        self.pid = child.pid
        self.gone = anyio.Event()
        self.guard = ProcessGuard(launch.shell_variables, launch.hint)
        self._child = child
        self._launch = launch
        self._is_first = not launch.database.exists()
        self._given_up = ""

    @abstractmethod
    async def open(
        self,
        spec: WorkerSpec,
        *,
        direct: bool,
        instructions: Sequence[Path],
        earlier: BaseSession | None,
    ) -> BaseSession:
        """A worker's session; `earlier` is the same one in a process that it has left."""

    @abstractmethod
    async def boot(self, gate: Gate, cwd: Path) -> None:
        """Make a directory quick before the first real prompt in it."""

    async def dispose(self, cwd: Path) -> None:
        """Give the memory of a directory back; it can be booted again."""
        self.guard.unloaded(str(cwd))
        await self.client.dispose(str(cwd))

    def kill(self, why: str) -> None:
        """End it at once: it can no longer be asked to."""
        self._given_up = why
        send_signal(self.pid, signal.SIGKILL)

    async def is_ending(self) -> bool:
        """Whether it is gone, or about to be: its server breaks a moment before its pipes do."""
        with anyio.move_on_after(LAST_WORDS):
            await self.gone.wait()
        return self.gone.is_set()

    async def crash(self) -> WorkerCrashed:
        """What to tell whoever relied on it."""
        with anyio.move_on_after(LAST_WORDS):
            await self._child.wait()
            await self.gone.wait()
        code = self._child.returncode
        stderr = _COLOURS.sub("", self._child.stderr)
        ending = f"ended with code {code}" if code is not None else "hung up"
        ending = self._given_up or ending
        # Who was killed had no last words: what stands there is about other sessions.
        spoke = bool(stderr) and (code is None or code >= 0)
        last = f": {stderr[-500:]}" if spoke else ""
        return WorkerCrashed(
            f"{OPENCODE_NAME} (pid {self.pid}) {ending}{last}", returncode=code, stderr=stderr
        )

    async def failed_start(self) -> WorkerError:
        """What to tell of one that ended before it was ready."""
        crash = await self.crash()
        # Two first starts on one database look the same, and are tried again.
        trouble = None if self._is_first else database_error(crash.stderr, self._launch.database)
        return trouble or crash


def free_port() -> int:
    """OpenCode tells nobody which port it took, so it is given one; a race is tried again."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


class AcpListener(SessionListener, Protocol):
    """A session of ours, as the process sees it."""

    async def update(self, update: AnyUpdate) -> None: ...

    async def request_permission(self, request: PermissionRequest) -> PermissionOutcome: ...


class AcpProcess(HostProcess, ABC):
    """One `opencode acp`. It exists only inside `running`; `gone` is set when it hangs up."""

    def __init__(
        self,
        child: SupervisedProcess,
        inner: OpenCodeClient,
        tasks: TaskGroup,
        launch: OpenCodeLaunch,
    ) -> None:
        super().__init__(child, inner, launch)
        self.connection = AgentConnection(child.stdout, child.stdin, self, name=OPENCODE_NAME)
        self._tasks = tasks
        self._switchboard = EventRouter(inner, tasks, EVENTS_BESIDE_ACP)
        self._sessions: dict[str, AcpListener] = {}
        self.login: AuthMethod | None = None

    @classmethod
    @asynccontextmanager
    async def running(cls, launch: OpenCodeLaunch, mark: str) -> "AsyncGenerator[AcpProcess]":
        """Ready for sessions on entry; raises a `WorkerError` if it does not get there."""
        await check_program(launch.program, launch.env, patience=launch.start_timeout)
        port = free_port()
        command = [str(launch.program), "acp", "--port", str(port)]
        env = await to_thread.run_sync(launch.variables)
        async with (
            launch.confined(command, env, port) as start,
            supervised(
                start.command, cwd=launch.cwd, env=start.env, mark=mark, inner_mark=start.mark
            ) as child,
            OpenCodeClient.at(f"http://127.0.0.1:{port}", launch.password) as inner,
            task_group() as tasks,
        ):
            process = cls(child, inner, tasks, launch)
            tasks.start_soon(process._serve)
            await process._initialize(launch.start_timeout)
            try:
                yield process
            finally:
                tasks.cancel_scope.cancel()

    def add(self, session: str, listener: AcpListener) -> None:
        self._sessions[session] = listener
        self._switchboard.add(session, listener)

    def remove(self, session: str) -> None:
        self._sessions.pop(session, None)
        self._switchboard.remove(session)

    async def update(self, session_id: str, update: AnyUpdate) -> None:
        if listener := self._sessions.get(session_id):
            await listener.update(update)

    async def request_permission(self, request: PermissionRequest) -> PermissionOutcome:
        listener = self._sessions.get(request.session_id)
        return await listener.request_permission(request) if listener else PermissionCancelled()

    async def _serve(self) -> None:
        try:
            await self.connection.run()
        finally:
            self.gone.set()

    async def _initialize(self, patience: float) -> None:
        try:
            with anyio.fail_after(patience):
                hello = await self.connection.initialize()
                self.login = choose_login(hello.auth_methods or ())
                said = hello.agent_info.version if hello.agent_info else ""
                check_version(said, repr(str(self._launch.program)))
                await self._tasks.start(self._switchboard.run)
        except TimeoutError:
            message = f"{OPENCODE_NAME} (pid {self.pid}) was not ready within {patience:g} s"
            raise WorkerCrashed(message, stderr=self._child.stderr) from None
        except WorkerCrashed:
            raise await self.failed_start() from None
        except RpcError as error:
            raise ProtocolError(
                f"{OPENCODE_NAME} refused the handshake: {error.message}"
            ) from error


WARM_UP_TIMEOUT_S = 60.0


async def boot_directory(process: AcpProcess, gate: Gate, cwd: Path) -> None:
    """Raises a `WorkerError` if the directory could not be booted."""
    try:
        session = (await process.connection.new_session(str(cwd))).session_id
        gate.bind(token=process.token, session=session, worker=None)
        try:
            await process.connection.set_model(session, WARM)
            await process.connection.prompt(
                session, [AcpText(text="ok")], timeout=WARM_UP_TIMEOUT_S
            )
        finally:
            await _delete_session(process, gate, session)
    except RpcError as error:
        raise ProtocolError(f"warming up {str(cwd)!r} failed: {error.message}") from error


async def _delete_session(process: AcpProcess, gate: Gate, session: str) -> None:
    gate.unbind(session)
    with (
        anyio.CancelScope(shield=True),
        anyio.move_on_after(5),
        suppress(WorkerError, RpcError, TimeoutError),
    ):
        await process.connection.close_session(session)
        await process.client.delete(session)
