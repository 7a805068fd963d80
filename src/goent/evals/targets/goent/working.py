"""How does one worker go through an attempt, from its spawning to its release?"""

from collections.abc import AsyncIterator, Callable

import anyio

from goent.domain.errors import TurnTimeout, VerifyFailed
from goent.domain.events import (
    BudgetWarned,
    Envelope,
    PermissionAsked,
    ToolCall,
    TurnEnded,
    TurnStarted,
    UsageReported,
    WorkerClosed,
    WorkerSpawned,
)
from goent.domain.replies import Answered, Cancelled, Spawned
from goent.domain.requests import AnswerRequest, CancelRequest, SpawnRequest
from goent.domain.types import Answer
from goent.drivers.tasks import task_group
from goent.evals.ports import TargetError, Witness
from goent.evals.suites import Policy
from goent.evals.targets.goent.daemon import Daemon, DaemonGone, DaemonRefused, OpenDaemon
from goent.evals.targets.goent.telling import Telling, counted, when
from goent.evals.traces import PermissionDecision

SPAWNING_S = 60.0
RELEASING_S = 30.0
PARTING_S = 15.0  # for one that is cut off to say what it has spent
TELL_S = 1.0  # between two tellings of what has grown: each tells whole messages
_ANSWERS: dict[Policy, Answer] = {
    "reject": "reject",
    "once": "allow_once",
    "always": "allow_always",
}
# The same limit would cut the next attempt off at the same place.
_IN_VAIN = frozenset({TurnTimeout.kind})


class Working:
    """One turn of a worker, mostly its only one. `telling` is what there is of it; `give_up` ends it early."""

    def __init__(self, daemon: Daemon, meet: OpenDaemon, policy: Policy, witness: Witness) -> None:
        self.telling = Telling()
        self.refused: TargetError | None = None
        self._daemon = daemon
        self._meet = meet
        self._policy: Policy = policy
        self._witness = witness
        self._scope = anyio.CancelScope()
        self._released = False
        self._grown = set[int]()  # messages that the witness does not have as they are

    def give_up(self) -> None:
        self._scope.cancel()

    async def work(self, request: SpawnRequest, over: Callable[[], None] = lambda: None) -> None:
        """Returns when its turn is over, by itself or not, and nothing of it is left.

        `over` is called in between: before it is closed, which takes a while.
        """
        worker = await self.spawn(request)
        try:
            await self.hear(worker)
            over()
        finally:
            await self.release(worker)

    async def hear(self, worker: str, turn: int = 1) -> None:
        """Returns when this turn is over; what was before it is told again, and passed over."""
        async with self._daemon.events(worker) as events, task_group() as tasks:
            tasks.start_soon(self._keep_telling)
            try:
                with self._scope:
                    await self._listen(worker, events, turn)
            finally:
                tasks.cancel_scope.cancel()
                self._tell()

    async def release(self, worker: str) -> None:
        with anyio.move_on_after(RELEASING_S, shield=True):
            await self._release(worker)

    @property
    def failure(self) -> TargetError | None:
        """Why there is nothing to grade. Work that a verify command refuted can be graded."""
        if self.refused:
            return self.refused
        ended = self.telling.ended
        if ended is None:
            return TargetError("cancelled", "the worker was closed before its turn had ended")
        if ended.state == "completed" or (
            ended.failure and ended.failure.kind == VerifyFailed.kind
        ):
            return None
        if ended.failure is None:
            return TargetError("cancelled", f"the worker was cancelled: {ended.reason}")
        return TargetError(
            ended.failure.kind,
            ended.failure.message,
            retryable=ended.failure.retryable and ended.failure.kind not in _IN_VAIN,
        )

    @property
    def stands(self) -> bool:
        """It has ended well: verified where something was to be verified."""
        return self.telling.ended is not None and self.telling.ended.state == "completed"

    async def spawn(self, request: SpawnRequest) -> str:
        # Shielded: one that begins without our hearing its id would work on for nobody.
        with anyio.move_on_after(SPAWNING_S, shield=True):
            spawned = await self._daemon.ask("worker_spawn", request, Spawned)
            for warning in spawned.warnings:
                self._witness.warn(warning)
            return spawned.worker_id
        message = f"the daemon did not take the task within {SPAWNING_S:g} s"
        raise TargetError("daemon_silent", message, retryable=True)

    async def _listen(self, worker: str, events: AsyncIterator[Envelope], turn: int) -> None:
        begun = turn == 1
        try:
            async for told in events:
                begun = begun or (isinstance(told.event, TurnStarted) and told.event.turn == turn)
                if not begun and not isinstance(told.event, WorkerSpawned | WorkerClosed):
                    continue
                self._take(told)
                if isinstance(told.event, PermissionAsked):
                    await self._answer(worker, told.event, told.at)
                over = self.telling.ended or isinstance(told.event, WorkerClosed)
                if over or self.refused:
                    return
        except anyio.get_cancelled_exc_class():
            self._tell()
            with anyio.move_on_after(PARTING_S, shield=True):
                await self._release(worker)
                await self._hear_out(events)
            raise

    def _take(self, told: Envelope) -> None:
        place = self.telling.take(told)
        if place is not None:
            self._grown.add(place)
        match told.event:
            case ToolCall(status="completed" | "failed") | TurnEnded():
                self._tell()
            case UsageReported():
                self._witness.spent(counted(self.telling.usage), self.telling.cost)
            case BudgetWarned():
                self._witness.warn(told.event.message)
            case _:
                pass

    async def _keep_telling(self) -> None:
        while True:
            await anyio.sleep(TELL_S)
            self._tell()

    def _tell(self) -> None:
        for place in sorted(self._grown):
            self._witness.message(place, self.telling.message(place))
        self._grown.clear()

    async def _answer(self, worker: str, asked: PermissionAsked, at: float) -> None:
        decision = PermissionDecision(
            permission=asked.tool,
            patterns=(asked.detail,) if asked.detail else (),
            decision=self._policy,
            at=when(at),
        )
        self.telling.decisions.append(decision)
        self._witness.decided(decision)
        if self._policy == "reject":
            self.refused = TargetError(
                "permission_denied",
                f"the worker asked for the permission {asked.tool!r} ({asked.detail}), and the "
                "target's permission_policy is 'reject': allow it by `permissions: auto`, by a rule "
                "in .goent/config.yaml, or by permission_policy 'once' or 'always'",
            )
        wanted = _ANSWERS[self._policy]
        offered = [option.id for option in asked.options]
        option = wanted if wanted in offered or wanted == "reject" else "allow_once"
        answer = AnswerRequest(worker_id=worker, permission_id=asked.id, option=option)
        try:
            await self._daemon.ask("worker_answer", answer, Answered)
        except DaemonRefused as refusal:  # withdrawn meanwhile; what is still wanted is asked anew
            self._witness.warn(f"the question {asked.id!r} took no answer: {refusal}")

    async def _hear_out(self, events: AsyncIterator[Envelope]) -> None:
        """What it has spent counts, whoever ended it."""
        try:
            async for told in events:
                self._take(told)
                if isinstance(told.event, WorkerClosed):
                    return
        except DaemonGone:
            pass

    async def _release(self, worker: str) -> None:
        if self._released:
            return
        self._released = True
        closing = CancelRequest(worker_id=worker, reason="its evaluation is over", close=True)
        try:
            await self._daemon.ask("worker_cancel", closing, Cancelled)
        except DaemonRefused as refusal:
            self._witness.warn(f"worker {worker!r} could not be closed: {refusal}")
        except DaemonGone:
            await self._release_elsewhere(closing)

    async def _release_elsewhere(self, closing: CancelRequest) -> None:
        """Its daemon has ended: the next one has taken it over."""
        try:
            async with self._meet() as another:
                await another.ask("worker_cancel", closing, Cancelled)
        except (DaemonRefused, DaemonGone) as trouble:
            self._witness.warn(f"worker {closing.worker_id!r} could not be closed: {trouble}")


def failure_of(trouble: DaemonRefused | DaemonGone) -> TargetError:
    """Worth another try is what the machine lacks for a moment, and what the next daemon may take."""
    if isinstance(trouble, DaemonGone):
        return TargetError("daemon_gone", str(trouble), retryable=True)
    return TargetError("refused", str(trouble), retryable=trouble.kind == "EnvironmentTrouble")
