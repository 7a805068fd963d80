"""What is one running `opencode serve` of ours?"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup

from goent.domain.errors import ProtocolError, WorkerCrashed, WorkerError
from goent.domain.ports import Gate, WorkerSpec
from goent.drivers.opencode.client import Client
from goent.drivers.opencode.content import WARM
from goent.drivers.opencode.conversation import Conversation
from goent.drivers.opencode.environment import Launch
from goent.drivers.opencode.events import WHOLE
from goent.drivers.opencode.hosted import NAME, Hosted, free_port
from goent.drivers.opencode.switchboard import Switchboard
from goent.drivers.opencode_serve.session import ServeSession
from goent.drivers.tasks import task_group
from goent.proc import Supervised, supervised

ASK_AGAIN = 0.1
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
        """Ready for sessions on entry; raises `WorkerCrashed` if it does not get there."""
        port = free_port()
        command = [str(launch.program), "serve", "--hostname=127.0.0.1", f"--port={port}"]
        env = await to_thread.run_sync(launch.variables)
        async with (
            supervised(command, cwd=launch.cwd, env=env, mark=mark) as child,
            Client.at(f"http://127.0.0.1:{port}", launch.password) as client,
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
            await self.client.ask(session, model=WARM, text="ok", patience=BOOT_TIMEOUT)
        finally:
            gate.unbind(session)
            with anyio.CancelScope(shield=True), suppress(WorkerError):
                await self.client.delete(session)

    async def _wait(self) -> None:
        await self._child.wait()
        self.gone.set()

    async def _be_ready(self, patience: float) -> None:
        with anyio.move_on_after(patience):
            while not self.gone.is_set():
                # Its own password is needed for the answer: another server there does not pass.
                with suppress(ProtocolError):
                    await self.client.health()
                    await self._tasks.start(self.switchboard.run)
                    return
                await anyio.sleep(ASK_AGAIN)
            raise await self.crash()
        message = f"{NAME} (pid {self.pid}) was not ready within {patience:g} s"
        raise WorkerCrashed(message, stderr=self._child.stderr)


async def _drain(child: Supervised) -> None:
    """It says on its standard output that it listens; a full pipe would stop it."""
    with suppress(anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
        while True:
            await child.stdout.receive()
