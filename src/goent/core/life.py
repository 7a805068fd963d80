"""A worker's life, from its first prompt to its close.

One task runs it. Prompts come in through an inbox, one turn at a time; every turn ends exactly
once, and so does the worker, whatever happens: the driver fails, somebody cancels, time runs
out, go-ent stops, or go-ent itself is wrong.
"""

import logging
import math
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import anyio
from anyio.abc import TaskGroup

from goent.core.feed import Feed
from goent.domain.errors import (
    GoentError,
    RequestError,
    TurnTimeout,
    VerifyFailed,
    WorkerBusy,
    WorkerCrashed,
    WorkerError,
    WorkerIsClosed,
)
from goent.domain.events import (
    AnyEvent,
    DriverEvent,
    PermissionAnswered,
    PermissionAsked,
    TurnEnded,
    TurnStarted,
    Verified,
    WorkerClosed,
)
from goent.domain.ports import Driver, Emit, Meter, Session, Verifier, WorkerSpec
from goent.domain.settings import Limits
from goent.domain.types import Answer, Failure, Prompt, Value

log = logging.getLogger(__name__)

QUEUE = 16  # prompts that may wait behind a running turn

Outcome = Literal["completed", "cancelled"]


class Terms(Value, frozen=True, kw_only=True):
    """Under which bounds a worker lives."""

    verify: tuple[str, ...] = ()
    timeout_s: float | None = None
    permission_timeout_s: float = 300.0
    limits: Limits = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What every worker of a project shares."""

    feed: Feed
    meter: Meter
    verifier: Verifier
    slots: anyio.CapacityLimiter


@dataclass(slots=True)
class Turn:
    """The turn under way: who wants it stopped, and which questions it has open."""

    number: int
    started: bool = False
    prompting: bool = False
    stop: anyio.Event = field(default_factory=anyio.Event)
    stopped_by: Literal["", "cancel", "timeout"] = ""
    reason: str = ""
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    questions: dict[str, PermissionAsked] = field(default_factory=dict[str, PermissionAsked])

    def end(self, by: Literal["cancel", "timeout"], reason: str) -> None:
        if not self.stop.is_set():
            self.stopped_by, self.reason = by, reason
            self.stop.set()


class Life:
    """The handle on a living worker. Its state is in the journal, not here."""

    def __init__(
        self, spec: WorkerSpec, terms: Terms, driver: Driver, surroundings: Surroundings
    ) -> None:
        self.spec = spec
        self.ended = anyio.Event()
        self._terms = terms
        self._driver = driver
        self._shared = surroundings
        self._prompts: deque[Prompt] = deque()
        self._stirred = anyio.Event()
        self._scope = anyio.CancelScope()
        self._session: Session | None = None
        self._turn: Turn | None = None
        self._begun = 0
        self._closing = ""

    # What others ask of it

    @property
    def in_turn(self) -> bool:
        return self._turn is not None

    def prompt(self, prompt: Prompt, *, queue: bool) -> int:
        """Accept a prompt and say which turn it will be."""
        if self._closing:
            raise WorkerIsClosed(f"worker {self.spec.id!r} is closed; spawn another one")
        if (self._turn or self._prompts) and not queue:
            raise WorkerBusy(
                f"worker {self.spec.id!r} is busy with turn {self._begun}: wait for it, "
                "cancel it, or pass queue: true"
            )
        if len(self._prompts) >= QUEUE:
            raise WorkerBusy(f"worker {self.spec.id!r} has {QUEUE} prompts waiting")
        self._prompts.append(prompt)
        self._stirred.set()
        return self._begun + len(self._prompts)

    def cancel(self, reason: str) -> None:
        """Stop the turn under way. A worker that has no session yet ends with it."""
        if self._turn:
            self._turn.end("cancel", reason)
        if self._session is None:
            self._scope.cancel()

    def close(self, reason: str) -> None:
        """Take no further prompt; a turn under way is stopped."""
        self._closing = self._closing or reason
        self._stirred.set()
        self.cancel(reason)

    async def answer(self, permission: str, option: Answer, by: str) -> None:
        """The first answer wins; a later one is told that there is no such question."""
        turn, session = self._turn, self._session
        question = turn.questions.get(permission) if turn else None
        if turn is None or session is None or question is None:
            open_ones = ", ".join(turn.questions) if turn and turn.questions else "none"
            raise RequestError(
                f"worker {self.spec.id!r} has no open question {permission!r} (open: {open_ones})"
            )
        offered = [choice.id for choice in question.options]
        if option not in offered:
            raise RequestError(f"question {permission!r} offers {', '.join(offered)}")
        del turn.questions[permission]
        await self._append(PermissionAnswered(id=permission, option=option, by=by))
        await session.answer(permission, option)

    # What it does by itself

    async def run(self) -> None:
        """Live. Never fails: what goes wrong is in the journal."""
        failure: Failure | None = None
        reason = "go-ent stopped"
        try:
            with self._scope:
                await self._live()
            reason = self._closing or "cancelled before it was ready"
        except GoentError as error:
            failure, reason = as_failure(error), "it could not go on"
        except Exception as bug:
            log.exception("worker %s met a fault of go-ent's own", self.spec.id)
            failure, reason = as_failure(bug), "a fault of go-ent's own"
        finally:
            self._closing = self._closing or reason
            with anyio.CancelScope(shield=True):
                if self._turn:
                    await self._end(self._turn, failure or "cancelled")
                await self._append(WorkerClosed(reason=reason))
            self.ended.set()

    async def _live(self) -> None:
        prompt = await self._next_prompt()
        if prompt is None:
            return
        turn = self._begin()
        async with self._driver.open(self.spec) as session:
            self._session = session
            await self._take(turn, session, prompt)
            while prompt := await self._next_prompt():
                await self._take(self._begin(), session, prompt)

    def _begin(self) -> Turn:
        self._begun += 1
        self._turn = Turn(self._begun)
        return self._turn

    async def _next_prompt(self) -> Prompt | None:
        """None when the worker is to close: somebody asked for it, or nobody asks anything."""
        idle = self._terms.limits.idle_close_s
        with anyio.move_on_after(idle):
            while not self._prompts and not self._closing:
                self._stirred = anyio.Event()
                await self._stirred.wait()
        if not self._prompts:
            self._closing = self._closing or f"idle for {idle:.0f} s"
        return None if self._closing else self._prompts.popleft()

    async def _take(self, turn: Turn, session: Session, prompt: Prompt) -> None:
        outcome: Outcome | Failure
        try:
            outcome = await self._prompted(turn, session, prompt)
            if outcome == "completed":
                await self._verify()
        except WorkerError as error:
            outcome = as_failure(error)
        await self._shared.meter.settle(self.spec.id)
        await self._end(turn, outcome)

    async def _prompted(self, turn: Turn, session: Session, prompt: Prompt) -> Outcome:
        """One prompt, with somebody at hand who can stop it."""
        answer: Outcome | WorkerError = "cancelled"
        async with anyio.create_task_group() as beside:
            beside.start_soon(self._stop_when_asked, turn, session)
            with turn.scope:
                async with self._shared.slots:
                    await self._start(turn, prompt)
                    answer = await _ask(session, prompt, partial(self._emit, turn, beside))
            beside.cancel_scope.cancel()
        if turn.scope.cancelled_caught and turn.prompting:
            grace = self._terms.limits.cancel_grace_s
            self._closing = f"its turn did not stop within {grace:.0f} s; the session is abandoned"
        if isinstance(answer, WorkerCrashed):
            self._closing = "its process ended"
        if turn.stopped_by == "timeout":
            raise TurnTimeout(turn.reason)
        if turn.stopped_by == "cancel":
            return "cancelled"
        if isinstance(answer, WorkerError):
            raise answer
        return answer

    async def _start(self, turn: Turn, prompt: Prompt) -> None:
        await self._append(TurnStarted(turn=turn.number, prompt=prompt.text))
        turn.started = turn.prompting = True

    async def _emit(self, turn: Turn, beside: TaskGroup, event: DriverEvent) -> None:
        if isinstance(event, PermissionAsked):
            turn.questions[event.id] = event
            beside.start_soon(self._refuse_in_time, turn, event.id)
        await self._append(event)

    async def _refuse_in_time(self, turn: Turn, permission: str) -> None:
        await anyio.sleep(self._terms.permission_timeout_s)
        if permission in turn.questions:
            await self.answer(permission, "reject", "the time limit")

    async def _stop_when_asked(self, turn: Turn, session: Session) -> None:
        """Ask the session to stop; if it does not within the grace, go on without it."""
        limit = self._terms.timeout_s or self._terms.limits.turn_timeout_s or math.inf
        with anyio.move_on_after(limit):
            await turn.stop.wait()
        turn.end("timeout", f"the turn took longer than its limit of {limit:g} s")
        if turn.prompting:
            with anyio.move_on_after(self._terms.limits.cancel_grace_s):
                await session.cancel()
                await anyio.sleep_forever()
        turn.scope.cancel()

    async def _verify(self) -> None:
        if not self._terms.verify:
            return
        checks = await self._shared.verifier.verify(self._terms.verify, self.spec.cwd)
        await self._append(Verified(checks=checks))
        failed = [check for check in checks if check.exit != 0]
        if failed:
            code = "did not end in time" if failed[0].exit is None else f"exited {failed[0].exit}"
            raise VerifyFailed(f"{failed[0].command!r} {code}: {failed[0].tail[-300:]}")

    async def _end(self, turn: Turn, outcome: Outcome | Failure) -> None:
        if not turn.started:
            await self._append(TurnStarted(turn=turn.number, prompt=""))
        failure = outcome if isinstance(outcome, Failure) else None
        state = "failed" if isinstance(outcome, Failure) else outcome
        ended = TurnEnded(turn=turn.number, state=state, failure=failure, reason=turn.reason)
        await self._append(ended)
        self._turn = None

    async def _append(self, event: AnyEvent) -> None:
        await self._shared.feed.append(self.spec.id, event)


async def _ask(session: Session, prompt: Prompt, emit: Emit) -> Outcome | WorkerError:
    """The outcome as a value: an error must not tear the task group that watches the turn."""
    try:
        return "completed" if await session.prompt(prompt, emit) == "end" else "cancelled"
    except WorkerError as error:
        return error


def as_failure(error: Exception) -> Failure:
    if isinstance(error, WorkerError):
        return Failure(kind=error.kind, message=str(error), retryable=error.retryable)
    if isinstance(error, GoentError):
        return Failure(kind="environment", message=str(error))
    return Failure(kind="internal", message=f"a fault of go-ent's own: {error!r}; see the log")
