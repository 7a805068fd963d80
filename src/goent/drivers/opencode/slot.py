"""What is known of the place for one process, from before its start until after its end?"""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import anyio

from goent.domain.errors import WorkerCrashed, WorkerError
from goent.domain.ports import Gate
from goent.drivers.opencode.environment import Launch
from goent.drivers.opencode.hosted import Hosted

DIRECTORIES = 10  # a process with more gets slow, with forty it has been seen to hang
COLD_STARTS = 2  # directories that one process boots at a time
WARM_TIMEOUT = 60.0


class Tenant(Protocol):
    """A worker's session, as its slot sees it. `busy_since` is when its turn began."""

    @property
    def directory(self) -> Path: ...

    @property
    def busy_since(self) -> float | None: ...

    async def leave_if_idle(self) -> None: ...


class Slot:
    """A place for one process. `worn` says why it takes no further work, if it does not.

    `another` makes what starts a second one like it. One in reserve has not had a worker yet.
    Tenants call `rested` when a turn of theirs is over.
    """

    def __init__(
        self,
        launch: Callable[[], Launch],
        *,
        dedicated: bool,
        reserve: bool = False,
        rested: Callable[[], None] = lambda: None,
    ) -> None:
        self.launch = launch()
        self.another = launch
        self.reserve = reserve
        self.rested = rested
        self.dedicated = dedicated
        self.users = 0
        self.tenants: set[Tenant] = set()
        self.directories: set[Path] = set()
        self.worn = ""
        self.retired = anyio.Event()
        self.finished = anyio.Event()
        self.booting = anyio.CapacityLimiter(COLD_STARTS)
        self._ready = anyio.Event()
        self._process: Hosted | None = None
        self._error: WorkerError | None = None
        self._warmed: dict[Path, anyio.Event] = {}

    @property
    def is_gone(self) -> bool:
        """There was a process, and there is none."""
        ended = self._process is not None and self._process.gone.is_set()
        return ended or self.finished.is_set()

    @property
    def is_fit(self) -> bool:
        """For several workers, and for new ones."""
        return not (self.dedicated or self.retired.is_set() or self.is_gone or self.worn)

    @property
    def is_full(self) -> bool:
        return len(self.directories) >= DIRECTORIES

    @property
    def is_at_rest(self) -> bool:
        """All who are there have a session, and nothing to do."""
        idle = sum(tenant.busy_since is None for tenant in self.tenants)
        return idle == self.users

    def serves(self, fingerprint: str, cwd: Path) -> bool:
        """Fit for a new worker there."""
        room = cwd in self.directories or not self.is_full
        return self.is_fit and room and self.launch.fingerprint == fingerprint

    async def process(self) -> Hosted:
        """The running process, once it runs; raises why it does not."""
        await self._ready.wait()
        if self._process is None:
            raise self._error or WorkerCrashed("OpenCode was stopped while it started")
        return self._process

    async def warm_up(self, gate: Gate, cwd: Path) -> None:
        """Boot the directory, once, however many ask for it."""
        if cwd in self._warmed:
            await self.until_warm(cwd)
            return
        done = self._warmed[cwd] = anyio.Event()
        try:
            async with self.booting:
                await (await self.process()).boot(gate, cwd)
        except BaseException:
            del self._warmed[cwd]
            raise
        finally:
            done.set()

    async def until_warm(self, cwd: Path) -> None:
        """Wait for a boot that is under way: a second one beside it would double the work."""
        if done := self._warmed.get(cwd):
            with anyio.move_on_after(WARM_TIMEOUT):
                await done.wait()

    def start(self, process: Hosted) -> None:
        self._process = process
        self._ready.set()

    def fail(self, error: WorkerError) -> bool:
        """Note why it did not start; True if it did."""
        self._error = error
        return self._process is not None

    def finish(self) -> None:
        self._ready.set()
        self.finished.set()
