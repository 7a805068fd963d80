"""`go-ent eval list`: which runs were kept, and what did each come to?"""

from pathlib import Path
from typing import TYPE_CHECKING, Final

from goent.domain.types import Value
from goent.frontends.cli.evals.folders import manifest_of
from goent.frontends.cli.options import Json
from goent.frontends.cli.screen import clean, complain
from goent.frontends.cli.show import print_json, show_table
from goent.project import find_project

if TYPE_CHECKING:
    from goent.evals.reports.summary import Spent

MINUTES: Final = 16  # characters of a time


class ListedRun(Value, frozen=True, kw_only=True):
    """A run of this project. `exit_code` is None while it goes on, and after a kill; `began` is in UTC."""

    path: str
    began: str
    suites: tuple[str, ...]
    targets: tuple[str, ...]
    passed: int
    trials: int
    spent: "Spent"
    exit_code: int | None = None


class ListedRuns(Value, frozen=True, kw_only=True):
    """All of them, newest first."""

    runs: tuple[ListedRun, ...]


def list_(*, json: Json = False) -> int:
    """List the runs of this project that were kept in .goent/evals, newest first."""
    from goent.evals.running.places import RUNS, kept_runs  # noqa: PLC0415 (only here)

    runs = tuple(_listed(folder) for folder in kept_runs(find_project(Path.cwd())))
    if json:
        print_json(ListedRuns(runs=runs))
    elif runs:
        names = ("BEGAN (UTC)", "SUITES", "TARGETS", "PASSED", "COST", "EXIT", "PATH")
        show_table(names, map(_row, runs))
    else:
        complain(f"no run is kept in {RUNS}: `go-ent eval run SUITE` makes one")
    return 0


def _listed(folder: Path) -> ListedRun:
    from goent.evals.reports.totals import total  # noqa: PLC0415 (only here)
    from goent.evals.rows import Rows, read_rows  # noqa: PLC0415 (only here)
    from goent.evals.running.folder import INDEX, counting  # noqa: PLC0415 (only here)

    index = folder / INDEX
    rows = counting(read_rows(index) if index.exists() else Rows(), folder).rows
    manifest = manifest_of(folder)
    totals = total(rows)
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


def _row(run: ListedRun) -> tuple[str, ...]:
    from goent.frontends.cli.evals.table import spent_words  # noqa: PLC0415 (only here)

    return (
        run.began.replace("T", " ")[:MINUTES] or "-",
        clean(", ".join(run.suites)) or "-",
        clean(", ".join(run.targets)) or "-",
        f"{run.passed}/{run.trials}",
        spent_words(run.spent) if run.trials else "-",
        "-" if run.exit_code is None else str(run.exit_code),
        _near(Path(run.path)),
    )


def _near(path: Path) -> str:
    """As it can be pasted here."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
