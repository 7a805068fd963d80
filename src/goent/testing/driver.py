"""A worker driver that follows a script, with no program behind it.

A turn is a list of moves: an event is emitted, an exception is raised, a `Pause` waits for the test
or for the turn's cancellation, a question waits for its answer, and an `AbandonedQuestion` until the
test says that the process which asked is gone.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager

import anyio

from goent.domain.errors import PermissionDenied
from goent.domain.events import DriverEvent, PermissionAsked, PermissionWithdrawn, TextDelta
from goent.domain.ports import Emit, TurnStopReason, WorkerLiveness, WorkerSpec
from goent.domain.types import PermissionAnswer, PermissionOption, Prompt


class Pause:
    """A place where a turn sets `reached` and waits for `go_on`; a `deaf` one ignores cancellation."""

    def __init__(self, *, deaf: bool = False) -> None:
        self.deaf = deaf
        self.reached = anyio.Event()
        self.go_on = anyio.Event()


class AbandonedQuestion:
    """A question that is withdrawn once `gone` is set."""

    def __init__(self, asked: PermissionAsked, reason: str = "its process has ended") -> None:
        self.asked = asked
        self.reason = reason
        self.gone = anyio.Event()


ScriptedMove = DriverEvent | Exception | Pause | AbandonedQuestion
ScriptedTurns = Callable[[Prompt], Sequence[ScriptedMove]]


def question(
    name: str, tool: str = "bash", detail: str = "make test", reason: str = ""
) -> PermissionAsked:
    """A permission question with the usual three answers; with a reason, without "always"."""
    options = (
        PermissionOption(id="allow_once", label="Allow once"),
        PermissionOption(id="allow_always", label="Always allow"),
        PermissionOption(id="reject", label="Reject"),
    )
    return PermissionAsked(
        id=name,
        tool=tool,
        detail=detail,
        options=options[::2] if reason else options,
        reason=reason,
        always=() if reason else (detail.partition("\n")[0],),
    )


class ScriptedDriver:
    """Runs every worker by the same script; `open_error` makes the start fail."""

    def __init__(self, turns: ScriptedTurns, *, open_error: Exception | None = None) -> None:
        self._turns = turns
        self._open_error = open_error
        self.opened: list[WorkerSpec] = []
        self.closed: list[str] = []
        self.prompts: list[tuple[str, str]] = []
        self.signs = WorkerLiveness(alive=True, detail="scripted")
        self.takes_words = True  # whether a refusal can carry a message
        self.told: list[str] = []  # the messages that it accepted
        self.ready = anyio.Event()
        self.ready.set()

    @asynccontextmanager
    async def open(self, spec: WorkerSpec) -> "AsyncGenerator[ScriptedSession]":
        await self.ready.wait()
        if self._open_error:
            raise self._open_error
        self.opened.append(spec)
        try:
            yield ScriptedSession(self, spec, self._turns)
        finally:
            self.closed.append(spec.id)


class ScriptedSession:
    """One worker's scripted conversation."""

    def __init__(self, driver: ScriptedDriver, spec: WorkerSpec, turns: ScriptedTurns) -> None:
        self._driver = driver
        self._spec = spec
        self._turns = turns
        self._cancelled = anyio.Event()
        self.token = spec.resume or f"session-of-{spec.id}"
        self._answers: dict[str, PermissionAnswer] = {}
        self._corrected: set[str] = set()
        self._answered = anyio.Event()

    async def prompt(self, prompt: Prompt, emit: Emit) -> TurnStopReason:
        self._driver.prompts.append((self._spec.id, prompt.text))
        self._cancelled = anyio.Event()
        for move in self._turns(prompt):
            if isinstance(move, Exception):
                raise move
            if isinstance(move, Pause):
                move.reached.set()
                await self._first_of(move.go_on, self._cancelled, deaf=move.deaf)
            elif isinstance(move, AbandonedQuestion):
                await emit(move.asked)
                await self._first_of(move.gone, self._cancelled)
                await emit(PermissionWithdrawn(id=move.asked.id, reason=move.reason))
            else:
                await emit(move)
            if isinstance(move, PermissionAsked):
                await self._await_answer(move)
            if self._cancelled.is_set():
                return "cancelled"
        return "end"

    async def _await_answer(self, asked: PermissionAsked) -> None:
        while asked.id not in self._answers and not self._cancelled.is_set():
            await self._first_of(self._answered, self._cancelled)
        if self._answers.get(asked.id) == "reject" and asked.id not in self._corrected:
            raise PermissionDenied(f"{asked.tool} was refused: {asked.detail}")

    async def _first_of(self, one: anyio.Event, other: anyio.Event, *, deaf: bool = False) -> None:
        async def wait(event: anyio.Event) -> None:
            await event.wait()
            group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(wait, one)
            if not deaf:
                group.start_soon(wait, other)

    async def cancel(self) -> None:
        self._cancelled.set()

    async def liveness(self) -> WorkerLiveness:
        return self._driver.signs

    async def answer(self, permission_id: str, option: PermissionAnswer, message: str = "") -> bool:
        if message and self._driver.takes_words:
            self._corrected.add(permission_id)
            self._driver.told.append(message)
        self._answers[permission_id] = option
        self._answered.set()
        self._answered = anyio.Event()
        return self._driver.takes_words


def say(text: str, message: str = "m1") -> TextDelta:
    """Text of the worker."""
    return TextDelta(text=text, message=message)
