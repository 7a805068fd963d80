"""The commands `go-ent eval compare`, `go-ent eval report` and `go-ent eval list`."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from goent.cli.command_options import JsonOption
from goent.cli.display import print_json, show_rows, show_table
from goent.cli.eval_display import (
    cost_summary_text,
    print_summary_json,
    run_result_of,
    show_run_summary,
)
from goent.cli.eval_options import (
    NewestRunArgument,
    manifest_of,
    newest_run,
    rows_of,
    run_folder_of,
)
from goent.cli.labels import relative_path
from goent.cli.terminal import print_notice, print_text, strip_controls
from goent.domain.errors import GoentError, RequestError
from goent.domain.types import Value
from goent.evals.eval_results import Row, Rows, read_rows
from goent.evals.files.suite_reader import load_suites
from goent.evals.reports.comparison import RunComparison, compare_runs
from goent.evals.reports.html_cases import CaseInput
from goent.evals.reports.html_report import BaselineComparison, HtmlReport, html_report
from goent.evals.reports.report_formats import (
    comparison_markdown,
    junit_xml,
    markdown_code,
    summary_markdown,
)
from goent.evals.reports.report_text import pluralize
from goent.evals.reports.run_summary import CostSummary, run_totals, summarize_targets
from goent.evals.reports.trial_evidence import failure_reason
from goent.evals.runner.run_folder import INDEX_FILE, RunManifest, current_rows, run_completeness
from goent.evals.runner.run_locations import RUNS_FOLDER, stored_runs
from goent.system.project_folders import find_project

WORSE_EXIT = 1
MAX_CHANGED = 10
CONCLUSION_STYLES = {"better": "bold green", "worse": "bold red", "no difference": "bold"}


class ComparedRun(Value, frozen=True, kw_only=True):
    """One run compared with the first."""

    out: str
    words: str
    comparison: RunComparison


class ComparedRuns(Value, frozen=True, kw_only=True):
    """All of them compared with `before`."""

    before: str
    after: tuple[ComparedRun, ...]


def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="OUT...",
            help="Run folders. The others are compared with the first.",
            show_default=False,
        ),
    ],
    *,
    targets: Annotated[
        tuple[str, str] | None,
        typer.Option(
            metavar="BEFORE AFTER",
            help="Compare these two targets, of one run or two.",
            show_default=False,
        ),
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print Markdown for a pull request.")
    ] = False,
    json: JsonOption = False,
) -> int:
    """Compare runs case by case: is one better than an earlier one, beyond chance?

    Exits 1 if one is worse.
    """
    before, *after = runs
    if not after and targets:
        after = [before]
    if not after:
        raise RequestError(
            f"nothing to compare {str(before)!r} with: name another run folder, "
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
        found = compare_runs(first, second, targets=targets)
        if found.delta is None:
            raise RequestError(
                f"{run_folder_of(before)} and {run_folder_of(out)}: {_nothing_to_compare(found)}"
            )
        compared.append(
            ComparedRun(out=str(run_folder_of(out)), words=found.text, comparison=found)
        )
    return ComparedRuns(before=str(run_folder_of(before)), after=tuple(compared))


def _check_known(target: str, rows: Sequence[Row], out: Path) -> None:
    known = sorted({row.target for row in rows})
    if target not in known:
        there = f"there are {', '.join(map(repr, known))}" if known else "there are none"
        raise RequestError(f"no target {target!r} in {run_folder_of(out)}; {there}")


def _nothing_to_compare(found: RunComparison) -> str:

    if unscored := found.unpaired.unscored:
        return (
            f"nothing to compare: of {pluralize(unscored, 'case')} in both, none was scored in both; "
            "`go-ent eval report OUT` says why"
        )
    return (
        "nothing to compare: they have no case of the same target in common; "
        "--targets BEFORE AFTER compares different ones"
    )


def _print_comparison_markdown(told: ComparedRuns) -> None:

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
        typer.Option(metavar="FILE", help="Write a self-contained page; - is stdout."),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(metavar="OUT", help="An earlier run to compare with."),
    ] = None,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write JUnit XML; - is stdout.")
    ] = None,
    markdown: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write Markdown for a pull request; - is stdout."),
    ] = None,
    json: JsonOption = False,
) -> int:
    """Summarize a run, or write reports to files. Runs nothing again."""
    out = out or newest_run()
    folder = run_folder_of(out)
    read = rows_of(out)
    if [html, junit, markdown].count(STDOUT_PATH) + json > 1:
        raise RequestError("stdout takes one report: write the others to files")
    if baseline and not (html or markdown):
        raise RequestError(
            "--baseline needs --html or --markdown: add one of them, or use "
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


def _junit_report(read: Rows, folder: Path) -> bytes:

    there = run_completeness(read, folder)
    return junit_xml(
        read.rows,
        name=folder.resolve().name,
        reason=lambda row: failure_reason(row, folder),
        unrun=there.missing_text if there.unrun else "",
    )


def _markdown_report(read: Rows, folder: Path, baseline: Path | None) -> str:

    told = summary_markdown(summarize_targets(read.rows), run_completeness(read, folder).notes)
    if baseline is None:
        return told
    return f"{told}\n{comparison_markdown(compare_runs(rows_of(baseline).rows, read.rows))}"


def _html_report(read: Rows, folder: Path, baseline: Path | None) -> str:

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


def _case_inputs(manifest: RunManifest) -> Mapping[tuple[str, str], CaseInput]:
    """The inputs of the cases, if their suites can still be read."""
    try:
        paths = [Path(path) for path in manifest.suites]
        suites = load_suites(paths, os.environ, compat=manifest.wanted.compat)
    except (GoentError, OSError) as error:
        print_notice(f"the page shows no inputs: the suites can no longer be read: {error}")
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
            f"the report cannot be written to {str(path)!r}: the folder {str(path.parent)!r} does not exist; "
            "create it, or name another file"
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
    """A run of this project. `exit_code` is None while it runs and after a kill; `began` is in UTC."""

    path: str
    began: str
    suites: tuple[str, ...]
    targets: tuple[str, ...]
    passed: int
    trials: int
    spent: CostSummary
    exit_code: int | None = None


class ListedRuns(Value, frozen=True, kw_only=True):
    """All of them, newest first."""

    runs: tuple[ListedRun, ...]


def list_runs(*, json: JsonOption = False) -> int:
    """List this project's runs in .goent/evals, newest first."""
    runs = tuple(_listed_run(folder) for folder in stored_runs(find_project(Path.cwd())))
    if json:
        print_json(ListedRuns(runs=runs))
    elif runs:
        names = ("BEGAN (UTC)", "SUITES", "TARGETS", "PASSED", "COST", "EXIT", "PATH")
        show_table(names, map(_run_row, runs))
    else:
        print_notice(f"no runs in {RUNS_FOLDER}: `go-ent eval run SUITE` starts one")
    return 0


def _listed_run(folder: Path) -> ListedRun:

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

    return (
        run.began.replace("T", " ")[:MINUTE_WIDTH] or "-",
        strip_controls(", ".join(run.suites)) or "-",
        strip_controls(", ".join(run.targets)) or "-",
        f"{run.passed}/{run.trials}",
        cost_summary_text(run.spent) if run.trials else "-",
        "-" if run.exit_code is None else str(run.exit_code),
        relative_path(run.path, Path.cwd()),
    )
