"""Keeps one worker's session alive across the OpenCode processes that it moves through.

OpenCode keeps a session on disk, so another process can open it. When a process ends in the middle
of a turn, everything it had started is ended too, its sessions are opened elsewhere, and each is
prompted once per turn to check what became of its last step and to continue. A prompt that has
reached the session is never sent again. A second loss in the same turn fails the turn; a cancelled
turn is over. Between turns, a session just opens elsewhere when it is needed.
"""

import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import NamedTuple

import anyio
from msgspec.structs import replace

from goent.domain.errors import GoentError, WorkerBusy, WorkerCrashed
from goent.domain.events import Noticed
from goent.domain.ports import Emit, TurnStopReason, WorkerLiveness, WorkerSpec
from goent.domain.types import PermissionAnswer, Prompt
from goent.opencode.process_pool import ProcessSlot
from goent.opencode.session import BaseSession

CLEAN_UP_TIMEOUT_S = 10.0  # for the end of everything that a lost process had started
CONTINUE_PROMPT = Prompt(
    text=(
        "The process that you work in was interrupted and has been started again; what was said "
        "before is complete. Your last tool call may or may not have taken effect, and commands "
        "that were running have been ended: look before you repeat anything. Then continue the "
        "task from where you were."
    )
)


class SessionPlace(NamedTuple):
    """The process that a session is in for now."""

    slot: ProcessSlot
    session: BaseSession


class StartTime(NamedTuple):
    """A time by the wall clock, which may be set, and by the monotonic clock."""

    wall: float
    ticks: float

    @property
    def earliest(self) -> float:
        """The earliest wall time of later messages, whichever way the clock was set."""
        return min(self.wall, time.time() - (time.monotonic() - self.ticks))


FindPlace = Callable[[WorkerSpec, BaseSession | None], AbstractAsyncContextManager[SessionPlace]]


class ResumableSession:
    """The port `Session`, in one process after another; `find` opens it in a suitable one."""

    def __init__(
        self, spec: WorkerSpec, find: FindPlace, waiting: Callable[[], float | None]
    ) -> None:
        self._spec = spec
        self._waiting = waiting
        self._find_place = find
        self._token = spec.resume
        self._place: SessionPlace | None = None
        self._exit_stack = AsyncExitStack()
        self._last: BaseSession | None = None
        self._crash_text = ""  # how the last process ended, until there is another
        self._moving = anyio.Lock()
        self._arrival_scope = anyio.CancelScope()
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

    async def prompt(self, prompt: Prompt, emit: Emit) -> TurnStopReason:
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
        self._arrival_scope.cancel()
        if self._place:
            await self._place.session.cancel()

    async def answer(self, permission_id: str, option: PermissionAnswer, message: str = "") -> bool:
        return bool(self._last) and await self._last.answer(permission_id, option, message)

    async def liveness(self) -> WorkerLiveness:
        """Alive while it waits for the model, runs a tool or uses the CPU."""
        waited, place = self._waiting(), self._place
        if waited is not None:
            return WorkerLiveness(alive=True, detail=f"it has waited {waited:.0f} s for the model")
        if place is None:
            return WorkerLiveness(alive=True, detail="it is moving to another process")
        return await place.session.liveness()

    async def leave_if_idle(self) -> None:
        """Make room; the next prompt finds another process."""
        async with self._moving:
            if self.busy_since is None:
                await self._leave()

    async def close(self) -> None:
        async with self._moving:
            await self._leave()

    async def _take(self, prompt: Prompt, emit: Emit) -> TurnStopReason:
        begun = StartTime(time.time(), time.monotonic())
        place = await self._place_for_turn()
        if place is None:
            return "cancelled"
        try:
            return await place.session.prompt(prompt, emit)
        except WorkerCrashed as crash:
            if self._cancelled:
                return "cancelled"
            ending = str(crash).partition(": ")[0]
            await emit(Noticed(text=f"{ending}; the session continues in another process"))
            self._crash_text = first = str(crash)
        another = await self._place_for_turn()
        with anyio.move_on_after(CLEAN_UP_TIMEOUT_S):
            await place.slot.finished.wait()
        if another is None or self._cancelled:
            return "cancelled"
        prompted = another.session.has_prompt_since(begun.earliest)
        try:
            return await another.session.prompt(CONTINUE_PROMPT if prompted else prompt, emit)
        except WorkerCrashed as crash:
            if self._cancelled:
                return "cancelled"
            both = f"two processes were lost in one turn: {first}; then {crash}"
            raise WorkerCrashed(both, returncode=crash.returncode, stderr=crash.stderr) from crash

    async def _place_for_turn(self) -> SessionPlace | None:
        """A suitable place, another one if need be; None if the turn is cancelled."""
        with anyio.CancelScope() as self._arrival_scope:
            async with self._moving:
                if self._place and (self._place.slot.is_gone or self._place.slot.worn_reason):
                    await self._leave()
                place = self._place or await self._enter()
            if not self._cancelled:
                return place
        return None

    async def _enter(self) -> SessionPlace:
        held = AsyncExitStack()
        spec = replace(self._spec, resume=self._token)
        try:
            place = await held.enter_async_context(self._find_place(spec, self._last))
        except GoentError as error:
            if not self._crash_text:
                raise
            both = f"{self._crash_text}; it could not continue in another process: {error}"
            raise WorkerCrashed(both) from error
        place.slot.tenants.add(self)
        self._exit_stack, self._place, self._last = held, place, place.session
        self._token, self._crash_text = place.session.id, ""
        return place

    async def _leave(self) -> None:
        place, self._place = self._place, None
        if place is None:
            return
        place.slot.tenants.discard(self)
        with anyio.CancelScope(shield=True):
            if place.slot.is_gone and not self._crash_text:
                self._crash_text = str(await place.session.crash())
            await self._exit_stack.aclose()
