"""How does one trial go? Attempts until one is no failure, its grades, and what is kept of both."""

import logging
import math
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

import anyio
from msgspec.structs import replace

from goent.domain.errors import GoentError
from goent.evals.graders.conversations import judging_cost
from goent.evals.grades import Graded, Status
from goent.evals.lessons import Learn, nobody_learns
from goent.evals.ports import Attempt, Space, Spaces, TargetError
from goent.evals.rows import Row, Score
from goent.evals.running.conversing import Conversing, Grading, grade_trial
from goent.evals.running.earlier import GRADES, TRACE
from goent.evals.running.folder import Folder
from goent.evals.running.opened import Opened
from goent.evals.running.plan import Trial
from goent.evals.running.recording import Recording
from goent.evals.running.watching import Watcher
from goent.evals.suites import Retry, TargetSpec
from goent.evals.traces import TargetFailure, Trace, add_up

log = logging.getLogger(__name__)

TIMEOUT_S: Final = 600.0

Make = Callable[[Attempt, Recording], Awaitable[Trace]]
FAILED: Final = Graded(score=0.0, status="execution_error")


class _Ended(NamedTuple):
    """An attempt, and who made it."""

    by: TargetSpec
    attempt: Attempt
    trace: Trace
    graded: Graded = FAILED


@dataclass(frozen=True, slots=True, kw_only=True)
class Conduct:
    """What every trial of a run needs."""

    targets: Opened
    specs: Mapping[str, TargetSpec]
    spaces: Spaces
    grading: Grading
    folder: Folder
    watcher: Watcher
    learn: Learn = nobody_learns
    timeout_s: float = TIMEOUT_S

    async def trial(self, trial: Trial) -> Row:
        """Made, graded and on disk."""
        self.folder.begin(trial.folder)
        made: list[_Ended] = []
        first = self.specs[trial.target]
        for spec in (first, *(self.specs[name] for name in first.fallbacks)):
            for wait in _waits(spec.retry):
                if made:
                    await self._before_another(trial, made[-1], wait, spec.name)
                made.append(await self._attempt(trial, spec, len(made)))
                failure = made[-1].trace.failure
                if failure is None or not _may_pass(failure, spec.retry):
                    break
            if made[-1].trace.failure is None:
                break
        row = _row(trial, made)
        await self.folder.keep(made[-1].graded, row, trace=made[-1].trace)
        await self.learn(trial.case, row, made[-1].trace)
        self.watcher.ended(row)
        return row

    async def hold_back(self, trial: Trial, failed: tuple[str, ...]) -> Row:
        """What it needs did not pass: it is not made, and that is on disk."""
        self.folder.begin(trial.folder)
        status: Status = "skipped" if trial.case.on_need_failure == "skip" else "quality_failure"
        names = " and ".join(map(repr, failed))
        row = Row(
            test_id=trial.case.id,
            target=trial.target,
            score=0.0,
            execution_status="execution_error" if trial.compat else status,
            cost_usd=0.0,
            suite=trial.case.suite,
            trial=trial.number,
            trials=trial.trials.count,
            error=f"it depends on {names}, which did not pass",
            grades_path=f"{trial.folder}/{GRADES}",
            held_back_by=failed,
        )
        graded = Graded(score=0.0, status=row.execution_status, error=row.error)
        await self.folder.keep(graded, row)
        self.watcher.ended(row)
        return row

    async def _before_another(self, trial: Trial, ended: _Ended, wait: float, by: str) -> None:
        """What failed is not the trial's outcome, but it is kept beside it."""
        failure = ended.trace.failure
        if failure is not None:
            self.watcher.failed(ended.attempt, failure, again_in_s=wait, by=by)
        self.folder.put_aside(trial.folder, ended.attempt.number, ended.trace)
        await anyio.sleep(wait)

    async def _attempt(self, trial: Trial, spec: TargetSpec, number: int) -> _Ended:
        case = trial.case
        attempt = Attempt(
            case=case,
            target=spec.name,
            cwd=self.folder.path,
            number=number,
            trial=trial.number,
            timeout_s=self.timeout_s,
        )
        self.watcher.began(attempt)
        try:
            async with self.spaces.space(
                case, target=spec.name, trial=trial.number, number=number
            ) as space:
                attempt = replace(attempt, cwd=space.path)
                ended = await self._in_space(trial, spec, attempt, space)
        except TargetError as error:  # no directory to work in
            return _Ended(spec, attempt, Trace(failure=self._failure(error), cost_usd=0.0))
        return ended._replace(trace=ended.trace.as_it_is_now())

    async def _in_space(
        self, trial: Trial, spec: TargetSpec, attempt: Attempt, space: Space
    ) -> _Ended:
        recording = Recording(attempt, self.folder, trial.folder, self.watcher)
        complete = partial(_completed, space)
        if talk := trial.case.conversation:
            conversing = Conversing(trial, talk, self.targets, self.grading, complete)
            trace = await self._made(conversing.run, attempt, recording)
            known, judging_usd = conversing.grades, conversing.judging_usd
        else:
            trace = await self._made(self._ask, attempt, recording)
            known, judging_usd = (), 0.0
        trace = await complete(trace)
        if trace.failure is not None:
            return _Ended(spec, attempt, trace, replace(FAILED, judge_cost_usd=judging_usd))
        graded = await grade_trial(self.grading, trial, trace, known)
        if graded.status == "ok":
            space.passed()
        return _Ended(spec, attempt, trace, graded)

    async def _ask(self, attempt: Attempt, recording: Recording) -> Trace:
        async with self.targets.turn(attempt.target) as target:
            recording.begin()
            return recording.timed(await target.invoke(attempt, recording))

    async def _made(self, make: Make, attempt: Attempt, recording: Recording) -> Trace:
        """The trace, whatever came of it."""
        try:
            return await make(attempt, recording)
        except (GoentError, OSError) as error:
            return recording.timed(recording.cut(self._failure(error)))
        except Exception as error:  # one target's defect must not cost the other cases
            log.exception("target %r failed at %r", attempt.target, attempt.case.id)
            return recording.timed(recording.cut(self._failure(error)))
        finally:
            recording.close()

    def _failure(self, error: Exception) -> TargetFailure:
        """In words that may be told to anybody."""
        said = self.folder.clean(str(error))
        match error:
            case TargetError():
                return TargetFailure(kind=error.kind, message=said, retryable=error.retryable)
            case GoentError():
                return TargetFailure(kind="failed", message=said)
            case OSError():
                return TargetFailure(kind="environment", message=said)
            case _:
                return TargetFailure(kind="defect", message=f"{type(error).__name__}: {said}")


async def _completed(space: Space, trace: Trace) -> Trace:
    """With what the directory tells. Who looks at none was given none."""
    return replace(
        trace,
        file_changes=trace.file_changes or await space.changes(),
        workspace_path=str(space.path) if space.path.is_dir() else None,
    )


def _may_pass(failure: TargetFailure, retry: Retry) -> bool:
    return failure.retryable and failure.kind not in retry.never


def _waits(retry: Retry) -> Iterator[float]:
    """Before each attempt; the first of a target waits for nothing."""
    yield 0.0
    wait = retry.initial_delay_s
    for _ in range(retry.max_retries):
        yield min(wait, retry.max_delay_s)
        wait = min(wait * retry.factor, retry.max_delay_s)


def _row(trial: Trial, made: list[_Ended]) -> Row:
    """What the last attempt came to; what all of them took."""
    last = made[-1]
    costs = [_amount(ended.trace.cost_usd) for ended in made]
    known = [cost for cost in costs if cost is not None]
    failure = last.trace.failure
    row = Row(
        test_id=trial.case.id,
        target=trial.target,
        score=0.0,
        execution_status="execution_error",
        token_usage=add_up(ended.trace.usage for ended in made),
        cost_usd=sum(known) if len(known) == len(costs) else None,
        duration_ms=_amount(last.trace.duration_ms),
        suite=trial.case.suite,
        trial=trial.number,
        trials=trial.trials.count,
        attempt=last.attempt.number,
        answered_by=last.by.name if last.by.name != trial.target else "",
        error=f"{failure.kind}: {failure.message}" if failure else None,
        trace_path=f"{trial.folder}/{TRACE}",
        grades_path=f"{trial.folder}/{GRADES}",
        known_cost_usd=sum(known),
    )
    judging = judging_cost([ended.graded for ended in made])
    return judged(row, replace(last.graded, judge_cost_usd=judging))


def judged(row: Row, graded: Graded) -> Row:
    """The row with what its graders say, and what they took."""
    judging = _amount(graded.judge_cost_usd)
    before = row.judge_cost_usd or 0.0
    return replace(
        row,
        score=graded.score,
        execution_status=graded.status,
        error=(graded.error or row.error) if graded.status == "execution_error" else None,
        judge_cost_usd=judging,
        known_cost_usd=max(0.0, row.known_cost_usd - before) + (judging or 0.0),
        scores=tuple(
            Score(
                name=grade.name,
                type=grade.type,
                score=grade.score,
                verdict=grade.verdict,
                weight=grade.weight,
            )
            for grade in graded.grades
        ),
    )


def _amount(told: float | None) -> float | None:
    """What somebody told, if it can be true; a command may say anything."""
    return told if told is not None and math.isfinite(told) and told >= 0 else None
