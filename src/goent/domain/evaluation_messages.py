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
    """Run suites. The options are those of `go-ent eval run`."""

    suites: Annotated[
        tuple[str, ...],
        Meta(description="Files of cases in the project, or folders that hold *.eval.yaml."),
    ] = ()
    target: Annotated[
        tuple[str, ...], Meta(description="Targets to test instead of the suites' own.")
    ] = ()
    targets_file: Annotated[
        str | None, Meta(description="Instead of the .goent/targets.yaml nearest to each suite.")
    ] = None
    ids: Annotated[tuple[str, ...], Meta(description="Only cases whose ids match a pattern.")] = ()
    tags: Annotated[tuple[str, ...], Meta(description="Only cases with all of these tags.")] = ()
    exclude_tags: Annotated[tuple[str, ...], Meta(description="No case with one of these.")] = ()
    trials: Annotated[int, Meta(ge=1, le=1000)] | None = None
    workers: Annotated[
        Annotated[int, Meta(ge=1, le=50)] | None, Meta(description="Parallel attempts per target.")
    ] = None
    threshold: Annotated[float, Meta(ge=0, le=1)] | None = None
    budget_usd: Annotated[
        PositiveNumber | None, Meta(description="What the run may cost, in USD.")
    ] = None
    timeout_s: Annotated[PositiveNumber | None, Meta(description="Per attempt; default: 600.")] = (
        None
    )
    judge: Annotated[str | None, Meta(description="The judge: a target, or provider/model.")] = None
    compat: Annotated[
        Literal["agentv"] | None, Meta(description="Judge exactly as AgentV does.")
    ] = None
    out: Annotated[str | None, Meta(description="The run's folder; default: a new one.")] = None
    resume: Annotated[
        str | None,
        Meta(description="Resume this run (its id or folder); only finished trials are kept."),
    ] = None
    retry: Annotated[
        Literal["errors", "failed"] | None,
        Meta(description="With resume: rerun these as well."),
    ] = None


class EvalStatusRequest(OperationRequest, frozen=True, kw_only=True):
    """The status of a run; with `cancel`, end it."""

    run_id: RunName
    cancel: Annotated[bool, Meta(description="End it; finished trials are kept.")] = False
    wait_s: Annotated[WaitSeconds, Meta(description="First wait this long for its end.")] = 0.0


class EvalCompareRequest(OperationRequest, frozen=True, kw_only=True):
    """Compare two runs: whether the second is better than the first."""

    before: RunName
    after: RunName
    targets: Annotated[
        tuple[str, str] | None,
        Meta(description="Compare this target of the first with that one of the second."),
    ] = None


class EvalTrouble(Value, frozen=True, kw_only=True):
    """A trial that did not pass, and a short reason."""

    test_id: str
    target: str
    status: Literal["quality_failure", "execution_error", "skipped"]
    score: float
    why: str


class EvalStatus(Value, frozen=True, kw_only=True):
    """The status of a run: `done` of `total` trials; `total` is None where it is unknown.

    `cost_usd` is None if the cost of a trial is unknown; `known_usd` is the sum of the others. `exit_code`
    is that of `go-ent eval run`: 0 all passed, 1 one failed, 2 a file is wrong, 3 one could not be judged.
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
    """The second run compared with the first, case by case; `p` is the probability by chance alone.

    `changed` are the largest changes; `left_out` counts cases that only one run has, or that failed to run.
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
    """Runs evaluations. Each method raises a `RequestError` or `ConfigError` that names the remedy."""

    async def run(self, request: EvalRunRequest, base: Path) -> EvalStatus: ...

    async def status(self, request: EvalStatusRequest, base: Path) -> EvalStatus: ...

    async def compare(self, request: EvalCompareRequest, base: Path) -> EvalComparison: ...
