"""Decides which OpenCode process serves a worker, and starts, replaces and retires processes.

A shared process takes many workers, but each directory that it has booted costs it memory, and its
settings cannot change. So a process is filled before another is started, passed over when it is
full, worn or out of date, and retired when its last worker has left. A full one unloads an idle
directory; if all are busy it takes some more, as long as it uses little memory. Idle sessions leave
a worn process or an unloaded directory, and are opened again with their next prompt.

While a turn runs, another process can be in reserve, with the turn's directory booted: it takes
over when a process is lost, worn or full, and is ended when nothing has run for a while.
"""

import logging
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Protocol

import anyio
from anyio.abc import TaskGroup

from goent.agents.process_vitals import GB, read_vitals
from goent.domain.errors import UnsupportedVersion, WorkerCrashed, WorkerError
from goent.domain.ports import Gate
from goent.opencode.opencode_process import BOOT_TIMEOUT_S, OpenCodeProcess, first_start
from goent.opencode.process_care import CarePolicy, is_reserve_wanted, read_machine, watch_process
from goent.opencode.process_launch import OpenCodeLaunch
from goent.proc.process_table import new_mark

MAX_SHARED_DIRECTORIES = 10  # a process with more of them gets slow
MAX_DIRECTORIES = 20  # with forty it was seen to hang
LIGHT_BYTES = GB  # of memory; below, a full process takes more directories
COLD_STARTS = 2  # directories that one process boots at a time
MAX_STARTS = 3
RESERVE_RETRY_S = 300.0  # after a failed start of a process in reserve

RunProcess = Callable[[OpenCodeLaunch, str], AbstractAsyncContextManager[OpenCodeProcess]]

log = logging.getLogger(__name__)


class Tenant(Protocol):
    """A worker's session in a slot. `busy_since` is when its turn began."""

    @property
    def directory(self) -> Path: ...

    @property
    def busy_since(self) -> float | None: ...

    async def leave_if_idle(self) -> None: ...


class ProcessSlot:
    """One process from before its start to after its end.

    `worn_reason` says why it takes no further work; `launch_again` prepares another one like it. A
    slot in reserve has not had a worker yet. `directories` are those it has booted, each with its
    number of workers, the last requested at the end.
    """

    def __init__(
        self,
        launch: Callable[[], OpenCodeLaunch],
        *,
        dedicated: bool,
        reserve: bool = False,
    ) -> None:
        self.launch = launch()
        self.launch_again = launch
        self.reserve = reserve
        self.dedicated = dedicated
        self.tenants: set[Tenant] = set()
        self.directories: dict[Path, int] = {}
        self.worn_reason = ""
        self.retired = anyio.Event()
        self.finished = anyio.Event()
        self.booting = anyio.CapacityLimiter(COLD_STARTS)
        self._ready = anyio.Event()
        self._process: OpenCodeProcess | None = None
        self._error: WorkerError | None = None
        self._tidying = anyio.Lock()
        self._warmed: dict[Path, anyio.Event] = {}

    @property
    def is_gone(self) -> bool:
        """Whether its process has ended."""
        ended = self._process is not None and self._process.gone.is_set()
        return ended or self.finished.is_set()

    @property
    def is_fit(self) -> bool:
        """Whether it may take new workers."""
        return not (self.dedicated or self.retired.is_set() or self.is_gone or self.worn_reason)

    @property
    def users(self) -> int:
        """How many workers it serves, or is about to."""
        return sum(self.directories.values())

    def suits(self, fingerprint: str) -> bool:
        """Whether it may take a worker with these settings, if there is room."""
        return self.is_fit and self.launch.fingerprint == fingerprint

    @property
    def has_room(self) -> bool:
        return len(self.directories) < MAX_SHARED_DIRECTORIES

    @property
    def may_exceed_share(self) -> bool:
        """Whether it can take more directories than usual."""
        vitals = read_vitals(self._process.pid) if self._process else None
        light = vitals is None or vitals.memory < LIGHT_BYTES
        return light and len(self.directories) < MAX_DIRECTORIES

    def claim(self, cwd: Path) -> None:
        self.directories[cwd] = self.directories.pop(cwd, 0) + 1
        self.reserve = False

    def release(self, cwd: Path) -> None:
        if cwd in self.directories:
            self.directories[cwd] -= 1

    @property
    def idle_directory(self) -> Path | None:
        """A directory where nothing is running or about to; preferably one without workers."""
        idle = Counter(turn.directory for turn in self.tenants if turn.busy_since is None)
        idle_directories = [cwd for cwd, users in self.directories.items() if users == idle[cwd]]
        return min(idle_directories, key=idle.__getitem__, default=None)

    async def evict(self, cwd: Path) -> None:
        """Unload the directory, unless a worker begins to work there."""
        async with self._tidying:
            await self.until_warm(cwd)
            for tenant in tuple(self.tenants):
                if tenant.directory == cwd and tenant in self.tenants:  # it may have left
                    await tenant.leave_if_idle()
            if self.directories.get(cwd) == 0:
                del self.directories[cwd]
                await self._unload(cwd)

    async def _unload(self, cwd: Path) -> None:
        """Workers that come to the directory meanwhile wait, as for a boot."""
        done = self._warmed[cwd] = anyio.Event()
        try:
            await (await self.process()).dispose(cwd)
        finally:
            del self._warmed[cwd]
            done.set()

    async def process(self) -> OpenCodeProcess:
        """The process, once it runs; raises the error if it does not start."""
        await self._ready.wait()
        if self._process is None:
            raise self._error or WorkerCrashed("OpenCode was stopped while it started")
        return self._process

    async def warm_up(self, gate: Gate, cwd: Path) -> None:
        """Boot the directory, once for all who need it."""
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
        """Wait for a boot that is under way: a second one would double the work."""
        if done := self._warmed.get(cwd):
            with anyio.move_on_after(BOOT_TIMEOUT_S):
                await done.wait()

    def start(self, process: OpenCodeProcess) -> None:
        self._process = process
        self._ready.set()

    def fail(self, error: WorkerError) -> bool:
        """Keep why it failed; True if it had started."""
        self._error = error
        return self._process is not None

    def finish(self) -> None:
        self._ready.set()
        self.finished.set()


class ProcessPool:
    """All OpenCode processes of one driver, in its task group; `run` starts one."""

    def __init__(
        self,
        tasks: TaskGroup,
        gate: Gate,
        owner: str,
        run: RunProcess,
        care: Callable[[], CarePolicy] = CarePolicy,
    ) -> None:
        self._tasks = tasks
        self._gate = gate
        self._owner = owner
        self._run = run
        self._care = care
        self._slots: list[ProcessSlot] = []
        self._busy_at = 0.0  # when a turn was last seen under way

    @asynccontextmanager
    async def use(
        self,
        cwd: Path,
        fingerprint: str,
        launch: Callable[[], OpenCodeLaunch],
        *,
        dedicated: bool = False,
    ) -> AsyncGenerator[ProcessSlot]:
        """A slot with a running process for one worker; `launch` prepares a new one if needed."""
        slot = None if dedicated else await self._find_slot(cwd, fingerprint)
        if slot is None:
            slot = self._open(launch, dedicated=dedicated)
        slot.claim(cwd)
        try:
            await slot.process()
            yield slot
        finally:
            slot.release(cwd)
            self._retire_idle()
            if dedicated:
                with anyio.CancelScope(shield=True):
                    await slot.finished.wait()

    async def _find_slot(self, cwd: Path, fingerprint: str) -> ProcessSlot | None:
        """A slot with the directory, or else the oldest with room, or one that can make room."""
        while True:
            alike = [slot for slot in self._slots if slot.suits(fingerprint)]
            known = (slot for slot in alike if cwd in slot.directories)
            roomy = (slot for slot in alike if slot.has_room)
            if slot := next(known, None) or next(roomy, None):
                return slot
            evictable = next(
                ((slot, idle) for slot in alike if (idle := slot.idle_directory)), None
            )
            if evictable is None:
                return next((slot for slot in alike if slot.may_exceed_share), None)
            await self._evict(*evictable)

    async def _evict(self, slot: ProcessSlot, cwd: Path) -> None:
        try:
            await slot.evict(cwd)
        except WorkerError as error:
            self._mark_worn(slot, f"directory {str(cwd)!r}, which it does not unload: {error}")

    async def warm_up(
        self, cwd: Path, fingerprint: str, launch: Callable[[], OpenCodeLaunch]
    ) -> None:
        """Boot the directory in some process; a worker elsewhere may take its place."""
        slot = await self._find_slot(cwd, fingerprint) or self._open(launch, dedicated=False)
        await self._boot(slot, cwd)

    async def _boot(self, slot: ProcessSlot, cwd: Path) -> None:
        slot.directories.setdefault(cwd, 0)
        await slot.warm_up(self._gate, cwd)

    async def keep_reserve(self) -> None:
        """Keep a process in reserve while one is wanted; never ends."""
        while True:
            await anyio.sleep(self._care().interval)
            try:
                await self._look_after_reserve()
            except Exception as error:  # noqa: BLE001 (a reserve is no reason to fail)
                log.info("no OpenCode process in reserve: %s", error)
                await anyio.sleep(RESERVE_RETRY_S)

    async def _look_after_reserve(self) -> None:
        fit = [slot for slot in self._slots if slot.is_fit]
        now = anyio.current_time()
        turns = {
            now - turn.busy_since: turn for slot in fit for turn in slot.tenants if turn.busy_since
        }
        if turns:
            self._busy_at = now
        self._retire_idle()
        if not turns or any(slot.reserve for slot in self._slots):
            return
        choice, longest = fit[-1].launch.standby, max(turns)
        if is_reserve_wanted(
            choice, longest, steady=self._care().reserve_after_s, machine=read_machine()
        ):
            await self._reserve(fit[-1], turns[longest].directory)

    async def _reserve(self, like: ProcessSlot, cwd: Path) -> None:
        slot = self._open(like.launch_again, dedicated=False, reserve=True)
        try:
            await self._boot(slot, cwd)
        except WorkerError:
            if not slot.retired.is_set() and not slot.users:
                raise

    def _open(
        self, launch: Callable[[], OpenCodeLaunch], *, dedicated: bool, reserve: bool = False
    ) -> ProcessSlot:
        slot = ProcessSlot(launch, dedicated=dedicated, reserve=reserve)
        self._slots.append(slot)
        self._tasks.start_soon(self._host, slot)
        return slot

    def _retire_idle(self) -> None:
        """Retire processes without workers, except the newest shared one."""
        fit = [slot for slot in self._slots if slot.is_fit]
        tried = [slot for slot in fit if not slot.reserve]
        kept = (tried or fit or [None])[-1]
        for slot in self._slots:
            if not (
                slot.users or slot is kept or (slot.reserve and self._may_be_needed(slot, tried))
            ):
                slot.retired.set()

    def _may_be_needed(self, reserve: ProcessSlot, tried: Sequence[ProcessSlot]) -> bool:
        """Whether a reserve may be needed: by a worker with the same settings, busy not long ago."""
        wanted = reserve.launch.fingerprint
        needed = any(slot.users and slot.launch.fingerprint == wanted for slot in tried)
        return needed and anyio.current_time() - self._busy_at <= self._care().reserve_linger_s

    async def _host(self, slot: ProcessSlot) -> None:
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_cancel_after, slot.retired, tasks)
                await self._keep(slot)
                tasks.cancel_scope.cancel()
        finally:
            self._slots.remove(slot)
            self._gate.revoke_token(slot.launch.token)
            slot.finish()

    async def _keep(self, slot: ProcessSlot) -> None:
        for _ in range(MAX_STARTS):
            try:
                async with self._started(slot.launch) as process:
                    self._gate.set_guard(slot.launch.token, process.guard)
                    slot.start(process)
                    await watch_process(process, self._care, partial(self._mark_worn, slot))
            except WorkerError as error:
                # A taken port or two first starts on one database: the next start can succeed.
                final = isinstance(error, UnsupportedVersion)
                final = final or "Configuration is invalid" in str(error)
                if not slot.fail(error) and not final:
                    continue
            except Exception as bug:
                log.exception("internal error: an OpenCode process was lost")
                slot.fail(WorkerCrashed(f"internal error: {bug!r}; see the log"))
            return

    @asynccontextmanager
    async def _started(self, launch: OpenCodeLaunch) -> AsyncGenerator[OpenCodeProcess]:
        async with (
            first_start(launch.database) as done,
            self._run(launch, new_mark(self._owner)) as process,
        ):
            done()
            yield process

    def _mark_worn(self, slot: ProcessSlot, reason: str) -> None:
        if not slot.worn_reason:
            log.info("an OpenCode process takes no further work because of its %s", reason)
        slot.worn_reason = reason
        self._tasks.start_soon(self._empty, slot)

    async def _empty(self, slot: ProcessSlot) -> None:
        for tenant in tuple(slot.tenants):
            await tenant.leave_if_idle()
        self._retire_idle()


async def _cancel_after(event: anyio.Event, tasks: TaskGroup) -> None:
    await event.wait()
    tasks.cancel_scope.cancel()
