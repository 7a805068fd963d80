"""The events of workers and swarms, which are all that a journal stores.

Their order is a grammar that every journal obeys:

    WorkerSpawned (TurnStarted DriverEvent* … TurnEnded)* WorkerClosed

`TurnEnded` comes exactly once per turn and `WorkerClosed` exactly once per worker, also on cancellation,
crashes and internal errors. A driver emits only `DriverEvent`s; the core adds the rest.

A swarm has events of its own, under its own id:

    SwarmSpawned (TaskGiven | TaskRefused | TaskSettled | TaskReopened | SwarmCancelled | WorkMerged)*

A `TaskGiven` comes before the first event of its worker.
"""

from decimal import Decimal
from typing import Literal

from msgspec import Struct

from goent.domain.sandbox_port import SandboxLevelName
from goent.domain.swarm_messages import SwarmSpawnRequest
from goent.domain.task_profile import Complexity, TaskType
from goent.domain.types import (
    AlsoChanged,
    Check,
    Command,
    CostSource,
    Evidence,
    Failure,
    FileChange,
    GuardedChange,
    Isolation,
    Method,
    Overlap,
    PermissionAnswer,
    PermissionOption,
    Pin,
    PlanEntry,
    Preset,
    Usage,
)
from goent.domain.workspace import Work, Workspace, WorkspaceKind


class Event(Struct, frozen=True, kw_only=True, tag=True, tag_field="type", omit_defaults=True):
    """Tagged with its class name, so that a journal row names its kind."""


class TextDelta(Event, frozen=True, kw_only=True):
    """A piece of the worker's text; `message` groups the pieces of one message."""

    text: str
    message: str = ""


class Thought(Event, frozen=True, kw_only=True):
    """A piece of the worker's reasoning."""

    text: str
    message: str = ""


class ToolCall(Event, frozen=True, kw_only=True):
    """A tool call, repeated with the same `id` whenever it changes.

    `input` is the tool's arguments as JSON; it is sent once, when it is known.
    """

    id: str
    tool: str
    status: Literal["pending", "running", "completed", "failed"]
    title: str = ""
    detail: str = ""
    input: object = None
    output: str = ""
    changes: tuple[FileChange, ...] = ()
    command: Command | None = None


class SessionOpened(Event, frozen=True, kw_only=True):
    """The worker has a session, which another go-ent can resume with the token."""

    token: str


class PlanUpdated(Event, frozen=True, kw_only=True):
    """The worker's complete todo list."""

    entries: tuple[PlanEntry, ...]


class PermissionAsked(Event, frozen=True, kw_only=True):
    """The worker waits for a permission.

    `detail` is the whole command, or the path and the whole diff. `reason` says why it is asked although
    the rules would allow it. `always` are the patterns that `allow_always` would allow for `tool`; if
    empty, that is not offered. Without an answer it is rejected at `expires_at`.
    """

    id: str
    tool: str
    detail: str
    options: tuple[PermissionOption, ...]
    reason: str = ""
    always: tuple[str, ...] = ()
    expires_at: float | None = None


class PermissionWithdrawn(Event, frozen=True, kw_only=True):
    """The question is void, because its session is gone; if still needed, it is asked again."""

    id: str
    reason: str


class UsageReported(Event, frozen=True, kw_only=True):
    """One metered model call, or the usage that a program reported for direct calls."""

    provider: str
    model: str
    usage: Usage
    cost_usd: Decimal | None
    source: CostSource
    status: int = 200
    calls: int = 1


class Noticed(Event, frozen=True, kw_only=True):
    """Something that the worker's program does not show: a retry, a stall."""

    text: str


class WorkerSpawned(Event, frozen=True, kw_only=True):
    """The task was accepted. Workers of one `group`, a swarm, share one budget.

    `edits_asked`: a worker that then neither edits nor uses a tool has not done the task. `sandbox` is the
    level of its confinement; None if it has no processes, or if an older go-ent wrote the event.
    """

    task: str
    cwd: str
    provider: str
    backend: str
    model: str
    method: Method
    reason: str
    permissions: Preset
    isolation: Isolation
    timeout_s: float | None = None
    budget_usd: Decimal | None = None
    verify: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    fallbacks: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    group: str = ""
    group_budget_usd: Decimal | None = None
    task_type: TaskType | None = None
    complexity: Complexity | None = None
    size: float | None = None
    workspace: Workspace | None = None
    task_id: str = ""
    edits_asked: bool = False
    allowed_tools: tuple[str, ...] | None = None
    temperature: float | None = None
    sandbox: SandboxLevelName | None = None


class TurnStarted(Event, frozen=True, kw_only=True):
    """The worker was given a prompt."""

    turn: int
    prompt: str


class PermissionAnswered(Event, frozen=True, kw_only=True):
    """The answer to a permission question. `by` is a frontend, a rule or the time limit.

    `message` came with a rejection: what to do instead.
    """

    id: str
    option: PermissionAnswer
    by: str
    message: str = ""


class Verified(Event, frozen=True, kw_only=True):
    """The verify commands ran; if all exit codes are 0, the work is verified."""

    checks: tuple[Check, ...]


class WorkKept(Event, frozen=True, kw_only=True):
    """The worker's changes so far were committed to its branch."""

    work: Work


class GuardedFilesChanged(Event, frozen=True, kw_only=True):
    """Files that other programs obey changed during the turn, whoever changed them."""

    changes: tuple[GuardedChange, ...]


class FilesChanged(Event, frozen=True, kw_only=True):
    """Files that changed during the turn in a folder that the worker shares.

    `files` were changed by its commands, `also` perhaps by others; `more` of both are left out. `overlaps`
    have absolute paths. `unseen` says what could not be compared.
    """

    files: tuple[FileChange, ...] = ()
    also: tuple[AlsoChanged, ...] = ()
    overlaps: tuple[Overlap, ...] = ()
    more: int = 0
    unseen: str = ""


class FailedOver(Event, frozen=True, kw_only=True):
    """The turn continued with another provider."""

    from_provider: str
    to_provider: str
    reason: str


class BudgetWarned(Event, frozen=True, kw_only=True):
    """A budget is nearly or completely spent."""

    message: str


class TurnEnded(Event, frozen=True, kw_only=True):
    """How the turn ended, and the evidence for its outcome."""

    turn: int
    state: Literal["completed", "failed", "cancelled"]
    evidence: Evidence | None = None
    failure: Failure | None = None
    reason: str = ""


class WorkerClosed(Event, frozen=True, kw_only=True):
    """The worker accepts no further prompt; none of its processes is left."""

    reason: str


class SwarmSpawned(Event, frozen=True, kw_only=True):
    """Several tasks were accepted. `base` is the commit of `repository` that they start from."""

    request: SwarmSpawnRequest
    name: str
    cwd: str
    concurrency: int
    kind: WorkspaceKind = "worktree"
    repository: str = ""
    base: str = ""
    warnings: tuple[str, ...] = ()


class TaskGiven(Event, frozen=True, kw_only=True):
    """A task of the swarm was assigned to a new worker."""

    task: str
    worker: str
    pin: Pin = Pin()


class TaskRefused(Event, frozen=True, kw_only=True):
    """The worker for a task could not start."""

    task: str
    worker: str
    failure: Failure


class TaskSettled(Event, frozen=True, kw_only=True):
    """A task ended, with this worker or without any."""

    task: str
    state: Literal["completed", "failed", "cancelled", "blocked"]
    worker: str = ""
    failure: Failure | None = None


class TaskReopened(Event, frozen=True, kw_only=True):
    """A task is to be retried, with this pin and not with the providers in `avoid`."""

    task: str
    pin: Pin = Pin()
    avoid: tuple[str, ...] = ()


class SwarmCancelled(Event, frozen=True, kw_only=True):
    """No more of these tasks are started; of all tasks if none is named."""

    reason: str
    tasks: tuple[str, ...] = ()


class WorkMerged(Event, frozen=True, kw_only=True):
    """Pieces of work were merged on a branch and verified there."""

    branch: str
    commit: str
    merged: tuple[str, ...]
    checks: tuple[Check, ...] = ()


DriverEvent = (
    TextDelta
    | Thought
    | ToolCall
    | PlanUpdated
    | PermissionAsked
    | PermissionWithdrawn
    | UsageReported
    | Noticed
)
SwarmEvent = (
    SwarmSpawned
    | TaskGiven
    | TaskRefused
    | TaskSettled
    | TaskReopened
    | SwarmCancelled
    | WorkMerged
)
AnyEvent = (
    DriverEvent
    | WorkerSpawned
    | TurnStarted
    | SessionOpened
    | PermissionAnswered
    | Verified
    | WorkKept
    | GuardedFilesChanged
    | FilesChanged
    | FailedOver
    | BudgetWarned
    | TurnEnded
    | WorkerClosed
    | SwarmEvent
)


class EventEnvelope(Struct, frozen=True, kw_only=True):
    """An event as the journal stamped it. `seq` is the cursor of every reader."""

    seq: int
    at: float
    worker: str
    event: AnyEvent
