"""What tests of runs are made of: scripted targets, a plain space, and somebody who watches."""

from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from goent.evals.eval_ports import (
    AttemptDirectory,
    AttemptObserver,
    CaseAttempt,
    EvalTarget,
    StreamLogFile,
)
from goent.evals.eval_results import CaseGrade, Row
from goent.evals.graders.case_grader import grade
from goent.evals.runner.attempt_recorder import RunPlan
from goent.evals.runner.eval_run import EvalLimits, EvalServices, evaluate
from goent.evals.runner.open_targets import OpenTargets, parallel_limits
from goent.evals.runner.run_folder import RunManifest, StoredRun, utc_now
from goent.evals.runner.run_preparation import PreparedRun, prepare_resume
from goent.evals.runner.run_scheduler import RunOutcome
from goent.evals.runner.trial_plan import RunSelection, Trial, plan_trials, used_targets
from goent.evals.suites import (
    EvalCase,
    GraderSpec,
    InputMessage,
    Suite,
    SuiteLocation,
    TargetSpec,
    Trials,
)
from goent.evals.traces import TargetFailure, Trace, TracedMessage

Invoke = Callable[[CaseAttempt, AttemptObserver], Awaitable[Trace]]


def says(text: str, *, cost_usd: float | None = None) -> Trace:
    return Trace(messages=(TracedMessage(role="assistant", content=text),), cost_usd=cost_usd)


def case(name: str, *, wants: str = "yes", targets: tuple[str, ...] = ()) -> EvalCase:
    grader = GraderSpec(type="contains", name="contains", settings={"value": wants})
    return EvalCase(
        id=name,
        suite="suite",
        form="v4",
        input=(InputMessage(role="user", text=name),),
        graders=(grader,),
        targets=targets,
        place=SuiteLocation(file="suite.eval.yaml", line=1),
    )


def suite(*cases: EvalCase, trials: Trials | None = None, budget_usd: float | None = None) -> Suite:
    return Suite(
        name="suite",
        path=Path("suite.eval.yaml"),
        form="v4",
        cases=cases,
        trials=trials or Trials(),
        budget_usd=budget_usd,
    )


class Scripted:
    """A target that does what a function does, and counts how many it is asked at once."""

    def __init__(self, invoke: Invoke) -> None:
        self._invoke = invoke
        self.asked: list[CaseAttempt] = []
        self.at_once = self.most_at_once = 0

    async def invoke(self, attempt: CaseAttempt, witness: AttemptObserver) -> Trace:
        self.asked.append(attempt)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            return await self._invoke(attempt, witness)
        finally:
            self.at_once -= 1


class Watched:
    """The port `Watcher`, by lists."""

    def __init__(self) -> None:
        self.plan: RunPlan | None = None
        self.began_at: list[CaseAttempt] = []
        self.logs: list[StreamLogFile] = []
        self.failures: list[tuple[str, float]] = []
        self.asked_next: list[str] = []
        self.rows: list[Row] = []
        self.warnings: list[str] = []

    def planned(self, plan: RunPlan) -> None:
        self.plan = plan

    def began(self, attempt: CaseAttempt) -> None:
        self.began_at.append(attempt)

    def log(self, chosen: StreamLogFile) -> None:
        self.logs.append(chosen)

    def failed(
        self, attempt: CaseAttempt, failure: TargetFailure, *, again_in_s: float, by: str
    ) -> None:
        self.failures.append((failure.kind, again_in_s))
        self.asked_next.append(by)

    def ended(self, row: Row) -> None:
        self.rows.append(row)

    def warned(self, text: str) -> None:
        self.warnings.append(text)

    @property
    def statuses(self) -> dict[str, str]:
        return {row.test_id: row.execution_status for row in self.rows}


class _Here:
    def __init__(self, path: Path) -> None:
        self.path = path

    async def changes(self) -> str:
        return ""

    def mark_passed(self) -> None: ...


class PlainSpaces:
    """The port `AttemptDirectories`: everybody in the same directory."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.made: Counter[str] = Counter()

    @asynccontextmanager
    async def space(
        self, case: EvalCase, *, target: str, trial: int, number: int
    ) -> AsyncGenerator[AttemptDirectory]:
        self.made[case.id] += 1
        yield _Here(self._path)


class Stage:
    """A run of scripted targets, in a folder of its own."""

    def __init__(self, out: Path, targets: Mapping[str, EvalTarget]) -> None:
        self.out = out
        self.targets = targets
        self.watched = Watched()

    def specs(self, changed: Iterable[TargetSpec] = ()) -> Mapping[str, TargetSpec]:
        return {
            **{name: TargetSpec(name=name, kind="mock") for name in self.targets},
            **{spec.name: spec for spec in changed},
        }

    async def run(
        self,
        suites: Iterable[Suite],
        *,
        specs: Iterable[TargetSpec] = (),
        wanted: RunSelection | None = None,
        bounds: EvalLimits | None = None,
    ) -> RunOutcome:
        """Goes on with what is there."""
        wanted, known, many = wanted or RunSelection(), self.specs(specs), tuple(suites)
        trials = plan_trials(many, known, wanted)
        manifest = RunManifest(suites=("suite.eval.yaml",), wanted=wanted, began=utc_now())
        fresh = PreparedRun(
            suites=many, specs=known, trials=trials, manifest=manifest, to_make=trials
        )

        @asynccontextmanager
        async def open_target(spec: TargetSpec) -> AsyncGenerator[EvalTarget]:
            yield self.targets[spec.name]

        bounds = bounds or EvalLimits()
        with StoredRun.open(self.out) as folder:
            prepared = prepare_resume(fresh, folder, "none") if folder.is_used else fresh
            used = used_targets(trials, known)
            at_once = parallel_limits(used, trials, workers=bounds.workers)
            async with OpenTargets.open(used.values(), open_target, at_once) as opened:
                means = EvalServices(
                    targets=opened,
                    spaces=PlainSpaces(self.out),
                    grading=graded,
                    watcher=self.watched,
                )
                return await evaluate(prepared, folder, means, bounds)


async def graded(trial: Trial, trace: Trace) -> CaseGrade:
    return grade(trial.case, trace, threshold=trial.threshold, compat=False)
