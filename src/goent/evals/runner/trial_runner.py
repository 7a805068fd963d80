"""Runs one trial: attempts with retries and fallbacks, turn by turn, graded and stored."""

import logging
import math
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

import anyio
from msgspec.structs import replace

from goent.domain.errors import GoentError
from goent.evals.eval_ports import (
    AttemptDirectories,
    AttemptDirectory,
    AttemptObserver,
    CaseAttempt,
    ForwardingObserver,
    TargetError,
)
from goent.evals.eval_results import CaseGrade, CaseStatus, Row, Score
from goent.evals.graders.case_grader import conversation_grade, total_judge_cost
from goent.evals.graders.findings import reaches
from goent.evals.router_feedback import TrialReporter, report_nothing
from goent.evals.runner.attempt_recorder import AttemptRecorder, RunWatcher
from goent.evals.runner.open_targets import ConversationTarget, OpenTargets
from goent.evals.runner.run_folder import GRADES_FILE, TRACE_FILE, StoredRun, utc_now
from goent.evals.runner.trial_plan import Trial
from goent.evals.suites import (
    CaseConversation,
    Retry,
    TargetSpec,
    new_input_case,
    turn_case,
    whole_case,
)
from goent.evals.traces import (
    TargetFailure,
    TokenUsage,
    Trace,
    TracedMessage,
    TracedTurn,
    TraceWorker,
    sum_if_known,
    sum_usage,
)

GradeTrial = Callable[[Trial, Trace], Awaitable[CaseGrade]]


async def grade_trial(
    grading: GradeTrial, trial: Trial, trace: Trace, known: Sequence[CaseGrade | None] = ()
) -> CaseGrade:
    """Grades a trace, turn by turn for a conversation; `known` are the grades of its first turns."""
    talk, case = trial.case.conversation, trial.case
    if talk is None or trace.failure is not None:
        return await grading(trial, trace)
    lacks = len(trace.turns) < len(talk.turns)
    if lacks and talk.on_failure != "stop":
        return _missing_turns(trace)
    left = range(len(known), min(len(talk.turns), len(trace.turns)))
    rest = [await _grade_turn(grading, trial, talk, trace, number) for number in left]
    turns = (*known, *rest)
    if lacks and not _has_stopped(talk, turns, trial.threshold):
        return _missing_turns(trace, turns)
    own = replace(trial, case=whole_case(case))
    whole = await grading(own, _compat_trace(trace, compat=trial.compat)) if case.graders else None
    return conversation_grade(talk, turns, whole, threshold=trial.threshold, compat=trial.compat)


def _has_stopped(
    talk: CaseConversation, turns: Sequence[CaseGrade | None], threshold: float
) -> bool:
    """Whether the conversation stopped after these turns, or may have if the turns have no graders."""
    last = turns[-1] if turns else None
    if last is None:
        return bool(turns) and not any(turn.graders for turn in talk.turns)
    return last.spoilt or not reaches(last.score, threshold)


def _missing_turns(trace: Trace, turns: Sequence[CaseGrade | None] = ()) -> CaseGrade:
    """The suite has changed since the trace was made."""
    return CaseGrade(
        score=0.0,
        status="execution_error",
        error=f"its trace has no turn {len(trace.turns) + 1}: run it again",
        judge_cost_usd=_judging_cost_usd(turns),
    )


async def _grade_turn(
    grading: GradeTrial, trial: Trial, talk: CaseConversation, trace: Trace, number: int
) -> CaseGrade | None:
    if not talk.turns[number].graders:
        return None
    answers = [trace.turn(before).answer for before in range(number)]
    turn = replace(trial, case=turn_case(trial.case, talk, number, answers))
    return await grading(turn, trace.turn(number))


def _compat_trace(trace: Trace, *, compat: bool) -> Trace:
    """AgentV shows graders of a whole conversation only its text."""
    if not compat:
        return trace
    return Trace(messages=(TracedMessage(role="assistant", content=trace.answer),))


class ConversationAttempt:
    """One attempt. Each turn is graded when it ends, while its directory is as the turn left it.

    `complete` adds the state of the directory to a trace. `grades` are those of the turns so far.
    """

    def __init__(
        self,
        trial: Trial,
        talk: CaseConversation,
        targets: OpenTargets,
        grading: GradeTrial,
        complete: Callable[[Trace], Awaitable[Trace]],
    ) -> None:
        self.grades: list[CaseGrade | None] = []
        self._trial = trial
        self._talk = talk
        self._targets = targets
        self._grading = grading
        self._complete = complete
        self._messages: list[TracedMessage] = []
        self._turns: list[TracedTurn] = []
        self._made: list[Trace] = []
        self._elapsed_s = 0.0  # as measured here

    async def run(self, attempt: CaseAttempt, recording: AttemptRecorder) -> Trace:
        """Raises `TargetError` if a turn fails."""
        async with self._targets.open_conversation(attempt) as partner:
            for number in range(len(self._talk.turns)):
                await self._turn(partner, number, attempt, recording)
                trace = await self._complete(self._trace())
                graded = await _grade_turn(self._grading, self._trial, self._talk, trace, number)
                self.grades.append(graded)
                stops = self._talk.on_failure == "stop" and graded is not None
                if stops and _has_stopped(self._talk, self.grades, self._trial.threshold):
                    break
        return self._trace()

    def _trace(self) -> Trace:
        made = self._made
        calls = [trace.llm_calls for trace in made if trace.llm_calls is not None]
        return Trace(
            messages=tuple(self._messages),
            usage=sum_usage(trace.usage for trace in made),
            cost_usd=sum_if_known([trace.cost_usd for trace in made]),
            duration_ms=sum_if_known([turn.duration_ms for turn in self._turns]),
            llm_calls=sum(calls) if len(calls) == len(made) else None,
            start_time=self._turns[0].start_time,
            end_time=self._turns[-1].end_time,
            log_path=made[0].log_path,
            file_changes=made[-1].file_changes,
            permissions=tuple(one for trace in made for one in trace.permissions),
            by=_only_worker([trace.by for trace in made]),
            turns=tuple(self._turns),
        )

    @property
    def judging_usd(self) -> float | None:
        return _judging_cost_usd(self.grades)

    async def _turn(
        self,
        partner: ConversationTarget,
        number: int,
        attempt: CaseAttempt,
        recording: AttemptRecorder,
    ) -> None:
        case, answers = attempt.case, [trace.answer for trace in self._made]
        news = new_input_case(case, self._talk, number)
        asked = news if partner.remembers else turn_case(case, self._talk, number, answers)
        begins = len(self._messages)
        for said in news.input:
            recording.message(len(self._messages), TracedMessage(role=said.role, content=said.text))
            self._messages.append(TracedMessage(role=said.role, content=said.text))
        left = attempt.timeout_s - self._elapsed_s
        if left <= 0:
            why = f"{attempt.target!r} had taken {self._elapsed_s:.0f} s before turn {number + 1}"
            raise TargetError("timeout", why)
        observer = _TurnObserver(recording, len(self._messages), self._made)
        began, since = utc_now(), time.monotonic()
        trace = await partner.invoke(replace(attempt, case=asked, timeout_s=left), observer)
        took = time.monotonic() - since
        self._elapsed_s += took
        turn = TracedTurn(
            begins=begins,
            answers=len(self._messages),
            usage=trace.usage,
            cost_usd=trace.cost_usd,
            duration_ms=took * 1000 if trace.duration_ms is None else trace.duration_ms,
            llm_calls=trace.llm_calls,
            start_time=trace.start_time or began,
            end_time=trace.end_time or utc_now(),
        )
        self._turns.append(turn)
        recording.turn(turn)
        if not partner.remembers:  # it reports nothing during a turn
            for place, message in enumerate(trace.messages):
                observer.message(place, message)
            observer.usage_changed(trace.usage, trace.cost_usd)
        self._made.append(trace)
        self._messages += trace.messages


class _TurnObserver(ForwardingObserver):
    """Observes one turn, whose messages and usage come after those of earlier turns."""

    def __init__(self, witness: AttemptObserver, first: int, made: Sequence[Trace]) -> None:
        super().__init__(witness)
        self._first = first
        self._made = tuple(made)

    def message(self, number: int, message: TracedMessage, *, before: int | None = None) -> None:
        before = None if before is None else self._first + before
        super().message(self._first + number, message, before=before)

    def usage_changed(self, usage: TokenUsage | None, cost_usd: float | None) -> None:
        super().usage_changed(
            sum_usage([usage, *(trace.usage for trace in self._made)]),
            sum_if_known([cost_usd, *(trace.cost_usd for trace in self._made)]),
        )


def _judging_cost_usd(turns: Sequence[CaseGrade | None]) -> float | None:
    return total_judge_cost([graded for graded in turns if graded is not None])


def _only_worker(workers: Sequence[TraceWorker | None]) -> TraceWorker | None:
    """The worker of all turns; None if they differ."""
    return workers[0] if len(set(workers)) == 1 else None


log = logging.getLogger(__name__)

ATTEMPT_TIMEOUT_S: Final = 600.0

MakeTrace = Callable[[CaseAttempt, AttemptRecorder], Awaitable[Trace]]
FAILED_GRADE: Final = CaseGrade(score=0.0, status="execution_error")


class _AttemptResult(NamedTuple):
    """An attempt, and the target that made it."""

    by: TargetSpec
    attempt: CaseAttempt
    trace: Trace
    graded: CaseGrade = FAILED_GRADE


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRunner:
    """What every trial of a run needs."""

    targets: OpenTargets
    specs: Mapping[str, TargetSpec]
    spaces: AttemptDirectories
    grading: GradeTrial
    folder: StoredRun
    watcher: RunWatcher
    learn: TrialReporter = report_nothing
    timeout_s: float = ATTEMPT_TIMEOUT_S

    async def run_trial(self, trial: Trial) -> Row:
        """Makes, grades and stores a trial."""
        self.folder.prepare_trial(trial.folder)
        made: list[_AttemptResult] = []
        first = self.specs[trial.target]
        for spec in (first, *(self.specs[name] for name in first.fallbacks)):
            for wait in _retry_waits(spec.retry):
                if made:
                    await self._before_retry(trial, made[-1], wait, spec.name)
                made.append(await self._attempt(trial, spec, len(made)))
                failure = made[-1].trace.failure
                if failure is None or not _is_retryable(failure, spec.retry):
                    break
            if made[-1].trace.failure is None:
                break
        row = _trial_row(trial, made)
        await self.folder.store_trial(made[-1].graded, row, trace=made[-1].trace)
        await self.learn(trial.case, row, made[-1].trace)
        self.watcher.ended(row)
        return row

    async def skip_trial(self, trial: Trial, failed: tuple[str, ...]) -> Row:
        """Stores that a trial was skipped because its dependencies did not pass."""
        self.folder.prepare_trial(trial.folder)
        status: CaseStatus = (
            "skipped" if trial.case.on_need_failure == "skip" else "quality_failure"
        )
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
            grades_path=f"{trial.folder}/{GRADES_FILE}",
            held_back_by=failed,
        )
        graded = CaseGrade(score=0.0, status=row.execution_status, error=row.error)
        await self.folder.store_trial(graded, row)
        self.watcher.ended(row)
        return row

    async def _before_retry(
        self, trial: Trial, ended: _AttemptResult, wait: float, by: str
    ) -> None:
        """Keeps the failed attempt beside the trial's outcome."""
        failure = ended.trace.failure
        if failure is not None:
            self.watcher.failed(ended.attempt, failure, again_in_s=wait, by=by)
        self.folder.store_attempt(trial.folder, ended.attempt.number, ended.trace)
        await anyio.sleep(wait)

    async def _attempt(self, trial: Trial, spec: TargetSpec, number: int) -> _AttemptResult:
        case = trial.case
        attempt = CaseAttempt(
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
        except TargetError as error:  # there is no directory
            return _AttemptResult(spec, attempt, Trace(failure=self._failure(error), cost_usd=0.0))
        return ended._replace(trace=ended.trace.without_missing_workspace())

    async def _in_space(
        self, trial: Trial, spec: TargetSpec, attempt: CaseAttempt, space: AttemptDirectory
    ) -> _AttemptResult:
        recording = AttemptRecorder(attempt, self.folder, trial.folder, self.watcher)
        complete = partial(_with_workspace, space)
        if talk := trial.case.conversation:
            conversing = ConversationAttempt(trial, talk, self.targets, self.grading, complete)
            trace = await self._make_trace(conversing.run, attempt, recording)
            known, judging_usd = conversing.grades, conversing.judging_usd
        else:
            trace = await self._make_trace(self._ask_target, attempt, recording)
            known, judging_usd = (), 0.0
        trace = await complete(trace)
        if trace.failure is not None:
            return _AttemptResult(
                spec, attempt, trace, replace(FAILED_GRADE, judge_cost_usd=judging_usd)
            )
        graded = await grade_trial(self.grading, trial, trace, known)
        if graded.status == "ok":
            space.mark_passed()
        return _AttemptResult(spec, attempt, trace, graded)

    async def _ask_target(self, attempt: CaseAttempt, recording: AttemptRecorder) -> Trace:
        async with self.targets.acquire(attempt.target) as target:
            recording.begin()
            return recording.with_times(await target.invoke(attempt, recording))

    async def _make_trace(
        self, make: MakeTrace, attempt: CaseAttempt, recording: AttemptRecorder
    ) -> Trace:
        """The trace, of a failed attempt too."""
        try:
            return await make(attempt, recording)
        except (GoentError, OSError) as error:
            return recording.with_times(recording.partial_trace(self._failure(error)))
        except Exception as error:  # one target's defect must not cost the other cases
            log.exception("target %r failed at %r", attempt.target, attempt.case.id)
            return recording.with_times(recording.partial_trace(self._failure(error)))
        finally:
            recording.close()

    def _failure(self, error: Exception) -> TargetFailure:
        """The failure, without secrets."""
        said = self.folder.redact(str(error))
        match error:
            case TargetError():
                return TargetFailure(kind=error.kind, message=said, retryable=error.retryable)
            case GoentError():
                return TargetFailure(kind="failed", message=said)
            case OSError():
                return TargetFailure(kind="environment", message=said)
            case _:
                return TargetFailure(kind="defect", message=f"{type(error).__name__}: {said}")


async def _with_workspace(space: AttemptDirectory, trace: Trace) -> Trace:
    """Adds the changes and the path of the directory."""
    return replace(
        trace,
        file_changes=trace.file_changes or await space.changes(),
        workspace_path=str(space.path) if space.path.is_dir() else None,
    )


def _is_retryable(failure: TargetFailure, retry: Retry) -> bool:
    return failure.retryable and failure.kind not in retry.never


def _retry_waits(retry: Retry) -> Iterator[float]:
    """The wait before each attempt of a target."""
    yield 0.0
    wait = retry.initial_delay_s
    for _ in range(retry.max_retries):
        yield min(wait, retry.max_delay_s)
        wait = min(wait * retry.factor, retry.max_delay_s)


def _trial_row(trial: Trial, made: list[_AttemptResult]) -> Row:
    """The outcome of the last attempt, and the usage of all."""
    last = made[-1]
    costs = [_valid_amount(ended.trace.cost_usd) for ended in made]
    known = [cost for cost in costs if cost is not None]
    failure = last.trace.failure
    row = Row(
        test_id=trial.case.id,
        target=trial.target,
        score=0.0,
        execution_status="execution_error",
        token_usage=sum_usage(ended.trace.usage for ended in made),
        cost_usd=sum(known) if len(known) == len(costs) else None,
        duration_ms=_valid_amount(last.trace.duration_ms),
        suite=trial.case.suite,
        trial=trial.number,
        trials=trial.trials.count,
        attempt=last.attempt.number,
        answered_by=last.by.name if last.by.name != trial.target else "",
        error=f"{failure.kind}: {failure.message}" if failure else None,
        trace_path=f"{trial.folder}/{TRACE_FILE}",
        grades_path=f"{trial.folder}/{GRADES_FILE}",
        known_cost_usd=sum(known),
    )
    judging = total_judge_cost([ended.graded for ended in made])
    return with_grade(row, replace(last.graded, judge_cost_usd=judging))


def with_grade(row: Row, graded: CaseGrade) -> Row:
    """The row with its grade and the cost of judges."""
    judging = _valid_amount(graded.judge_cost_usd)
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


def _valid_amount(told: float | None) -> float | None:
    """The amount if it is valid; a command may print anything."""
    return told if told is not None and math.isfinite(told) and told >= 0 else None
