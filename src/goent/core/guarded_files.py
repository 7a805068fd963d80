"""Tells which files that other programs obey changed while a worker worked.

Tools are asked before they change one; a shell command is not seen that closely. So these files are looked at
before a turn and after it: in the worker's directory, in the folders between it and the top of its checkout, and in
git's own folder. What lies deeper is found among the files of the worker's result.
"""

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path, PurePath
from typing import Final

from goent.domain.types import GuardedChange, Value
from goent.plain_files import read_plain
from goent.policy.guarded import guard_reason

MOST_READ = 2000  # files; of the others size and times count
MOST_FILES = 10_000  # of one place, so that none can hide another
MOST_DEPTH = 6
SMALL = 256 * 1024  # bytes that are read; of a larger file size and times count
# Of git's folder what makes it run programs; it writes the rest itself with every command.
_OF_GIT = (
    *("config", "config.worktree", "hooks", "info/attributes", "info/exclude"),
    *("commondir", "gitdir"),  # where it goes on
)
_OF_MODULES: Final = tuple(
    f"modules/{deep}{name}" for deep in ("*/", "*/*/") for name in ("config", "hooks")
)
# go-ent writes there; and what OpenCode installs is not looked into.
_PASSED_OVER = frozenset({"node_modules", "logs", "objects", "evals"})

MARKERS = (".git", ".goent")  # where a project begins


class Print(Value, frozen=True, kw_only=True):
    """What a file is like: `state` by the system's word, `content` by what is in it, if it was read."""

    state: str
    content: str = ""

    def differs(self, other: "Print | None") -> bool:
        if other is None:
            return True
        if self.content and other.content:
            return self.content != other.content
        return self.state != other.state


Prints = Mapping[Path, Print]


def fingerprints(cwd: Path, origin: Path | None = None) -> Prints:
    """The guarded files that a worker in `cwd` is closest to, each by what is in it.

    `origin` is the user's folder that a worker's own was made from.
    """
    found: dict[Path, Print] = {}
    folders = dict.fromkeys([*_up_to_top(cwd), *(_up_to_top(origin) if origin else ())])
    for place in _places(folders):
        for file in islice(_files(place, MOST_DEPTH), MOST_FILES):
            if told := _print(file, read=len(found) < MOST_READ):
                found[file] = told
    return found


def changes(before: Prints, after: Prints, cwd: Path) -> tuple[GuardedChange, ...]:
    """What came, went or is different. Of more than `MOST_FILES` in one place, those beyond are not known."""
    paths = sorted(path for path in before.keys() | after if _changed(path, before, after))
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
    yield from _of_git_folder(git)
    if git.is_dir():
        return
    yield git
    own = _named(git, "gitdir:")
    if own is None:
        return
    yield from _of_git_folder(own)
    if common := _named(own / "commondir", ""):
        yield from _of_git_folder(common)


def _of_git_folder(git: Path) -> Iterator[Path]:
    yield from (git / name for name in _OF_GIT)
    for pattern in _OF_MODULES:
        yield from git.glob(pattern)


def _named(file: Path, begin: str) -> Path | None:
    try:
        text = os.fsdecode(read_plain(file, SMALL)).strip()
    except OSError:
        return None
    return Path(os.path.normpath(file.parent / text.removeprefix(begin).strip()))


def _files(place: Path, depth: int) -> Iterator[Path]:
    """Whoever obeys a file follows links to it, and to its folder."""
    if place.is_symlink() or not place.is_dir():
        yield place
    if not place.is_dir():
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


def _changed(path: Path, before: Prints, after: Prints) -> bool:
    was, now = before.get(path), after.get(path)
    return was.differs(now) if was else now is not None


def _print(file: Path, *, read: bool) -> Print | None:
    """None if there is no such file. A link is what it says and what is there."""
    try:
        link = f"link {file.readlink()} " if file.is_symlink() else ""
        if link and not file.is_file():  # what a folder has is looked at by itself
            return Print(state=link, content=link)
        state = file.stat()
    except OSError:
        return None
    times = (state.st_mode, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
    content = ""
    if read and state.st_size <= SMALL:
        with suppress(OSError):
            digest = hashlib.sha256(read_plain(file, SMALL)).hexdigest()
            content = f"{link}{stat.S_IMODE(state.st_mode)} {digest}"
    return Print(state=f"{link}{times}", content=content)


def _reason(path: Path, cwd: Path) -> str:
    """By its name below the worker's directory, or below one above that; a checkout may lie in a guarded folder."""
    above = (folder for folder in (cwd, *cwd.parents) if path.is_relative_to(folder))
    named = path.relative_to(next(above, path.parent))
    return guard_reason(named) or guard_reason(path) or guard_reason(PurePath(".git")) or ""


def _shown(path: Path, cwd: Path) -> str:
    return str(path.relative_to(cwd)) if path.is_relative_to(cwd) else str(path)
