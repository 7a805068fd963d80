"""Which server serves an attempt? One for each set of server settings, for as long as the run lasts.

The pool is the drivers': it starts a server when one is needed, looks whether it answers, replaces one
that died or has grown too large, and ends them all. A server stands some ten directories at work at
once; more are given a second one.
"""

from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

import anyio
from anyio.abc import TaskGroup
from msgspec.structs import replace

from goent.domain.errors import WorkerCrashed
from goent.drivers.environment import Surroundings
from goent.drivers.opencode.client import USER, Client
from goent.drivers.opencode.environment import Launch
from goent.drivers.opencode.guard import ProcessGuard
from goent.drivers.opencode.hosted import Hosted
from goent.drivers.opencode.pool import Pool
from goent.drivers.opencode.slot import COLD_STARTS
from goent.drivers.opencode_serve.outside import reach
from goent.drivers.opencode_serve.server import ServeProcess
from goent.drivers.tasks import task_group
from goent.drivers.vitals import Care
from goent.evals.targets.opencode.accounts import Accounts
from goent.evals.targets.opencode.launches import Terms
from goent.evals.targets.opencode.settings import OpenCodeSettings
from goent.project import state_path
from goent.sandbox.folders import is_below

PASSWORD, USERNAME = "OPENCODE_SERVER_PASSWORD", "OPENCODE_SERVER_USERNAME"
IF_REFUSED = f"set {PASSWORD} in the target's `env`"
REMEDY = (
    "start it (`opencode serve --port N`), or leave `base_url` out, and go-ent runs one of its own"
)


class QuietServer(ServeProcess):
    """A server whose sessions are listened to one by one, each in its own directory."""

    async def _listen(self) -> None:
        return


class Server(Protocol):
    """A running server, as an attempt sees it."""

    @property
    def client(self) -> Client: ...

    @property
    def gone(self) -> anyio.Event: ...

    @property
    def token(self) -> str: ...

    @property
    def guard(self) -> ProcessGuard | None: ...

    async def is_ending(self) -> bool: ...

    async def crash(self) -> WorkerCrashed: ...


class Outside:
    """One that somebody else runs: it is never stopped, and no call of it passes our gate."""

    token = ""
    guard = None

    def __init__(self, url: str, client: Client) -> None:
        self.client = client
        self.gone = anyio.Event()
        self._url = url

    async def is_ending(self) -> bool:
        return False

    async def crash(self) -> WorkerCrashed:
        return WorkerCrashed(f"the OpenCode server at {self._url!r} answers no more: {REMEDY}")


class Use:
    """A server for the time of one attempt; directories are made ready `booting` at a time."""

    def __init__(self, server: Server, booting: anyio.CapacityLimiter) -> None:
        self.server = server
        self.booting = booting


class Servers:
    """All servers of a run. They exist only inside `running`."""

    def __init__(
        self,
        tasks: TaskGroup,
        around: Surroundings,
        accounts: Accounts,
        *,
        owner: str,
        secrets: Callable[[], Collection[str]],
    ) -> None:
        self.around = around
        self.accounts = accounts
        self.secrets = secrets
        self.care = Care()
        self._tasks = tasks
        self._owner = owner
        self._pools: dict[str, Pool] = {}
        self._ports: dict[int, str] = {}  # those that were asked for, each by whose server has it

    @classmethod
    @asynccontextmanager
    async def running(
        cls,
        around: Surroundings,
        accounts: Accounts,
        *,
        owner: str,
        secrets: Callable[[], Collection[str]] = tuple,
    ) -> "AsyncGenerator[Servers]":
        """On leaving, however it is left, every server that was started is gone, and what it started."""
        async with task_group() as tasks:
            try:
                yield cls(tasks, around, accounts, owner=owner, secrets=secrets)
            finally:
                tasks.cancel_scope.cancel()

    @asynccontextmanager
    async def use(self, terms: Terms, cwd: Path) -> AsyncGenerator[Use]:
        """Raises `WorkerError` or `EnvironmentTrouble` if there is none and none can be had."""
        if terms.told.base_url is not None:
            async with self._outside(terms.told, terms.told.base_url) as outside:
                yield Use(outside, anyio.CapacityLimiter(COLD_STARTS))
            return
        gate = self.accounts.gate
        await self.around.sandbox.level()
        roots = self._roots(cwd)
        fingerprint = terms.fingerprint(self.around, gate, roots)
        if fingerprint not in self._pools:
            # One each: a pool ends what is idle and not its newest.
            self._pools[fingerprint] = Pool(
                self._tasks, gate, self._owner, self._started, care=lambda: self.care
            )
        async with self._pools[fingerprint].use(
            cwd,
            fingerprint,
            lambda: terms.launch(self.around, gate, roots),
            dedicated=not terms.told.shared_server,
        ) as slot:
            yield Use(_serving(await slot.process()), slot.booting)

    def _roots(self, cwd: Path) -> tuple[Path, ...]:
        """Where a server can write: where attempts usually work, or else in this one's folder."""
        usual = state_path(self.around.environ()) / "evals"
        writable = self.around.settings().sandbox.writable
        writes = self.around.sandbox.writes(cwd)
        return (usual,) if all(is_below(path, (usual, *writable)) for path in writes) else writes

    @asynccontextmanager
    async def _started(self, launch: Launch, mark: str) -> AsyncGenerator[ServeProcess]:
        """The port that was asked for is the first server's; a second one of the same settings has another."""
        port = launch.port
        has_it = self._ports.get(port)
        if has_it not in (None, launch.fingerprint):
            raise WorkerCrashed(
                f"port {port} is that of another target's server, whose settings are others: "
                "set another `port`, or none"
            )
        if not port or has_it:
            async with QuietServer.running(replace(launch, port=0), mark) as server:
                yield server
            return
        self._ports[port] = launch.fingerprint
        try:
            async with QuietServer.running(launch, mark) as server:
                yield server
        finally:
            del self._ports[port]

    @asynccontextmanager
    async def _outside(self, told: OpenCodeSettings, url: str) -> AsyncGenerator[Outside]:
        env = {**self.around.environ(), **told.env}
        user, password = env.get(USERNAME) or USER, env.get(PASSWORD, "")
        async with Client.at(url, password, user=user) as client:
            await reach(client, f"base_url {url!r}", if_refused=IF_REFUSED, remedy=REMEDY)
            yield Outside(url, client)


def _serving(process: Hosted) -> ServeProcess:
    assert isinstance(process, ServeProcess)
    return process
