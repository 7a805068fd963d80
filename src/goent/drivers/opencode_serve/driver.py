"""How do workers run on `opencode serve`?

As by `acp`, one warm process is shared by many workers and outlived by their sessions; only the
process is another one, and it is spoken to over HTTP alone. With `opencode.serve_url` there is no
process of ours: workers are sessions on the server at that address.
"""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from goent.domain.errors import RequestError
from goent.domain.ports import Gate, Session, WorkerSpec
from goent.drivers.environment import Surroundings
from goent.drivers.opencode.driver import OpenCodeDriver
from goent.drivers.opencode.environment import Launch
from goent.drivers.opencode.hosted import Hosted
from goent.drivers.opencode_serve.outside import session_at
from goent.drivers.opencode_serve.server import ServeProcess


class OurServers(OpenCodeDriver):
    """The port `Driver`, by servers that we start."""

    @staticmethod
    def run(launch: Launch, mark: str) -> AbstractAsyncContextManager[Hosted]:
        return ServeProcess.running(launch, mark)


class OpenCodeServeDriver:
    """The port `Driver`, by a server of ours or the one that the settings name."""

    def __init__(self, ours: OurServers, around: Surroundings) -> None:
        self._ours = ours
        self._around = around

    @classmethod
    @asynccontextmanager
    async def running(
        cls, around: Surroundings, gate: Gate, *, owner: str
    ) -> "AsyncGenerator[OpenCodeServeDriver]":
        """On leaving, every server that it has started is ended, and no other."""
        async with OurServers.running(around, gate, owner=owner) as ours:
            yield cls(ours, around)

    @asynccontextmanager
    async def open(self, spec: WorkerSpec) -> AsyncGenerator[Session]:
        """A session for one worker, closed on leaving."""
        where = self._around.settings().opencode
        if where.serve_url is None:
            async with self._ours.open(spec) as session:
                yield session
            return
        if not spec.cwd.is_dir():
            raise RequestError(f"the directory {str(spec.cwd)!r} does not exist")
        password = self._around.environ().get(where.serve_password_env or "", "")
        async with session_at(where.serve_url, password, spec) as session:
            yield session
