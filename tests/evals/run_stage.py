"""What tests of runs are made of: scripted targets, a plain space, and somebody who watches."""

from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from goent.evals.graders.grading import grade_asking
from goent.evals.grades import Graded
from goent.evals.ports import Attempt, LogChosen, Space, Target, Witness
from goent.evals.rows import Row
from goent.evals.running.evaluate import Bounds, Means, evaluate
from goent.evals.running.folder import Folder, Manifest, now
from goent.evals.running.opened import Opened, widths
from goent.evals.running.outcome import Outcome
from goent.evals.running.plan import Trial, Wanted, in_use, plan
from goent.evals.running.preparing import Prepared, resumed
from goent.evals.running.watching import Planned
from goent.evals.suites import Case, GraderSpec, Place, Said, Suite, TargetSpec, Trials
from goent.evals.traces import TargetFailure, Trace, TracedMessage

Invoke = Callable[[Attempt, Witness], Awaitable[Trace]]


def says(text: str, *, cost_usd: float | None = None) -> Trace:
    return Trace(messages=(TracedMessage(role="assistant", content=text),), cost_usd=cost_usd)


def case(name: str, *, wants: str = "yes", targets: tuple[str, ...] = ()) -> Case:
    grader = GraderSpec(type="contains", name="contains", settings={"value": wants})
    return Case(
        id=name,
        suite="suite",
        form="v4",
        input=(Said(role="user", text=name),),
        graders=(grader,),
        targets=targets,
        place=Place(file="suite.eval.yaml", line=1),
    )


def suite(*cases: Case, trials: Trials | None = None, budget_usd: float | None = None) -> Suite:
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
        self.asked: list[Attempt] = []
        self.at_once = self.most_at_once = 0

    async def invoke(self, attempt: Attempt, witness: Witness) -> Trace:
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
        self.plan: Planned | None = None
        self.began_at: list[Attempt] = []
        self.logs: list[LogChosen] = []
        self.failures: list[tuple[str, float]] = []
        self.asked_next: list[str] = []
        self.rows: list[Row] = []
        self.warnings: list[str] = []

    def planned(self, plan: Planned) -> None:
        self.plan = plan

    def began(self, attempt: Attempt) -> None:
        self.began_at.append(attempt)

    def log(self, chosen: LogChosen) -> None:
        self.logs.append(chosen)

    def failed(
        self, attempt: Attempt, failure: TargetFailure, *, again_in_s: float, by: str
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

    def passed(self) -> None: ...


class PlainSpaces:
    """The port `Spaces`: everybody in the same directory."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.made: Counter[str] = Counter()

    @asynccontextmanager
    async def space(
        self, case: Case, *, target: str, trial: int, number: int
    ) -> AsyncGenerator[Space]:
        self.made[case.id] += 1
        yield _Here(self._path)


class Stage:
    """A run of scripted targets, in a folder of its own."""

    def __init__(self, out: Path, targets: Mapping[str, Target]) -> None:
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
        wanted: Wanted | None = None,
        bounds: Bounds | None = None,
    ) -> Outcome:
        """Goes on with what is there."""
        wanted, known, many = wanted or Wanted(), self.specs(specs), tuple(suites)
        trials = plan(many, known, wanted)
        manifest = Manifest(suites=("suite.eval.yaml",), wanted=wanted, began=now())
        fresh = Prepared(suites=many, specs=known, trials=trials, manifest=manifest, to_make=trials)

        @asynccontextmanager
        async def open_target(spec: TargetSpec) -> AsyncGenerator[Target]:
            yield self.targets[spec.name]

        bounds = bounds or Bounds()
        with Folder.held(self.out) as folder:
            prepared = resumed(fresh, folder, "none") if folder.is_used else fresh
            used = in_use(trials, known)
            at_once = widths(used, trials, workers=bounds.workers)
            async with Opened.of(used.values(), open_target, at_once) as opened:
                means = Means(
                    targets=opened,
                    spaces=PlainSpaces(self.out),
                    grading=graded,
                    watcher=self.watched,
                )
                return await evaluate(prepared, folder, means, bounds)


async def graded(trial: Trial, trace: Trace) -> Graded:
    return await grade_asking(trial.case, trace, threshold=trial.threshold, compat=False, askers={})
