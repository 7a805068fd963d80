"""Replies about workers, providers, routes and costs, on every interface.

The field names are public (see `docs/interfaces.md`). Money is a float here because JSON has no decimals;
an unknown amount is None, never 0.
"""

from typing import Literal

from goent.domain.sandbox_port import SandboxLevelName
from goent.domain.task_profile import Complexity, TaskType
from goent.domain.types import (
    AlsoChanged,
    BudgetScope,
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
    Usage,
    Value,
    WorkerState,
)
from goent.domain.workspace import KeptSpace


class Estimate(Value, frozen=True, kw_only=True):
    """What a task may cost: [p50, p90] in USD, or None if unknown.

    `source` is `history` (from `samples` similar tasks) or `estimate` (from its size and the price).
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
    """The result of a worker. `evidence` says whether it was verified.

    `workspace` is its own folder, if it had one, and `branch` has its changes. `guarded_changes` are files that
    other programs obey and that changed while it worked. In a shared folder, `also_changed` are files that
    changed meanwhile, perhaps by others, and `overlaps` files that another worker changed at the same time.
    `sandbox` is the level of its confinement; null if it has no processes (`api`).
    """

    worker_id: str
    state: WorkerState
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
    sandbox: SandboxLevelName | None = None
    also_changed: tuple[AlsoChanged, ...] = ()
    overlaps: tuple[Overlap, ...] = ()


class SpawnReply(Value, frozen=True, kw_only=True):
    """The worker was accepted."""

    worker_id: str
    state: WorkerState
    evidence: Evidence | None = None
    provider: str
    model: str
    method: Method
    reason: str
    cwd: str
    estimate: Estimate
    warnings: tuple[str, ...]
    sandbox: SandboxLevelName | None = None
    result: Result | None = None


class PromptReply(Value, frozen=True, kw_only=True):
    """The prompt was accepted as this turn."""

    worker_id: str
    turn: int
    state: WorkerState
    evidence: Evidence | None = None
    result: Result | None = None


class Progress(Value, frozen=True, kw_only=True):
    """The worker's progress, and its source."""

    percent: int | None = None
    source: Literal["todos", "history"] | None = None


class Question(Value, frozen=True, kw_only=True):
    """An open permission question.

    `detail` is the whole command, or the path and the whole diff; if a reply has to shorten it, it says so,
    and `omitted` counts the characters. `shown` is the same with invisible characters spelled out, if there
    are any. `always` is the rule that `allow_always` would add.
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
    """The status of a worker."""

    worker_id: str
    state: WorkerState
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


class OutputReply(Value, frozen=True, kw_only=True):
    """A piece of a worker's output; `cursor` continues it."""

    text: str
    cursor: int
    more: bool
    state: WorkerState
    evidence: Evidence | None = None


class WaitReply(Value, frozen=True, kw_only=True):
    """The workers' statuses, and whether the wait ran out."""

    workers: tuple[Status, ...]
    timed_out: bool


class AnswerReply(Value, frozen=True, kw_only=True):
    """The answer was passed on. `message_passed`: whether the model gets the message."""

    state: WorkerState
    evidence: Evidence | None = None
    message_passed: bool | None = None
    note: str = ""


class CancelReply(Value, frozen=True, kw_only=True):
    """The turn was stopped; its work so far is kept."""

    state: WorkerState
    evidence: Evidence | None = None
    result: Result


class WorkerLine(Value, frozen=True, kw_only=True):
    """A worker in a list: short, so that twenty fit into a model's context.

    `overlaps` are workers that changed the same files at the same time, in a shared folder.
    """

    worker_id: str
    state: WorkerState
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
    """Workers, newest first. `total` includes those beyond the limit."""

    workers: tuple[WorkerLine, ...]
    total: int


class SpaceList(Value, frozen=True, kw_only=True):
    """The existing workspaces, and their size on disk."""

    spaces: tuple[KeptSpace, ...]
    bytes: int


class ClearReply(Value, frozen=True, kw_only=True):
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


class StopReply(Value, frozen=True, kw_only=True):
    """Whether the daemon ends."""

    stopping: bool


HealthLabel = Literal[
    "ready", "direct", "no_key", "unknown", "failing", "limited", "down", "refused", "no_credit"
]


class PriceView(Value, frozen=True, kw_only=True):
    """USD per million tokens."""

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None


class ProviderView(Value, frozen=True, kw_only=True):
    """A provider, and whether it can be used now.

    `in_use` counts this project's workers on it, `calls` its model calls in flight. `cost_estimate` is in
    USD, for a task of typical size.
    """

    name: str
    backend: str
    model: str
    method: Method
    capabilities: tuple[str, ...]
    context_limit: int | None
    price: PriceView | None
    cost_estimate: float | None
    health: HealthLabel
    health_reason: str
    cooldown_until: str | None
    in_use: int
    calls: int
    limits: dict[str, int]
    default: bool


class ProviderList(Value, frozen=True, kw_only=True):
    """All configured providers; `warnings` are about the settings files."""

    providers: tuple[ProviderView, ...]
    warnings: tuple[str, ...] = ()


class TaskView(Value, frozen=True, kw_only=True):
    """The classification of a task, and the signs it is based on."""

    type: TaskType
    confidence: float
    complexity: Complexity
    files: int
    size: float
    context_tokens: int
    signs: tuple[str, ...] = ()


class Option(Value, frozen=True, kw_only=True):
    """Another possible route of a task."""

    provider: str
    model: str
    method: Method
    estimate: Estimate


class RecommendReply(Value, frozen=True, kw_only=True):
    """The recommended provider for a task, and whether to delegate it at all."""

    provider: str
    model: str
    method: Method
    rationale: str
    features: TaskView
    estimate: Estimate
    alternatives: tuple[Option, ...]
    advice: tuple[str, ...]
    warnings: tuple[str, ...]


class StepView(Value, frozen=True, kw_only=True):
    """One step of a routing decision: a pin, a rule, a default, the policy or learning."""

    source: Literal["pin", "rule", "default", "policy", "learning"]
    name: str
    decided: bool
    why: str


class CandidateView(Value, frozen=True, kw_only=True):
    """A provider, the obstacle to using it now, and its estimate."""

    provider: str
    obstacle: str
    estimate: Estimate


class ExplainReply(Value, frozen=True, kw_only=True):
    """Where a task would go, and why. Without a provider, `reason` is the refusal."""

    provider: str | None
    model: str | None
    method: Method | None
    reason: str
    fallbacks: tuple[str, ...]
    features: TaskView
    estimate: Estimate
    steps: tuple[StepView, ...]
    candidates: tuple[CandidateView, ...]
    warnings: tuple[str, ...]


class RuleView(Value, frozen=True, kw_only=True):
    """A rule of `routing.yaml`, in words."""

    name: str
    conditions: str
    provider: str | None
    model: str | None
    method: Method | None


class RuleList(Value, frozen=True, kw_only=True):
    """The rules in order of evaluation, and the defaults after them."""

    rules: tuple[RuleView, ...]
    defaults: dict[str, str]
    default_provider: str | None
    warnings: tuple[str, ...]


class ForgetReply(Value, frozen=True, kw_only=True):
    """The providers whose health was reset."""

    providers: tuple[str, ...]


class CostLine(Value, frozen=True, kw_only=True):
    """One line of a cost report."""

    key: str
    calls: int
    usage: Usage
    cost_usd: float | None
    known_usd: float
    unknown_calls: int


class BudgetLine(Value, frozen=True, kw_only=True):
    """The status of a limit. `unknown_calls` had no known price, and are in no sum."""

    scope: BudgetScope
    key: str
    limit_usd: float
    spent_usd: float
    held_usd: float
    left_usd: float
    hard: bool
    unknown_calls: int


class Costs(Value, frozen=True, kw_only=True):
    """A cost report with its total, and the budgets of the day and the project."""

    by: str
    rows: tuple[CostLine, ...]
    total_usd: float | None
    known_usd: float
    unknown_calls: int
    budgets: tuple[BudgetLine, ...] = ()


class LearnedLine(Value, frozen=True, kw_only=True):
    """A provider's outcomes in a class of tasks, and the chance that the next one is good.

    `failed` ended without a result. `enough`: there are so many of the type that they may change the order of
    providers. `cost_usd` and `seconds` are medians. `graded` of the verified and refuted ones were judged by
    evaluations.
    """

    type: TaskType
    complexity: Complexity
    provider: str
    verified: int
    refuted: int
    claimed: int
    failed: int
    chance: float
    low: float
    high: float
    enough: bool
    cost_usd: float | None
    seconds: float | None
    graded: int = 0


class Instead(Value, frozen=True, kw_only=True):
    """A number of tasks that would have gone to another provider."""

    type: TaskType
    complexity: Complexity
    chosen: str
    instead: str
    tasks: int


class Lookback(Value, frozen=True, kw_only=True):
    """A backtest: finished tasks, routed by outcomes alone, as known when each began.

    Chances are means by present knowledge; costs are sums over the `priced` tasks.
    """

    tasks: int
    agreed: int
    chosen_chance: float | None
    learned_chance: float | None
    priced: int
    chosen_usd: float | None
    learned_usd: float | None
    instead: tuple[Instead, ...]


class LearnedReply(Value, frozen=True, kw_only=True):
    """What was learned from outcomes. `left_out` tasks say nothing about a worker, or are too old."""

    learning: bool
    outcomes: int
    left_out: int
    classes: tuple[LearnedLine, ...]
    lookback: Lookback
    notes: tuple[str, ...]
