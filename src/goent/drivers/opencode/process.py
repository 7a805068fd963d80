"""What is one running OpenCode: an ACP line, an HTTP server, and whose session is whose?"""

import re
import signal
import socket
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Protocol

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup, TaskStatus

from goent.acp.asks import Cancelled, PermissionOutcome, PermissionRequest
from goent.acp.updates import AnyUpdate
from goent.domain.errors import ProtocolError, WorkerCrashed
from goent.drivers.acp_connection import AgentConnection
from goent.drivers.opencode.environment import Launch
from goent.drivers.opencode.events import (
    Connected,
    PermissionQuestion,
    RetryStatus,
    SessionCreated,
    SessionError,
    SessionFault,
    SessionStatus,
    Told,
    listen,
)
from goent.drivers.opencode.inner import Inner, Question
from goent.drivers.opencode.tasks import task_group
from goent.proc import Supervised, supervised
from goent.proc.marks import send
from goent.rpc import RpcError

NAME = "OpenCode"
LISTEN_TIMEOUT = 15.0
RECONNECT = 0.2
LAST_WORDS = 2.0  # seconds for the exit code, once the line is dead
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class Listener(Protocol):
    """A session of ours, as the process sees it."""

    @property
    def directory(self) -> str: ...

    async def update(self, update: AnyUpdate) -> None: ...

    async def request_permission(self, request: PermissionRequest) -> PermissionOutcome: ...

    async def child_asked(self, question: Question) -> None: ...

    async def retrying(self, status: RetryStatus) -> None: ...

    def failed(self, fault: SessionFault) -> None: ...


class OpenCodeProcess:
    """One `opencode acp`. It exists only inside `running`; `gone` is set when it hangs up."""

    def __init__(self, child: Supervised, inner: Inner, tasks: TaskGroup, launch: Launch) -> None:
        self.connection = AgentConnection(child.stdout, child.stdin, self, name=NAME)
        self.inner = inner
        self.token = launch.token
        self.pid = child.pid
        self.gone = anyio.Event()
        self._child = child
        self._tasks = tasks
        self._sessions: dict[str, Listener] = {}
        self._parents: dict[str, str] = {}
        self._heard: set[str] = set()
        self._given_up = ""

    @classmethod
    @asynccontextmanager
    async def running(cls, launch: Launch, mark: str) -> "AsyncGenerator[OpenCodeProcess]":
        """Ready for sessions on entry; raises `WorkerCrashed` if it does not get there."""
        port = _free_port()
        command = [str(launch.program), "acp", "--port", str(port)]
        env = await to_thread.run_sync(launch.variables)
        async with (
            supervised(command, cwd=launch.cwd, env=env, mark=mark) as child,
            Inner.at(port, launch.password) as inner,
            task_group() as tasks,
        ):
            process = cls(child, inner, tasks, launch)
            tasks.start_soon(process._serve)
            await process._shake_hands(launch.start_timeout)
            try:
                yield process
            finally:
                tasks.cancel_scope.cancel()

    def add(self, session: str, listener: Listener) -> None:
        self._sessions[session] = listener

    def remove(self, session: str) -> None:
        self._sessions.pop(session, None)
        self._parents = {
            child: parent for child, parent in self._parents.items() if parent != session
        }

    def give_up(self, why: str) -> None:
        """End it at once: it can no longer be asked to."""
        self._given_up = why
        send(self.pid, signal.SIGKILL)

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
            f"{NAME} (pid {self.pid}) {ending}{last}", returncode=code, stderr=stderr
        )

    async def update(self, session_id: str, update: AnyUpdate) -> None:
        if listener := self._sessions.get(session_id):
            await listener.update(update)

    async def request_permission(self, request: PermissionRequest) -> PermissionOutcome:
        listener = self._sessions.get(request.session_id)
        return await listener.request_permission(request) if listener else Cancelled()

    async def _serve(self) -> None:
        try:
            await self.connection.run()
        finally:
            self.gone.set()

    async def _shake_hands(self, patience: float) -> None:
        try:
            with anyio.fail_after(patience):
                await self.connection.initialize()
                await self._tasks.start(self._listen)
        except TimeoutError:
            message = f"{NAME} (pid {self.pid}) was not ready within {patience:g} s"
            raise WorkerCrashed(message, stderr=self._child.stderr) from None
        except WorkerCrashed:
            raise await self.crash() from None
        except RpcError as error:
            raise ProtocolError(f"{NAME} refused the handshake: {error.message}") from error

    async def _listen(self, *, task_status: TaskStatus[None]) -> None:
        up = False
        while not self.gone.is_set():
            with suppress(ProtocolError):
                async with aclosing(listen(self.inner)) as events:
                    async for told in events:
                        await self._hear(told)
                        if isinstance(told, Connected) and not up:
                            up = True
                            task_status.started()
            await anyio.sleep(RECONNECT)

    async def _hear(self, told: Told) -> None:
        match told:
            case SessionCreated(info=info) if info.parent:
                self._parents[info.id] = self._parents.get(info.parent, info.parent)
            case SessionStatus(session=session, status=status) if status.type == "retry":
                if listener := self._listener(session):
                    await listener.retrying(status)
            case SessionError(session=session, error=error):
                if listener := self._sessions.get(session):
                    listener.failed(error)
            case PermissionQuestion():
                await self._hear_question(told)
            case Connected():
                await self._catch_up()
            case _:
                pass

    async def _catch_up(self) -> None:
        """Questions that were asked while the event stream was broken."""
        with suppress(ProtocolError):
            for directory in {listener.directory for listener in self._sessions.values()}:
                for question in await self.inner.questions(directory):
                    await self._hear_question(question)

    async def _hear_question(self, question: Question) -> None:
        if question.session in self._sessions or question.id in self._heard:
            return  # ACP brings it, or we know
        self._heard.add(question.id)
        if question.session not in self._parents:
            with suppress(ProtocolError):
                parent = (await self.inner.session(question.session)).parent or ""
                self._parents[question.session] = self._parents.get(parent, parent)
        if listener := self._listener(question.session):
            self._tasks.start_soon(listener.child_asked, question)

    def _listener(self, session: str) -> Listener | None:
        return self._sessions.get(self._parents.get(session, session))


def _free_port() -> int:
    """OpenCode tells nobody which port it took, so it is given one; a race is tried again."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
