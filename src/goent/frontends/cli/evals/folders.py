"""Which run is meant? A folder that a run has written, or the `index.jsonl` in it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from goent.domain.errors import RequestError
from goent.frontends.cli.screen import complain
from goent.project import find_project

if TYPE_CHECKING:
    from goent.evals.rows import Rows
    from goent.evals.running.folder import Manifest

INDEX = "index.jsonl"
Out = Annotated[
    Path,
    typer.Argument(metavar="OUT", help="The folder that a run has written.", show_default=False),
]

Newest = Annotated[
    Path | None,
    typer.Argument(
        metavar="[OUT]", help="The folder that a run has written; default: the newest run's."
    ),
]


def newest_run() -> Path:
    """Of this project; it is told which one. Raises `RequestError` if there is none."""
    from goent.evals.running.places import RUNS, kept_runs  # noqa: PLC0415 (only where runs are read)

    runs = kept_runs(find_project(Path.cwd()))
    if not runs:
        raise RequestError(
            f"no run is kept in {RUNS}: name the folder that a run has written, or make one "
            "by `go-ent eval run SUITE`"
        )
    complain(f"the newest run: {runs[0]}")
    return runs[0]


def folder_of(out: Path) -> Path:
    return out.parent if out.name == INDEX else out


def manifest_of(folder: Path) -> "Manifest | None":
    """What the run was asked for and came to; None if that is not kept there."""
    from goent.evals.running.folder import read_manifest  # noqa: PLC0415 (only where runs are read)

    try:
        return read_manifest(folder)
    except RequestError:
        return None


def rows_of(out: Path) -> "Rows":
    """Its rows. Lines that are none are told on stderr; the others count."""
    from goent.evals.reports.words import left_out  # noqa: PLC0415 (the same)
    from goent.evals.rows import read_rows  # noqa: PLC0415 (only where runs are read)
    from goent.evals.running.folder import counting  # noqa: PLC0415 (the same)

    manifest = manifest_of(folder_of(out))
    if manifest and manifest.ended is None and not (folder_of(out) / INDEX).exists():
        raise RequestError(
            f"no trial has ended yet in {str(folder_of(out))!r}; go on with the run by "
            f"`go-ent eval run SUITE --out {folder_of(out)} --resume`"
        )
    found = counting(read_rows(folder_of(out) / INDEX), folder_of(out))
    if found.damaged:
        numbers = ", ".join(map(str, found.damaged[:10]))
        more = f" and {len(found.damaged) - 10} more" if len(found.damaged) > 10 else ""  # noqa: PLR2004 (as above)
        where, verb = ("line", "it does") if len(found.damaged) == 1 else ("lines", "they do")
        index = folder_of(out) / INDEX
        complain(f"{index}: no row in {where} {numbers}{more}; {verb} not count")
    if found.gone:
        complain(left_out(found.gone))
    return found
