"""Which process serves a worker: one that runs, or a new one?

A shared process takes many workers, but each directory that it has booted costs it memory for as
long as it lives, and one started under other settings cannot be changed. So a process is passed
over when it is full or out of date, and retired when its last worker has left.
"""

import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from anyio.abc import TaskGroup

from goent.domain.errors import WorkerCrashed, WorkerError
from goent.domain.ports import Gate
from goent.drivers.opencode.environment import Launch
from goent.drivers.opencode.process import OpenCodeProcess
from goent.drivers.opencode.warmup import boot
from goent.proc import new_mark

log = logging.getLogger(__name__)

TRIES = 3
DIRECTORIES = 10  # a process with more gets slow, with forty it has been seen to hang
COLD_STARTS = 2  # directories that one process boots at a time
WARM_TIMEOUT = 60.0


class Slot:
    """A place for one process, from before its start until after its end."""

    def __init__(self, launch: Launch, *, dedicated: bool) -> None:
        self.launch = launch
        self.dedicated = dedicated
        self.users = 0
        self.directories: set[Path] = set()
        self.retired = anyio.Event()
        self.finished = anyio.Event()
        self.booting = anyio.CapacityLimiter(COLD_STARTS)
        self._ready = anyio.Event()
        self._process: OpenCodeProcess | None = None
        self._error: WorkerError | None = None
        self._warmed: dict[Path, anyio.Event] = {}

    def serves(self, fingerprint: str, cwd: Path) -> bool:
        """Fit for a new worker there."""
        over = self.dedicated or self.retired.is_set() or self.finished.is_set()
        gone = self._process is not None and self._process.gone.is_set()
        room = cwd in self.directories or len(self.directories) < DIRECTORIES
        return not over and not gone and room and self.launch.fingerprint == fingerprint

    async def process(self) -> OpenCodeProcess:
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
                await boot(await self.process(), gate, cwd)
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

    def start(self, process: OpenCodeProcess) -> None:
        self._process = process
        self._ready.set()

    def fail(self, error: WorkerError) -> bool:
        """Note why it did not start; True if it did."""
        self._error = error
        return self._process is not None

    def finish(self) -> None:
        self._ready.set()
        self.finished.set()


class Pool:
    """All OpenCode processes of one driver, in its task group."""

    def __init__(self, tasks: TaskGroup, gate: Gate, owner: str) -> None:
        self._tasks = tasks
        self._gate = gate
        self._owner = owner
        self._slots: list[Slot] = []

    @asynccontextmanager
    async def use(
        self, cwd: Path, fingerprint: str, launch: Callable[[], Launch], *, dedicated: bool = False
    ) -> AsyncGenerator[Slot]:
        """A slot with a process for one worker; `launch` is called if it takes a new one."""
        fitting = (slot for slot in self._slots if slot.serves(fingerprint, cwd))
        slot = None if dedicated else next(fitting, None)
        if slot is None:
            slot = self._open(launch(), dedicated=dedicated)
        slot.users += 1
        slot.directories.add(cwd)
        try:
            await slot.process()
            yield slot
        finally:
            slot.users -= 1
            self._retire_idle()
            if dedicated:
                with anyio.CancelScope(shield=True):
                    await slot.finished.wait()

    def _open(self, launch: Launch, *, dedicated: bool) -> Slot:
        slot = Slot(launch, dedicated=dedicated)
        self._slots.append(slot)
        self._tasks.start_soon(self._host, slot)
        return slot

    def _retire_idle(self) -> None:
        """The newest shared process stays warm without work; any other goes when it has none."""
        shared = [slot for slot in self._slots if not slot.dedicated]
        for slot in self._slots:
            if not slot.users and slot is not (shared or [None])[-1]:
                slot.retired.set()

    async def _host(self, slot: Slot) -> None:
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_cancel_after, slot.retired, tasks)
                await self._keep(slot)
                tasks.cancel_scope.cancel()
        finally:
            self._slots.remove(slot)
            self._gate.revoke_token(slot.launch.token)
            slot.finish()

    async def _keep(self, slot: Slot) -> None:
        for _ in range(TRIES):
            try:
                async with OpenCodeProcess.running(slot.launch, new_mark(self._owner)) as process:
                    slot.start(process)
                    await process.gone.wait()
            except WorkerError as error:
                # A taken port, two first starts on one database: the next try does not meet it.
                if not slot.fail(error) and "Configuration is invalid" not in str(error):
                    continue
            except Exception as bug:
                log.exception("an OpenCode process was lost by a fault of go-ent's own")
                slot.fail(WorkerCrashed(f"a fault of go-ent's own: {bug!r}; see the log"))
            return


async def _cancel_after(event: anyio.Event, tasks: TaskGroup) -> None:
    await event.wait()
    tasks.cancel_scope.cancel()
