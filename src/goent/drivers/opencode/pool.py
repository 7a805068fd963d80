"""Which process serves a worker: one that runs, or a new one?

A shared process takes many workers, but each directory that it has booted costs it memory, and one
started under other settings cannot be changed. So a process is filled before another is started,
passed over when it is full, worn or out of date, and retired when its last worker has left. A full
one puts away a directory where nothing is at work; where all are at work it takes some more, as
long as it is light. Sessions that are idle leave a worn process, or a directory that is put away,
by themselves, and come back to life with their next prompt.

While a turn runs, another process can be in reserve, with the turn's directory booted: it takes
over when a process is lost, worn or full, and is ended when nothing has run for a while.
"""

import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
from anyio.abc import TaskGroup

from goent.domain.errors import UnsupportedVersion, WorkerCrashed, WorkerError
from goent.domain.ports import Gate
from goent.drivers.opencode.environment import Launch
from goent.drivers.opencode.first_start import first_start
from goent.drivers.opencode.hosted import Hosted
from goent.drivers.opencode.slot import Slot
from goent.drivers.opencode.standby import read_machine, wanted
from goent.drivers.opencode.watch import attend
from goent.drivers.vitals import Care
from goent.proc import new_mark

log = logging.getLogger(__name__)

TRIES = 3
Run = Callable[[Launch, str], AbstractAsyncContextManager[Hosted]]
UNLUCKY = 300.0  # seconds before another try to have a process in reserve


class Pool:
    """All OpenCode processes of one driver, in its task group; `run` starts one with a mark."""

    def __init__(
        self,
        tasks: TaskGroup,
        gate: Gate,
        owner: str,
        run: Run,
        care: Callable[[], Care] = Care,
    ) -> None:
        self._tasks = tasks
        self._gate = gate
        self._owner = owner
        self._run = run
        self._care = care
        self._slots: list[Slot] = []
        self._busy_at = 0.0  # when a turn was last seen under way

    @asynccontextmanager
    async def use(
        self, cwd: Path, fingerprint: str, launch: Callable[[], Launch], *, dedicated: bool = False
    ) -> AsyncGenerator[Slot]:
        """A slot with a process for one worker; `launch` is called if it takes a new one."""
        slot = None if dedicated else await self._fitting(cwd, fingerprint)
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

    async def _fitting(self, cwd: Path, fingerprint: str) -> Slot | None:
        """One that knows the directory, or else the oldest that has room, or can make it."""
        while True:
            alike = [slot for slot in self._slots if slot.suits(fingerprint)]
            known = (slot for slot in alike if cwd in slot.directories)
            roomy = (slot for slot in alike if slot.has_room)
            if slot := next(known, None) or next(roomy, None):
                return slot
            rests = next(((slot, rest) for slot in alike if (rest := slot.resting)), None)
            if rests is None:
                return next((slot for slot in alike if slot.can_stretch), None)
            await self._put_away(*rests)

    async def _put_away(self, slot: Slot, cwd: Path) -> None:
        try:
            await slot.put_away(cwd)
        except WorkerError as error:
            self._wear(slot, f"directory {str(cwd)!r}, which it does not put away: {error}")

    async def warm_up(self, cwd: Path, fingerprint: str, launch: Callable[[], Launch]) -> None:
        """Have a process with the directory booted. A worker elsewhere may have its place."""
        slot = await self._fitting(cwd, fingerprint) or self._open(launch, dedicated=False)
        await self._boot(slot, cwd)

    async def _boot(self, slot: Slot, cwd: Path) -> None:
        slot.directories.setdefault(cwd, 0)
        await slot.warm_up(self._gate, cwd)

    async def keep_reserve(self) -> None:
        """Look again and again whether there should be a process in reserve; never ends."""
        while True:
            await anyio.sleep(self._care().interval)
            try:
                await self._look_after_reserve()
            except Exception as error:  # noqa: BLE001 (a reserve is never worth an end)
                log.info("no OpenCode process in reserve: %s", error)
                await anyio.sleep(UNLUCKY)

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
        if wanted(choice, longest, steady=self._care().steady, machine=read_machine()):
            await self._reserve(fit[-1], turns[longest].directory)

    async def _reserve(self, like: Slot, cwd: Path) -> None:
        slot = self._open(like.another, dedicated=False, reserve=True)
        try:
            await self._boot(slot, cwd)
        except WorkerError:
            if not slot.retired.is_set() and not slot.users:
                raise

    def _open(
        self, launch: Callable[[], Launch], *, dedicated: bool, reserve: bool = False
    ) -> Slot:
        slot = Slot(launch, dedicated=dedicated, reserve=reserve)
        self._slots.append(slot)
        self._tasks.start_soon(self._host, slot)
        return slot

    def _retire_idle(self) -> None:
        """The newest shared process stays warm without work; any other goes when it has none."""
        fit = [slot for slot in self._slots if slot.is_fit]
        tried = [slot for slot in fit if not slot.reserve]
        kept = (tried or fit or [None])[-1]
        for slot in self._slots:
            if not (slot.users or slot is kept or (slot.reserve and self._is_due(slot, tried))):
                slot.retired.set()

    def _is_due(self, reserve: Slot, tried: Sequence[Slot]) -> bool:
        """Whether somebody may need it: a worker under the same settings, at work not long ago."""
        stands_for = reserve.launch.fingerprint
        needed = any(slot.users and slot.launch.fingerprint == stands_for for slot in tried)
        return needed and anyio.current_time() - self._busy_at <= self._care().linger

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
                async with self._started(slot.launch) as process:
                    self._gate.attend(slot.launch.token, process.guard)
                    slot.start(process)
                    await attend(process, self._care, partial(self._wear, slot))
            except WorkerError as error:
                # A taken port, two first starts on one database: the next try does not meet it.
                final = isinstance(error, UnsupportedVersion)
                final = final or "Configuration is invalid" in str(error)
                if not slot.fail(error) and not final:
                    continue
            except Exception as bug:
                log.exception("an OpenCode process was lost by a fault of go-ent's own")
                slot.fail(WorkerCrashed(f"a fault of go-ent's own: {bug!r}; see the log"))
            return

    @asynccontextmanager
    async def _started(self, launch: Launch) -> AsyncGenerator[Hosted]:
        async with (
            first_start(launch.database) as done,
            self._run(launch, new_mark(self._owner)) as process,
        ):
            done()
            yield process

    def _wear(self, slot: Slot, reason: str) -> None:
        if not slot.worn:
            log.info("an OpenCode process takes no further work, for its %s", reason)
        slot.worn = reason
        self._tasks.start_soon(self._empty, slot)

    async def _empty(self, slot: Slot) -> None:
        for tenant in tuple(slot.tenants):
            await tenant.leave_if_idle()
        self._retire_idle()


async def _cancel_after(event: anyio.Event, tasks: TaskGroup) -> None:
    await event.wait()
    tasks.cancel_scope.cancel()
