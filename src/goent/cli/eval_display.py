"""Prints the summary of an evaluation run: failures, targets, result and next steps."""

import os
from collections.abc import Sequence
from pathlib import Path

from goent.cli import drawing
from goent.cli.display import print_json, print_renderable
from goent.cli.eval_options import manifest_of
from goent.cli.labels import money
from goent.cli.terminal import make_console, print_text, strip_controls
from goent.domain.types import Value
from goent.evals.eval_results import CaseKey, Row, Rows, latest_rows
from goent.evals.reports.report_text import answered_by_text, duration_text, pluralize, repeat_mark
from goent.evals.reports.run_summary import (
    CostSummary,
    IntervalEstimate,
    RunResult,
    RunTotals,
    TargetSummary,
    run_totals,
    summarize_targets,
)
from goent.evals.reports.trial_evidence import failure_reason, kept_workspace
from goent.evals.runner.run_folder import RunCompleteness, run_completeness

MAX_LINE = 160


def row_mark(row: Row) -> str:
    return "✓" if row.passed else "✗" if row.scored else "-" if row.skipped else "!"


def case_text(row: Row, *, alike: int = 1) -> str:
    """A row's case, target, trial (or number of identical trials) and score."""
    case = f"{row.suite} / {row.test_id}" if row.suite else row.test_id
    by = f" by {row.answered_by}" if row.answered_by else ""
    trial = f" trial {row.trial}/{row.trials}" if row.trials > 1 else ""
    score = f" {row.score:.2f}" if row.scored else " skipped" if row.skipped else " error"
    return f"{case} · {row.target}{by}{repeat_mark(alike) or trial}{score}"


def shorten_line(text: str, limit: int = MAX_LINE) -> str:
    """The text on one line, cut in the middle: both its beginning and its end matter."""
    line = " ".join(strip_controls(text.replace("\n", " ")).split())
    if len(line) <= limit:
        return line
    tail = (limit - 1) // 2
    return f"{line[: limit - 1 - tail]}…{line[len(line) - tail :]}"


COLUMN_GAP = 2
MAX_NAME = 20  # longer target names are cut before intervals move below their values
MIN_NAME = 12  # longer ones are cut before a column is dropped
DROPPABLE_COLUMNS = ("FLIPS", "PASS^K", "MEDIAN", "COST", "MEAN SCORE")
TableColumns = dict[str, list[str]]


def show_targets(summaries: Sequence[TargetSummary]) -> None:
    """A row for each target; a narrow terminal puts intervals below values, then drops columns."""
    if not summaries:
        return
    console = make_console()
    table = drawing.Table(
        box=None, pad_edge=False, header_style="bold", padding=(0, COLUMN_GAP, 0, 0)
    )
    columns = fit_columns(summaries, console.width)
    for head in columns:
        if head == "TARGET":
            table.add_column(head, no_wrap=True)
        else:
            table.add_column(head, justify="right", no_wrap=True)
    for cells in zip(*columns.values(), strict=True):
        table.add_row(*cells)
    print_renderable(console, table)
    left_out = [head for head in _all_columns(summaries, narrow=False) if head not in columns]
    if left_out:
        print_text(f"no room for {', '.join(left_out)}: --json has them", "dim")


def fit_columns(summaries: Sequence[TargetSummary], width: int) -> TableColumns:
    """The columns that there is room for; long names are cut before a column is dropped."""
    columns = _all_columns(summaries, narrow=False)
    if (room := _name_room(columns, width)) < _least_name_width(columns, MAX_NAME):
        columns = _all_columns(summaries, narrow=True)
        room = _name_room(columns, width)
    least = _least_name_width(columns, MIN_NAME)
    for head in DROPPABLE_COLUMNS:
        if room >= least:
            break
        columns.pop(head, None)
        room = _name_room(columns, width)
    names = columns["TARGET"]
    return {**columns, "TARGET": [shorten_line(name, max(room, least)) for name in names]}


def _all_columns(summaries: Sequence[TargetSummary], *, narrow: bool) -> TableColumns:
    """All columns. Rates and means are over cases, so that each case counts the same."""
    between = "\n" if narrow else " "
    repeated = any(summary.repeats for summary in summaries)
    columns: TableColumns = {
        "TARGET": [strip_controls(each.target) for each in summaries],
        "TRIALS PASSED" if repeated else "PASSED": [
            f"{each.passed}/{each.trials - len(each.errors) - len(each.skipped)}"
            for each in summaries
        ],
        "RATE BY CASE" if repeated else "RATE": [
            _estimate_text(each.pass_rate, ".0%", between) for each in summaries
        ],
        "MEAN SCORE": [_estimate_text(each.mean, ".2f", between) for each in summaries],
        "ERRORS": [str(len(each.errors) or "-") for each in summaries],
        "COST": [
            cost_summary_text(each.spent).replace("least ", f"least{between}") for each in summaries
        ],
        "MEDIAN": [
            duration_text(each.durations and each.durations.median_ms) for each in summaries
        ],
    }
    if repeated:
        columns["PASS^K"] = [
            f"{each.repeats.pass_hat_k:.0%} (k={each.repeats.k})" if each.repeats else "-"
            for each in summaries
        ]
        columns["FLIPS"] = [
            f"{each.repeats.flip_rate:.0%}" if each.repeats else "-" for each in summaries
        ]
    return columns


def _name_room(columns: TableColumns, width: int) -> int:
    return width - sum(
        _column_width(head, columns[head]) + COLUMN_GAP for head in columns if head != "TARGET"
    )


def _least_name_width(columns: TableColumns, limit: int) -> int:
    return min(limit, _column_width("TARGET", columns["TARGET"]))


def _column_width(head: str, cells: Sequence[str]) -> int:

    return max(drawing.cell_len(line) for cell in (head, *cells) for line in cell.split("\n"))


def _estimate_text(estimate: IntervalEstimate | None, form: str, between: str) -> str:
    if estimate is None:
        return "-"
    value = format(estimate.value, form)
    if estimate.interval is None:
        return value
    low, high = (format(end, form) for end in (estimate.interval.low, estimate.interval.high))
    return f"{value}{between}({low} to {high})"


def cost_summary_text(spent: CostSummary) -> str:
    """The total if every part is known."""
    if spent.total_usd is not None:
        return money(spent.total_usd)
    if not spent.known_usd:
        return "unknown"
    return f"at least {money(spent.known_usd)}"


MAX_FAILURES = 20
SIGNAL_EXIT = 128  # higher exit codes mean an interrupted run
_TITLES: dict[RunResult, tuple[str, str]] = {
    "passed": ("✓ passed", "bold green"),
    "failed": ("✗ failed", "bold red"),
    "errors": ("! some cases had errors", "bold yellow"),
    "unfinished": ("! not finished", "bold yellow"),
    "empty": ("no cases ran", "bold yellow"),
}
_STOPPED_TITLE = "! some trials did not run"


class RunSummary(Value, frozen=True, kw_only=True):
    """The summary of a run, for programs.

    Of the `planned` trials (null: not recorded), `unrun` remain, and `spared` are skipped because their
    cases reached their cost limit; `remade` had failed and were repeated.
    """

    out: str
    result: RunResult
    totals: RunTotals
    targets: tuple[TargetSummary, ...]
    planned: int | None = None
    unrun: int = 0
    spared: int = 0
    remade: int = 0
    stopped: str = ""


def print_summary_json(read: Rows, out: Path, *, exit_code: int | None = None) -> None:
    there = run_completeness(read, out)
    print_json(
        RunSummary(
            out=str(out),
            result=run_result_of(read.rows, out, exit_code),
            totals=run_totals(read.rows),
            targets=summarize_targets(read.rows),
            planned=there.planned,
            unrun=there.unrun,
            spared=there.skipped_for_cost,
            remade=there.repeated,
            stopped=there.stopped,
        )
    )


def show_run_summary(
    read: Rows,
    out: Path,
    *,
    next_steps: Sequence[tuple[str, str]] = (),
    exit_code: int | None = None,
) -> None:
    """Failures with reasons, a row for each target, the result, and next steps.

    `exit_code` is that of the run that just ended; without it, the folder's manifest has it.
    """
    last = latest_rows(read.rows)
    summaries = summarize_targets(last)
    there = run_completeness(read, out)
    _show_failures(last, out)
    show_targets(summaries)
    for summary in summaries:
        for name, count in summary.answered_by.items():
            print_text(answered_by_text(count, name, summary.target), "yellow")
    for note in there.notes:
        print_text(f"! {note}", "yellow")
    _show_title(run_totals(last), run_result_of(last, out, exit_code), there)
    if next_steps:
        print_text("\nnext:")
        for command, what_for in next_steps:
            print_text(f"  {command}  # {what_for}")


def run_result_of(rows: Sequence[Row], out: Path, exit_code: int | None = None) -> RunResult:
    """The result of the run, from its exit code or else from its manifest."""
    totals = run_totals(rows)
    if exit_code is not None:
        return totals.result(finished=exit_code <= SIGNAL_EXIT, exit_code=exit_code)
    manifest = manifest_of(out)
    if manifest is None:
        return totals.result()
    return totals.result(finished=manifest.ended is not None, exit_code=manifest.exit_code)


def _show_title(totals: RunTotals, result: RunResult, there: RunCompleteness) -> None:
    title, style = _TITLES[result]
    if result == "errors" and there.unrun and not totals.errors:
        title = _STOPPED_TITLE
    counts = (
        (totals.failed, "failed"),
        (totals.errors, "with errors"),
        (totals.skipped, "skipped"),
    )
    rest = "".join(f", {count:,} {what}" for count, what in counts if count)
    many = totals.trials > totals.cases
    unit = "trial" if many else "case"
    passed = f"{totals.passed:,} of {pluralize(totals.trials, unit)}"
    passed += " passed" if rest else ""
    if result == "unfinished" and there.planned:
        done = f"{there.done:,} of {pluralize(there.planned, 'trial')}"
        passed = f"{done}: {totals.passed:,} passed"
    of = (
        f" ({pluralize(totals.cases, 'case')}, {pluralize(totals.targets, 'target')})"
        if many
        else ""
    )
    print_text(f"{title}: {passed}{rest}{of}" if totals.trials else title, style)
    if totals.judging.known_usd or totals.judging.unknown:
        print_text(f"plus judges: {cost_summary_text(totals.judging)}")


def _show_failures(rows: Sequence[Row], out: Path) -> None:
    """Errors first, then failures; identical ones are shown once."""
    manifest = manifest_of(out)
    graded_from = Path(manifest.graded_from) if manifest and manifest.graded_from else None
    places = {row.key: place for place, row in reversed(list(enumerate(rows)))}
    undone = [row for row in rows if not row.passed]
    undone.sort(key=lambda row: (row.scored, places[row.key]))
    alike: dict[tuple[CaseKey, str], list[Row]] = {}
    for row in undone:
        which = (row.key, failure_reason(row, out))
        if which not in alike and len(alike) == MAX_FAILURES:
            break
        alike.setdefault(which, []).append(row)
    for (_, reason), same in alike.items():
        row = same[0]
        style = "red" if row.scored else "yellow"
        print_text(f"{row_mark(row)} {case_text(row, alike=len(same))}", style)
        print_text(f"    {shorten_line(reason)}")
        if row.trace_path:
            print_text(f"    {os.path.normpath(out / row.trace_path)}", "dim")
        if workspace := kept_workspace(row, out, graded_from):
            print_text(f"    workspace: {_path_from_home(workspace)}", "dim")
    if undone:
        print_text("")
    if more := len(undone) - sum(map(len, alike.values())):
        print_text(f"… and {more:,} more; `go-ent eval report {out} --html FILE` has all")


def _path_from_home(path: Path) -> str:
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)
