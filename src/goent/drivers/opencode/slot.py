"""What is known of the place for one process, from before its start until after its end?"""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import anyio

from goent.domain.errors import WorkerCrashed, WorkerError
from goent.domain.ports import Gate
from goent.drivers.opencode.environment import Launch
from goent.drivers.opencode.hosted import Hosted
from goent.drivers.vitals import GB, read_vitals

DIRECTORIES = 10  # a process with more gets slow
MOST_DIRECTORIES = 20  # with forty it has been seen to hang
LIGHT = GB  # of memory: less is no reason for another process
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
    `directories` are those that it has booted, each with how many workers it serves there, the one
    that was asked for last at the end.
    """

    def __init__(
        self,
        launch: Callable[[], Launch],
        *,
        dedicated: bool,
        reserve: bool = False,
    ) -> None:
        self.launch = launch()
        self.another = launch
        self.reserve = reserve
        self.dedicated = dedicated
        self.tenants: set[Tenant] = set()
        self.directories: dict[Path, int] = {}
        self.worn = ""
        self.retired = anyio.Event()
        self.finished = anyio.Event()
        self.booting = anyio.CapacityLimiter(COLD_STARTS)
        self._ready = anyio.Event()
        self._process: Hosted | None = None
        self._error: WorkerError | None = None
        self._tidying = anyio.Lock()
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
    def users(self) -> int:
        """Workers that it serves, or is about to."""
        return sum(self.directories.values())

    def suits(self, fingerprint: str) -> bool:
        """Fit for a worker under these settings, were there room."""
        return self.is_fit and self.launch.fingerprint == fingerprint

    @property
    def has_room(self) -> bool:
        return len(self.directories) < DIRECTORIES

    @property
    def can_stretch(self) -> bool:
        """Whether more than its share of directories would do no harm."""
        vitals = read_vitals(self._process.pid) if self._process else None
        light = vitals is None or vitals.memory < LIGHT
        return light and len(self.directories) < MOST_DIRECTORIES

    def claim(self, cwd: Path) -> None:
        self.directories[cwd] = self.directories.pop(cwd, 0) + 1
        self.reserve = False

    def release(self, cwd: Path) -> None:
        if cwd in self.directories:
            self.directories[cwd] -= 1

    @property
    def resting(self) -> Path | None:
        """A directory where nothing is at work, or about to be: best one without workers."""
        idle = Counter(turn.directory for turn in self.tenants if turn.busy_since is None)
        resting = [cwd for cwd, users in self.directories.items() if users == idle[cwd]]
        return min(resting, key=idle.__getitem__, default=None)

    async def put_away(self, cwd: Path) -> None:
        """Let OpenCode forget the directory, unless somebody begins to work there."""
        async with self._tidying:
            await self.until_warm(cwd)
            for tenant in tuple(self.tenants):
                if tenant.directory == cwd and tenant in self.tenants:  # it may leave by itself
                    await tenant.leave_if_idle()
            if self.directories.get(cwd) == 0:
                del self.directories[cwd]
                await self._forget(cwd)

    async def _forget(self, cwd: Path) -> None:
        """Whoever comes to the directory meanwhile waits, as for a boot."""
        done = self._warmed[cwd] = anyio.Event()
        try:
            await (await self.process()).forget(cwd)
        finally:
            del self._warmed[cwd]
            done.set()

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
