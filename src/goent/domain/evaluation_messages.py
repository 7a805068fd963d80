"""Requests and replies about evaluations, and the port that runs them."""

from pathlib import Path
from typing import Annotated, Literal, Protocol

from msgspec import Meta

from goent.domain.requests import OperationRequest, PositiveNumber, WaitSeconds
from goent.domain.types import Value

EvalState = Literal["running", "finished", "failed", "cancelled"]
Conclusion = Literal["better", "worse", "no difference"]

RunName = Annotated[
    str, Meta(description="A run: its id as eval_run gave it, or its folder in the project.")
]


class EvalRunRequest(OperationRequest, frozen=True, kw_only=True):
    """Suites to be run. The options are those of `go-ent eval run`."""

    suites: Annotated[
        tuple[str, ...],
        Meta(description="Files of cases in the project, or folders that hold *.eval.yaml."),
    ] = ()
    target: Annotated[
        tuple[str, ...], Meta(description="Who is tested, instead of the suites' own targets.")
    ] = ()
    targets_file: Annotated[
        str | None, Meta(description="Instead of the .goent/targets.yaml nearest to each suite.")
    ] = None
    ids: Annotated[tuple[str, ...], Meta(description="Only cases whose ids match a pattern.")] = ()
    tags: Annotated[tuple[str, ...], Meta(description="Only cases with all of these tags.")] = ()
    exclude_tags: Annotated[tuple[str, ...], Meta(description="No case with one of these.")] = ()
    trials: Annotated[int, Meta(ge=1, le=1000)] | None = None
    workers: Annotated[
        Annotated[int, Meta(ge=1, le=50)] | None, Meta(description="Attempts at once, per target.")
    ] = None
    threshold: Annotated[float, Meta(ge=0, le=1)] | None = None
    budget_usd: Annotated[
        PositiveNumber | None, Meta(description="What the run may cost, in USD.")
    ] = None
    timeout_s: Annotated[
        PositiveNumber | None, Meta(description="For an attempt; default: 600.")
    ] = None
    judge: Annotated[str | None, Meta(description="Who judges: a target, or provider/model.")] = (
        None
    )
    compat: Annotated[
        Literal["agentv"] | None, Meta(description="Judge exactly as AgentV does.")
    ] = None
    out: Annotated[str | None, Meta(description="Folder for it; default: a new one.")] = None
    resume: Annotated[
        str | None,
        Meta(description="Go on with this run (its id or folder); only finished trials are kept."),
    ] = None
    retry: Annotated[
        Literal["errors", "failed"] | None,
        Meta(description="With resume: make these again, too."),
    ] = None


class EvalStatusRequest(OperationRequest, frozen=True, kw_only=True):
    """How a run stands; with `cancel`, end it."""

    run_id: RunName
    cancel: Annotated[bool, Meta(description="End it; what has been finished is kept.")] = False
    wait_s: Annotated[WaitSeconds, Meta(description="Wait so long for its end first.")] = 0.0


class EvalCompareRequest(OperationRequest, frozen=True, kw_only=True):
    """Is the second run better than the first?"""

    before: RunName
    after: RunName
    targets: Annotated[
        tuple[str, str] | None,
        Meta(description="Compare this target of the first with that one of the second."),
    ] = None


class EvalTrouble(Value, frozen=True, kw_only=True):
    """A trial that did not pass, and why in few words."""

    test_id: str
    target: str
    status: Literal["quality_failure", "execution_error", "skipped"]
    score: float
    why: str


class EvalStatus(Value, frozen=True, kw_only=True):
    """A run as it stands. Trials are counted: `done` of `total`, None where that is not known.

    `cost_usd` None: the cost of a trial is not known; `known_usd` is the sum of the others. `exit_code` is that of
    `go-ent eval run`: 0 all pass, 1 one fails, 2 a file is wrong, 3 one could not be judged.
    """

    run_id: str
    state: EvalState
    out: str
    done: int
    total: int | None
    passed: int
    failed: int
    errors: int
    cost_usd: float | None
    known_usd: float
    exit_code: int | None = None
    message: str = ""
    troubles: tuple[EvalTrouble, ...] = ()
    skipped: int = 0


class EvalChange(Value, frozen=True, kw_only=True):
    """A case whose score changed."""

    test_id: str
    target: str
    before: float
    after: float


class EvalComparison(Value, frozen=True, kw_only=True):
    """The second run against the first, case by case; `p` is how often chance alone does that.

    `changed` are the largest changes; `left_out` cases are in one run only, or failed to run in one.
    """

    conclusion: Conclusion
    words: str
    cases: int
    delta: float | None
    interval: tuple[float, float] | None
    p: float
    wins: int
    losses: int
    ties: int
    gained: int
    lost: int
    p_pass: float
    left_out: int
    changed: tuple[EvalChange, ...] = ()


class Evaluations(Protocol):
    """Who runs evaluations beside the workers. All raise a `RequestError` or `ConfigError` that names the remedy."""

    async def run(self, request: EvalRunRequest, base: Path) -> EvalStatus: ...

    async def status(self, request: EvalStatusRequest, base: Path) -> EvalStatus: ...

    async def compare(self, request: EvalCompareRequest, base: Path) -> EvalComparison: ...
