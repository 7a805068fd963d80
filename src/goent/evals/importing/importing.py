"""Which of the known ways does a file go, and where to?"""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

from goent.domain.errors import ConfigError
from goent.evals.importing.agentv import from_agentv
from goent.evals.importing.data_sets import as_data_set, as_suite
from goent.evals.importing.documents import Imported
from goent.evals.importing.promptfoo import from_promptfoo

Kind = Literal["agentv", "promptfoo", "yaml", "jsonl"]

_WAYS: Final[Mapping[Kind, Callable[[Path, Path], Imported]]] = {
    "agentv": from_agentv,
    "promptfoo": from_promptfoo,
    "yaml": as_suite,
    "jsonl": as_data_set,
}


def imported(kind: Kind, paths: Sequence[Path], out: Path) -> Imported:
    """What these files become in the folder `out`. Nothing is written. Raises `ConfigError`."""
    files: dict[str, str] = {}
    notes: dict[str, None] = {}
    lost: dict[str, None] = {}
    for path in paths:
        one = _WAYS[kind](path, out)
        for name, text in one.files.items():
            if files.setdefault(name, text) != text:
                raise ConfigError(
                    f"{path}: another of these files becomes {name!r} too; import it apart"
                )
        notes |= dict.fromkeys(one.notes)
        lost |= dict.fromkeys(one.lost)
    return Imported(files=files, notes=tuple(notes), lost=tuple(lost))


def write(told: Imported, out: Path, *, force: bool = False) -> tuple[Path, ...]:
    """The files, all or none if one is there already. Raises `ConfigError`."""
    paths = {out / name: text for name, text in told.files.items()}
    there = [str(path) for path in paths if os.path.lexists(path)]
    if there and not force:
        raise ConfigError(
            f"{', '.join(there)}: there already; --force overwrites, --out goes elsewhere"
        )
    for path, text in paths.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _replace(path, text)
        except OSError as error:
            raise ConfigError(
                f"cannot write {str(path)!r}: {error.strerror}; name another folder by --out"
            ) from None
    return tuple(paths)


def _replace(path: Path, text: str) -> None:
    """Whole or not at all."""
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        new.write_text(text, encoding="utf-8")
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
