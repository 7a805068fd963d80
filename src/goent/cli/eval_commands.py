"""The `go-ent eval` group, with its commands validate, import, compare, report and list."""

import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from goent.cli.command_options import (
    CompatOption,
    IdsOption,
    JsonOption,
    JudgeOption,
    NewestRunArgument,
    SuitesArgument,
    TagsOption,
    TargetsFileOption,
    TargetsOption,
    WithoutTagsOption,
    manifest_of,
    newest_run,
    rows_of,
    run_folder_of,
)
from goent.cli.display import print_json, show_rows, show_table
from goent.cli.eval_run_commands import grade, run
from goent.cli.terminal import print_mistakes, print_notice, print_text, strip_controls
from goent.domain.errors import ConfigError, GoentError, RequestError
from goent.domain.types import Value
from goent.system.project_folders import find_project

if TYPE_CHECKING:
    from goent.evals.eval_results import Row, Rows
    from goent.evals.files.suite_validation import ValidationResult
    from goent.evals.reports.comparison import RunComparison
    from goent.evals.reports.html_cases import CaseInput
    from goent.evals.reports.run_summary import CostSummary
    from goent.evals.runner.run_folder import RunManifest
    from goent.evals.runner.trial_plan import RunSelection, Trial
    from goent.evals.suites import Suite


MISTAKES_FOUND = 2


class ValidSuite(Value, frozen=True, kw_only=True):
    """A suite without a mistake: what would be run of it; `trials` of all its cases by all targets."""

    name: str
    path: str
    cases: int
    trials: int
    graders: int
    targets: tuple[str, ...]


class ValidationReport(Value, frozen=True, kw_only=True):
    """What was found; `problems` are told with file, line and key, and so is what may not be meant."""

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
    """Read suites and their targets, and tell what a run with these options would refuse. Nothing is run.

    Exits 2 if there is something.
    """
    from goent.evals.runner.trial_plan import RunSelection  # noqa: PLC0415 (only here is YAML read)

    wanted = RunSelection(
        targets=tuple(target or ()),
        ids=tuple(ids or ()),
        tags=tuple(tags or ()),
        without_tags=tuple(exclude_tags or ()),
        judge=judge or "",
        compat=compat is not None,
    )
    told = _validate_suites(suites, targets, wanted)
    if json:
        print_json(told)
    else:
        _show_validation(told)
    return 0 if told.valid else MISTAKES_FOUND


def _validate_suites(
    paths: Sequence[Path], named: Path | None, wanted: "RunSelection"
) -> ValidationReport:
    from goent.evals.runner.preflight import prepare_checked_run  # noqa: PLC0415 (the same)
    from goent.system.project_folders import find_project  # noqa: PLC0415 (the same)

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


def _valid_suite(suite: "Suite", trials: "Sequence[Trial]") -> ValidSuite:
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
        help="What the files are: agentv or promptfoo; or what they become: yaml (of a data set), "
        "jsonl (of a suite).",
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
ForceOption = Annotated[bool, typer.Option("--force", help="Overwrite files that are there.")]


class ImportReport(Value, frozen=True, kw_only=True):
    """What was written, what could not be carried over, and what has to be mended by hand: lost checks too."""

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
    """Make suites and targets of go-ent's from those of AgentV and promptfoo; or turn data sets into suites and back.

    Tells what was not carried over. Exits 2 if something is left to be mended by hand.
    """
    from goent.evals.importers.suite_importer import import_files, write_import  # noqa: PLC0415 (only here is it needed)

    folder = out or files[0].parent
    told = import_files(form, files, folder)
    written = write_import(told, folder, force=force)
    suites = [path for path in written if path.name.endswith((".eval.yaml", ".jsonl"))]
    mistakes = (*told.lost_checks, *_find_mistakes(suites, written))
    brought = ImportReport(written=tuple(map(str, written)), notes=told.notes, mistakes=mistakes)
    if json:
        print_json(brought)
    else:
        _show_import(brought)
    if suites and not json:
        print_notice(
            f"{'when that is mended' if mistakes else 'next'}: {strip_controls(_next_command(suites))}"
        )
    return MISTAKES_FOUND if brought.mistakes else 0


def _find_mistakes(suites: Sequence[Path], written: Sequence[Path]) -> tuple[str, ...]:
    from goent.evals.files.suite_validation import validate  # noqa: PLC0415 (the same)
    from goent.evals.files.target_reader import load_targets  # noqa: PLC0415 (the same)

    if suites:
        return validate(suites, os.environ).mistakes
    for path in written:
        load_targets(path.parent, os.environ, named=path)
    return ()


def _show_import(brought: ImportReport) -> None:
    for note in brought.notes:
        print_notice(strip_controls(note))
    for mistake in brought.mistakes:
        print_notice(strip_controls(f"to be mended: {mistake}"))
    for path in brought.written:
        typer.echo(strip_controls(path))


def _next_command(suites: Sequence[Path]) -> str:
    """The command that runs them, with what it has to be told besides; a target must be there first."""
    from goent.evals.files.suite_validation import validate  # noqa: PLC0415 (the same)

    found = validate(suites, os.environ)
    run = ["go-ent", "eval", "run", *map(str, suites), *_needed_options(found)]
    first = "" if found.targets else "write a target to .goent/targets.yaml, then "
    return first + shlex.join(run)


def _needed_options(found: "ValidationResult") -> Iterator[str]:
    from goent.evals.graders.grader_registry import needs_judge  # noqa: PLC0415 (the same)
    from goent.evals.runner.trial_plan import RunSelection, targets_of  # noqa: PLC0415 (the same)

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


WORSE_EXIT = 1
MAX_CHANGED = 10
CONCLUSION_STYLES = {"better": "bold green", "worse": "bold red", "no difference": "bold"}


class ComparedRun(Value, frozen=True, kw_only=True):
    """One run against the first."""

    out: str
    words: str
    comparison: "RunComparison"


class ComparedRuns(Value, frozen=True, kw_only=True):
    """All of them against `before`."""

    before: str
    after: tuple[ComparedRun, ...]


def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="OUT...",
            help="Folders that runs have written. The first is what the others are compared with.",
            show_default=False,
        ),
    ],
    *,
    targets: Annotated[
        tuple[str, str] | None,
        typer.Option(
            metavar="BEFORE AFTER",
            help="Compare these two targets, of the same run or of two.",
            show_default=False,
        ),
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print it for a pull request.")
    ] = False,
    json: JsonOption = False,
) -> int:
    """Tell whether a run is better than an earlier one, case by case, beyond what chance explains.

    Exits 1 if one is worse.
    """
    before, *after = runs
    if not after and targets:
        after = [before]
    if not after:
        raise RequestError(
            f"one run alone compares with nothing: name another folder after {str(before)!r}, "
            "or two targets of this one with --targets"
        )
    told = _compare_runs(before, after, targets)
    if json:
        print_json(told)
    elif markdown:
        _print_comparison_markdown(told)
    else:
        for run in told.after:
            _show_comparison(told.before, run, targets)
    return WORSE_EXIT if any(run.comparison.conclusion == "worse" for run in told.after) else 0


def _compare_runs(
    before: Path, after: Sequence[Path], targets: tuple[str, str] | None
) -> ComparedRuns:
    first = rows_of(before).rows
    compared: list[ComparedRun] = []
    for out in after:
        second = rows_of(out).rows
        if targets:
            _check_known(targets[0], first, before)
            _check_known(targets[1], second, out)
        found = _compare_rows(first, second, targets)
        if found.delta is None:
            raise RequestError(
                f"{run_folder_of(before)} and {run_folder_of(out)}: {_nothing_to_compare(found)}"
            )
        compared.append(
            ComparedRun(out=str(run_folder_of(out)), words=found.text, comparison=found)
        )
    return ComparedRuns(before=str(run_folder_of(before)), after=tuple(compared))


def _check_known(target: str, rows: "Sequence[Row]", out: Path) -> None:
    known = sorted({row.target for row in rows})
    if target not in known:
        there = f"there are {', '.join(map(repr, known))}" if known else "there are none"
        raise RequestError(f"no target {target!r} in {run_folder_of(out)}; {there}")


def _compare_rows(
    first: "Sequence[Row]", second: "Sequence[Row]", targets: tuple[str, str] | None
) -> "RunComparison":
    from goent.evals.reports import comparison  # noqa: PLC0415 (only where runs are compared)

    return comparison.compare_runs(first, second, targets=targets)


def _nothing_to_compare(found: "RunComparison") -> str:
    from goent.evals.reports.report_text import pluralize  # noqa: PLC0415 (only where runs are compared)

    if unscored := found.unpaired.unscored:
        return (
            f"nothing to compare: of {pluralize(unscored, 'case')} that both have, none could be scored in "
            "both; `go-ent eval report OUT` tells why"
        )
    return (
        "nothing to compare: they have no case of the same target in common; "
        "--targets BEFORE AFTER compares different ones"
    )


def _print_comparison_markdown(told: ComparedRuns) -> None:
    from goent.evals.reports.report_formats import comparison_markdown, markdown_code  # noqa: PLC0415 (only here)

    for compared in told.after:
        if len(told.after) > 1:
            print(f"# {markdown_code(told.before)} → {markdown_code(compared.out)}\n")
        print(comparison_markdown(compared.comparison))


def _comparison_heading(before: str, after: str, targets: tuple[str, str] | None) -> str:
    if targets is None:
        return f"{before} -> {after}"
    first, second = targets
    if before == after:
        return f"{before}: {first} -> {second}"
    return f"{before}: {first} -> {after}: {second}"


def _show_comparison(before: str, run: ComparedRun, targets: tuple[str, str] | None) -> None:
    found = run.comparison
    print_text(_comparison_heading(before, run.out, targets), "dim")
    print_text(run.words, CONCLUSION_STYLES[found.conclusion])
    interval = found.interval
    spread = f" (95 %: {interval.low:+.3f} to {interval.high:+.3f})" if interval else ""
    show_rows(
        (
            ("mean change", f"{found.delta or 0.0:+.3f}{spread}, p = {found.p_score:.2g}"),
            ("cases", f"{found.wins} won, {found.losses} lost, {found.ties} tied"),
            ("passing", f"{found.gained} now pass, {found.lost} no longer, p = {found.p_pass:.2g}"),
            ("left out", found.unpaired.text),
        )
    )
    if found.changed:
        show_table(
            ("CASE", "TARGET", "BEFORE", "AFTER", "CHANGE"),
            (
                (
                    strip_controls(f"{p.key.suite} / {p.key.test_id}"),
                    p.key.target,
                    f"{p.before:.2f}",
                    f"{p.after:.2f}",
                    f"{p.delta:+.2f}",
                )
                for p in found.changed[:MAX_CHANGED]
            ),
        )
    if (more := len(found.changed) - MAX_CHANGED) > 0:
        print_text(f"… and {more} more; --json has them all", "dim")


STDOUT_PATH = Path("-")


def report(
    out: NewestRunArgument = None,
    *,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a page that needs nothing else; - is stdout."),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(metavar="OUT", help="An earlier run that the page compares this one with."),
    ] = None,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write JUnit's XML there; - is stdout.")
    ] = None,
    markdown: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write it for a pull request; - is stdout."),
    ] = None,
    json: JsonOption = False,
) -> int:
    """Tell what a run has shown, or write it to files. Nothing is run again."""
    from goent.cli.eval_display import print_summary_json, show_run_summary  # noqa: PLC0415 (only here)

    out = out or newest_run()
    folder = run_folder_of(out)
    read = rows_of(out)
    if [html, junit, markdown].count(STDOUT_PATH) + json > 1:
        raise RequestError("stdout takes one report: write the others to files")
    if baseline and not (html or markdown):
        raise RequestError(
            "--baseline is shown by --html and --markdown: add one of them, or use "
            f"`go-ent eval compare {run_folder_of(baseline)} {folder}`"
        )
    if html:
        _write_report(html, _html_report(read, folder, baseline).encode())
    if junit:
        _write_report(junit, _junit_report(read, folder))
    if markdown:
        _write_report(markdown, _markdown_report(read, folder, baseline).encode())
    if json:
        print_summary_json(read, folder)
    elif not (html or junit or markdown):
        show_run_summary(read, folder)
    return 0


def _junit_report(read: "Rows", folder: Path) -> bytes:
    from goent.evals.reports.report_formats import junit_xml  # noqa: PLC0415 (only here)
    from goent.evals.reports.trial_evidence import failure_reason  # noqa: PLC0415 (only here)
    from goent.evals.runner.run_folder import run_completeness  # noqa: PLC0415 (only here)

    there = run_completeness(read, folder)
    return junit_xml(
        read.rows,
        name=folder.resolve().name,
        reason=lambda row: failure_reason(row, folder),
        unrun=there.missing_text if there.unrun else "",
    )


def _markdown_report(read: "Rows", folder: Path, baseline: Path | None) -> str:
    from goent.evals.reports.comparison import compare_runs  # noqa: PLC0415 (only here)
    from goent.evals.reports.report_formats import comparison_markdown, summary_markdown  # noqa: PLC0415 (only here)
    from goent.evals.reports.run_summary import summarize_targets  # noqa: PLC0415 (only here)
    from goent.evals.runner.run_folder import run_completeness  # noqa: PLC0415 (only here)

    told = summary_markdown(summarize_targets(read.rows), run_completeness(read, folder).notes)
    if baseline is None:
        return told
    return f"{told}\n{comparison_markdown(compare_runs(rows_of(baseline).rows, read.rows))}"


def _html_report(read: "Rows", folder: Path, baseline: Path | None) -> str:
    from goent.cli.eval_display import run_result_of  # noqa: PLC0415 (only here)
    from goent.evals.reports.comparison import compare_runs  # noqa: PLC0415 (only here)
    from goent.evals.reports.html_report import BaselineComparison, HtmlReport, html_report  # noqa: PLC0415 (only here)
    from goent.evals.runner.run_folder import run_completeness  # noqa: PLC0415 (only here)

    rows = read.rows

    before = None
    if baseline is not None:
        name = run_folder_of(baseline).resolve().name
        before = BaselineComparison(
            name=name, comparison=compare_runs(rows_of(baseline).rows, rows)
        )
    manifest = manifest_of(folder)
    suites = sorted({row.suite for row in rows if row.suite})
    return html_report(
        rows,
        HtmlReport(
            name=", ".join(suites[:3]) + (", …" if suites[3:] else "") or folder.resolve().name,
            out=folder,
            graded_from=Path(manifest.graded_from) if manifest and manifest.graded_from else None,
            result=run_result_of(rows, folder),
            notes=run_completeness(read, folder).notes,
            began=manifest.began.replace("T", " ")[:16] if manifest else "",
            asked=_case_inputs(manifest) if manifest else {},
            baseline=before,
        ),
    )


def _case_inputs(manifest: "RunManifest") -> "Mapping[tuple[str, str], CaseInput]":
    """What the cases ask for, if their suites can still be read."""
    from goent.evals.files.suite_reader import load_suites  # noqa: PLC0415 (only here is YAML read)
    from goent.evals.reports.html_cases import CaseInput  # noqa: PLC0415 (only here)

    try:
        paths = [Path(path) for path in manifest.suites]
        suites = load_suites(paths, os.environ, compat=manifest.wanted.compat)
    except (GoentError, OSError) as error:
        print_notice(f"the page has no inputs: the suites cannot be read any more: {error}")
        return {}
    return {
        (case.suite, case.id): CaseInput(
            input="\n\n".join(
                f"{said.role}: {said.text}" if said.role != "user" else said.text
                for said in case.all_input
            ),
            criteria=case.criteria,
        )
        for suite in suites
        for case in suite.cases
    }


def _write_report(path: Path, content: bytes) -> None:
    if path == STDOUT_PATH:
        sys.stdout.buffer.write(content)
        sys.stdout.flush()
        return
    if not path.parent.exists():
        raise RequestError(
            f"the report cannot be written to {str(path)!r}: there is no folder {str(path.parent)!r}; "
            "make it, or name another file"
        )
    try:
        path.write_bytes(content)
    except OSError as error:
        raise RequestError(
            f"the report cannot be written to {str(path)!r}: {error.strerror}; name another file"
        ) from error
    print_notice(f"written: {path}")


MINUTE_WIDTH: Final = 16  # characters of a time


class ListedRun(Value, frozen=True, kw_only=True):
    """A run of this project. `exit_code` is None while it goes on, and after a kill; `began` is in UTC."""

    path: str
    began: str
    suites: tuple[str, ...]
    targets: tuple[str, ...]
    passed: int
    trials: int
    spent: "CostSummary"
    exit_code: int | None = None


class ListedRuns(Value, frozen=True, kw_only=True):
    """All of them, newest first."""

    runs: tuple[ListedRun, ...]


def list_runs(*, json: JsonOption = False) -> int:
    """List the runs of this project that were kept in .goent/evals, newest first."""
    from goent.evals.runner.run_locations import RUNS_FOLDER, stored_runs  # noqa: PLC0415 (only here)

    runs = tuple(_listed_run(folder) for folder in stored_runs(find_project(Path.cwd())))
    if json:
        print_json(ListedRuns(runs=runs))
    elif runs:
        names = ("BEGAN (UTC)", "SUITES", "TARGETS", "PASSED", "COST", "EXIT", "PATH")
        show_table(names, map(_run_row, runs))
    else:
        print_notice(f"no run is kept in {RUNS_FOLDER}: `go-ent eval run SUITE` makes one")
    return 0


def _listed_run(folder: Path) -> ListedRun:
    from goent.evals.eval_results import Rows, read_rows  # noqa: PLC0415 (only here)
    from goent.evals.reports.run_summary import run_totals  # noqa: PLC0415 (only here)
    from goent.evals.runner.run_folder import INDEX_FILE, current_rows  # noqa: PLC0415 (only here)

    index = folder / INDEX_FILE
    rows = current_rows(read_rows(index) if index.exists() else Rows(), folder).rows
    manifest = manifest_of(folder)
    totals = run_totals(rows)
    return ListedRun(
        path=str(folder),
        began=manifest.began if manifest else "",
        suites=tuple(Path(suite).name for suite in manifest.suites) if manifest else (),
        targets=tuple(sorted({row.target for row in rows})),
        passed=totals.passed,
        trials=totals.trials,
        spent=totals.spent,
        exit_code=manifest.exit_code if manifest else None,
    )


def _run_row(run: ListedRun) -> tuple[str, ...]:
    from goent.cli.eval_display import cost_summary_text  # noqa: PLC0415 (only here)

    return (
        run.began.replace("T", " ")[:MINUTE_WIDTH] or "-",
        strip_controls(", ".join(run.suites)) or "-",
        strip_controls(", ".join(run.targets)) or "-",
        f"{run.passed}/{run.trials}",
        cost_summary_text(run.spent) if run.trials else "-",
        "-" if run.exit_code is None else str(run.exit_code),
        _path_from_here(Path(run.path)),
    )


def _path_from_here(path: Path) -> str:
    """As it can be pasted here."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


eval_group = typer.Typer(
    no_args_is_help=True,
    help="Try workers on suites of cases, grade what they did, and tell whether it got better."
    "\n\nExits 0 if all is well, 1 if quality is not, 2 if a file is wrong, 3 if attempts failed.",
)
for command in (run, grade, validate, compare, report):
    eval_group.command()(command)
eval_group.command("list")(list_runs)
eval_group.command("import")(import_suites)
