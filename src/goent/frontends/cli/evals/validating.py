"""`go-ent eval validate`: are suites and targets in order, before anything is spent on them?"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from goent.domain.errors import ConfigError
from goent.domain.types import Value
from goent.frontends.cli.evals.options import (
    Compat,
    Ids,
    Judge,
    Suites,
    Tags,
    TargetNames,
    TargetsFile,
    WithoutTags,
)
from goent.frontends.cli.options import Json
from goent.frontends.cli.screen import clean, complain, complain_of
from goent.frontends.cli.show import print_json, show_table

if TYPE_CHECKING:
    from goent.evals.running.plan import Trial, Wanted
    from goent.evals.suites import Suite

MISTAKEN = 2


class ValidSuite(Value, frozen=True, kw_only=True):
    """A suite without a mistake: what would be run of it; `trials` of all its cases by all targets."""

    name: str
    path: str
    cases: int
    trials: int
    graders: int
    targets: tuple[str, ...]


class Validated(Value, frozen=True, kw_only=True):
    """What was found; `problems` are told with file, line and key, and so is what may not be meant."""

    valid: bool
    suites: tuple[ValidSuite, ...] = ()
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def validate(  # noqa: PLR0913 (the options of a command)
    suites: Suites,
    *,
    target: TargetNames = None,
    targets: TargetsFile = None,
    ids: Ids = None,
    tags: Tags = None,
    exclude_tags: WithoutTags = None,
    judge: Judge = None,
    compat: Compat = None,
    json: Json = False,
) -> int:
    """Read suites and their targets, and tell what a run with these options would refuse. Nothing is run.

    Exits 2 if there is something.
    """
    from goent.evals.running.plan import Wanted  # noqa: PLC0415 (only here is YAML read)

    wanted = Wanted(
        targets=tuple(target or ()),
        ids=tuple(ids or ()),
        tags=tuple(tags or ()),
        without_tags=tuple(exclude_tags or ()),
        judge=judge or "",
        compat=compat is not None,
    )
    told = _validated(suites, targets, wanted)
    if json:
        print_json(told)
    else:
        _show(told)
    return 0 if told.valid else MISTAKEN


def _validated(paths: Sequence[Path], named: Path | None, wanted: "Wanted") -> Validated:
    from goent.evals.running.ready import ready  # noqa: PLC0415 (the same)
    from goent.project import find_project  # noqa: PLC0415 (the same)

    try:
        project = find_project(Path.cwd())
        prepared = ready(paths, os.environ, wanted, project=project, targets_file=named)
    except ConfigError as error:
        return Validated(valid=False, problems=tuple(str(error).splitlines()))
    trials: dict[str, list[Trial]] = {suite.name: [] for suite in prepared.suites}
    for trial in prepared.trials:
        trials[trial.case.suite].append(trial)
    found = (_told(suite, trials[suite.name]) for suite in prepared.suites)
    return Validated(valid=True, suites=tuple(found), warnings=prepared.warnings)


def _told(suite: "Suite", trials: "Sequence[Trial]") -> ValidSuite:
    cases = {trial.case.id: trial.case for trial in trials}
    return ValidSuite(
        name=suite.name,
        path=str(suite.path),
        cases=len(cases),
        trials=len(trials),
        graders=sum(len(case.every_grader) for case in cases.values()),
        targets=tuple(sorted({trial.target for trial in trials})),
    )


def _show(told: Validated) -> None:
    for warning in told.warnings:
        complain(clean(warning))
    if told.problems:
        complain_of([clean(problem) for problem in told.problems])
        return
    rows = (
        (
            suite.name,
            str(suite.cases),
            str(suite.trials),
            str(suite.graders),
            ", ".join(suite.targets) or "-",
            suite.path,
        )
        for suite in told.suites
    )
    show_table(("SUITE", "CASES", "TRIALS", "GRADERS", "TARGETS", "FILE"), rows)
