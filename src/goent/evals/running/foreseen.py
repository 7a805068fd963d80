"""What would a run do? Said before it does, so that nothing is spent on a plan that nobody meant."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from goent.domain.types import Value
from goent.evals.graders.judging import needs_a_judge, who_judges
from goent.evals.running.evaluate import Bounds
from goent.evals.running.judges import judges_of, usual_judge
from goent.evals.running.opened import widths
from goent.evals.running.plan import Trial, in_use
from goent.evals.running.preparing import Prepared
from goent.evals.suites import TargetSpec, WorkspaceSpec

UNCONFINED: Final = "cli"  # the kind of target that is a command of the user's own


class ForeseenTarget(Value, frozen=True, kw_only=True):
    """Who would be asked: `to_make` of its `trials` now, so many at once, and who stands in for it."""

    name: str
    kind: str
    trials: int
    to_make: int
    at_once: int
    fallbacks: tuple[str, ...] = ()


class ForeseenCase(Value, frozen=True, kw_only=True):
    """A case: by whom, how often by each, how it is graded and by which judges, and what its directory begins with.

    `turns` of a conversation; `after` are the cases that it waits for.
    """

    suite: str
    test_id: str
    targets: tuple[str, ...]
    trials: int
    to_make: int
    threshold: float
    graders: tuple[str, ...]
    judges: tuple[str, ...] = ()
    workspace: str = ""
    turns: int = 1
    after: tuple[str, ...] = ()


class Foreseen(Value, frozen=True, kw_only=True):
    """A run that was not begun. `out` is None where a new folder would be made; `budgets_usd` are those of suites.

    `unconfined` are those who would be asked by a command that no sandbox confines.
    """

    trials: int
    to_make: int
    targets: tuple[ForeseenTarget, ...]
    judges: Mapping[str, str]
    unconfined: tuple[str, ...]
    cases: tuple[ForeseenCase, ...]
    timeout_s: float
    budget_usd: float | None = None
    budgets_usd: Mapping[str, float] = {}
    out: str | None = None
    warnings: tuple[str, ...] = ()


def foresee(prepared: Prepared, bounds: Bounds, out: Path | None) -> Foreseen:
    """Nothing is started and nothing is made for it."""
    used = in_use(prepared.trials, prepared.specs)
    at_once = widths(used, prepared.trials, workers=bounds.workers)
    asked = dict.fromkeys(trial.target for trial in prepared.trials)
    judges = judges_of(prepared)
    return Foreseen(
        trials=len(prepared.trials),
        to_make=len(prepared.to_make),
        targets=tuple(_target(used[name], prepared, at_once[name]) for name in asked),
        judges={name: spec.kind for name, spec in judges.items()},
        unconfined=tuple(
            name for name, spec in {**used, **judges}.items() if spec.kind == UNCONFINED
        ),
        cases=_cases(prepared),
        timeout_s=bounds.timeout_s,
        budget_usd=bounds.budget_usd,
        budgets_usd={
            suite.name: suite.budget_usd
            for suite in prepared.suites
            if suite.budget_usd is not None
        },
        out=None if out is None else str(out),
        warnings=prepared.warnings,
    )


def _target(spec: TargetSpec, prepared: Prepared, at_once: int) -> ForeseenTarget:
    return ForeseenTarget(
        name=spec.name,
        kind=spec.kind,
        trials=sum(trial.target == spec.name for trial in prepared.trials),
        to_make=sum(trial.target == spec.name for trial in prepared.to_make),
        at_once=at_once,
        fallbacks=spec.fallbacks,
    )


def _cases(prepared: Prepared) -> tuple[ForeseenCase, ...]:
    trials: dict[tuple[str, str], list[Trial]] = {}
    for trial in prepared.trials:
        trials.setdefault((trial.case.suite, trial.case.id), []).append(trial)
    left = {(trial.key, trial.number) for trial in prepared.to_make}
    return tuple(
        _case(each, sum((trial.key, trial.number) in left for trial in each), prepared)
        for each in trials.values()
    )


def _case(trials: Sequence[Trial], to_make: int, prepared: Prepared) -> ForeseenCase:
    first = trials[0]
    case = first.case
    unnamed = trials if needs_a_judge(case) else ()
    usual = {usual_judge(prepared, trial) for trial in unnamed}
    return ForeseenCase(
        suite=case.suite,
        test_id=case.id,
        targets=tuple(dict.fromkeys(trial.target for trial in trials)),
        trials=first.trials.count,
        to_make=to_make,
        threshold=first.threshold,
        graders=tuple(grader.name for grader in case.every_grader),
        judges=tuple(sorted({*who_judges([case]), *filter(None, usual)})),
        workspace=_beginning(case.workspace),
        turns=len(case.conversation.turns) if case.conversation else 1,
        after=case.needs,
    )


def _beginning(workspace: WorkspaceSpec | None) -> str:
    if workspace is None:
        return ""
    if workspace.repository:
        return f"a clone of {workspace.repository}" + f" at {workspace.ref}" * bool(workspace.ref)
    return f"a copy of {workspace.template}" if workspace.template else "empty"
