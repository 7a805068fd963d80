"""How is a workspace called, on disk and in git?"""

import re
from pathlib import Path
from typing import Final

from goent.domain.errors import RequestError
from goent.domain.workspaces import FOLDERS, Kind

PRIVATE: Final = 0o700
SOLO: Final = "solo"  # the group of workers that are in no swarm
MERGED: Final = "merged"  # in a group's branches: what was joined
SAFE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*")


def branch_of(group: str, worker: str) -> str:
    """`go-ent/<group>/<worker>`. Raises for a name that git or the disk would not take."""
    for name in (group, worker):
        if not SAFE.fullmatch(name) or name.endswith(".lock"):
            raise RequestError(
                f"{name!r} cannot be part of a branch's name: use letters, digits, '-' and '_'"
            )
    if worker == MERGED:
        raise RequestError(f"a worker cannot be called {worker!r}: that is the merged work's name")
    return f"go-ent/{group}/{worker}"


def place_of(root: Path, kind: Kind, group: str, worker: str) -> Path:
    return root / FOLDERS[kind] / group / worker


def make_private(folder: Path, root: Path) -> None:
    """The folder and what is above it, up to the root, for the user alone."""
    missing = [each for each in (folder, *folder.parents) if each.is_relative_to(root)]
    for each in reversed(missing):
        each.mkdir(PRIVATE, parents=True, exist_ok=True)


def make_folder(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)


def check_free(path: Path) -> None:
    if path.exists():
        raise RequestError(f"there is a workspace {str(path)!r} already: `go-ent gc` lists it")


def is_folder(path: str) -> bool:
    """One of its own: not a link to somewhere else."""
    return Path(path).is_dir() and not Path(path).is_symlink()
