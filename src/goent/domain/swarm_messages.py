"""Requests and replies about swarms: several tasks in parallel."""

from typing import Annotated, Literal

from msgspec import Meta
from msgspec.structs import force_setattr

from goent.domain.requests import MAX_WAIT_S, OperationRequest, PositiveNumber, WaitSeconds
from goent.domain.types import Check, Evidence, Failure, Isolation, Method, Preset, Usage, Value
from goent.domain.workspace import Conflict

TaskState = Literal[
    "pending", "blocked", "starting", "running", "waiting", "completed", "failed", "cancelled"
]
SwarmState = Literal["running", "waiting", "completed", "failed", "cancelled"]
ENDED_TASK_STATES: frozenset[TaskState] = frozenset({"blocked", "completed", "failed", "cancelled"})
ENDED_SWARM_STATES: frozenset[SwarmState] = frozenset({"completed", "failed", "cancelled"})

SwarmId = Annotated[str, Meta(description="The swarm's id, as swarm_spawn gave it.")]
Concurrency = Annotated[int, Meta(gt=0, le=100)]
TaskIds = Annotated[tuple[str, ...], Meta(description="Only these tasks, by id; default: all.")]


class SwarmTask(OperationRequest, frozen=True, kw_only=True):
    """One task of a swarm; what it leaves out is as in `worker_spawn`."""

    id: Annotated[
        str, Meta(description="A short name, e.g. 'api'.", pattern="^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    ]
    task: Annotated[
        str,
        Meta(
            description="The complete task: the worker sees nothing else.",
            extra_json_schema={"x-required": True},
        ),
    ] = ""
    prompt: Annotated[
        str, Meta(description="The older name of `task`.", extra_json_schema={"deprecated": True})
    ] = ""
    provider: str | None = None
    model: str | None = None
    method: Method | None = None
    files: tuple[str, ...] = ()
    after: Annotated[
        tuple[str, ...], Meta(description="Tasks whose merged work this one starts from.")
    ] = ()
    verify: Annotated[
        tuple[str, ...],
        Meta(description="In addition to the swarm's own; run in the worker's folder."),
    ] = ()
    isolation: Isolation | None = None
    permissions: Preset | None = None
    budget_usd: PositiveNumber | None = None
    timeout_s: PositiveNumber | None = None
    allow_fallback: bool | None = None
    allowed_tools: tuple[str, ...] | None = None
    race: Annotated[
        tuple[str, ...],
        Meta(description="Providers that all get this task; the first verified one wins."),
    ] = ()
    staged: Annotated[
        bool, Meta(description="Race one after the other: the next only if one is refuted.")
    ] = False

    def __post_init__(self) -> None:
        if self.task and self.prompt:
            raise ValueError("give `task` or `prompt`, not both: they mean the same")
        if self.task:  # journals store it as `prompt`
            force_setattr(self, "prompt", self.task)
            force_setattr(self, "task", "")


class SwarmSpawnRequest(OperationRequest, frozen=True, kw_only=True):
    """Several tasks in parallel, each in a folder of its own. The keys of `tasks.yaml`."""

    tasks: Annotated[tuple[SwarmTask, ...], Meta(min_length=1)]
    swarm: Annotated[
        str,
        Meta(
            description="A name for it, and for its branches: letters, digits, _ and -.",
            pattern="^([A-Za-z0-9][A-Za-z0-9_-]*)?$",
            max_length=60,
        ),
    ] = ""
    budget_usd: Annotated[PositiveNumber | None, Meta(description="For all tasks, in USD.")] = None
    concurrency: Annotated[Concurrency | None, Meta(description="Workers in parallel.")] = None
    isolation: Isolation = "auto"
    permissions: Preset | None = None
    verify: Annotated[
        tuple[str, ...],
        Meta(description="Must exit 0 in each worker's folder, and on the merge."),
    ] = ()
    cwd: str | None = None
    uncommitted: Annotated[
        bool, Meta(description="Workers start with the uncommitted changes of the checkout.")
    ] = False
    carry: Annotated[
        tuple[str, ...], Meta(description="Untracked files that the work needs, e.g. '.env'.")
    ] = ()
    retries: Annotated[
        int, Meta(description="Retries per failed task, elsewhere if possible.", ge=0, le=5)
    ] = 0
    wait_s: WaitSeconds = 0.0


class SwarmRequest(OperationRequest, frozen=True, kw_only=True):
    """A request about one swarm."""

    swarm_id: SwarmId


class SwarmResultRequest(SwarmRequest, frozen=True, kw_only=True):
    """The result of a swarm."""

    whole: Annotated[bool, Meta(description="All conflicts, hunks and messages, however long.")] = (
        False
    )


class SwarmWaitRequest(SwarmRequest, frozen=True, kw_only=True):
    """Wait until every task has ended, or one asks for a permission."""

    timeout_s: Annotated[float, Meta(ge=0, le=MAX_WAIT_S)] = 60.0


class SwarmRetryRequest(SwarmRequest, frozen=True, kw_only=True):
    """Retry failed tasks with new workers; with `elsewhere`, at another provider."""

    tasks: TaskIds = ()
    provider: str | None = None
    model: str | None = None
    method: Method | None = None
    elsewhere: bool = False


class SwarmCancelRequest(SwarmRequest, frozen=True, kw_only=True):
    """Stop running tasks and start no more. Finished work is kept."""

    tasks: TaskIds = ()
    reason: str = ""


class SwarmMergeRequest(SwarmRequest, frozen=True, kw_only=True):
    """Merge the finished work on one branch, and run the verify commands there.

    `dry_run` only reports the plan. `apply` also moves the checkout's own branch there, if the checkout has
    no uncommitted changes.
    """

    tasks: TaskIds = ()
    branch: Annotated[str | None, Meta(description="Default: go-ent/<swarm>/merged.")] = None
    verify: Annotated[
        tuple[str, ...] | None, Meta(description="Instead of the swarm's own commands.")
    ] = None
    dry_run: bool = False
    apply: bool = False


class SwarmsRequest(OperationRequest, frozen=True, kw_only=True):
    """List swarms."""


class Totals(Value, frozen=True, kw_only=True):
    """Tokens and cost of a part of the swarm. `cost_usd` is None if a call's price is unknown."""

    workers: int
    usage: Usage
    cost_usd: float | None


class TaskLine(Value, frozen=True, kw_only=True):
    """The status of one task, or of one of its racers while they run.

    `worker_id` is the latest worker, or the winner of a race; tokens and cost are those of all its workers.
    """

    id: str
    state: TaskState
    worker_id: str | None = None
    provider: str | None = None
    model: str | None = None
    attempts: int = 0
    step: str = ""
    evidence: Evidence | None = None
    files: int = 0
    added: int = 0
    removed: int = 0
    tokens: int = 0
    cost_usd: float | None = None
    seconds: float | None = None
    permission: str | None = None
    failure: Failure | None = None


class SwarmStatus(Value, frozen=True, kw_only=True):
    """The status of a swarm."""

    swarm_id: str
    swarm: str
    state: SwarmState
    evidence: Evidence | None = None
    done: int
    total: int
    tasks: tuple[TaskLine, ...]
    cost_usd: float | None
    budget_usd: float | None
    started_at: str
    seconds: float
    warnings: tuple[str, ...] = ()


class SwarmLine(Value, frozen=True, kw_only=True):
    """A swarm in a list."""

    swarm_id: str
    swarm: str
    state: SwarmState
    evidence: Evidence | None = None
    done: int
    total: int
    cost_usd: float | None
    started_at: str


class SwarmList(Value, frozen=True, kw_only=True):
    """The swarms of this project, newest first."""

    swarms: tuple[SwarmLine, ...]


class LeftOver(Value, frozen=True, kw_only=True):
    """A task whose work is not in the merge, with the reason and what to do."""

    task: str
    reason: str
    instructions: str = ""


class MergePlan(Value, frozen=True, kw_only=True):
    """The order that merges the most."""

    order: tuple[str, ...]
    left: tuple[LeftOver, ...] = ()


class SwarmResult(Value, frozen=True, kw_only=True):
    """The result of a swarm, short enough for a model's context."""

    swarm_id: str
    swarm: str
    state: SwarmState
    evidence: Evidence | None = None
    tasks: tuple[TaskLine, ...]
    totals: dict[str, Totals]
    cost_usd: float | None
    conflicts: tuple[Conflict, ...]
    plan: MergePlan
    notes: tuple[str, ...] = ()


class SwarmMergeReply(Value, frozen=True, kw_only=True):
    """The result of a merge. `evidence` is None if nothing was verified; `applied` is the moved branch."""

    swarm_id: str
    branch: str | None
    commit: str | None
    merged: tuple[str, ...]
    left: tuple[LeftOver, ...]
    conflicts: tuple[Conflict, ...]
    verify: tuple[Check, ...]
    evidence: Evidence | None
    applied: str | None = None
    notes: tuple[str, ...] = ()
