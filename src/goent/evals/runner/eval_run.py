"""Makes a run from its first trial to its outcome, or grades a stored run again.

Regrading runs only graders. In the run's own folder the new index replaces the old one, which is kept;
in another folder, rows point to the original traces.
"""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from goent.domain.errors import RequestError
from goent.domain.sandbox_port import weaker_level
from goent.domain.task_profile import TaskGrade
from goent.domain.types import Value
from goent.evals.eval_ports import AttemptDirectories
from goent.evals.eval_results import CaseGrade, Row, Rows, latest_rows, read_rows
from goent.evals.reports.report_text import left_out_text
from goent.evals.router_feedback import (
    CorrectionReporter,
    TrialReporter,
    judgement_of,
    report_nothing,
)
from goent.evals.runner.attempt_recorder import RunPlan, RunWatcher
from goent.evals.runner.open_targets import OpenTargets, parallel_limits
from goent.evals.runner.run_folder import (
    GRADES_FILE,
    INDEX_FILE,
    RunManifest,
    StoredRun,
    current_rows,
    interrupted_cost_usd,
    read_manifest,
    superseded_rows,
    utc_now,
)
from goent.evals.runner.run_preparation import PreparedRun, digest_files
from goent.evals.runner.run_scheduler import (
    EvalBudget,
    RunOutcome,
    RunScheduler,
    TrialDependencies,
    run_in_parallel,
    run_outcome,
)
from goent.evals.runner.trial_plan import Trial
from goent.evals.runner.trial_runner import (
    ATTEMPT_TIMEOUT_S,
    FAILED_GRADE,
    GradeTrial,
    TrialRunner,
    grade_trial,
    with_grade,
)
from goent.evals.traces import Trace
from goent.evals.workspaces.attempt_workspaces import KeepPolicy
from goent.system.plain_files import LARGE_FILE, read_plain


class EvalLimits(Value, frozen=True, kw_only=True):
    """Parallel attempts per target, US dollars, seconds per attempt, and which workspaces are kept."""

    workers: int | None = None
    budget_usd: float | None = None
    timeout_s: float = ATTEMPT_TIMEOUT_S
    keep: KeepPolicy = "failure"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalServices:
    """What a run is made with."""

    targets: OpenTargets
    spaces: AttemptDirectories
    grading: GradeTrial
    watcher: RunWatcher
    learn: TrialReporter = report_nothing


async def evaluate(
    prepared: PreparedRun, folder: StoredRun, means: EvalServices, bounds: EvalLimits
) -> RunOutcome:
    """Makes the run. Raises `RunFolderUnwritable`; if cancelled, finished trials are kept."""
    earlier = prepared.trials if folder.is_used else ()
    manifest = replace(prepared.manifest, planned=len(prepared.trials), spared=())
    folder.write_manifest(replace(manifest, ended=None, exit_code=None, stopped=""))
    for warning in prepared.warnings:
        means.watcher.warned(warning)
    widths = parallel_limits(prepared.specs, prepared.trials, workers=bounds.workers)
    targets = tuple(dict.fromkeys(trial.target for trial in prepared.trials))
    means.watcher.planned(
        RunPlan(
            total=len(prepared.trials),
            kept=len(prepared.trials) - len(prepared.to_make),
            targets=targets,
            out=folder.path,
            to_make=Counter(trial.target for trial in prepared.to_make),
        )
    )
    budget = EvalBudget(
        bounds.budget_usd,
        {suite.name: suite.budget_usd for suite in prepared.suites if suite.budget_usd is not None},
        {
            trial.key: limit
            for trial in prepared.trials
            if (limit := trial.trials.cost_limit_usd) is not None
        },
    )
    every = (*superseded_rows(folder.path), *folder.rows().rows)
    paid = (row for row in every if not row.held_back_by)
    budget.record(tuple(paid))  # trials that are made again were paid for too
    for trial in earlier:
        budget.record_lost(trial.key, interrupted_cost_usd(folder.path / trial.folder))
    run = RunScheduler(
        TrialRunner(
            targets=means.targets,
            specs=prepared.specs,
            spaces=means.spaces,
            grading=means.grading,
            folder=folder,
            watcher=means.watcher,
            learn=means.learn,
            timeout_s=bounds.timeout_s,
        ),
        budget,
        TrialDependencies(prepared.trials, prepared.rows),
        failing={suite.name for suite in prepared.suites if suite.fail_on_error},
        kept=prepared.rows,
    )
    await run.run_trials(prepared.to_make, {name: widths[name] for name in targets})
    rows = current_rows(folder.rows(), folder.path).rows
    outcome = run_outcome(prepared.trials, rows, stopped=run.stopped, enough=run.cases_at_limit)
    there = {(row.key, row.trial) for row in rows}
    spared = (trial for trial in prepared.trials if trial.key in run.cases_at_limit)
    folder.write_manifest(
        replace(
            manifest,
            ended=utc_now(),
            exit_code=outcome.exit_code,
            stopped=outcome.stopped,
            spared=tuple(
                one for trial in spared if (one := (trial.key, trial.number)) not in there
            ),
        )
    )
    return outcome


PARALLEL_GRADES: Final = 8


class _RegradeContext(NamedTuple):
    """What regrading is made with."""

    grading: GradeTrial
    watcher: RunWatcher


async def regrade(
    prepared: PreparedRun,
    source: Path,
    folder: StoredRun,
    *,
    grading: GradeTrial,
    watcher: RunWatcher,
    correct: CorrectionReporter,
) -> RunOutcome:
    """Grades the run at `source` again, into `folder`, which may be the same.

    Raises `RequestError` if there is nothing to grade.
    """
    trials = {(trial.key, trial.number): trial for trial in prepared.trials}
    read = read_rows(source / INDEX_FILE)
    rows = latest_rows(read.rows)
    known = [(row, trial) for row in rows if (trial := trials.get((row.key, row.trial)))]
    if gone := len(rows) - len(known):
        watcher.warned(left_out_text(gone))
    if not known:
        raise RequestError(f"{str(source)!r}: there is nothing to grade")
    targets = tuple(dict.fromkeys(row.target for row, _ in known))
    watcher.planned(RunPlan(total=len(known), kept=0, targets=targets, out=folder.path))
    number = folder.start_new_index() + 1
    name = GRADES_FILE if number == 1 and source != folder.path else f"grades.{number + 1}.json"
    changed = await _grade_all(known, name, source, folder, _RegradeContext(grading, watcher))
    manifest = _regraded_manifest(prepared, source, folder, current_rows(read, source))
    folder.replace_index(number)
    # Only now: until the index is replaced, the old grades count.
    if manifest.graded_from is None and (learned := list(_learned_judgments(changed, folder.path))):
        await correct(learned)
    enough = {key for key, _ in manifest.spared}
    outcome = run_outcome(
        prepared.trials, folder.rows().rows, stopped=manifest.stopped, enough=enough
    )
    folder.write_manifest(replace(manifest, exit_code=outcome.exit_code))
    return outcome


async def _grade_all(
    known: Sequence[tuple[Row, Trial]],
    name: str,
    source: Path,
    folder: StoredRun,
    by: _RegradeContext,
) -> list[Row]:
    """Writes all rows to the new index, or none. Returns those whose status has changed."""
    queue = iter(known)
    changed: list[Row] = []

    async def work() -> None:
        for row, trial in queue:
            graded, anew = await _grade_row(row, trial, source, by)
            path = _relative_path(folder.path, source / row.trace_path) if row.trace_path else ""
            anew = replace(anew, trace_path=path, grades_path=f"{trial.folder}/{name}")
            await folder.store_trial(graded, anew)
            by.watcher.ended(anew)
            if anew.execution_status != row.execution_status:
                changed.append(anew)

    try:
        await run_in_parallel([work] * PARALLEL_GRADES)
    except BaseException:
        folder.discard_new_index(f"{trial.folder}/{name}" for _, trial in known)
        raise
    return changed


async def _grade_row(
    row: Row, trial: Trial, source: Path, by: _RegradeContext
) -> tuple[CaseGrade, Row]:
    """A trial that was held back has nothing to grade."""
    if row.held_back_by:
        return CaseGrade(score=row.score, status=row.execution_status, error=row.error), row
    try:
        trace = read_trace(source / row.trace_path).without_missing_workspace()
        graded = await grade_trial(by.grading, trial, trace)
    except RequestError as error:
        by.watcher.warned(str(error))
        return FAILED_GRADE, with_grade(replace(row, error=str(error)), FAILED_GRADE)
    return graded, with_grade(row, graded)


def _learned_judgments(rows: Sequence[Row], folder: Path) -> Iterator[TaskGrade]:
    """The grades that the router may have learned from."""
    for row in rows:
        with suppress(RequestError):  # its trace is gone, as grading has warned
            trace = read_trace(folder / row.trace_path)
            if found := judgement_of(row, trace):
                yield found


def _regraded_manifest(
    prepared: PreparedRun, source: Path, folder: StoredRun, read: Rows
) -> RunManifest:
    """In its own folder a run keeps its manifest, except for how it is judged."""
    before = read_manifest(source)
    planned = {(trial.key, trial.number) for trial in prepared.trials}
    now_so = replace(
        before,
        wanted=prepared.manifest.wanted,
        gone=(),
        planned=len(planned) if before.planned is not None else None,
        spared=tuple(one for one in before.spared if one in planned),
        remade=tuple(sorted(read.remade & planned)),
        sandbox=weaker_level(before.sandbox, prepared.manifest.sandbox),
    )
    if folder.path == source:
        return now_so
    return replace(
        now_so,
        suites=prepared.manifest.suites,
        targets_file=prepared.manifest.targets_file,
        began=prepared.manifest.began,
        files=digest_files(prepared.materials, folder.path),
        ended=utc_now(),
        graded_from=str(source),
    )


def read_trace(path: Path) -> Trace:
    try:
        return msgspec.json.decode(read_plain(path, LARGE_FILE), type=Trace)
    except OSError as error:
        raise RequestError(f"the trace {str(path)!r} cannot be read: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise RequestError(f"{str(path)!r} is not a trace: {error}") from error


def _relative_path(folder: Path, path: Path) -> str:
    return os.path.relpath(path, folder)
