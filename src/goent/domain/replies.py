"""What comes back about workers, providers, routes and costs, on every interface.

The field names are public (see `docs/interfaces.md`). Money is a float here because JSON has no
decimals; an amount that is not known is None, never 0.

Public names, as in `replies`.
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
    """The answer was passed on. `message_passed`: whether the model is told the words with it."""

    state: WorkerState
    evidence: Evidence | None = None
    message_passed: bool | None = None
    note: str = ""


class CancelReply(Value, frozen=True, kw_only=True):
    """The turn was stopped; what it had done so far is kept."""

    state: WorkerState
    evidence: Evidence | None = None
    result: Result


class WorkerLine(Value, frozen=True, kw_only=True):
    """A worker in a list: short, so that twenty fit into a model's context.

    `overlaps` are the workers that changed files which it changed at the same time, in a folder they share.
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
    """Workers, newest first. `total` counts those that the limit left out too."""

    workers: tuple[WorkerLine, ...]
    total: int


class SpaceList(Value, frozen=True, kw_only=True):
    """The workspaces that are there, and what they take on disk."""

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

    `in_use` counts workers at work on it, `calls` its model calls under way, in this project.
    `cost_estimate` is in USD, for a task of usual size.
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
    """All providers that the configuration gives; `warnings` are about its files."""

    providers: tuple[ProviderView, ...]
    warnings: tuple[str, ...] = ()


class TaskView(Value, frozen=True, kw_only=True):
    """What a task was taken for, and the signs that said so."""

    type: TaskType
    confidence: float
    complexity: Complexity
    files: int
    size: float
    context_tokens: int
    signs: tuple[str, ...] = ()


class Option(Value, frozen=True, kw_only=True):
    """Another way that a task could go."""

    provider: str
    model: str
    method: Method
    estimate: Estimate


class RecommendReply(Value, frozen=True, kw_only=True):
    """Who should get a task, and whether it should be handed over at all."""

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
    """A pin, a rule, a default, a part of the policy or what was learned, and what it said to a task."""

    source: Literal["pin", "rule", "default", "policy", "learning"]
    name: str
    decided: bool
    why: str


class CandidateView(Value, frozen=True, kw_only=True):
    """A provider, what speaks against it now, and what it would take."""

    provider: str
    obstacle: str
    estimate: Estimate


class ExplainReply(Value, frozen=True, kw_only=True):
    """Where a task would go, and all that led there. Without a provider, `reason` is the refusal."""

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
    """The rules in the order in which they are asked, and what comes after them."""

    rules: tuple[RuleView, ...]
    defaults: dict[str, str]
    default_provider: str | None
    warnings: tuple[str, ...]


class ForgetReply(Value, frozen=True, kw_only=True):
    """The providers whose condition was forgotten: they are asked as if nothing had been."""

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
    """A limit and how it stands. `unknown_calls` had no known price, and are in no sum."""

    scope: BudgetScope
    key: str
    limit_usd: float
    spent_usd: float
    held_usd: float
    left_usd: float
    hard: bool
    unknown_calls: int


class Costs(Value, frozen=True, kw_only=True):
    """A cost report with its total, and how the budgets of the day and the project stand."""

    by: str
    rows: tuple[CostLine, ...]
    total_usd: float | None
    known_usd: float
    unknown_calls: int
    budgets: tuple[BudgetLine, ...] = ()


class LearnedLine(Value, frozen=True, kw_only=True):
    """A provider at a class of tasks: its outcomes, and how likely the next one is good.

    `failed`: it did not get through, or did nothing. `enough`: so many of the type that they may
    change an order. `cost_usd` and `seconds` are of half of its outcomes there. `graded` of the verified
    and refuted ones were judged by evaluations.
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
    """So many tasks that would have gone to another provider."""

    type: TaskType
    complexity: Complexity
    chosen: str
    instead: str
    tasks: int


class Lookback(Value, frozen=True, kw_only=True):
    """Tasks that are over, had outcomes alone chosen, with what was known before each began.

    Chances are means of what is known now; costs are sums over the `priced` tasks.
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
    """All that outcomes have taught. `left_out` tasks tell nothing of a worker, or are too old."""

    learning: bool
    outcomes: int
    left_out: int
    classes: tuple[LearnedLine, ...]
    lookback: Lookback
    notes: tuple[str, ...]
