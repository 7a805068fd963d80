"""Runs one attempt with one worker, from spawn to release, and traces its events."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

import anyio

from goent.domain.errors import TurnTimeout, VerifyFailed
from goent.domain.events import (
    BudgetWarned,
    EventEnvelope,
    FailedOver,
    PermissionAsked,
    TextDelta,
    Thought,
    ToolCall,
    TurnEnded,
    TurnStarted,
    UsageReported,
    WorkerClosed,
    WorkerSpawned,
)
from goent.domain.replies import AnswerReply, CancelReply, SpawnReply
from goent.domain.requests import AnswerRequest, CancelRequest, SpawnRequest
from goent.domain.task_profile import history_place
from goent.domain.types import PermissionAnswer, Usage
from goent.evals.eval_ports import (
    AttemptObserver,
    DaemonGone,
    DaemonRefused,
    EvalDaemon,
    OpenDaemon,
    TargetError,
)
from goent.evals.suites import AskPolicy
from goent.evals.traces import (
    CallStatus,
    PermissionDecision,
    TokenUsage,
    Trace,
    TracedCall,
    TracedMessage,
    TraceWorker,
)
from goent.proc.concurrency import task_group

_CALL_STATUS: dict[str, CallStatus] = {"completed": "ok", "failed": "error"}


def iso_time(at: float) -> str:
    """ISO 8601, in UTC."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(slots=True, kw_only=True)
class _WorkerCall:
    first: ToolCall
    last: ToolCall
    input: object
    began: float
    ended: float | None = None

    def traced(self) -> TracedCall:
        # A call that is reported only when it has ended has no duration.
        timed = self.ended is not None and self.first.status in ("pending", "running")
        return TracedCall(
            tool=self.last.tool,
            id=self.last.id,
            input=self.input,
            output=self.last.output or None,
            status=_CALL_STATUS.get(self.last.status, "unknown"),
            start_time=iso_time(self.began) if timed or self.ended is None else None,
            end_time=None if self.ended is None else iso_time(self.ended),
            duration_ms=round((self.ended - self.began) * 1000, 3)
            if timed and self.ended is not None
            else None,
        )


@dataclass(slots=True, kw_only=True)
class _WorkerMessage:
    id: str
    began: float
    grew: float
    text: str = ""
    calls: list[str] = field(default_factory=list[str])


class WorkerTranscript:
    """One worker's turn, as far as it was reported."""

    def __init__(self) -> None:
        self.spawned: WorkerSpawned | None = None
        self.ended: TurnEnded | None = None
        self.decisions: list[PermissionDecision] = []
        self._worker = ""
        self._failed_over = False
        self._messages: list[_WorkerMessage] = []
        self._calls: dict[str, tuple[int, _WorkerCall]] = {}  # with the place of its message
        self._current_message = ""
        self._started_at: float | None = None
        self._ended_at: float | None = None
        self._reports: list[UsageReported] = []

    def add(self, told: EventEnvelope) -> int | None:
        """Adds an event, and returns the index of the message that has grown, if any."""
        event = told.event
        match event:
            case TextDelta():
                return self._text(event, told.at)
            case Thought():
                self._current_message = event.message
            case ToolCall():
                return self._call(event, told.at)
            case UsageReported():
                self._reports.append(event)
            case WorkerSpawned():
                self.spawned, self._worker = event, history_place(told.worker, told.at)
            case FailedOver():
                self._failed_over = True
            case TurnStarted():
                self._started_at = told.at
            case TurnEnded():
                self.ended, self._ended_at = event, told.at
            case _:
                pass
        return None

    def message(self, place: int) -> TracedMessage:
        said = self._messages[place]
        return TracedMessage(
            role="assistant",
            content=said.text.strip(),
            tool_calls=tuple(self._calls[call][1].traced() for call in said.calls),
            start_time=iso_time(said.began),
            end_time=iso_time(said.grew),
        )

    @property
    def usage(self) -> Usage | None:
        return sum((r.usage for r in self._reports), Usage()) if self._reports else None

    @property
    def llm_calls(self) -> int | None:
        return sum(report.calls for report in self._reports) if self._reports else None

    @property
    def cost(self) -> float | None:
        """In USD. None if no call was reported, or a price is unknown."""
        known = [report.cost_usd for report in self._reports if report.cost_usd is not None]
        return float(sum(known)) if known and len(known) == len(self._reports) else None

    def trace(self) -> Trace:
        timed = self._started_at is not None and self._ended_at is not None
        return Trace(
            messages=tuple(self.message(place) for place in range(len(self._messages))),
            usage=suite_usage(self.usage),
            cost_usd=self.cost,
            duration_ms=round((self._ended_at - self._started_at) * 1000, 3)
            if timed and self._ended_at is not None and self._started_at is not None
            else None,
            llm_calls=self.llm_calls,
            start_time=None if self._started_at is None else iso_time(self._started_at),
            end_time=None if self._ended_at is None else iso_time(self._ended_at),
            permissions=tuple(self.decisions),
            by=self._by(),
        )

    def _by(self) -> TraceWorker | None:
        if self.spawned is None or self._failed_over:
            return None
        return TraceWorker(
            provider=self.spawned.provider,
            backend=self.spawned.backend,
            model=self.spawned.model,
            method=self.spawned.method,
            worker=self._worker,
        )

    def _text(self, event: TextDelta, at: float) -> int:
        self._current_message = event.message
        last = self._messages[-1] if self._messages else None
        # Agents without message ids begin a new message after their tools.
        if last is None or last.id != event.message or (not event.message and last.calls):
            last = self._begin(event.message, at)
        last.text += event.text
        last.grew = at
        return len(self._messages) - 1

    def _call(self, event: ToolCall, at: float) -> int:
        place, call = self._calls.get(event.id) or self._begin_call(event, at)
        call.last = event
        call.input = call.input if event.input is None else event.input
        if event.status in ("completed", "failed"):
            call.ended = at
        self._messages[place].grew = at
        return place

    def _begin_call(self, event: ToolCall, at: float) -> tuple[int, _WorkerCall]:
        last = self._messages[-1] if self._messages else None
        if last is None or (self._current_message and last.id != self._current_message):
            last = self._begin(self._current_message, at)
        last.calls.append(event.id)
        begun = _WorkerCall(first=event, last=event, input=event.input, began=at)
        self._calls[event.id] = (len(self._messages) - 1, begun)
        return self._calls[event.id]

    def _begin(self, name: str, at: float) -> _WorkerMessage:
        begun = _WorkerMessage(id=name, began=at, grew=at)
        self._messages.append(begun)
        return begun


def suite_usage(usage: Usage | None) -> TokenUsage | None:
    """Tokens as suites count them: cache writes are input too."""
    if usage is None:
        return None
    return TokenUsage(
        input=usage.input + usage.cache_write,
        output=usage.output + usage.reasoning,
        cached=usage.cache_read,
        reasoning=usage.reasoning,
    )


SPAWN_TIMEOUT_S = 60.0
RELEASE_TIMEOUT_S = 30.0
LAST_USAGE_TIMEOUT_S = 15.0  # for a cancelled worker to report its usage
REPORT_INTERVAL_S = 1.0  # messages are reported whole
_POLICY_ANSWERS: dict[AskPolicy, PermissionAnswer] = {
    "reject": "reject",
    "once": "allow_once",
    "always": "allow_always",
}
# A retry would reach the same limit.
_NOT_RETRYABLE = frozenset({TurnTimeout.kind})


class GoentAttempt:
    """One turn of a worker, usually its only one. `transcript` has it so far; `cancel` ends it early."""

    def __init__(
        self, daemon: EvalDaemon, meet: OpenDaemon, policy: AskPolicy, witness: AttemptObserver
    ) -> None:
        self.transcript = WorkerTranscript()
        self.error: TargetError | None = None
        self._daemon = daemon
        self._open_daemon = meet
        self._policy: AskPolicy = policy
        self._witness = witness
        self._scope = anyio.CancelScope()
        self._released = False
        self._changed = set[int]()  # messages not reported since they changed

    def cancel(self) -> None:
        self._scope.cancel()

    async def run(self, request: SpawnRequest, over: Callable[[], None] = lambda: None) -> None:
        """Spawns a worker, follows its turn, and closes it; `over` is called before closing."""
        worker = await self.spawn(request)
        try:
            await self.follow_turn(worker)
            over()
        finally:
            await self.release(worker)

    async def follow_turn(self, worker: str, turn: int = 1) -> None:
        """Returns when this turn is over; events of earlier turns are ignored."""
        async with self._daemon.events(worker) as events, task_group() as tasks:
            tasks.start_soon(self._report_regularly)
            try:
                with self._scope:
                    await self._listen(worker, events, turn)
            finally:
                tasks.cancel_scope.cancel()
                self._report()

    async def release(self, worker: str) -> None:
        with anyio.move_on_after(RELEASE_TIMEOUT_S, shield=True):
            await self._release(worker)

    @property
    def failure(self) -> TargetError | None:
        """Why there is nothing to grade. Work that failed its verify command can be graded."""
        if self.error:
            return self.error
        ended = self.transcript.ended
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
            retryable=ended.failure.retryable and ended.failure.kind not in _NOT_RETRYABLE,
        )

    @property
    def succeeded(self) -> bool:
        """Whether it completed, and passed its verify commands."""
        return self.transcript.ended is not None and self.transcript.ended.state == "completed"

    async def spawn(self, request: SpawnRequest) -> str:
        # Shielded: a worker whose id is never received would keep running.
        with anyio.move_on_after(SPAWN_TIMEOUT_S, shield=True):
            spawned = await self._daemon.ask("worker_spawn", request, SpawnReply)
            for warning in spawned.warnings:
                self._witness.warn(warning)
            return spawned.worker_id
        message = f"the daemon did not accept the task within {SPAWN_TIMEOUT_S:g} s"
        raise TargetError("daemon_silent", message, retryable=True)

    async def _listen(self, worker: str, events: AsyncIterator[EventEnvelope], turn: int) -> None:
        begun = turn == 1
        try:
            async for told in events:
                begun = begun or (isinstance(told.event, TurnStarted) and told.event.turn == turn)
                if not begun and not isinstance(told.event, WorkerSpawned | WorkerClosed):
                    continue
                self._add(told)
                if isinstance(told.event, PermissionAsked):
                    await self._answer(worker, told.event, told.at)
                over = self.transcript.ended or isinstance(told.event, WorkerClosed)
                if over or self.error:
                    return
        except anyio.get_cancelled_exc_class():
            self._report()
            with anyio.move_on_after(LAST_USAGE_TIMEOUT_S, shield=True):
                await self._release(worker)
                await self._read_to_end(events)
            raise

    def _add(self, told: EventEnvelope) -> None:
        place = self.transcript.add(told)
        if place is not None:
            self._changed.add(place)
        match told.event:
            case ToolCall(status="completed" | "failed") | TurnEnded():
                self._report()
            case UsageReported():
                self._witness.usage_changed(
                    suite_usage(self.transcript.usage), self.transcript.cost
                )
            case BudgetWarned():
                self._witness.warn(told.event.message)
            case _:
                pass

    async def _report_regularly(self) -> None:
        while True:
            await anyio.sleep(REPORT_INTERVAL_S)
            self._report()

    def _report(self) -> None:
        for place in sorted(self._changed):
            self._witness.message(place, self.transcript.message(place))
        self._changed.clear()

    async def _answer(self, worker: str, asked: PermissionAsked, at: float) -> None:
        decision = PermissionDecision(
            permission=asked.tool,
            patterns=(asked.detail,) if asked.detail else (),
            decision=self._policy,
            at=iso_time(at),
        )
        self.transcript.decisions.append(decision)
        self._witness.permission_decided(decision)
        if self._policy == "reject":
            self.error = TargetError(
                "permission_denied",
                f"the worker asked for the permission {asked.tool!r} ({asked.detail}), and the "
                "target's permission_policy is 'reject': allow it by `permissions: auto`, by a rule "
                "in .goent/config.yaml, or by permission_policy 'once' or 'always'",
            )
        wanted = _POLICY_ANSWERS[self._policy]
        offered = [option.id for option in asked.options]
        option = wanted if wanted in offered or wanted == "reject" else "allow_once"
        answer = AnswerRequest(worker_id=worker, permission_id=asked.id, option=option)
        try:
            await self._daemon.ask("worker_answer", answer, AnswerReply)
        except DaemonRefused as refusal:  # withdrawn meanwhile; a pending one is asked again
            self._witness.warn(
                f"the permission request {asked.id!r} could not be answered: {refusal}"
            )

    async def _read_to_end(self, events: AsyncIterator[EventEnvelope]) -> None:
        """Reads the remaining events for their usage."""
        try:
            async for told in events:
                self._add(told)
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
            await self._daemon.ask("worker_cancel", closing, CancelReply)
        except DaemonRefused as refusal:
            self._witness.warn(f"worker {worker!r} could not be closed: {refusal}")
        except DaemonGone:
            await self._release_elsewhere(closing)

    async def _release_elsewhere(self, closing: CancelRequest) -> None:
        """Closes it through the next daemon, which has taken it over."""
        try:
            async with self._open_daemon() as another:
                await another.ask("worker_cancel", closing, CancelReply)
        except (DaemonRefused, DaemonGone) as trouble:
            self._witness.warn(f"worker {closing.worker_id!r} could not be closed: {trouble}")


def daemon_failure(trouble: DaemonRefused | DaemonGone) -> TargetError:
    """Retryable are a lost daemon, and troubles of the environment."""
    if isinstance(trouble, DaemonGone):
        return TargetError("daemon_gone", str(trouble), retryable=True)
    return TargetError("refused", str(trouble), retryable=trouble.kind == "EnvironmentTrouble")
