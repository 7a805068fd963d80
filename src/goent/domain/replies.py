"""What comes back about workers, for MCP, the socket and the command line alike. About providers: `provider_replies`.

The field names are public (see `docs/interfaces.md`). Money is a float here because JSON has no
decimals; an amount that is not known is None, never 0.
"""

from typing import Literal

from goent.domain.sandbox import Level
from goent.domain.types import (
    AlsoChanged,
    Check,
    Command,
    CostSource,
    Evidence,
    Failure,
    FileChange,
    GuardedChange,
    Method,
    Overlap,
    PermissionOption,
    State,
    Usage,
    Value,
)
from goent.domain.workspaces import KeptSpace


class Estimate(Value, frozen=True, kw_only=True):
    """What a task may cost: [p50, p90] in USD, or None where nothing is known.

    `source` is `history` (so many `samples` of tasks like it) or `estimate` (its size, at the price).
    """

    cost_usd: tuple[float, float] | None = None
    seconds: float | None = None
    source: Literal["history", "estimate"] | None = None
    samples: int = 0


class ModelUse(Value, frozen=True, kw_only=True):
    """A model that worked on the task."""

    provider: str
    model: str
    calls: int
    usage: Usage
    cost_usd: float | None


class Failover(Value, frozen=True, kw_only=True):
    """A move from one provider to another."""

    from_provider: str
    to_provider: str
    reason: str


class Result(Value, frozen=True, kw_only=True):
    """What a worker made of its task. `evidence` says whether anybody checked.

    `workspace` is the folder of its own, if it had one, and `branch` where its changes are. `guarded_changes` are
    files that other programs obey and that changed while it worked. In a folder that it shares, `also_changed` are
    files that changed meanwhile and are not known to be its work, and `overlaps` those that it and another worker
    changed at the same time. `sandbox` is how its processes are
    confined; null where it has none of its own (`api`).
    """

    worker_id: str
    state: State
    evidence: Evidence | None
    text: str
    files: tuple[FileChange, ...]
    commands: tuple[Command, ...]
    verify: tuple[Check, ...]
    usage: Usage
    cost_usd: float | None
    models_used: tuple[ModelUse, ...]
    failovers: tuple[Failover, ...]
    failure: Failure | None
    output: str
    notes: tuple[str, ...] = ()
    branch: str | None = None
    workspace: str | None = None
    guarded_changes: tuple[GuardedChange, ...] = ()
    sandbox: Level | None = None
    also_changed: tuple[AlsoChanged, ...] = ()
    overlaps: tuple[Overlap, ...] = ()


class Spawned(Value, frozen=True, kw_only=True):
    """The worker was accepted."""

    worker_id: str
    state: State
    evidence: Evidence | None = None
    provider: str
    model: str
    method: Method
    reason: str
    cwd: str
    estimate: Estimate
    warnings: tuple[str, ...]
    sandbox: Level | None = None
    result: Result | None = None


class Prompted(Value, frozen=True, kw_only=True):
    """The prompt was accepted as this turn."""

    worker_id: str
    turn: int
    state: State
    evidence: Evidence | None = None
    result: Result | None = None


class Progress(Value, frozen=True, kw_only=True):
    """How far the worker is, and who says so."""

    percent: int | None = None
    source: Literal["todos", "history"] | None = None


class Question(Value, frozen=True, kw_only=True):
    """An open permission question.

    `detail` is the whole command, or the path and the whole diff; a reply that has to leave something
    out says so in it, and `omitted` counts the characters. `shown` is the same with what does not print
    spelled out, if there is such. `always` is the rule that a lasting yes would write.
    """

    id: str
    tool: str
    detail: str
    options: tuple[PermissionOption, ...]
    reason: str = ""
    always: str = ""
    shown: str = ""
    omitted: int = 0
    expires_at: str | None = None
    seconds_left: float | None = None


class Status(Value, frozen=True, kw_only=True):
    """A worker as it stands."""

    worker_id: str
    state: State
    evidence: Evidence | None = None
    open: bool
    turn: int
    step: str
    progress: Progress
    provider: str
    model: str
    method: Method
    cwd: str
    task: str
    permission: Question | None
    questions: int
    usage: Usage
    cost_usd: float | None
    cost_source: CostSource | None
    started_at: str
    updated_at: str
    failure: Failure | None


class Output(Value, frozen=True, kw_only=True):
    """A piece of a worker's output; `cursor` continues it."""

    text: str
    cursor: int
    more: bool
    state: State
    evidence: Evidence | None = None


class Waited(Value, frozen=True, kw_only=True):
    """The workers' statuses, and whether the wait ran out."""

    workers: tuple[Status, ...]
    timed_out: bool


class Answered(Value, frozen=True, kw_only=True):
    """The answer was passed on. `message_passed`: whether the model is told the words with it."""

    state: State
    evidence: Evidence | None = None
    message_passed: bool | None = None
    note: str = ""


class Cancelled(Value, frozen=True, kw_only=True):
    """The turn was stopped; what it had done so far is kept."""

    state: State
    evidence: Evidence | None = None
    result: Result


class WorkerLine(Value, frozen=True, kw_only=True):
    """A worker in a list: short, so that twenty fit into a model's context.

    `overlaps` are the workers that changed files which it changed at the same time, in a folder they share.
    """

    worker_id: str
    state: State
    evidence: Evidence | None = None
    open: bool
    step: str
    progress: Progress
    provider: str
    model: str
    method: Method
    permission: str | None
    tokens: int
    cost_usd: float | None
    started_at: str
    updated_at: str
    task: str
    overlaps: tuple[str, ...] = ()


class WorkerList(Value, frozen=True, kw_only=True):
    """Workers, newest first. `total` counts those that the limit left out too."""

    workers: tuple[WorkerLine, ...]
    total: int


class SpaceList(Value, frozen=True, kw_only=True):
    """The workspaces that are there, and what they take on disk."""

    spaces: tuple[KeptSpace, ...]
    bytes: int


class Cleared(Value, frozen=True, kw_only=True):
    """Which workspaces were removed, and which are kept."""

    removed: tuple[KeptSpace, ...]
    kept: tuple[KeptSpace, ...]


class DaemonInfo(Value, frozen=True, kw_only=True):
    """The daemon of this project."""

    pid: int
    version: str
    socket: str
    project: str
    workers: int
    http: str | None


class Stopping(Value, frozen=True, kw_only=True):
    """Whether the daemon ends."""

    stopping: bool
