"""What happens to a worker or a swarm, one event at a time.

The order is a grammar that every journal obeys:

    WorkerSpawned (TurnStarted DriverEvent* … TurnEnded)* WorkerClosed

`TurnEnded` comes exactly once a turn and `WorkerClosed` exactly once a worker, also on cancel,
crash and our own bugs. A `DriverEvent` is all that a driver may say; the core adds the rest.

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
    """Tagged with its class name, so that a journal row says what it is."""


class TextDelta(Event, frozen=True, kw_only=True):
    """The worker speaks. `message` groups the pieces of one message."""

    text: str
    message: str = ""


class Thought(Event, frozen=True, kw_only=True):
    """The worker reasons aloud."""

    text: str
    message: str = ""


class ToolCall(Event, frozen=True, kw_only=True):
    """A tool call, told again whenever it changes; `id` stays the same.

    `input` is the JSON value that the tool was given. It is told once, when it is known.
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
    """The worker has a conversation. With the token another go-ent can go on with it."""

    token: str


class PlanUpdated(Event, frozen=True, kw_only=True):
    """The worker's todo list, whole."""

    entries: tuple[PlanEntry, ...]


class PermissionAsked(Event, frozen=True, kw_only=True):
    """The worker may not go on until somebody answers.

    `detail` is the whole command, or the path and the whole diff. `reason` says why it is asked
    although the rules would allow it. `always` are the patterns that a lasting yes would allow for
    `tool`; without any it is not offered. At `expires_at` no answer is a no.
    """

    id: str
    tool: str
    detail: str
    options: tuple[PermissionOption, ...]
    reason: str = ""
    always: tuple[str, ...] = ()
    expires_at: float | None = None


class PermissionWithdrawn(Event, frozen=True, kw_only=True):
    """Whoever asked is gone, so no answer is needed; what is still wanted is asked anew."""

    id: str
    reason: str


class UsageReported(Event, frozen=True, kw_only=True):
    """One metered model call, or what a provider that goes direct reported of itself."""

    provider: str
    model: str
    usage: Usage
    cost_usd: Decimal | None
    source: CostSource
    status: int = 200
    calls: int = 1


class Noticed(Event, frozen=True, kw_only=True):
    """Something the worker's program hides and its owner should know: a retry, a stall."""

    text: str


class WorkerSpawned(Event, frozen=True, kw_only=True):
    """The task was accepted. Workers of one `group`, a swarm, draw on one budget.

    `edits_asked`: who then has neither edited nor used a tool has not done it. `sandbox` is how its processes
    are confined; None if it has none, or if an older go-ent wrote it.
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
    """Who answered, and what. `by` is a frontend, a rule or the time limit.

    `message` came with a no: what to do instead.
    """

    id: str
    option: PermissionAnswer
    by: str
    message: str = ""


class Verified(Event, frozen=True, kw_only=True):
    """The verify commands ran; all exit codes 0 is the proof."""

    checks: tuple[Check, ...]


class WorkKept(Event, frozen=True, kw_only=True):
    """What the worker has made so far is a commit on its branch."""

    work: Work


class GuardedFilesChanged(Event, frozen=True, kw_only=True):
    """Files that other programs obey changed while the turn ran, by whoever."""

    changes: tuple[GuardedChange, ...]


class FilesChanged(Event, frozen=True, kw_only=True):
    """What changed in a folder that is not the worker's own while the turn ran, by the state of its files.

    `files` are the work of its commands, `also` what is not known to be its work, and of both `more` are left
    out. `overlaps` have whole paths. `unseen` is what could not be compared.
    """

    files: tuple[FileChange, ...] = ()
    also: tuple[AlsoChanged, ...] = ()
    overlaps: tuple[Overlap, ...] = ()
    more: int = 0
    unseen: str = ""


class FailedOver(Event, frozen=True, kw_only=True):
    """The turn went on at another provider."""

    from_provider: str
    to_provider: str
    reason: str


class BudgetWarned(Event, frozen=True, kw_only=True):
    """The money is nearly or wholly spent."""

    message: str


class TurnEnded(Event, frozen=True, kw_only=True):
    """How the turn ended, and what its outcome rests on."""

    turn: int
    state: Literal["completed", "failed", "cancelled"]
    evidence: Evidence | None = None
    failure: Failure | None = None
    reason: str = ""


class WorkerClosed(Event, frozen=True, kw_only=True):
    """The worker takes no further prompt; nothing of it is left running."""

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
    """A task of the swarm goes to a new worker."""

    task: str
    worker: str
    pin: Pin = Pin()


class TaskRefused(Event, frozen=True, kw_only=True):
    """The worker that a task was given to could not begin."""

    task: str
    worker: str
    failure: Failure


class TaskSettled(Event, frozen=True, kw_only=True):
    """A task is over: by this worker, or without any."""

    task: str
    state: Literal["completed", "failed", "cancelled", "blocked"]
    worker: str = ""
    failure: Failure | None = None


class TaskReopened(Event, frozen=True, kw_only=True):
    """A task is to be tried again, with this pin; not with the providers to `avoid`."""

    task: str
    pin: Pin = Pin()
    avoid: tuple[str, ...] = ()


class SwarmCancelled(Event, frozen=True, kw_only=True):
    """Nothing more is begun: of these tasks, or of all if none is named."""

    reason: str
    tasks: tuple[str, ...] = ()


class WorkMerged(Event, frozen=True, kw_only=True):
    """Pieces of work were joined on a branch, and checked there."""

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
    | SwarmSpawned
    | TaskGiven
    | TaskRefused
    | TaskSettled
    | TaskReopened
    | SwarmCancelled
    | WorkMerged
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


class EventEnvelope(Struct, frozen=True, kw_only=True):
    """An event as the journal stamped it. `seq` is the cursor of every reader."""

    seq: int
    at: float
    worker: str
    event: AnyEvent
