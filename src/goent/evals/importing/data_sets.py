"""How does a suite in YAML become a data set with one case a line, and the other way round?"""

from pathlib import Path

from goent.domain.errors import ConfigError
from goent.evals.importing.agentv import stem
from goent.evals.importing.documents import (
    Imported,
    Table,
    as_lines,
    as_yaml,
    is_list,
    read,
    read_lines,
    table,
)


def as_suite(path: Path, out: Path) -> Imported:
    """The lines of a data set, under what its sidecar says for all."""
    if path.suffix != ".jsonl":
        raise ConfigError(f"{path}: is no data set; name a .jsonl file")
    sides = (path.with_name(f"{path.stem}{ending}") for ending in (".eval.yaml", ".eval.yml"))
    side = next((side for side in sides if side.is_file()), None)
    suite: Table = {**(table(read(side)) if side else {}), "tests": read_lines(path)}
    return _moved(Imported(files={f"{stem(path)}.eval.yaml": as_yaml(suite)}), path, out)


def as_data_set(path: Path, out: Path) -> Imported:
    """A line for each case, and a sidecar with the rest."""
    suite = table(read(path))
    cases = suite.pop("tests", None)
    if not is_list(cases):
        raise ConfigError(
            f"{path}: has no list of `tests`; `go-ent eval import agentv` reads others"
        )
    files = {f"{stem(path)}.jsonl": as_lines(cases)}
    if suite:
        files[f"{stem(path)}.eval.yaml"] = as_yaml(suite)
    return _moved(Imported(files=files), path, out)


def _moved(told: Imported, path: Path, out: Path) -> Imported:
    if path.resolve().parent == out.resolve():
        return told
    note = f"{path.name}: paths in it are as they were, seen from {str(path.parent)!r}"
    return Imported(files=told.files, notes=(note,))
