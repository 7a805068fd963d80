"""Makes the trials of a run in parallel, within dependencies and budgets, and sums up the outcome.

Exit codes: 0 all pass, 1 a case fails, 3 a case could not be judged, or was skipped and none failed.
(2 is a mistake in the files: then there is no run.)
"""

from collections import Counter, defaultdict
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from functools import partial
from statistics import fmean
from typing import Final, NamedTuple

import anyio

from goent.domain.errors import GoentError
from goent.domain.types import Value
from goent.evals.eval_results import CaseKey, Row, rows_by_case
from goent.evals.reports.statistics import t_interval
from goent.evals.runner.trial_plan import Trial
from goent.evals.runner.trial_runner import TrialRunner
from goent.evals.suites import Trials

WorkFunction = Callable[[], Awaitable[None]]


async def run_in_parallel(works: list[WorkFunction]) -> None:
    """Raises the first `GoentError`."""
    errors: list[GoentError] = []
    async with anyio.create_task_group() as group:

        async def one(work: WorkFunction) -> None:
            try:
                await work()
            except GoentError as error:
                errors.append(error)
                group.cancel_scope.cancel()

        for work in works:
            group.start_soon(one, work)
    if errors:
        raise errors[0]


QUALITY_EXIT = 1
EXECUTION_EXIT = 3


class RunOutcome(Value, frozen=True, kw_only=True):
    """Counts of cases. `unrun` ones lack trials, `left_out` in all; `stopped` says why."""

    passed: int = 0
    failed: int = 0
    errors: int = 0
    unrun: int = 0
    left_out: int = 0
    stopped: str = ""
    skipped: int = 0

    @property
    def exit_code(self) -> int:
        if self.errors or self.unrun:
            return EXECUTION_EXIT
        if self.failed:
            return QUALITY_EXIT
        return EXECUTION_EXIT if self.skipped else 0


def run_outcome(
    trials: Iterable[Trial],
    rows: Iterable[Row],
    *,
    stopped: str = "",
    enough: Collection[CaseKey] = (),
) -> RunOutcome:
    """The outcome of planned trials by their rows; cases in `enough` need no more trials."""
    made = rows_by_case(rows)
    every = tuple(trials)
    planned = {trial.key: trial for trial in every}
    wanted = sum(trial.key not in enough for trial in every)
    there = sum(len(rows) for key, rows in made.items() if key in planned and key not in enough)
    counts = {"passed": 0, "failed": 0, "errors": 0, "unrun": 0, "skipped": 0}
    for key, trial in planned.items():
        counts[case_result(trial, made.get(key, ()), has_enough=key in enough)] += 1
    return RunOutcome(**counts, left_out=max(0, wanted - there), stopped=stopped)


def case_score(rows: Sequence[Row], trials: Trials) -> float:
    """The score of a case, by its suite's strategy."""
    scores = [row.score for row in rows if row.scored]
    if not scores:
        return 0.0
    match trials.strategy:
        case "pass_at_k":
            return max(scores)
        case "confidence_interval":
            interval = t_interval(scores)
            return fmean(scores) if interval is None else max(0.0, interval.low)
        case "mean":
            return fmean(scores)


def case_result(trial: Trial, rows: Sequence[Row], *, has_enough: bool) -> str:
    """The field of `RunOutcome` in which the case counts."""
    if any(not row.scored and not row.skipped for row in rows):
        return "errors"
    if any(row.skipped for row in rows):
        return "skipped"
    if not rows or (len(rows) < trial.trials.count and not has_enough):
        return "unrun"
    if len(rows) == 1:
        return "passed" if rows[0].passed else "failed"
    reached = case_score(rows, trial.trials) >= trial.threshold - 1e-9
    # A threshold of 0 is reached even by trials in which a required grader failed.
    return "passed" if reached and any(row.passed for row in rows) else "failed"


class TrialDependencies:
    """Makes trials wait for the cases they depend on, by the same target if it has any, else by all.

    A case passes as for the exit code; in AgentV a failed one satisfies a dependency too.
    """

    def __init__(self, trials: Iterable[Trial], kept: Iterable[Row]) -> None:
        every = tuple(trials)
        needed = {(trial.case.suite, need) for trial in every for need in trial.case.needs}
        watched = [trial for trial in every if (trial.case.suite, trial.case.id) in needed]
        self._trial_by_case = {trial.key: trial for trial in watched}
        self._left = Counter(trial.key for trial in watched)
        self._ended_events = {key: anyio.Event() for key in self._trial_by_case}
        self._rows: defaultdict[CaseKey, list[Row]] = defaultdict(list)
        self._enough: set[CaseKey] = set()
        for row in kept:
            if row.key in self._trial_by_case:
                self._count(row.key, row)

    async def wait_for_needs(self, trial: Trial) -> None:
        """Waits until its dependencies have ended or were left out."""
        for need in trial.case.needs:
            for key in self._keys(trial, need):
                await self._ended_events[key].wait()

    def is_undecided(self, trial: Trial) -> bool:
        """Whether trials of its dependencies were left out."""
        keys = (key for need in trial.case.needs for key in self._keys(trial, need))
        return any(self._case_result(key) == "unrun" for key in keys)

    def failed_needs(self, trial: Trial) -> tuple[str, ...]:
        """The ids of dependencies that did not pass."""
        return tuple(
            need
            for need in trial.case.needs
            if not all(self._has_passed(key) for key in self._keys(trial, need))
        )

    def record(self, trial: Trial, row: Row | None, *, enough: bool = False) -> None:
        """`row` is None for a trial that was left out; `enough`: its case needs no more."""
        if trial.key in self._trial_by_case:
            if enough:
                self._enough.add(trial.key)
            self._count(trial.key, row)

    def _count(self, key: CaseKey, row: Row | None) -> None:
        if row is not None:
            self._rows[key].append(row)
        self._left[key] -= 1
        if self._left[key] <= 0:
            self._ended_events[key].set()

    def _keys(self, trial: Trial, need: str) -> tuple[CaseKey, ...]:
        own = CaseKey(trial.case.suite, need, trial.target)
        if own in self._trial_by_case:
            return (own,)
        return tuple(key for key in self._trial_by_case if key[:2] == own[:2])

    def _has_passed(self, key: CaseKey) -> bool:
        how = self._case_result(key)
        return how == "passed" or (self._trial_by_case[key].compat and how == "failed")

    def _case_result(self, key: CaseKey) -> str:
        return case_result(
            self._trial_by_case[key], self._rows[key], has_enough=key in self._enough
        )


ROUNDING: Final = 1e-9
BudgetHolder = str | CaseKey | None
"""The owner of a limit: a suite, a case, or None for the run."""


class BudgetRefusal(NamedTuple):
    """`of_case`: the case has reached its own cost limit, as its suite wants."""

    why: str
    of_case: bool


class EvalBudget:
    """Tracks what was spent, and what running trials are likely to cost.

    A trial is expected to cost the average so far. Unknown costs are only counted.
    """

    def __init__(
        self,
        run_usd: float | None,
        suites_usd: Mapping[str, float],
        cases_usd: Mapping[CaseKey, float],
    ) -> None:
        self.has_limits = run_usd is not None or bool(suites_usd)
        self._cases_usd = cases_usd
        self._limits: dict[BudgetHolder, float] = {**suites_usd, **cases_usd}
        if run_usd is not None:
            self._limits[None] = run_usd
        self._spent: defaultdict[BudgetHolder, float] = defaultdict(float)
        self._under_way: Counter[BudgetHolder] = Counter()
        self._known, self._paid = 0.0, 0
        self._changed = anyio.Event()
        self.unknown = 0

    async def check(self, trial: Trial) -> BudgetRefusal | None:
        """Why a trial may not start. Until a first cost is known, one trial runs and the others wait."""
        limits = tuple(self._limits_of(trial.key))
        while limits and self._under_way[None] and not self._paid:
            await self._changed.wait()
        usual = self._known / self._paid if self._paid else 0.0
        for holder, limit in limits:
            likely = self._spent[holder] + (self._under_way[holder] + 1) * usual
            if self._spent[holder] >= limit - ROUNDING or likely > limit + ROUNDING:
                of_case = isinstance(holder, CaseKey)
                return BudgetRefusal(
                    f"the budget of {limit:g} USD{_holder_text(holder)} is used up", of_case
                )
        return None

    @contextmanager
    def reserve(self, trial: Trial) -> Generator[None]:
        holders = self._holders(trial.key)
        self._under_way.update(holders)
        try:
            yield
        finally:
            self._under_way.subtract(holders)

    def record(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self.unknown += None in row.costs
            self._paid += 1
            self._known += row.known_cost_usd
            for holder in self._holders(row.key):
                self._spent[holder] += row.known_cost_usd
        self._changed.set()
        self._changed = anyio.Event()

    def record_lost(self, key: CaseKey, usd: float) -> None:
        """Counts the cost of an interrupted attempt."""
        for holder in self._holders(key):
            self._spent[holder] += usd

    def _limits_of(self, key: CaseKey) -> Iterator[tuple[BudgetHolder, float]]:
        for holder in self._holders(key):
            if (limit := self._limits.get(holder)) is not None:
                yield holder, limit

    def _holders(self, key: CaseKey) -> tuple[BudgetHolder, ...]:
        return (None, key.suite, key) if key in self._cases_usd else (None, key.suite)


def _holder_text(holder: BudgetHolder) -> str:
    if isinstance(holder, CaseKey):
        return f" for the trials of {holder.test_id!r}"
    return f" of the suite {holder!r}" if holder else ""


class RunScheduler:
    """Runs all trials once.

    `stopped` says why some were not made; `cases_at_limit` are cases that reached their cost limit.
    In suites `failing`, a target makes no further trials after an execution error.
    """

    def __init__(
        self,
        runner: TrialRunner,
        budget: EvalBudget,
        needs: TrialDependencies,
        *,
        failing: Collection[str],
        kept: Sequence[Row],
    ) -> None:
        self._runner = runner
        self._budget = budget
        self._needs = needs
        self._failing = failing
        self._failed = {
            (row.suite, row.target)
            for row in kept
            if row.suite in failing and row.execution_status == "execution_error"
        }
        self.stopped = ""
        self.cases_at_limit: set[CaseKey] = set()

    async def run_trials(self, trials: Sequence[Trial], widths: Mapping[str, int]) -> None:
        """Raises `RunFolderUnwritable`; what was written stays."""
        works: list[WorkFunction] = []
        for target, width in widths.items():
            works += [partial(self._run_queue, _target_queue(trials, target))] * width
        await run_in_parallel(works)

    async def _run_queue(self, queue: Iterator[Trial]) -> None:
        for trial in queue:
            await self._needs.wait_for_needs(trial)
            if self._needs.is_undecided(trial):
                self._needs.record(trial, None)
                continue
            failed = self._needs.failed_needs(trial)
            if failed and trial.case.on_need_failure != "run":
                self._needs.record(trial, await self._runner.skip_trial(trial, failed))
                continue
            if (trial.case.suite, trial.target) in self._failed:
                self.stopped = (
                    f"{trial.target!r} failed, and {trial.case.suite!r} has fail_on_error"
                )
                self._needs.record(trial, None)
                continue
            refused = await self._budget.check(trial)
            if refused:
                if refused.of_case:
                    self.cases_at_limit.add(trial.key)
                else:
                    self.stopped = refused.why
                self._needs.record(trial, None, enough=refused.of_case)
                continue
            with self._budget.reserve(trial):
                row = await self._runner.run_trial(trial)
            self._budget.record([row])
            if trial.case.suite in self._failing and row.execution_status == "execution_error":
                self._failed.add((trial.case.suite, trial.target))
            self._needs.record(trial, row)
            if None in row.costs and self._budget.has_limits and self._budget.unknown == 1:
                who = f"{'the judge of ' if row.cost_usd is not None else ''}{row.target!r}"
                self._runner.watcher.warned(
                    f"the cost of {who} is unknown, so the budget cannot count it"
                )


def _target_queue(trials: Sequence[Trial], target: str) -> Iterator[Trial]:
    """One queue, shared by all tasks of the target."""
    return (trial for trial in trials if trial.target == target)
