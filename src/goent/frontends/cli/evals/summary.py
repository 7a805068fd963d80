"""How does a run look when it is over: how good, how sure, how dear, and what failed why?"""

from collections.abc import Sequence
from pathlib import Path

from goent.domain.types import Value
from goent.evals.reports.evidence import reason_of
from goent.evals.reports.rows import CaseKey, Row, latest
from goent.evals.reports.summary import TargetSummary, summarise
from goent.evals.reports.totals import Result, Totals, total
from goent.evals.reports.words import answered, numbered, times
from goent.frontends.cli.evals.folders import manifest_of
from goent.frontends.cli.evals.table import show_targets, spent_words
from goent.frontends.cli.screen import clean, print_text
from goent.frontends.cli.show import print_json

MOST = 20
LONGEST = 160
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
    """What a run has shown, for programs. `unrun` counts the trials that were planned and not made."""

    out: str
    result: Result
    totals: Totals
    targets: tuple[TargetSummary, ...]
    unrun: int = 0
    stopped: str = ""


def print_summary_json(
    rows: Sequence[Row],
    out: Path,
    *,
    left_out: int = 0,
    stopped: str = "",
    exit_code: int | None = None,
) -> None:
    print_json(
        RunSummary(
            out=str(out),
            result=result_of(rows, out, exit_code),
            totals=total(rows),
            targets=summarise(rows),
            unrun=left_out,
            stopped=stopped or _stopped(out),
        )
    )


def show_summary(
    rows: Sequence[Row],
    out: Path,
    *,
    next_steps: Sequence[tuple[str, str]] = (),
    left_out: int = 0,
    stopped: str = "",
    exit_code: int | None = None,
) -> None:
    """What failed and why, a line for each target, the result, and what can be done now.

    `exit_code` is what the run came to just now; without it, what the folder says.
    """
    last = latest(rows)
    summaries = summarise(last)
    why = stopped or _stopped(out)
    _show_undone(last, out)
    show_targets(summaries)
    for summary in summaries:
        for name, count in summary.answered_by.items():
            print_text(answered(count, name, summary.target), "yellow")
    _show_stopped(why, left_out, len(last))
    _show_title(total(last), result_of(last, out, exit_code), stopped=bool(why or left_out))
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


def _stopped(out: Path) -> str:
    manifest = manifest_of(out)
    return manifest.stopped if manifest else ""


def _show_stopped(why: str, left_out: int, made: int) -> None:
    parts = (
        f"stopped: {why}" if why else "",
        f"{left_out:,} of {numbered(made + left_out, 'trial')} "
        f"{'was' if left_out == 1 else 'were'} not made"
        if left_out
        else "",
    )
    if told := "; ".join(filter(None, parts)):
        print_text(f"! {told}", "yellow")


def _show_title(totals: Totals, result: Result, *, stopped: bool) -> None:
    title, style = _TITLES[result]
    if result == "errors" and stopped and not totals.errors:
        title = _STOPPED
    counts = (
        (totals.failed, "failed"),
        (totals.errors, "with errors"),
        (totals.skipped, "skipped"),
    )
    rest = "".join(f", {count:,} {what}" for count, what in counts if count)
    many = totals.trials > totals.cases
    passed = f"{totals.passed:,} of {numbered(totals.trials, 'trial' if many else 'case')}"
    passed += " passed" if rest else ""
    of = (
        f" ({numbered(totals.cases, 'case')}, {numbered(totals.targets, 'target')})" if many else ""
    )
    print_text(f"{title}: {passed}{rest}{of}" if totals.trials else title, style)
    if totals.judging.known_usd or totals.judging.unknown:
        print_text(f"besides, the judges cost: {spent_words(totals.judging)}")


def _show_undone(rows: Sequence[Row], out: Path) -> None:
    """Errors first: they say nothing of the answers. What failed alike is told once."""
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
            print_text(f"    {out / row.trace_path}", "dim")
    if undone:
        print_text("")
    if more := len(undone) - sum(map(len, alike.values())):
        print_text(f"… and {more:,} more; `go-ent eval report {out} --html FILE` has all")


def sign(row: Row) -> str:
    return "✓" if row.passed else "✗" if row.scored else "-" if row.skipped else "!"


def case_words(row: Row, *, alike: int = 1) -> str:
    """Which case, of which target and answered by whom, and which trial if there are several, or how many alike."""
    case = f"{row.suite} / {row.test_id}" if row.suite else row.test_id
    by = f" by {row.answered_by}" if row.answered_by else ""
    trial = f" trial {row.trial}/{row.trials}" if row.trials > 1 else ""
    score = f" {row.score:.2f}" if row.scored else " skipped" if row.skipped else " error"
    return f"{case} · {row.target}{by}{times(alike) or trial}{score}"


def shortened(text: str, limit: int = LONGEST) -> str:
    """On one line, and not too long a one."""
    line = " ".join(clean(text.replace("\n", " ")).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
