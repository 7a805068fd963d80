"""Imports suites from AgentV, promptfoo, YAML or JSONL, and writes the files."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

from goent.domain.errors import ConfigError
from goent.evals.importers.agentv_importer import from_agentv, suite_stem
from goent.evals.importers.import_documents import (
    ForeignTable,
    ImportResult,
    as_json_lines,
    as_table,
    as_yaml,
    is_list,
    read_json_lines,
    read_yaml,
)
from goent.evals.importers.promptfoo_importer import from_promptfoo


def suite_from_data_set(path: Path, out: Path) -> ImportResult:
    """The cases of a data set, with the settings of its sidecar."""
    if path.suffix != ".jsonl":
        raise ConfigError(f"{path}: is not a data set; name a .jsonl file")
    sides = (path.with_name(f"{path.stem}{ending}") for ending in (".eval.yaml", ".eval.yml"))
    side = next((side for side in sides if side.is_file()), None)
    suite: ForeignTable = {
        **(as_table(read_yaml(side)) if side else {}),
        "tests": read_json_lines(path),
    }
    return _with_path_note(
        ImportResult(files={f"{suite_stem(path)}.eval.yaml": as_yaml(suite)}), path, out
    )


def data_set_from_suite(path: Path, out: Path) -> ImportResult:
    """A line per case, and a sidecar with the rest."""
    suite = as_table(read_yaml(path))
    cases = suite.pop("tests", None)
    if not is_list(cases):
        raise ConfigError(
            f"{path}: has no list of `tests`; `go-ent eval import agentv` reads others"
        )
    files = {f"{suite_stem(path)}.jsonl": as_json_lines(cases)}
    if suite:
        files[f"{suite_stem(path)}.eval.yaml"] = as_yaml(suite)
    return _with_path_note(ImportResult(files=files), path, out)


def _with_path_note(told: ImportResult, path: Path, out: Path) -> ImportResult:
    if path.resolve().parent == out.resolve():
        return told
    note = f"{path.name}: paths in it are still relative to {str(path.parent)!r}"
    return ImportResult(files=told.files, notes=(note,))


ImportKind = Literal["agentv", "promptfoo", "yaml", "jsonl"]

_IMPORTERS: Final[Mapping[ImportKind, Callable[[Path, Path], ImportResult]]] = {
    "agentv": from_agentv,
    "promptfoo": from_promptfoo,
    "yaml": suite_from_data_set,
    "jsonl": data_set_from_suite,
}


def import_files(kind: ImportKind, paths: Sequence[Path], out: Path) -> ImportResult:
    """What these files become in `out`, without writing. Raises `ConfigError`."""
    files: dict[str, str] = {}
    notes: dict[str, None] = {}
    lost: dict[str, None] = {}
    for path in paths:
        one = _IMPORTERS[kind](path, out)
        for name, text in one.files.items():
            if files.setdefault(name, text) != text:
                raise ConfigError(
                    f"{path}: another of these files becomes {name!r} too; import it separately"
                )
        notes |= dict.fromkeys(one.notes)
        lost |= dict.fromkeys(one.lost_checks)
    return ImportResult(files=files, notes=tuple(notes), lost_checks=tuple(lost))


def write_import(told: ImportResult, out: Path, *, force: bool = False) -> tuple[Path, ...]:
    """Writes all files, or none if one exists already. Raises `ConfigError`."""
    paths = {out / name: text for name, text in told.files.items()}
    there = [str(path) for path in paths if os.path.lexists(path)]
    if there and not force:
        raise ConfigError(
            f"{', '.join(there)}: already there; overwrite with --force, or name another folder by --out"
        )
    for path, text in paths.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _write_whole(path, text)
        except OSError as error:
            raise ConfigError(
                f"cannot write {str(path)!r}: {error.strerror}; name another folder by --out"
            ) from None
    return tuple(paths)


def _write_whole(path: Path, text: str) -> None:
    """Writes the file atomically."""
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        new.write_text(text, encoding="utf-8")
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
