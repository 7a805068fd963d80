"""`go-ent eval compare`: is one run better than another, or could chance have done that?"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from goent.domain.errors import RequestError
from goent.domain.types import Value
from goent.frontends.cli.evals.folders import folder_of, rows_of
from goent.frontends.cli.options import Json
from goent.frontends.cli.screen import clean, print_text
from goent.frontends.cli.show import print_json, show_rows, show_table

if TYPE_CHECKING:
    from goent.evals.reports.comparing import Comparison
    from goent.evals.rows import Row

WORSE = 1
MOST = 10
COLOURS = {"better": "bold green", "worse": "bold red", "no difference": "bold"}


class ComparedRun(Value, frozen=True, kw_only=True):
    """One run against the first."""

    out: str
    words: str
    comparison: "Comparison"


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
    json: Json = False,
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
    told = _compared(before, after, targets)
    if json:
        print_json(told)
    elif markdown:
        _print_markdown(told)
    else:
        for run in told.after:
            _show(told.before, run, targets)
    return WORSE if any(run.comparison.conclusion == "worse" for run in told.after) else 0


def _compared(before: Path, after: Sequence[Path], targets: tuple[str, str] | None) -> ComparedRuns:
    first = rows_of(before).rows
    compared: list[ComparedRun] = []
    for out in after:
        second = rows_of(out).rows
        if targets:
            _check_known(targets[0], first, before)
            _check_known(targets[1], second, out)
        found = _comparison(first, second, targets)
        if found.delta is None:
            raise RequestError(f"{folder_of(before)} and {folder_of(out)}: {_nothing(found)}")
        compared.append(ComparedRun(out=str(folder_of(out)), words=found.words, comparison=found))
    return ComparedRuns(before=str(folder_of(before)), after=tuple(compared))


def _check_known(target: str, rows: "Sequence[Row]", out: Path) -> None:
    known = sorted({row.target for row in rows})
    if target not in known:
        there = f"there are {', '.join(map(repr, known))}" if known else "there are none"
        raise RequestError(f"no target {target!r} in {folder_of(out)}; {there}")


def _comparison(
    first: "Sequence[Row]", second: "Sequence[Row]", targets: tuple[str, str] | None
) -> "Comparison":
    from goent.evals.reports import comparing  # noqa: PLC0415 (only where runs are compared)

    return comparing.compare(first, second, targets=targets)


def _nothing(found: "Comparison") -> str:
    from goent.evals.reports.words import numbered  # noqa: PLC0415 (only where runs are compared)

    if unscored := found.unpaired.unscored:
        return (
            f"nothing to compare: of {numbered(unscored, 'case')} that both have, none could be scored in "
            "both; `go-ent eval report OUT` tells why"
        )
    return (
        "nothing to compare: they have no case of the same target in common; "
        "--targets BEFORE AFTER compares different ones"
    )


def _print_markdown(told: ComparedRuns) -> None:
    from goent.evals.reports.markdown import code, comparison_markdown  # noqa: PLC0415 (only here)

    for run in told.after:
        if len(told.after) > 1:
            print(f"# {code(told.before)} → {code(run.out)}\n")
        print(comparison_markdown(run.comparison))


def _heading(before: str, after: str, targets: tuple[str, str] | None) -> str:
    if targets is None:
        return f"{before} -> {after}"
    first, second = targets
    if before == after:
        return f"{before}: {first} -> {second}"
    return f"{before}: {first} -> {after}: {second}"


def _show(before: str, run: ComparedRun, targets: tuple[str, str] | None) -> None:
    found = run.comparison
    print_text(_heading(before, run.out, targets), "dim")
    print_text(run.words, COLOURS[found.conclusion])
    interval = found.interval
    spread = f" (95 %: {interval.low:+.3f} to {interval.high:+.3f})" if interval else ""
    show_rows(
        (
            ("mean change", f"{found.delta or 0.0:+.3f}{spread}, p = {found.p_score:.2g}"),
            ("cases", f"{found.wins} won, {found.losses} lost, {found.ties} tied"),
            ("passing", f"{found.gained} now pass, {found.lost} no longer, p = {found.p_pass:.2g}"),
            ("left out", found.unpaired.words),
        )
    )
    if found.changed:
        show_table(
            ("CASE", "TARGET", "BEFORE", "AFTER", "CHANGE"),
            (
                (
                    clean(f"{p.key.suite} / {p.key.test_id}"),
                    p.key.target,
                    f"{p.before:.2f}",
                    f"{p.after:.2f}",
                    f"{p.delta:+.2f}",
                )
                for p in found.changed[:MOST]
            ),
        )
    if (more := len(found.changed) - MOST) > 0:
        print_text(f"… and {more} more; --json has them all", "dim")
