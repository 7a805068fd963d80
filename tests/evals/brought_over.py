"""What an import writes, read again."""

from pathlib import Path

from goent.evals.files import load_suites, load_targets
from goent.evals.importing import Imported, Kind, imported, write
from goent.evals.suites import Suite


def brought(kind: Kind, path: Path, out: Path) -> tuple[Imported, Suite]:
    """Imported, written, and loaded again."""
    told = imported(kind, [path], out)
    suites = [name for name in told.files if not name.startswith(".goent")]
    write(told, out)
    (suite,) = load_suites([out / suites[0]], {}, compat=True)
    if ".goent/targets.yaml" in told.files:
        load_targets(out, {})
    return told, suite
