"""What is one running `opencode acp`: an ACP line, an HTTP server, and whose session is whose?"""

from abc import ABC
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Protocol

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup

from goent.acp.asks import Cancelled, PermissionOutcome, PermissionRequest
from goent.acp.messages import AuthMethod
from goent.acp.updates import AnyUpdate
from goent.domain.errors import ProtocolError, WorkerCrashed
from goent.drivers.acp_connection import AgentConnection
from goent.drivers.acp_login import chosen
from goent.drivers.opencode.client import Client
from goent.drivers.opencode.environment import Launch
from goent.drivers.opencode.events import BESIDE_ACP
from goent.drivers.opencode.hosted import NAME, Hosted, free_port
from goent.drivers.opencode.switchboard import Listener, Switchboard
from goent.drivers.opencode.version import check_program, check_version
from goent.drivers.tasks import task_group
from goent.proc import Supervised, supervised
from goent.rpc import RpcError


class AcpListener(Listener, Protocol):
    """A session of ours, as the process sees it."""

    async def update(self, update: AnyUpdate) -> None: ...

    async def request_permission(self, request: PermissionRequest) -> PermissionOutcome: ...


class OpenCodeProcess(Hosted, ABC):
    """One `opencode acp`. It exists only inside `running`; `gone` is set when it hangs up."""

    def __init__(self, child: Supervised, inner: Client, tasks: TaskGroup, launch: Launch) -> None:
        super().__init__(child, inner, launch)
        self.connection = AgentConnection(child.stdout, child.stdin, self, name=NAME)
        self._tasks = tasks
        self._switchboard = Switchboard(inner, tasks, BESIDE_ACP)
        self._sessions: dict[str, AcpListener] = {}
        self.login: AuthMethod | None = None

    @classmethod
    @asynccontextmanager
    async def running(cls, launch: Launch, mark: str) -> "AsyncGenerator[OpenCodeProcess]":
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
            Client.at(f"http://127.0.0.1:{port}", launch.password) as inner,
            task_group() as tasks,
        ):
            process = cls(child, inner, tasks, launch)
            tasks.start_soon(process._serve)
            await process._shake_hands(launch.start_timeout)
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
        return await listener.request_permission(request) if listener else Cancelled()

    async def _serve(self) -> None:
        try:
            await self.connection.run()
        finally:
            self.gone.set()

    async def _shake_hands(self, patience: float) -> None:
        try:
            with anyio.fail_after(patience):
                hello = await self.connection.initialize()
                self.login = chosen(hello.auth_methods or ())
                said = hello.agent_info.version if hello.agent_info else ""
                check_version(said, repr(str(self._launch.program)))
                await self._tasks.start(self._switchboard.run)
        except TimeoutError:
            message = f"{NAME} (pid {self.pid}) was not ready within {patience:g} s"
            raise WorkerCrashed(message, stderr=self._child.stderr) from None
        except WorkerCrashed:
            raise await self.failed_start() from None
        except RpcError as error:
            raise ProtocolError(f"{NAME} refused the handshake: {error.message}") from error
