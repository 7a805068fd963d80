"""What can be asked of go-ent and what comes back: one definition for MCP, socket and CLI.

The field names are public (see `docs/interfaces.md`). Money is a float here because JSON has no
decimals; an amount that is not known is None, never 0.
"""

from typing import Annotated, Literal

from msgspec import Meta

from goent.domain.types import (
    Answer,
    Check,
    Command,
    CostSource,
    Evidence,
    Failure,
    FileChange,
    Isolation,
    Method,
    PermissionOption,
    Preset,
    State,
    Usage,
    Value,
)

MAX_WAIT_S = 240.0
Health = Literal["ready", "direct", "no_key", "unknown"]
OutputFilter = Literal["all", "text", "tools", "thoughts"]

WorkerId = Annotated[str, Meta(description="The worker's id, as worker_spawn gave it.")]
Positive = Annotated[float, Meta(gt=0)]
Seconds = Annotated[float, Meta(ge=0, le=MAX_WAIT_S)]


class Request(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A misspelt argument is an error, not a surprise."""


class SpawnRequest(Request, frozen=True, kw_only=True):
    """A task for a new worker."""

    task: Annotated[str, Meta(description="What the worker is to do, whole: it sees nothing else.")]
    provider: Annotated[
        str | None,
        Meta(description="Pin a provider by its name in provider_list, or a backend id."),
    ] = None
    model: Annotated[
        str | None, Meta(description="Pin a model, e.g. 'glm-4' or 'moonshot/glm-4'.")
    ] = None
    method: Annotated[Method | None, Meta(description="Pin how the worker runs.")] = None
    cwd: Annotated[
        str | None, Meta(description="Absolute directory to work in; default: the project.")
    ] = None
    files: Annotated[
        tuple[str, ...], Meta(description="Files the worker should look at first.")
    ] = ()
    isolation: Annotated[
        Isolation, Meta(description="'dedicated' gives the worker a process of its own.")
    ] = "auto"
    permissions: Annotated[
        Preset | None,
        Meta(
            description="readonly: no edits, no shell; ask: every change is asked; "
            "edit: edits allowed, shell asked; auto: all inside cwd allowed."
        ),
    ] = None
    budget_usd: Annotated[Positive | None, Meta(description="What the task may cost, in USD.")] = (
        None
    )
    timeout_s: Annotated[
        Positive | None, Meta(description="End a turn that takes longer than this.")
    ] = None
    verify: Annotated[
        tuple[str, ...],
        Meta(description="Shell commands that must exit 0 before the work counts as verified."),
    ] = ()
    allow_fallback: Annotated[
        bool | None, Meta(description="Let a pinned task move to another provider if it fails.")
    ] = None
    wait_s: Annotated[
        Seconds, Meta(description="Wait this long for the result before answering.")
    ] = 0.0


class PromptRequest(Request, frozen=True, kw_only=True):
    """A further prompt to an open worker."""

    worker_id: WorkerId
    prompt: Annotated[str, Meta(description="What to do next; the worker remembers the rest.")]
    files: Annotated[tuple[str, ...], Meta(description="Files to look at first.")] = ()
    queue: Annotated[bool, Meta(description="Wait behind a running turn instead of failing.")] = (
        False
    )
    wait_s: Annotated[Seconds, Meta(description="Wait this long for the turn to end.")] = 0.0


class WorkerRequest(Request, frozen=True, kw_only=True):
    """A question about one worker."""

    worker_id: WorkerId


class OutputRequest(Request, frozen=True, kw_only=True):
    """What a worker said and did."""

    worker_id: WorkerId
    since_last: Annotated[
        bool, Meta(description="Only what this connection has not been given yet.")
    ] = False
    cursor: Annotated[
        int | None, Meta(description="Only what came after this cursor of an earlier reply.")
    ] = None
    limit: Annotated[int, Meta(description="At most this many characters.", gt=0, le=100_000)] = (
        4000
    )
    filter: Annotated[OutputFilter, Meta(description="Which part of it.")] = "all"


class WaitRequest(Request, frozen=True, kw_only=True):
    """Wait until workers end their turn or ask something."""

    worker_ids: Annotated[tuple[str, ...], Meta(description="The workers' ids.", min_length=1)]
    any: Annotated[bool, Meta(description="Return when the first one ends.")] = False
    timeout_s: Annotated[Seconds, Meta(description="Return after this long at the latest.")] = 60.0


class AnswerRequest(Request, frozen=True, kw_only=True):
    """The answer to a permission question."""

    worker_id: WorkerId
    permission_id: Annotated[str, Meta(description="The question's id, from worker_status.")]
    option: Annotated[Answer, Meta(description="What to answer.")]


class CancelRequest(Request, frozen=True, kw_only=True):
    """Stop a worker's turn; with `close` the worker too."""

    worker_id: WorkerId
    reason: Annotated[str, Meta(description="Why; kept in the journal.")] = ""
    close: Annotated[bool, Meta(description="Also close the worker for good.")] = False


class ListRequest(Request, frozen=True, kw_only=True):
    """Which workers there are, newest first."""

    state: Annotated[State | None, Meta(description="Only those in this state.")] = None
    provider: Annotated[str | None, Meta(description="Only those of this provider.")] = None
    limit: Annotated[int, Meta(gt=0, le=200)] = 20


class ProvidersRequest(Request, frozen=True, kw_only=True):
    """Which providers there are."""

    healthy_only: Annotated[bool, Meta(description="Leave out what cannot be used now.")] = False


class CostsRequest(Request, frozen=True, kw_only=True):
    """What was spent."""

    by: Literal["provider", "model", "worker", "day"] = "provider"
    project_only: bool = True


class Estimate(Value, frozen=True, kw_only=True):
    """What a task may cost: [p50, p90] in USD, or None where nothing is known."""

    cost_usd: tuple[float, float] | None = None


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
    """What a worker made of its task. `evidence` says whether anybody checked."""

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


class Spawned(Value, frozen=True, kw_only=True):
    """The worker was accepted."""

    worker_id: str
    state: State
    provider: str
    model: str
    method: Method
    reason: str
    cwd: str
    estimate: Estimate
    warnings: tuple[str, ...]
    result: Result | None = None


class Prompted(Value, frozen=True, kw_only=True):
    """The prompt was accepted as this turn."""

    worker_id: str
    turn: int
    state: State
    result: Result | None = None


class Progress(Value, frozen=True, kw_only=True):
    """How far the worker is, and who says so."""

    percent: int | None = None
    source: Literal["todos", "history"] | None = None


class Question(Value, frozen=True, kw_only=True):
    """An open permission question."""

    id: str
    tool: str
    detail: str
    options: tuple[PermissionOption, ...]


class Status(Value, frozen=True, kw_only=True):
    """A worker as it stands."""

    worker_id: str
    state: State
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


class Waited(Value, frozen=True, kw_only=True):
    """The workers' statuses, and whether the wait ran out."""

    workers: tuple[Status, ...]
    timed_out: bool


class Answered(Value, frozen=True, kw_only=True):
    """The answer was passed on."""

    state: State


class Cancelled(Value, frozen=True, kw_only=True):
    """The turn was stopped; what it had done so far is kept."""

    state: State
    result: Result


class WorkerList(Value, frozen=True, kw_only=True):
    """Workers, newest first."""

    workers: tuple[Status, ...]
    total: int


class PriceView(Value, frozen=True, kw_only=True):
    """USD per million tokens."""

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None


class ProviderView(Value, frozen=True, kw_only=True):
    """A provider, and whether it can be used now."""

    name: str
    backend: str
    model: str
    method: Method
    capabilities: tuple[str, ...]
    context_limit: int | None
    price: PriceView | None
    cost_estimate: float | None
    health: Health
    cooldown_until: str | None
    in_use: int
    limits: dict[str, int]
    default: bool


class ProviderList(Value, frozen=True, kw_only=True):
    """All providers that the configuration gives."""

    providers: tuple[ProviderView, ...]


class CostLine(Value, frozen=True, kw_only=True):
    """One line of a cost report."""

    key: str
    calls: int
    usage: Usage
    cost_usd: float | None
    known_usd: float
    unknown_calls: int


class Costs(Value, frozen=True, kw_only=True):
    """A cost report with its total."""

    by: str
    rows: tuple[CostLine, ...]
    total_usd: float | None
    known_usd: float
    unknown_calls: int


class DaemonInfo(Value, frozen=True, kw_only=True):
    """The daemon of this project."""

    pid: int
    version: str
    socket: str
    project: str
    workers: int
    http: str | None
