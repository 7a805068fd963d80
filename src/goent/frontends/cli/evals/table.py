"""How did each target do, in a table that fits the terminal?"""

from collections.abc import Sequence

from goent.evals.reports.summary import Estimate, Spent, TargetSummary
from goent.evals.reports.words import took
from goent.frontends.cli.evals.wording import shortened
from goent.frontends.cli.screen import clean, make_console, print_text
from goent.frontends.cli.show import print_drawn
from goent.frontends.cli.words import money

GAP = 2
LONGEST_NAME = (
    20  # of a target; a longer one is cut before a value and its interval are put below each other
)
SHORTEST_NAME = 12  # and before a column is left out
DROPPED = ("FLIPS", "PASS^K", "MEDIAN", "COST", "MEAN SCORE")
"""What is left out where there is no room, the first of them first; that it is, is told."""
Columns = dict[str, list[str]]


def show_targets(summaries: Sequence[TargetSummary]) -> None:
    """A line for each; on a narrow terminal intervals stand below their values, then columns are left out."""
    from rich.table import Table  # noqa: PLC0415 (rich is loaded only where something is drawn)

    if not summaries:
        return
    console = make_console()
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, GAP, 0, 0))
    columns = fitting(summaries, console.width)
    for head in columns:
        if head == "TARGET":
            table.add_column(head, no_wrap=True)
        else:
            table.add_column(head, justify="right", no_wrap=True)
    for cells in zip(*columns.values(), strict=True):
        table.add_row(*cells)
    print_drawn(console, table)
    left_out = [head for head in _columns(summaries, narrow=False) if head not in columns]
    if left_out:
        print_text(f"no room for {', '.join(left_out)}: --json has them", "dim")


def fitting(summaries: Sequence[TargetSummary], width: int) -> Columns:
    """The columns that there is room for; a long name is cut in the middle before one is left out."""
    columns = _columns(summaries, narrow=False)
    if (room := _room(columns, width)) < _least(columns, LONGEST_NAME):
        columns = _columns(summaries, narrow=True)
        room = _room(columns, width)
    least = _least(columns, SHORTEST_NAME)
    for head in DROPPED:
        if room >= least:
            break
        columns.pop(head, None)
        room = _room(columns, width)
    names = columns["TARGET"]
    return {**columns, "TARGET": [shortened(name, max(room, least)) for name in names]}


def _columns(summaries: Sequence[TargetSummary], *, narrow: bool) -> Columns:
    """Trials that could be scored are counted; rates and means are over their cases, so that each counts the same."""
    between = "\n" if narrow else " "
    repeated = any(summary.repeats for summary in summaries)
    columns: Columns = {
        "TARGET": [clean(each.target) for each in summaries],
        "TRIALS PASSED" if repeated else "PASSED": [
            f"{each.passed}/{each.trials - len(each.errors) - len(each.skipped)}"
            for each in summaries
        ],
        "RATE BY CASE" if repeated else "RATE": [
            _estimate(each.pass_rate, ".0%", between) for each in summaries
        ],
        "MEAN SCORE": [_estimate(each.mean, ".2f", between) for each in summaries],
        "ERRORS": [str(len(each.errors) or "-") for each in summaries],
        "COST": [
            spent_words(each.spent).replace("least ", f"least{between}") for each in summaries
        ],
        "MEDIAN": [took(each.durations and each.durations.median_ms) for each in summaries],
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


def _room(columns: Columns, width: int) -> int:
    """For the names."""
    return width - sum(_wide(head, columns[head]) + GAP for head in columns if head != "TARGET")


def _least(columns: Columns, limit: int) -> int:
    return min(limit, _wide("TARGET", columns["TARGET"]))


def _wide(head: str, cells: Sequence[str]) -> int:
    from rich.cells import cell_len  # noqa: PLC0415 (the same)

    return max(cell_len(line) for cell in (head, *cells) for line in cell.split("\n"))


def _estimate(estimate: Estimate | None, form: str, between: str) -> str:
    if estimate is None:
        return "-"
    value = format(estimate.value, form)
    if estimate.interval is None:
        return value
    low, high = (format(end, form) for end in (estimate.interval.low, estimate.interval.high))
    return f"{value}{between}({low} to {high})"


def spent_words(spent: Spent) -> str:
    """A total only where every part is known."""
    if spent.total_usd is not None:
        return money(spent.total_usd)
    if not spent.known_usd:
        return "unknown"
    return f"at least {money(spent.known_usd)}"
