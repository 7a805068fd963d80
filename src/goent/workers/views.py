"""Folds the events of a worker or a swarm into its current view.

Folding is pure: a view and an envelope in, the next view out. The journal is the only truth; a
view can always be rebuilt from it.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal

from msgspec.structs import replace

from goent.domain.errors import RequestError
from goent.domain.events import (
    AnyEvent,
    EventEnvelope,
    FailedOver,
    FilesChanged,
    Noticed,
    PermissionAnswered,
    PermissionAsked,
    PermissionWithdrawn,
    PlanUpdated,
    SessionOpened,
    SwarmCancelled,
    SwarmSpawned,
    TaskGiven,
    TaskRefused,
    TaskReopened,
    TaskSettled,
    TextDelta,
    Thought,
    ToolCall,
    TurnEnded,
    TurnStarted,
    UsageReported,
    Verified,
    WorkerClosed,
    WorkerSpawned,
    WorkKept,
    WorkMerged,
)
from goent.domain.question_text import always_rule, one_line, visible_text
from goent.domain.replies import Progress, Question, Status, WorkerLine
from goent.domain.swarm_messages import SwarmTask
from goent.domain.types import (
    ENDED_STATES,
    ONE_TURN_METHODS,
    Check,
    CostSource,
    Evidence,
    Failure,
    Overlap,
    Pin,
    PlanEntry,
    Usage,
    Value,
    WorkerState,
    rounded_usd,
)
from goent.domain.verification import evidence_of
from goent.domain.workspace import Work

MAX_WORDS = 100  # characters of a worker's latest text
MIN_DETAIL = 30  # characters of a question in a list
FIRST_TURN = 1  # its prompt is the task itself


class WorkerView(Value, frozen=True, kw_only=True):
    """A worker, as described by its events."""

    id: str
    spawned: WorkerSpawned
    state: WorkerState = "starting"
    open: bool = True
    turn: int = 0
    turn_seq: int = 0
    step: str = "starting"
    plan: tuple[PlanEntry, ...] = ()
    questions: tuple[PermissionAsked, ...] = ()
    asked: int = 0
    token: str = ""
    moved_to: str = ""
    usage: Usage = Usage()
    known_usd: Decimal = Decimal(0)
    calls: int = 0
    unknown_calls: int = 0
    cost_source: CostSource | None = None
    checks: tuple[Check, ...] = ()
    work: Work | None = None
    message: str = ""  # the id of its latest message
    words: str = ""  # the end of that message
    overlaps: tuple[Overlap, ...] = ()  # with absolute paths; the latest per worker and file
    commands_changed: bool = False  # whether commands changed files in this turn
    tools: int = 0  # tool calls of this turn
    tool_ids: frozenset[str] = frozenset()  # their ids, while the turn runs
    failure: Failure | None = None
    started_at: float
    updated_at: float
    ended_at: float | None = None  # of its last turn; a worker may be closed long after
    seq: int

    @property
    def takes_prompts(self) -> bool:
        """Whether it is open; a method with one turn takes no prompt after that turn."""
        over = self.state in ENDED_STATES and self.spawned.method in ONE_TURN_METHODS
        return self.open and not over

    @property
    def provider(self) -> str:
        """The provider that serves it now."""
        return self.moved_to or self.spawned.provider

    @property
    def cost_usd(self) -> Decimal | None:
        """None before the first metered call, and once any call's price is unknown."""
        return self.known_usd if self.calls and not self.unknown_calls else None


def fold_worker(view: WorkerView | None, envelope: EventEnvelope) -> WorkerView:
    """The view after the event. The first event of a worker is `WorkerSpawned`."""
    event = envelope.event
    if view is None:
        assert isinstance(event, WorkerSpawned), f"{envelope.worker} begins with {event!r}"
        return WorkerView(
            id=envelope.worker,
            spawned=event,
            started_at=envelope.at,
            updated_at=envelope.at,
            seq=envelope.seq,
        )
    after = replace(_after(view, event, envelope.seq), updated_at=envelope.at, seq=envelope.seq)
    return replace(after, ended_at=envelope.at) if isinstance(event, TurnEnded) else after


def _after(view: WorkerView, event: AnyEvent, seq: int) -> WorkerView:
    match event:
        case TextDelta() | Thought() | ToolCall() | PlanUpdated() | Noticed():
            return _after_work(view, event)
        case PermissionAsked() | PermissionAnswered() | PermissionWithdrawn():
            return _after_question(view, event)
        case UsageReported():
            return _after_usage(view, event)
        case TurnStarted():
            return replace(
                view,
                state="running",
                turn=event.turn,
                turn_seq=seq,
                step="thinking",
                plan=(),
                message="",
                words="",
                checks=(),
                tools=0,
                tool_ids=frozenset(),
                commands_changed=False,
                failure=None,
            )
        case TurnEnded():
            return replace(
                view,
                state=event.state,
                failure=event.failure,
                questions=(),
                step=event.state,
                tool_ids=frozenset(),
            )
        case Verified() | WorkKept() | FilesChanged() | SessionOpened() | FailedOver():
            return _after_change(view, event)
        case WorkerClosed():
            # A worker that was closed before it began must not stay "starting" for ever.
            return replace(
                view, open=False, state=view.state if view.state in ENDED_STATES else "cancelled"
            )
        case _:  # a warning, or an event of a swarm
            return view


def _after_change(
    view: WorkerView, event: Verified | WorkKept | FilesChanged | SessionOpened | FailedOver
) -> WorkerView:
    match event:
        case Verified():
            return replace(view, checks=event.checks)
        case WorkKept():
            return replace(view, work=event.work)
        case SessionOpened():
            return replace(view, token=event.token)
        case FailedOver():
            return replace(view, moved_to=event.to_provider)
        case FilesChanged():
            found = {
                (each.worker_id, each.path): each for each in (*view.overlaps, *event.overlaps)
            }
            return replace(view, overlaps=tuple(found.values()), commands_changed=bool(event.files))


def _after_work(
    view: WorkerView, event: TextDelta | Thought | ToolCall | PlanUpdated | Noticed
) -> WorkerView:
    match event:
        case PlanUpdated():
            return replace(view, plan=event.entries, step=_current_step(event.entries) or view.step)
        case ToolCall():
            if event.id not in view.tool_ids:
                seen = view.tool_ids | {event.id}
                view = replace(view, tools=view.tools + 1, tool_ids=seen)
            step = f"{event.tool}: {event.title or event.detail}".rstrip(": ")
        case TextDelta():
            before = view.words if event.message == view.message else ""
            words = (before + event.text)[-4 * MAX_WORDS :]  # more than is shown: some may be blank
            view, step = replace(view, message=event.message, words=words), "writing"
        case Thought():
            step = "thinking"
        case Noticed():
            step = event.text
    return replace(view, step=_current_step(view.plan) or step)


def latest_words(view: WorkerView) -> str:
    """The end of its latest message, on one line."""
    line = " ".join(view.words.split())
    return line if len(line) <= MAX_WORDS else f"…{line[1 - MAX_WORDS :]}"


def _current_step(plan: tuple[PlanEntry, ...]) -> str:
    return next((entry.text for entry in plan if entry.status == "in_progress"), "")


def _after_question(
    view: WorkerView, event: PermissionAsked | PermissionAnswered | PermissionWithdrawn
) -> WorkerView:
    others = tuple(q for q in view.questions if q.id != event.id)
    if isinstance(event, PermissionAsked):
        return replace(view, state="waiting", questions=(*others, event), asked=view.asked + 1)
    state = "waiting" if others else "running"
    return replace(view, state=state if view.state == "waiting" else view.state, questions=others)


def _after_usage(view: WorkerView, event: UsageReported) -> WorkerView:
    unknown = event.cost_usd is None
    estimated = view.cost_source == "estimate"  # a sum with an estimate in it is an estimate
    return replace(
        view,
        usage=view.usage + event.usage,
        known_usd=view.known_usd + (event.cost_usd or Decimal(0)),
        calls=view.calls + event.calls,
        unknown_calls=view.unknown_calls + (event.calls if unknown else 0),
        cost_source=view.cost_source if unknown or estimated else event.source,
    )


def evidence(view: WorkerView) -> Evidence | None:
    """How far the worker's result can be trusted. None until its turn has ended.

    Without verify commands it is a claim, refuted if the worker did nothing although edits were
    requested.
    """
    if view.state not in ENDED_STATES:
        return None
    if checked := evidence_of(view.checks):
        return checked
    if view.state != "completed":
        return None
    return "refuted" if did_nothing(view) else "claimed"


def did_nothing(view: WorkerView) -> bool:
    """Whether the task requested edits and the first turn neither edited nor used a tool."""
    kept = (view.work is not None and bool(view.work.files)) or view.commands_changed
    return view.spawned.edits_asked and view.turn == FIRST_TURN and not view.tools and not kept


def worker_status(view: WorkerView, now: float | None = None) -> Status:
    """The public status; with the time, also how long its question stays open."""
    return Status(
        worker_id=view.id,
        state=view.state,
        evidence=evidence(view),
        open=view.takes_prompts,
        turn=view.turn,
        step=_step(view),
        progress=plan_progress(view.plan),
        provider=view.spawned.provider,
        model=view.spawned.model,
        method=view.spawned.method,
        cwd=view.spawned.cwd,
        task=shorten(view.spawned.task, 80),
        permission=_question(view.questions[0], now) if view.questions else None,
        questions=len(view.questions),
        usage=view.usage,
        cost_usd=rounded_usd(view.cost_usd),
        cost_source=view.cost_source if view.cost_usd is not None else None,
        started_at=timestamp(view.started_at),
        updated_at=timestamp(view.updated_at),
        failure=view.failure,
    )


def _question(asked: PermissionAsked, now: float | None) -> Question:
    shown, expires = visible_text(asked.detail), asked.expires_at
    left = None if now is None or expires is None else round(max(0.0, expires - now), 1)
    return Question(
        id=asked.id,
        tool=asked.tool,
        detail=asked.detail,
        options=asked.options,
        reason=asked.reason,
        always=always_rule(asked.tool, asked.always),
        shown="" if shown == asked.detail else shown,
        expires_at=None if expires is None else timestamp(expires),
        seconds_left=left,
    )


def overlaps(view: WorkerView, views: Iterable[WorkerView]) -> tuple[Overlap, ...]:
    """Its overlaps with other workers, from its own events and theirs, with absolute paths."""
    found = {(o.worker_id, o.path): o for o in view.overlaps}
    for other in views:
        for each in other.overlaps:
            if each.worker_id == view.id:
                known = found.get((other.id, each.path))
                if known is None or each.kind != "file_overlap":
                    found[other.id, each.path] = replace(each, worker_id=other.id)
    return tuple(found.values())


def worker_line(view: WorkerView, met: Iterable[str] = ()) -> WorkerLine:
    """One line of a list. `met` are the workers that changed the same files."""
    return WorkerLine(
        worker_id=view.id,
        state=view.state,
        evidence=evidence(view),
        open=view.takes_prompts,
        step=_step(view, 60),
        progress=plan_progress(view.plan),
        provider=view.spawned.provider,
        model=view.spawned.model,
        method=view.spawned.method,
        permission=view.questions[0].id if view.questions else None,
        tokens=view.usage.total,
        cost_usd=rounded_usd(view.cost_usd),
        started_at=timestamp(view.started_at),
        updated_at=timestamp(view.updated_at),
        task=shorten(view.spawned.task, 60),
        overlaps=tuple(dict.fromkeys(met)),
    )


def _step(view: WorkerView, room: int = 120) -> str:
    if view.questions:
        asks = f"asks for {view.questions[0].tool}: "
        return asks + one_line(view.questions[0].detail, max(MIN_DETAIL, room - len(asks)))
    finishing = view.state == "running" and plan_progress(view.plan).percent == 100  # noqa: PLR2004 (all of it)
    return "finishing" if finishing else shorten(view.step, room)


def plan_progress(plan: tuple[PlanEntry, ...]) -> Progress:
    """The share of the worker's own todo list that is done; unknown without a list."""
    counted = [entry for entry in plan if entry.status != "cancelled"]
    if not counted:
        return Progress()
    done = sum(entry.status == "completed" for entry in counted)
    return Progress(percent=100 * done // len(counted), source="todos")


def timestamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def shorten(text: str, limit: int) -> str:
    """The text on one line, cut at the limit."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


class TaskAttempt(Value, frozen=True, kw_only=True):
    """A worker assigned to a task. `refused` is why it could not begin."""

    worker: str
    pin: Pin = Pin()
    refused: Failure | None = None


class SwarmTaskView(Value, frozen=True, kw_only=True):
    """A task of the swarm. `attempts` are those since it was last opened, `earlier` those before.

    `pin` and `avoid` come from whoever reopened it.
    """

    task: SwarmTask
    attempts: tuple[TaskAttempt, ...] = ()
    earlier: tuple[TaskAttempt, ...] = ()
    pin: Pin | None = None
    avoid: tuple[str, ...] = ()
    settled: TaskSettled | None = None
    cancelled: str = ""

    @property
    def workers(self) -> tuple[str, ...]:
        """All workers that ever had the task, in order."""
        return tuple(attempt.worker for attempt in (*self.earlier, *self.attempts))


class SwarmView(Value, frozen=True, kw_only=True):
    """A swarm, as described by its events; the tasks by id, in their order.

    `ended_at` is the time of the latest event of a task.
    """

    id: str
    spawned: SwarmSpawned
    tasks: Mapping[str, SwarmTaskView]
    merges: tuple[WorkMerged, ...] = ()
    started_at: float
    ended_at: float
    seq: int

    @property
    def over(self) -> bool:
        return all(view.settled for view in self.tasks.values())

    def named(self, tasks: tuple[str, ...]) -> tuple[SwarmTaskView, ...]:
        """These tasks; all of them if none is named."""
        unknown = [name for name in tasks if name not in self.tasks]
        if unknown:
            raise RequestError(
                f"swarm {self.id!r} has no task {unknown[0]!r}; it has {', '.join(self.tasks)}"
            )
        return tuple(self.tasks[name] for name in tasks or self.tasks)


def fold_swarm(view: SwarmView | None, envelope: EventEnvelope) -> SwarmView | None:
    """The view after the event; None if the swarm's first event is unreadable."""
    event, seq = envelope.event, envelope.seq
    if isinstance(event, SwarmSpawned):
        tasks = {task.id: SwarmTaskView(task=task) for task in event.request.tasks}
        return SwarmView(
            id=envelope.worker,
            spawned=event,
            tasks=tasks,
            started_at=envelope.at,
            ended_at=envelope.at,
            seq=seq,
        )
    if view is None:
        return None
    view = replace(view, seq=seq)
    match event:
        case TaskGiven() | TaskRefused() | TaskSettled() | TaskReopened():
            before = view.tasks.get(event.task)
            if before is None:  # written by a newer version
                return view
            tasks = {**view.tasks, event.task: _task_after(before, event)}
            return replace(view, tasks=tasks, ended_at=envelope.at)
        case SwarmCancelled():
            return replace(view, tasks=_tasks_after_cancel(view, event))
        case WorkMerged():
            return replace(view, merges=(*view.merges, event))
        case _:
            return view


def _task_after(
    view: SwarmTaskView, event: TaskGiven | TaskRefused | TaskSettled | TaskReopened
) -> SwarmTaskView:
    match event:
        case TaskGiven():
            attempt = TaskAttempt(worker=event.worker, pin=event.pin)
            return replace(view, attempts=(*view.attempts, attempt))
        case TaskRefused():
            return replace(
                view,
                attempts=tuple(
                    replace(each, refused=event.failure) if each.worker == event.worker else each
                    for each in view.attempts
                ),
            )
        case TaskSettled():
            return replace(view, settled=event)
        case TaskReopened():
            return SwarmTaskView(
                task=view.task,
                earlier=(*view.earlier, *view.attempts),
                pin=event.pin,
                avoid=event.avoid,
            )


def _tasks_after_cancel(view: SwarmView, event: SwarmCancelled) -> dict[str, SwarmTaskView]:
    meant = event.tasks or tuple(view.tasks)
    return {
        name: replace(task, cancelled=event.reason) if name in meant and not task.settled else task
        for name, task in view.tasks.items()
    }
