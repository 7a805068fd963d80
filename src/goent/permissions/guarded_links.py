"""Tells whether a path leads to a guarded file, as the folders and links are now.

The names are in `permission_rules.py`. They apply from the top of the checkout, and behind links: a
repository may have `.github/workflows` lead to another folder.
"""

import os
from collections.abc import Iterator
from pathlib import Path, PurePath

from goent.permissions.permission_rules import guard_reason

MAX_ENTRIES = 5_000  # of one folder
GOENT_FOLDER = ".goent"  # workers have folders of their own below it


def guard_base(cwd: Path) -> Path:
    """Where guarded names begin: at the top of the checkout, though a worker may be further down.

    So a checkout inside a guarded folder is not guarded itself, nor a workspace of go-ent's.
    """
    real = Path(os.path.realpath(cwd))
    top = next((each for each in (real, *real.parents) if os.path.lexists(each / ".git")), real)
    return real if GOENT_FOLDER in real.relative_to(top).parts[:-1] else top


def guard_of(place: Path, base: Path) -> str:
    """Why a change there is always asked, by the names on the path; empty if it is not."""
    below = place.relative_to(base) if place.is_relative_to(base) else place
    return guard_reason(below) or ""


def guard_by_link(place: Path, *folders: Path) -> str:
    """The same for targets of links with guarded names in the folders. `place` is a real path."""
    for folder in dict.fromkeys(folders):
        for link in _links(folder):
            target = Path(os.path.realpath(link))
            if target != folder and place.is_relative_to(target):
                named = link.relative_to(folder) / place.relative_to(target)
                if reason := guard_reason(PurePath(named)):
                    return f"{reason}: {str(link.relative_to(folder))!r} leads there"
    return ""


def _links(folder: Path) -> Iterator[Path]:
    """Links in the folder, in its dot folders, and among git's hooks."""
    for entry in _entries(folder):
        if entry.is_symlink():
            yield Path(entry.path)
        elif entry.name.startswith(".") and entry.is_dir(follow_symlinks=False):
            yield from (Path(each.path) for each in _entries(entry.path) if each.is_symlink())
    hooks = folder / ".git" / "hooks"
    yield from (Path(each.path) for each in _entries(hooks) if each.is_symlink())


def _entries(folder: "str | Path") -> "list[os.DirEntry[str]]":
    try:
        with os.scandir(folder) as entries:
            return [entry for entry, _ in zip(entries, range(MAX_ENTRIES), strict=False)]
    except OSError:
        return []
