"""Folds the events of a worker or a swarm into its current view.

`fold` is pure: a view and an envelope in, the next view out. Whoever holds the journal holds
the truth; a view can always be made again.
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

MOST_WORDS = 100  # characters of a worker's latest words
LEAST_DETAIL = 30  # characters of a question in a list
DONE_PERCENT = 100  # percent
FIRST_TURN = 1  # the turn that the task itself is


class WorkerView(Value, frozen=True, kw_only=True):
    """A worker as its events tell it."""

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
    message: str = ""  # the one that it is saying, or said last
    words: str = ""  # the end of it
    overlaps: tuple[Overlap, ...] = ()  # with whole paths, the latest word on each
    commands_changed: bool = False  # files, in this turn
    tools: int = 0  # calls of this turn
    tool_ids: frozenset[str] = frozenset()  # of them, while it runs
    failure: Failure | None = None
    started_at: float
    updated_at: float
    ended_at: float | None = None  # its last turn; a worker may be closed long after
    seq: int

    @property
    def takes_prompts(self) -> bool:
        """Not while it is about to close: its method has one turn, and it had that."""
        over = self.state in ENDED_STATES and self.spawned.method in ONE_TURN_METHODS
        return self.open and not over

    @property
    def provider(self) -> str:
        """The one that serves it now."""
        return self.moved_to or self.spawned.provider

    @property
    def cost_usd(self) -> Decimal | None:
        """None before the first metered call, and as soon as one call's price is unknown."""
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
        case Verified() | WorkKept() | FilesChanged():
            return _after_look(view, event)
        case SessionOpened() | FailedOver():
            return _after_change(view, event)
        case WorkerClosed():
            # Who was closed before it began did nothing, and does not go on starting for ever.
            return replace(
                view, open=False, state=view.state if view.state in ENDED_STATES else "cancelled"
            )
        case _:  # a warning, or of a swarm
            return view


def _after_look(view: WorkerView, event: Verified | WorkKept | FilesChanged) -> WorkerView:
    if isinstance(event, Verified):
        return replace(view, checks=event.checks)
    if isinstance(event, WorkKept):
        return replace(view, work=event.work)
    latest = {(each.worker_id, each.path): each for each in (*view.overlaps, *event.overlaps)}
    return replace(view, overlaps=tuple(latest.values()), commands_changed=bool(event.files))


def _after_change(view: WorkerView, event: SessionOpened | FailedOver) -> WorkerView:
    if isinstance(event, SessionOpened):
        return replace(view, token=event.token)
    return replace(view, moved_to=event.to_provider)


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
            view, step = _after_speech(view, event), "writing"
        case Thought():
            step = "thinking"
        case Noticed():
            step = event.text
    return replace(view, step=_current_step(view.plan) or step)


def _after_speech(view: WorkerView, event: TextDelta) -> WorkerView:
    """A little more than is shown is kept: it may be blank."""
    said = view.words if event.message == view.message else ""
    return replace(view, message=event.message, words=(said + event.text)[-4 * MOST_WORDS :])


def latest_words(view: WorkerView) -> str:
    """In one line, what it said last."""
    line = " ".join(view.words.split())
    return line if len(line) <= MOST_WORDS else f"…{line[1 - MOST_WORDS :]}"


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
    unknown = event.calls if event.cost_usd is None else 0
    return replace(
        view,
        usage=view.usage + event.usage,
        known_usd=view.known_usd + (event.cost_usd or Decimal(0)),
        calls=view.calls + event.calls,
        unknown_calls=view.unknown_calls + unknown,
        cost_source=_source(view, event),
    )


def _source(view: WorkerView, event: UsageReported) -> CostSource | None:
    """A sum with an estimate in it is one."""
    if event.cost_usd is None or view.cost_source == "estimate":
        return view.cost_source
    return event.source


def evidence(view: WorkerView) -> Evidence | None:
    """A worker's word is a claim; a verify command makes it more, or less, and idleness less.

    None until its turn has ended.
    """
    if view.state not in ENDED_STATES:
        return None
    if checked := evidence_of(view.checks):
        return checked
    if view.state != "completed":
        return None
    return "refuted" if did_nothing(view) else "claimed"


def did_nothing(view: WorkerView) -> bool:
    """It was asked for edits, and has neither edited nor used a tool. Later turns ask other things."""
    kept = (view.work is not None and bool(view.work.files)) or view.commands_changed
    return view.spawned.edits_asked and view.turn == FIRST_TURN and not view.tools and not kept


def worker_status(view: WorkerView, now: float | None = None) -> Status:
    """The view in the words of the public interface; at a time, also how long a question has left."""
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
    """Where the worker met others, as it was told and as they were, with whole paths."""
    told = {(o.worker_id, o.path): o for o in view.overlaps}
    for other in views:
        for each in other.overlaps:
            if each.worker_id == view.id:
                known = told.get((other.id, each.path))
                if known is None or each.kind != "file_overlap":
                    told[other.id, each.path] = replace(each, worker_id=other.id)
    return tuple(told.values())


def worker_line(view: WorkerView, met: Iterable[str] = ()) -> WorkerLine:
    """The view in one line of a list. `met` are the workers whose files it changed as well."""
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
        return asks + one_line(view.questions[0].detail, max(LEAST_DETAIL, room - len(asks)))
    finishing = view.state == "running" and plan_progress(view.plan).percent == DONE_PERCENT
    return "finishing" if finishing else shorten(view.step, room)


def plan_progress(plan: tuple[PlanEntry, ...]) -> Progress:
    """The share of the worker's own todo list that is done; no list, no figure."""
    counted = [entry for entry in plan if entry.status != "cancelled"]
    if not counted:
        return Progress()
    done = sum(entry.status == "completed" for entry in counted)
    return Progress(percent=100 * done // len(counted), source="todos")


def timestamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def shorten(text: str, limit: int) -> str:
    """One line, at most so long."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


class TaskAttempt(Value, frozen=True, kw_only=True):
    """A worker that was given a task. `refused`: it could not even begin."""

    worker: str
    pin: Pin = Pin()
    refused: Failure | None = None


class SwarmTaskView(Value, frozen=True, kw_only=True):
    """A task of the swarm. `attempts` are those since it was opened, `earlier` those before.

    `pin` and `avoid` are what whoever reopened it wants.
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
        """All that ever had it, in order."""
        return tuple(attempt.worker for attempt in (*self.earlier, *self.attempts))


class SwarmView(Value, frozen=True, kw_only=True):
    """A swarm as its events tell it; the tasks by id, in their order.

    `ended_at` is when the last thing happened to a task.
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
        """These tasks, or all if none is named."""
        unknown = [name for name in tasks if name not in self.tasks]
        if unknown:
            raise RequestError(
                f"swarm {self.id!r} has no task {unknown[0]!r}; it has {', '.join(self.tasks)}"
            )
        return tuple(self.tasks[name] for name in tasks or self.tasks)


def fold_swarm(view: SwarmView | None, envelope: EventEnvelope) -> SwarmView | None:
    """The view after the event; None if there is none because its beginning cannot be read."""
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
            if before is None:  # written by who knows more tasks than we can read
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
