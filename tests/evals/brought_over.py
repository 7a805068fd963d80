"""What an import writes, read again."""

from pathlib import Path

from goent.evals.files.suite_reader import load_suites
from goent.evals.files.target_reader import load_targets
from goent.evals.importers.import_documents import ImportResult
from goent.evals.importers.suite_importer import ImportKind, import_files, write_import
from goent.evals.suites import Suite


def brought(kind: ImportKind, path: Path, out: Path) -> tuple[ImportResult, Suite]:
    """Imported, written, and loaded again."""
    told = import_files(kind, [path], out)
    suites = [name for name in told.files if not name.startswith(".goent")]
    write_import(told, out)
    (suite,) = load_suites([out / suites[0]], {}, compat=True)
    if ".goent/targets.yaml" in told.files:
        load_targets(out, {})
    return told, suite
