"""A run from its first trial to its outcome, with whatever was made before."""

from collections import Counter
from dataclasses import dataclass

from msgspec.structs import replace

from goent.domain.types import Value
from goent.evals.lessons import Learn, nobody_learns
from goent.evals.ports import Spaces
from goent.evals.running.conduct import TIMEOUT_S, Conduct
from goent.evals.running.conversing import Grading
from goent.evals.running.earlier import cut_off_usd, superseded
from goent.evals.running.folder import Folder, counting, now
from goent.evals.running.needs import Needs
from goent.evals.running.opened import Opened, widths
from goent.evals.running.outcome import Outcome, outcome
from goent.evals.running.preparing import Prepared
from goent.evals.running.purse import Purse
from goent.evals.running.run import Run
from goent.evals.running.watching import Planned, Watcher
from goent.evals.workspaces import Keep


class Bounds(Value, frozen=True, kw_only=True):
    """What a run may take, and leave.

    Attempts at once for each target, US dollars, seconds for an attempt; which workspaces stay.
    """

    workers: int | None = None
    budget_usd: float | None = None
    timeout_s: float = TIMEOUT_S
    keep: Keep = "failure"


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """Who answers, where, who judges it, and who is told."""

    targets: Opened
    spaces: Spaces
    grading: Grading
    watcher: Watcher
    learn: Learn = nobody_learns


async def evaluate(prepared: Prepared, folder: Folder, means: Means, bounds: Bounds) -> Outcome:
    """Raises `NotKept`; cancelled, it keeps what has ended."""
    earlier = prepared.trials if folder.is_used else ()
    manifest = replace(prepared.manifest, planned=len(prepared.trials), spared=())
    folder.note(replace(manifest, ended=None, exit_code=None, stopped=""))
    for warning in prepared.warnings:
        means.watcher.warned(warning)
    at_once = widths(prepared.specs, prepared.trials, workers=bounds.workers)
    targets = tuple(dict.fromkeys(trial.target for trial in prepared.trials))
    means.watcher.planned(
        Planned(
            total=len(prepared.trials),
            kept=len(prepared.trials) - len(prepared.to_make),
            targets=targets,
            out=folder.path,
            to_make=Counter(trial.target for trial in prepared.to_make),
        )
    )
    purse = Purse(
        bounds.budget_usd,
        {suite.name: suite.budget_usd for suite in prepared.suites if suite.budget_usd is not None},
        {
            trial.key: limit
            for trial in prepared.trials
            if (limit := trial.trials.cost_limit_usd) is not None
        },
    )
    every = (*superseded(folder.path), *folder.rows().rows)
    paid = (row for row in every if not row.held_back_by)
    purse.pay(tuple(paid))  # also those that are made again were paid for
    for trial in earlier:
        purse.lose(trial.key, cut_off_usd(folder.path / trial.folder))
    run = Run(
        Conduct(
            targets=means.targets,
            specs=prepared.specs,
            spaces=means.spaces,
            grading=means.grading,
            folder=folder,
            watcher=means.watcher,
            learn=means.learn,
            timeout_s=bounds.timeout_s,
        ),
        purse,
        Needs(prepared.trials, prepared.rows),
        failing={suite.name for suite in prepared.suites if suite.fail_on_error},
        kept=prepared.rows,
    )
    await run.make(prepared.to_make, {name: at_once[name] for name in targets})
    rows = counting(folder.rows(), folder.path).rows
    came_to = outcome(prepared.trials, rows, stopped=run.stopped, enough=run.enough)
    there = {(row.key, row.trial) for row in rows}
    spared = (trial for trial in prepared.trials if trial.key in run.enough)
    folder.note(
        replace(
            manifest,
            ended=now(),
            exit_code=came_to.exit_code,
            stopped=came_to.stopped,
            spared=tuple(
                one for trial in spared if (one := (trial.key, trial.number)) not in there
            ),
        )
    )
    return came_to
