"""How is an OpenCode server used that somebody else runs?

It is never started nor stopped, and it has a configuration and keys of its own: its model calls do
not pass our gate, so they are metered by what OpenCode reports. It must see the same files.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from http import HTTPStatus

import anyio
from anyio.abc import TaskGroup

from goent.domain.errors import OpenCodeMissing, ProtocolError, WorkerCrashed
from goent.domain.ports import WorkerSpec
from goent.drivers.opencode.client import Client
from goent.drivers.opencode.events import WHOLE
from goent.drivers.opencode.switchboard import Switchboard
from goent.drivers.opencode.version import check_version
from goent.drivers.opencode_serve.session import ServeSession
from goent.drivers.tasks import task_group

LOOK = 1.0
PATIENCE = 30.0  # seconds without its event stream before it counts as gone
IF_REFUSED = (
    "name the variable that holds it in opencode.serve_password_env, and set it where go-ent runs"
)
REMEDY = (
    "start it (`opencode serve --port N`), or take opencode.serve_url out of .goent/config.yaml, "
    "and go-ent runs a server of its own"
)


class Outside:
    """A server at an address, for one worker; `gone` is set when it stays away."""

    server_pid = None
    guard = None  # it was started without ours

    def __init__(self, url: str, client: Client, tasks: TaskGroup) -> None:
        self.url = url
        self.client = client
        self.switchboard = Switchboard(client, tasks, WHOLE)
        self.gone = anyio.Event()

    async def crash(self) -> WorkerCrashed:
        return WorkerCrashed(f"the OpenCode server at {self.url!r} answers no more: {REMEDY}")

    async def is_ending(self) -> bool:
        return self.gone.is_set()

    async def watch(self) -> None:
        while not self.gone.is_set():
            await anyio.sleep(LOOK)
            broken = self.switchboard.broken_since
            if broken is not None and anyio.current_time() - broken > PATIENCE:
                self.gone.set()


@asynccontextmanager
async def session_at(url: str, password: str, spec: WorkerSpec) -> AsyncGenerator[ServeSession]:
    """A worker's session on the server; raises `OpenCodeMissing` if nobody is there."""
    async with Client.at(url, password) as client, task_group() as tasks:
        server = Outside(url, client, tasks)
        await reach(client, f"opencode.serve_url {url!r}", if_refused=IF_REFUSED, remedy=REMEDY)
        await tasks.start(server.switchboard.run)
        tasks.start_soon(server.watch)
        session = await ServeSession.start(server, spec, direct=True)
        try:
            yield session
        finally:
            with anyio.CancelScope(shield=True):
                await session.close()
            tasks.cancel_scope.cancel()


async def reach(client: Client, where: str, *, if_refused: str, remedy: str) -> None:
    """Raises `OpenCodeMissing` if no healthy server is `where`, with what can be done about it.

    And `UnsupportedVersion` if it is one of a version that go-ent does not work with.
    """
    try:
        health = await client.health()
    except ProtocolError as error:
        if f": {HTTPStatus.UNAUTHORIZED.value} " in f"{error} ":
            raise OpenCodeMissing(f"{where} refuses the password: {if_refused}") from error
        raise OpenCodeMissing(f"{where} does not answer ({error}): {remedy}") from error
    if health.version:
        check_version(health.version, where, remedy=remedy)
    if not health.healthy:
        raise OpenCodeMissing(f"{where} is no OpenCode server, or not a healthy one: {remedy}")
