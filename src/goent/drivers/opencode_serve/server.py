"""What is one running `opencode serve` of ours?"""

import os
import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup

from goent.domain.errors import ProtocolError, WorkerCrashed, WorkerError
from goent.domain.ports import Gate, WorkerSpec
from goent.drivers.opencode.client import Client, Words
from goent.drivers.opencode.content import WARM
from goent.drivers.opencode.conversation import Conversation
from goent.drivers.opencode.environment import Launch
from goent.drivers.opencode.events import WHOLE
from goent.drivers.opencode.hosted import NAME, Hosted, free_port
from goent.drivers.opencode.switchboard import Switchboard
from goent.drivers.opencode.version import check_program, check_version
from goent.drivers.opencode_serve.session import ServeSession
from goent.drivers.tasks import task_group
from goent.proc import Supervised, supervised
from goent.proc.guard import guarded

ASK_AGAIN = 0.1
# OpenCode never answers what reaches it in the moment in which it begins to listen.
FIRST_ANSWER = 0.5
BOOT_TIMEOUT = 60.0


class ServeProcess(Hosted):
    """The process, as the pool has it. It exists only inside `running`."""

    def __init__(self, child: Supervised, client: Client, tasks: TaskGroup, launch: Launch) -> None:
        super().__init__(child, client, launch)
        self.client = client
        self.switchboard = Switchboard(client, tasks, WHOLE)
        self.server_pid = self.pid
        self._tasks = tasks

    @classmethod
    @asynccontextmanager
    async def running(cls, launch: Launch, mark: str) -> "AsyncGenerator[ServeProcess]":
        """Ready for sessions on entry; raises a `WorkerError` if it does not get there.

        It does not outlive us, even if we are killed.
        """
        await check_program(launch.program, launch.env, patience=launch.start_timeout)
        port = launch.port or free_port()
        if launch.port:
            await to_thread.run_sync(_check_free, launch.hostname, port)
        where = (f"--hostname={launch.hostname}", f"--port={port}")
        command = [str(launch.program), "serve", *where, *launch.arguments]
        env = await to_thread.run_sync(launch.variables)
        async with (
            guarded(mark),
            launch.confined(command, env, port) as start,
            supervised(
                start.command, cwd=launch.cwd, env=start.env, mark=mark, inner_mark=start.mark
            ) as child,
            Client.at(_address(launch.hostname, port), launch.password) as client,
            task_group() as tasks,
        ):
            process = cls(child, client, tasks, launch)
            tasks.start_soon(process._wait)
            tasks.start_soon(_drain, child)
            await process._be_ready(launch.start_timeout)
            try:
                yield process
            finally:
                tasks.cancel_scope.cancel()

    async def open(
        self,
        spec: WorkerSpec,
        *,
        direct: bool,
        instructions: Sequence[Path],
        earlier: Conversation | None,
    ) -> Conversation:
        return await ServeSession.start(
            self, spec, direct=direct, instructions=instructions, earlier=earlier
        )

    async def boot(self, gate: Gate, cwd: Path) -> None:
        """A throwaway session asks the gate's own model, which costs nothing."""
        session = (await self.client.create(str(cwd), title="warm", rules=())).id
        gate.bind(token=self.token, session=session, worker=None)
        try:
            await self.client.ask(session, Words(model=WARM, text="ok"), patience=BOOT_TIMEOUT)
        finally:
            gate.unbind(session)
            with anyio.CancelScope(shield=True), suppress(WorkerError):
                await self.client.delete(session)

    async def _listen(self) -> None:
        """Have the events of all sessions, before there is one."""
        await self._tasks.start(self.switchboard.run)

    async def _wait(self) -> None:
        await self._child.wait()
        self.gone.set()

    async def _be_ready(self, patience: float) -> None:
        wait = FIRST_ANSWER
        with anyio.move_on_after(patience):
            while not self.gone.is_set():
                # Its own password is needed for the answer: another server there does not pass.
                asked = anyio.current_time()
                if await self.client.is_healthy(wait):
                    with suppress(ProtocolError):
                        said = (await self.client.health()).version
                        check_version(said, repr(str(self._launch.program)))
                        await self._listen()
                        return
                elif anyio.current_time() - asked >= wait:
                    wait *= 2
                await anyio.sleep(ASK_AGAIN)
            raise await self.failed_start()
        message = f"{NAME} (pid {self.pid}) was not ready within {patience:g} s"
        raise WorkerCrashed(message, stderr=self._child.stderr)


def _check_free(hostname: str, port: int) -> None:
    """OpenCode itself says only that something was unexpected. Names that nobody knows are its to refuse."""
    try:
        found = socket.getaddrinfo(hostname, port, type=socket.SOCK_STREAM)
    except OSError:
        return
    family, *_, where = found[0]
    try:
        socket.create_server(where[:2], family=family).close()
    except OSError as error:
        raise WorkerCrashed(
            f"port {port} of {hostname!r} cannot be had for {NAME}: {os.strerror(error.errno or 0)}; end "
            "whoever listens there, or set another `port`, or none: then a free one is taken"
        ) from error


def _address(hostname: str, port: int) -> str:
    """Where a server that listens there is reached; one that listens everywhere is here too."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(hostname, hostname)  # noqa: S104 (asked for by a setting)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def _drain(child: Supervised) -> None:
    """It says on its standard output that it listens; a full pipe would stop it."""
    with suppress(anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
        while True:
            await child.stdout.receive()
