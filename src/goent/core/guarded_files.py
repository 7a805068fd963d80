"""Tells which files that other programs obey changed while a worker worked.

Tools are asked before they change one; a shell command is not seen that closely. So these files are looked at
before a turn and after it: in the worker's directory, in the folders between it and the top of its checkout, and in
git's own folder. What lies deeper is found among the files of the worker's result.
"""

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePath

from goent.domain.types import GuardedChange
from goent.policy.guarded import guard_reason

MOST_FILES = 2000
MOST_DEPTH = 6
SMALL = 256 * 1024  # bytes that are read; of a larger file size and times count
# Of git's folder what makes it run programs; it writes the rest itself with every command.
_OF_GIT = ("config", "config.worktree", "hooks", "info/attributes", "info/exclude")
# go-ent writes there; and what OpenCode installs is not looked into.
_PASSED_OVER = frozenset({"node_modules", "logs", "objects", "evals"})

MARKERS = (".git", ".goent")  # where a project begins

Prints = Mapping[Path, str]


def fingerprints(cwd: Path, origin: Path | None = None) -> Prints:
    """The guarded files that a worker in `cwd` is closest to, each by what is in it.

    `origin` is the user's folder that a worker's own was made from.
    """
    found: dict[Path, str] = {}
    folders = dict.fromkeys([*_up_to_top(cwd), *(_up_to_top(origin) if origin else ())])
    for place in _places(folders):
        for file in _files(place, MOST_DEPTH):
            if len(found) >= MOST_FILES:
                return found
            if told := _print(file):
                found[file] = told
    return found


def changes(before: Prints, after: Prints, cwd: Path) -> tuple[GuardedChange, ...]:
    """What came, went or is different. Of more than `MOST_FILES`, those beyond are not known."""
    paths = sorted(path for path in before.keys() | after if before.get(path) != after.get(path))
    return tuple(GuardedChange(path=_shown(path, cwd), reason=_reason(path, cwd)) for path in paths)


def _places(folders: Iterable[Path]) -> Iterator[Path]:
    """Files and folders to look at."""
    for folder in folders:
        for entry in _entries(folder):
            if entry.name == ".git":
                yield from _of_git(Path(entry.path))
            elif guard_reason(PurePath(entry.name)):
                yield Path(entry.path)
            elif entry.name.startswith(".") and entry.is_dir(follow_symlinks=False):
                inside = (PurePath(entry.name, each.name) for each in _entries(Path(entry.path)))
                yield from (folder / each for each in inside if guard_reason(each))


def _up_to_top(cwd: Path) -> Iterator[Path]:
    folders = (cwd, *cwd.parents)
    marked = (folder for name in MARKERS for folder in folders if (folder / name).exists())
    top = next(marked, cwd)
    for folder in folders:
        yield folder
        if folder == top:
            return


def _of_git(git: Path) -> Iterator[Path]:
    """Git's folder, or the one that a worktree's file names and the repository's behind it."""
    yield from (git / name for name in _OF_GIT)
    if git.is_dir():
        return
    yield git
    own = _named(git, "gitdir:")
    if own is None:
        return
    yield from (own / name for name in _OF_GIT)
    if common := _named(own / "commondir", ""):
        yield from (common / name for name in _OF_GIT)


def _named(file: Path, begin: str) -> Path | None:
    try:
        text = file.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None
    return Path(os.path.normpath(file.parent / text.removeprefix(begin).strip()))


def _files(place: Path, depth: int) -> Iterator[Path]:
    if place.is_symlink() or not place.is_dir():
        yield place
        return
    for entry in _entries(place):
        if depth and entry.name not in _PASSED_OVER:
            yield from _files(Path(entry.path), depth - 1)


def _entries(folder: Path) -> "list[os.DirEntry[str]]":
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []  # it went away, or is not ours to see


def _print(file: Path) -> str:
    """Empty if there is no such file."""
    try:
        state = file.lstat()
        if stat.S_ISLNK(state.st_mode):
            return f"link {file.readlink()}"
        if stat.S_ISREG(state.st_mode) and state.st_size <= SMALL:
            return f"{stat.S_IMODE(state.st_mode)} {hashlib.sha256(file.read_bytes()).hexdigest()}"
    except OSError:
        return ""
    return f"{state.st_mode} {state.st_ino} {state.st_size} {state.st_mtime_ns} {state.st_ctime_ns}"


def _reason(path: Path, cwd: Path) -> str:
    """By its name below the worker's directory, or below one above that; a checkout may lie in a guarded folder."""
    above = (folder for folder in (cwd, *cwd.parents) if path.is_relative_to(folder))
    named = path.relative_to(next(above, path.parent))
    return guard_reason(named) or guard_reason(path) or guard_reason(PurePath(".git")) or ""


def _shown(path: Path, cwd: Path) -> str:
    return str(path.relative_to(cwd)) if path.is_relative_to(cwd) else str(path)
