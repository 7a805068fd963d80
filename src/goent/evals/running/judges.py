"""Who may be asked to judge in a run? Whoever graders, targets or the command name."""

from collections.abc import Mapping

from goent.domain.errors import ConfigError
from goent.evals.graders.judging import needs_a_judge, who_judges
from goent.evals.running.plan import Trial
from goent.evals.running.preparing import Prepared
from goent.evals.suites import TargetSpec


def judges_of(prepared: Prepared) -> dict[str, TargetSpec]:
    """All who may be asked to judge: targets, and models that are called by provider and name.

    Raises one `ConfigError` for those who are not known, and for cases that need one where nobody is named.
    """
    used = {trial.target for trial in prepared.trials}
    named = {
        *who_judges(trial.case for trial in prepared.trials),
        *(prepared.specs[name].grader_target for name in used if name in prepared.specs),
        prepared.manifest.wanted.judge,
    }
    judges = {name: _judge(name, prepared.specs) for name in sorted(filter(None, named))}
    mistakes = {
        _missing(trial): None
        for trial in prepared.trials
        if needs_a_judge(trial.case) and not usual_judge(prepared, trial)
    }
    mistakes |= {_unknown(name, prepared.specs): None for name in judges if judges[name] is None}
    if mistakes:
        raise ConfigError("\n".join(mistakes))
    return {name: judge for name, judge in judges.items() if judge}


def usual_judge(prepared: Prepared, trial: Trial) -> str | None:
    """Who judges where the grader names nobody."""
    spec = prepared.specs.get(trial.target)
    return (spec and spec.grader_target) or prepared.manifest.wanted.judge or None


def _missing(trial: Trial) -> str:
    place = trial.case.place
    return (
        f"{place.file}:{place.line or 1}: case {trial.case.id!r} needs a judge; name one by --judge, "
        "as `target` or `model` of the grader, or as `grader_target` of the target"
    )


def _unknown(name: str, specs: Mapping[str, TargetSpec]) -> str:
    return (
        f"no judge is called {name!r}; name a target ({', '.join(sorted(specs)) or 'there are none'}) "
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
