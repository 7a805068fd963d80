"""The commands `go-ent eval validate` and `go-ent eval import`."""

import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from goent.cli.command_options import JsonOption
from goent.cli.display import print_reply, show_table
from goent.cli.eval_options import (
    CompatOption,
    IdsOption,
    JudgeOption,
    SuitesArgument,
    TagsOption,
    TargetsFileOption,
    TargetsOption,
    WithoutTagsOption,
)
from goent.cli.terminal import print_mistakes, print_notice, strip_controls
from goent.domain.errors import ConfigError
from goent.domain.types import Value
from goent.evals.files.suite_validation import ValidationResult
from goent.evals.files.suite_validation import validate as validate_suites
from goent.evals.files.target_reader import load_targets
from goent.evals.graders.grader_registry import needs_judge
from goent.evals.importers.suite_importer import import_files, write_import
from goent.evals.runner.preflight import prepare_checked_run
from goent.evals.runner.trial_plan import RunSelection, Trial, targets_of
from goent.evals.suites import Suite
from goent.system.project_folders import find_project

MISTAKES_FOUND = 2


class ValidSuite(Value, frozen=True, kw_only=True):
    """A suite without mistakes, and how much of it would be run."""

    name: str
    path: str
    cases: int
    trials: int
    graders: int
    targets: tuple[str, ...]


class ValidationReport(Value, frozen=True, kw_only=True):
    """Mistakes and doubts, each with file, line and key."""

    valid: bool
    suites: tuple[ValidSuite, ...] = ()
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def validate(  # noqa: PLR0913 (the options of a command)
    suites: SuitesArgument,
    *,
    target: TargetsOption = None,
    targets: TargetsFileOption = None,
    ids: IdsOption = None,
    tags: TagsOption = None,
    exclude_tags: WithoutTagsOption = None,
    judge: JudgeOption = None,
    compat: CompatOption = None,
    json: JsonOption = False,
) -> int:
    """Check suites and targets for everything a run with these options would refuse. Runs nothing.

    Exits 2 if there are mistakes.
    """
    wanted = RunSelection(
        targets=tuple(target or ()),
        ids=tuple(ids or ()),
        tags=tuple(tags or ()),
        without_tags=tuple(exclude_tags or ()),
        judge=judge or "",
        compat=compat is not None,
    )
    told = _validate_suites(suites, targets, wanted)
    print_reply(told, _show_validation, json=json)
    return 0 if told.valid else MISTAKES_FOUND


def _validate_suites(
    paths: Sequence[Path], named: Path | None, wanted: RunSelection
) -> ValidationReport:

    try:
        project = find_project(Path.cwd())
        prepared = prepare_checked_run(
            paths, os.environ, wanted, project=project, targets_file=named
        )
    except ConfigError as error:
        return ValidationReport(valid=False, problems=tuple(str(error).splitlines()))
    trials: dict[str, list[Trial]] = {suite.name: [] for suite in prepared.suites}
    for trial in prepared.trials:
        trials[trial.case.suite].append(trial)
    found = (_valid_suite(suite, trials[suite.name]) for suite in prepared.suites)
    return ValidationReport(valid=True, suites=tuple(found), warnings=prepared.warnings)


def _valid_suite(suite: Suite, trials: Sequence[Trial]) -> ValidSuite:
    cases = {trial.case.id: trial.case for trial in trials}
    return ValidSuite(
        name=suite.name,
        path=str(suite.path),
        cases=len(cases),
        trials=len(trials),
        graders=sum(len(case.all_graders) for case in cases.values()),
        targets=tuple(sorted({trial.target for trial in trials})),
    )


def _show_validation(told: ValidationReport) -> None:
    for warning in told.warnings:
        print_notice(strip_controls(warning))
    if told.problems:
        print_mistakes([strip_controls(problem) for problem in told.problems])
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


FormArgument = Annotated[
    Literal["agentv", "promptfoo", "yaml", "jsonl"],
    typer.Argument(
        metavar="FORM",
        help="The source format, agentv or promptfoo; or the target format: yaml (from a data set), "
        "jsonl (from a suite).",
        show_default=False,
    ),
]
FilesArgument = Annotated[list[Path], typer.Argument(metavar="FILE...", show_default=False)]
OutputFolderOption = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        metavar="FOLDER",
        help="Where to write; default: the folder of the first file.",
    ),
]
ForceOption = Annotated[bool, typer.Option("--force", help="Overwrite existing files.")]


class ImportReport(Value, frozen=True, kw_only=True):
    """Written files, what could not be converted, and what needs fixing by hand (lost checks too)."""

    written: tuple[str, ...]
    notes: tuple[str, ...] = ()
    mistakes: tuple[str, ...] = ()


def import_suites(
    form: FormArgument,
    files: FilesArgument,
    *,
    out: OutputFolderOption = None,
    force: ForceOption = False,
    json: JsonOption = False,
) -> int:
    """Convert suites and targets from AgentV and promptfoo, or data sets to suites and back.

    Reports what was not converted. Exits 2 if something must be fixed by hand.
    """
    folder = out or files[0].parent
    told = import_files(form, files, folder)
    written = write_import(told, folder, force=force)
    suites = [path for path in written if path.name.endswith((".eval.yaml", ".jsonl"))]
    mistakes = (*told.lost_checks, *_find_mistakes(suites, written))
    brought = ImportReport(written=tuple(map(str, written)), notes=told.notes, mistakes=mistakes)
    print_reply(brought, _show_import, json=json)
    if suites and not json:
        print_notice(
            f"{'once that is fixed' if mistakes else 'next'}: {strip_controls(_next_command(suites))}"
        )
    return MISTAKES_FOUND if brought.mistakes else 0


def _find_mistakes(suites: Sequence[Path], written: Sequence[Path]) -> tuple[str, ...]:

    if suites:
        return validate_suites(suites, os.environ).mistakes
    for path in written:
        load_targets(path.parent, os.environ, named=path)
    return ()


def _show_import(brought: ImportReport) -> None:
    for note in brought.notes:
        print_notice(strip_controls(note))
    for mistake in brought.mistakes:
        print_notice(strip_controls(f"fix by hand: {mistake}"))
    for path in brought.written:
        typer.echo(strip_controls(path))


def _next_command(suites: Sequence[Path]) -> str:
    """The command that runs the suites, with the options it needs."""
    found = validate_suites(suites, os.environ)
    run = ["go-ent", "eval", "run", *map(str, suites), *_needed_options(found)]
    first = "" if found.targets else "write a target to .goent/targets.yaml, then "
    return first + shlex.join(run)


def _needed_options(found: ValidationResult) -> Iterator[str]:

    cases = [case for suite in found.suites for case in suite.cases]
    asked: set[str] = set()
    try:
        for case in cases:
            asked.update(targets_of(case, found.targets, RunSelection()))
    except ConfigError:
        yield from ("--target", "NAME")
    if any(map(needs_judge, cases)):
        judged = bool(asked) and all(found.targets[name].grader_target for name in asked)
        yield from () if judged else ("--judge", "NAME")
