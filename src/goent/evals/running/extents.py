"""How much of the run in a folder is there?"""

from pathlib import Path

from msgspec.structs import replace

from goent.domain.errors import RequestError
from goent.evals.reports.extent import Extent
from goent.evals.rows import Rows
from goent.evals.running.folder import read_manifest


def extent(read: Rows, path: Path) -> Extent:
    """By its rows that count (`counting`), and by what it said of itself."""
    made = Extent(made=len(read.rows), remade=len(read.remade))
    try:
        manifest = read_manifest(path)
    except RequestError:
        return made
    spared = len(manifest.spared)
    return replace(made, planned=manifest.planned, spared=spared, stopped=manifest.stopped)
