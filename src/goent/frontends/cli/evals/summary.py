"""How does a run look when it is over: how good, how sure, how dear, and what failed why?"""

import os
from collections.abc import Sequence
from pathlib import Path

from goent.domain.types import Value
from goent.evals.reports.evidence import kept_workspace, reason_of
from goent.evals.reports.extent import Extent
from goent.evals.reports.summary import TargetSummary, summarise
from goent.evals.reports.totals import Result, Totals, total
from goent.evals.reports.words import answered, numbered
from goent.evals.rows import CaseKey, Row, Rows, latest
from goent.evals.running.extents import extent
from goent.frontends.cli.evals.folders import manifest_of
from goent.frontends.cli.evals.table import show_targets, spent_words
from goent.frontends.cli.evals.wording import case_words, shortened, sign
from goent.frontends.cli.screen import print_text
from goent.frontends.cli.show import print_json

MOST = 20
SIGNALLED = 128  # exit codes above it are those of an interrupted run
_TITLES: dict[Result, tuple[str, str]] = {
    "passed": ("✓ passed", "bold green"),
    "failed": ("✗ failed", "bold red"),
    "errors": ("! not all could be judged", "bold yellow"),
    "unfinished": ("! not finished", "bold yellow"),
    "empty": ("no case was run", "bold yellow"),
}
_STOPPED = "! not all trials were made"


class RunSummary(Value, frozen=True, kw_only=True):
    """What a run has shown, for programs.

    Of `planned` trials (null: a run of before that was kept) `unrun` are still to be made, and `spared` will not
    be, for their cases have cost enough; `remade` had failed, and were made again.
    """

    out: str
    result: Result
    totals: Totals
    targets: tuple[TargetSummary, ...]
    planned: int | None = None
    unrun: int = 0
    spared: int = 0
    remade: int = 0
    stopped: str = ""


def print_summary_json(read: Rows, out: Path, *, exit_code: int | None = None) -> None:
    there = extent(read, out)
    print_json(
        RunSummary(
            out=str(out),
            result=result_of(read.rows, out, exit_code),
            totals=total(read.rows),
            targets=summarise(read.rows),
            planned=there.planned,
            unrun=there.unrun,
            spared=there.spared,
            remade=there.remade,
            stopped=there.stopped,
        )
    )


def show_summary(
    read: Rows,
    out: Path,
    *,
    next_steps: Sequence[tuple[str, str]] = (),
    exit_code: int | None = None,
) -> None:
    """What failed and why, a line for each target, the result, and what can be done now.

    `exit_code` is what the run came to just now; without it, what the folder says.
    """
    last = latest(read.rows)
    summaries = summarise(last)
    there = extent(read, out)
    _show_undone(last, out)
    show_targets(summaries)
    for summary in summaries:
        for name, count in summary.answered_by.items():
            print_text(answered(count, name, summary.target), "yellow")
    for note in there.notes:
        print_text(f"! {note}", "yellow")
    _show_title(total(last), result_of(last, out, exit_code), there)
    if next_steps:
        print_text("\nnext:")
        for command, what_for in next_steps:
            print_text(f"  {command}  # {what_for}")


def result_of(rows: Sequence[Row], out: Path, exit_code: int | None = None) -> Result:
    """What the run came to: by its exit code, else by what it said of itself, if that is kept."""
    totals = total(rows)
    if exit_code is not None:
        return totals.result(finished=exit_code <= SIGNALLED, exit_code=exit_code)
    manifest = manifest_of(out)
    if manifest is None:
        return totals.result()
    return totals.result(finished=manifest.ended is not None, exit_code=manifest.exit_code)


def _show_title(totals: Totals, result: Result, there: Extent) -> None:
    title, style = _TITLES[result]
    if result == "errors" and there.unrun and not totals.errors:
        title = _STOPPED
    counts = (
        (totals.failed, "failed"),
        (totals.errors, "with errors"),
        (totals.skipped, "skipped"),
    )
    rest = "".join(f", {count:,} {what}" for count, what in counts if count)
    many = totals.trials > totals.cases
    unit = "trial" if many else "case"
    passed = f"{totals.passed:,} of {numbered(totals.trials, unit)}"
    passed += " passed" if rest else ""
    if result == "unfinished" and there.planned:
        done = f"{there.made:,} of {numbered(there.planned, 'trial')}"
        passed = f"{done}: {totals.passed:,} passed"
    of = (
        f" ({numbered(totals.cases, 'case')}, {numbered(totals.targets, 'target')})" if many else ""
    )
    print_text(f"{title}: {passed}{rest}{of}" if totals.trials else title, style)
    if totals.judging.known_usd or totals.judging.unknown:
        print_text(f"besides, the judges cost: {spent_words(totals.judging)}")


def _show_undone(rows: Sequence[Row], out: Path) -> None:
    """Errors first: they say nothing of the answers. What failed alike is told once."""
    manifest = manifest_of(out)
    graded_from = Path(manifest.graded_from) if manifest and manifest.graded_from else None
    places = {row.key: place for place, row in reversed(list(enumerate(rows)))}
    undone = [row for row in rows if not row.passed]
    undone.sort(key=lambda row: (row.scored, places[row.key]))
    alike: dict[tuple[CaseKey, str], list[Row]] = {}
    for row in undone:
        which = (row.key, reason_of(row, out))
        if which not in alike and len(alike) == MOST:
            break
        alike.setdefault(which, []).append(row)
    for (_, reason), same in alike.items():
        row = same[0]
        style = "red" if row.scored else "yellow"
        print_text(f"{sign(row)} {case_words(row, alike=len(same))}", style)
        print_text(f"    {shortened(reason)}")
        if row.trace_path:
            print_text(f"    {os.path.normpath(out / row.trace_path)}", "dim")
        if workspace := kept_workspace(row, out, graded_from):
            print_text(f"    workspace: {_from_home(workspace)}", "dim")
    if undone:
        print_text("")
    if more := len(undone) - sum(map(len, alike.values())):
        print_text(f"… and {more:,} more; `go-ent eval report {out} --html FILE` has all")


def _from_home(path: Path) -> str:
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)
