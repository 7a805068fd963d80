"""How does a worker's session outlive the process that it is in?

OpenCode keeps a session on disk, so another process can open it. The rule, when a process ends
in the middle of a turn: what it had started is ended too, its sessions are opened elsewhere, and
each is told, once per turn, to look what has become of its last step and to go on. A prompt that
has reached the session is never sent again. A second end in the same turn fails the turn, and a
turn that was cancelled is over. Between two turns a session just opens elsewhere when it is needed.
"""

import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import NamedTuple

import anyio
import msgspec

from goent.domain.errors import GoentError, WorkerBusy, WorkerCrashed
from goent.domain.events import Noticed
from goent.domain.ports import Emit, Signs, StopReason, WorkerSpec
from goent.domain.types import Answer, Prompt
from goent.drivers.opencode.conversation import Conversation
from goent.drivers.opencode.slot import Slot

SWEEP_TIMEOUT = 10.0  # seconds for the end of what a dead process had started
GO_ON = Prompt(
    text=(
        "The process that you work in was interrupted and has been started again; what was said "
        "before is complete. Your last tool call may or may not have taken effect, and commands "
        "that were running have been ended: look before you repeat anything. Then go on with the "
        "task from where you were."
    )
)


class Place(NamedTuple):
    """Where a session is for now."""

    slot: Slot
    session: Conversation


class Moment(NamedTuple):
    """A time by the clock on the wall, which somebody may set, and by one that only goes on."""

    wall: float
    ticks: float

    @property
    def earliest(self) -> float:
        """No message of a later time is stamped earlier, whichever way the clock was set."""
        return min(self.wall, time.time() - (time.monotonic() - self.ticks))


Find = Callable[[WorkerSpec, Conversation | None], AbstractAsyncContextManager[Place]]


class LastingSession:
    """The port `Session`, in one process after another; `find` opens it in a fit one."""

    def __init__(self, spec: WorkerSpec, find: Find, waiting: Callable[[], float | None]) -> None:
        self._spec = spec
        self._waiting = waiting
        self._find = find
        self._token = spec.resume
        self._place: Place | None = None
        self._held = AsyncExitStack()
        self._last: Conversation | None = None
        self._lost = ""  # how the last process ended, until there is another
        self._moving = anyio.Lock()
        self._arriving = anyio.CancelScope()
        self.busy_since: float | None = None
        self._cancelled = False

    @property
    def directory(self) -> Path:
        return self._spec.cwd

    @property
    def token(self) -> str:
        return self._token or ""

    async def enter(self) -> None:
        async with self._moving:
            await self._enter()

    async def prompt(self, prompt: Prompt, emit: Emit) -> StopReason:
        if self.busy_since is not None:
            raise WorkerBusy(f"worker {self._spec.id!r} is in the middle of a turn")
        self.busy_since, self._cancelled = anyio.current_time(), False
        try:
            return await self._take(prompt, emit)
        finally:
            self.busy_since = None

    async def cancel(self) -> None:
        if self.busy_since is None:
            return
        self._cancelled = True
        self._arriving.cancel()
        if self._place:
            await self._place.session.cancel()

    async def answer(self, permission_id: str, option: Answer, message: str = "") -> bool:
        return bool(self._last) and await self._last.answer(permission_id, option, message)

    async def signs(self) -> Signs:
        """A model that is awaited, a tool that runs, a process that computes: it lives."""
        waited, place = self._waiting(), self._place
        if waited is not None:
            return Signs(alive=True, detail=f"it has waited {waited:.0f} s for the model")
        if place is None:
            return Signs(alive=True, detail="it is moving to another process")
        return await place.session.signs()

    async def leave_if_idle(self) -> None:
        """Make room: the next prompt finds another process."""
        async with self._moving:
            if self.busy_since is None:
                await self._leave()

    async def close(self) -> None:
        async with self._moving:
            await self._leave()

    async def _take(self, prompt: Prompt, emit: Emit) -> StopReason:
        begun = Moment(time.time(), time.monotonic())
        place = await self._arrive()
        if place is None:
            return "cancelled"
        try:
            return await place.session.prompt(prompt, emit)
        except WorkerCrashed as crash:
            if self._cancelled:
                return "cancelled"
            ending = str(crash).partition(": ")[0]
            await emit(Noticed(text=f"{ending}; the session goes on in another process"))
            self._lost = first = str(crash)
        another = await self._arrive()
        with anyio.move_on_after(SWEEP_TIMEOUT):
            await place.slot.finished.wait()
        if another is None or self._cancelled:
            return "cancelled"
        told = another.session.was_told_since(begun.earliest)
        try:
            return await another.session.prompt(GO_ON if told else prompt, emit)
        except WorkerCrashed as crash:
            if self._cancelled:
                return "cancelled"
            both = f"two processes were lost in one turn: {first}; then {crash}"
            raise WorkerCrashed(both, returncode=crash.returncode, stderr=crash.stderr) from crash

    async def _arrive(self) -> Place | None:
        """A place that is fit for a turn, another one if need be; None if the turn is cancelled."""
        with anyio.CancelScope() as self._arriving:
            async with self._moving:
                if self._place and (self._place.slot.is_gone or self._place.slot.worn):
                    await self._leave()
                place = self._place or await self._enter()
            if not self._cancelled:
                return place
        return None

    async def _enter(self) -> Place:
        held = AsyncExitStack()
        spec = msgspec.structs.replace(self._spec, resume=self._token)
        try:
            place = await held.enter_async_context(self._find(spec, self._last))
        except GoentError as error:
            if not self._lost:
                raise
            both = f"{self._lost}; it could not go on in another process: {error}"
            raise WorkerCrashed(both) from error
        place.slot.tenants.add(self)
        self._held, self._place, self._last = held, place, place.session
        self._token, self._lost = place.session.id, ""
        return place

    async def _leave(self) -> None:
        place, self._place = self._place, None
        if place is None:
            return
        place.slot.tenants.discard(self)
        with anyio.CancelScope(shield=True):
            if place.slot.is_gone and not self._lost:
                self._lost = str(await place.session.crash())
            await self._held.aclose()
