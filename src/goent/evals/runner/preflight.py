"""Checks targets and judges before a run, and describes the run without starting it."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from goent.config.provider_settings import SHORT_NAMES, known_backend
from goent.config.settings_loader import load_settings
from goent.domain.errors import ConfigError
from goent.domain.types import Value
from goent.evals.graders.grader_registry import judge_names, needs_judge
from goent.evals.runner.eval_run import EvalLimits
from goent.evals.runner.open_targets import parallel_limits
from goent.evals.runner.run_preparation import PreparedRun, prepare_run
from goent.evals.runner.trial_plan import RunSelection, Trial, used_targets
from goent.evals.suites import TargetSpec, WorkspaceSpec
from goent.evals.targets.opencode_target_settings import port_conflicts
from goent.evals.targets.target_registry import TARGET_KINDS, target_kind


def find_judges(prepared: PreparedRun) -> dict[str, TargetSpec]:
    """All possible judges: targets, and models as `provider/model`.

    Raises one `ConfigError` for unknown judges, and for cases that need a judge and have none.
    """
    used = {trial.target for trial in prepared.trials}
    named = {
        *judge_names(trial.case for trial in prepared.trials),
        *(prepared.specs[name].grader_target for name in used if name in prepared.specs),
        prepared.manifest.wanted.judge,
    }
    judges = {name: _judge(name, prepared.specs) for name in sorted(filter(None, named))}
    mistakes = {
        _missing_judge_text(trial): None
        for trial in prepared.trials
        if needs_judge(trial.case) and not default_judge(prepared, trial)
    }
    mistakes |= {
        _unknown_judge_text(name, prepared.specs): None for name in judges if judges[name] is None
    }
    if mistakes:
        raise ConfigError("\n".join(mistakes))
    return {name: judge for name, judge in judges.items() if judge}


def default_judge(prepared: PreparedRun, trial: Trial) -> str | None:
    """The judge where the grader names none."""
    spec = prepared.specs.get(trial.target)
    return (spec and spec.grader_target) or prepared.manifest.wanted.judge or None


def _missing_judge_text(trial: Trial) -> str:
    place = trial.case.place
    return (
        f"{place.file}:{place.line or 1}: case {trial.case.id!r} needs a judge; name one by --judge, "
        "as `target` or `model` of the grader, or as `grader_target` of the target"
    )


def _unknown_judge_text(name: str, specs: Mapping[str, TargetSpec]) -> str:
    return (
        f"unknown judge {name!r}; name a target ({', '.join(sorted(specs)) or 'there are none'}) "
        "or a model as provider/model"
    )


def _judge(name: str, specs: Mapping[str, TargetSpec]) -> TargetSpec | None:
    if name in specs:
        return specs[name]
    provider, slash, model = name.partition("/")
    if not slash:
        return None
    settings = {"subprovider": provider, "model": model, "method": "api"}
    return TargetSpec(name=name, kind="goent", settings=settings)


def prepare_checked_run(
    paths: Sequence[Path],
    environ: Mapping[str, str],
    wanted: RunSelection,
    *,
    project: Path,
    targets_file: Path | None = None,
) -> PreparedRun:
    """As `prepare_run`, with targets and judges checked. Raises `ConfigError`.

    The settings of `project` apply to the run.
    """
    prepared = prepare_run(paths, environ, wanted, targets_file=targets_file)
    mistakes: list[str] = []
    needed = used_targets(prepared.trials, prepared.specs)
    with _collect_mistakes(mistakes):
        judges = find_judges(prepared)
        needed |= judges
        check_judges(judges, prepared.specs, project, environ)
    for spec in needed.values():
        with _collect_mistakes(mistakes):
            target_kind(spec).check(spec)
    mistakes += port_conflicts(needed.values())
    kinds = [TARGET_KINDS[spec.kind] for spec in needed.values() if spec.kind in TARGET_KINDS]
    if any(kind.reads_settings for kind in kinds):
        with _collect_mistakes(mistakes):
            load_settings(project, environ)
    if mistakes:
        raise ConfigError("\n".join(mistakes))
    return prepared


def check_judges(
    judges: Mapping[str, TargetSpec],
    targets: Mapping[str, TargetSpec],
    project: Path,
    environ: Mapping[str, str],
) -> None:
    """Raises `ConfigError` for judges that are neither targets nor models of a known provider.

    The daemon may have keys that are missing here, so only unknown names are refused.
    """
    models = [name for name in judges if name not in targets]
    if not models:
        return
    settings = load_settings(project, environ)
    names = {provider.name for provider in settings.providers}
    known = names | settings.backends.keys() | settings.agents.keys()
    strange = {
        name: provider
        for name in models
        if (provider := name.partition("/")[0]) not in known
        and provider not in SHORT_NAMES
        and not known_backend(provider)
    }
    there = f"there are: {', '.join(sorted(names))}" if names else "see `go-ent providers`"
    if strange:
        raise ConfigError(
            "\n".join(
                f"judge {name!r}: unknown provider {provider!r}; {there}"
                for name, provider in strange.items()
            )
        )


@contextmanager
def _collect_mistakes(mistakes: list[str]) -> Generator[None]:
    try:
        yield
    except ConfigError as error:
        mistakes.append(str(error))


class DryRunTarget(Value, frozen=True, kw_only=True):
    """A target: `to_make` of its `trials` would be made now, `at_once` in parallel."""

    name: str
    kind: str
    trials: int
    to_make: int
    at_once: int
    fallbacks: tuple[str, ...] = ()


class DryRunCase(Value, frozen=True, kw_only=True):
    """A case, its targets, trials, graders, judges and workspace; `after` are the cases it depends on."""

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


class DryRun(Value, frozen=True, kw_only=True):
    """A run that was not started. `out` is None for a new folder; `budgets_usd` are those of suites.

    `unconfined` are targets that run outside the sandbox.
    """

    trials: int
    to_make: int
    targets: tuple[DryRunTarget, ...]
    judges: Mapping[str, str]
    unconfined: tuple[str, ...]
    cases: tuple[DryRunCase, ...]
    timeout_s: float
    budget_usd: float | None = None
    budgets_usd: Mapping[str, float] = {}
    out: str | None = None
    warnings: tuple[str, ...] = ()


def describe_run(prepared: PreparedRun, bounds: EvalLimits, out: Path | None) -> DryRun:
    used = used_targets(prepared.trials, prepared.specs)
    at_once = parallel_limits(used, prepared.trials, workers=bounds.workers)
    asked = dict.fromkeys(trial.target for trial in prepared.trials)
    judges = find_judges(prepared)
    return DryRun(
        trials=len(prepared.trials),
        to_make=len(prepared.to_make),
        targets=tuple(_dry_run_target(used[name], prepared, at_once[name]) for name in asked),
        judges={name: spec.kind for name, spec in judges.items()},
        unconfined=tuple(
            name for name, spec in {**used, **judges}.items() if not target_kind(spec).is_confined
        ),
        cases=_dry_run_cases(prepared),
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


def _dry_run_target(spec: TargetSpec, prepared: PreparedRun, at_once: int) -> DryRunTarget:
    return DryRunTarget(
        name=spec.name,
        kind=spec.kind,
        trials=sum(trial.target == spec.name for trial in prepared.trials),
        to_make=sum(trial.target == spec.name for trial in prepared.to_make),
        at_once=at_once,
        fallbacks=spec.fallbacks,
    )


def _dry_run_cases(prepared: PreparedRun) -> tuple[DryRunCase, ...]:
    trials: dict[tuple[str, str], list[Trial]] = {}
    for trial in prepared.trials:
        trials.setdefault((trial.case.suite, trial.case.id), []).append(trial)
    left = {(trial.key, trial.number) for trial in prepared.to_make}
    return tuple(
        _dry_run_case(each, sum((trial.key, trial.number) in left for trial in each), prepared)
        for each in trials.values()
    )


def _dry_run_case(trials: Sequence[Trial], to_make: int, prepared: PreparedRun) -> DryRunCase:
    first = trials[0]
    case = first.case
    unnamed = trials if needs_judge(case) else ()
    usual = {default_judge(prepared, trial) for trial in unnamed}
    return DryRunCase(
        suite=case.suite,
        test_id=case.id,
        targets=tuple(dict.fromkeys(trial.target for trial in trials)),
        trials=first.trials.count,
        to_make=to_make,
        threshold=first.threshold,
        graders=tuple(grader.name for grader in case.all_graders),
        judges=tuple(sorted({*judge_names([case]), *filter(None, usual)})),
        workspace=_workspace_text(case.workspace),
        turns=len(case.conversation.turns) if case.conversation else 1,
        after=case.needs,
    )


def _workspace_text(workspace: WorkspaceSpec | None) -> str:
    if workspace is None:
        return ""
    if workspace.repository:
        return f"a clone of {workspace.repository}" + f" at {workspace.ref}" * bool(workspace.ref)
    return f"a copy of {workspace.template}" if workspace.template else "empty"
