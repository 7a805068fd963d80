"""Where does a path lead, is that inside the session's directories, and how is it opened safely?

A path is judged by where it leads, links followed. Between the look and the deed a link may have
been put in its way: so a file is opened from `/` downwards, one folder at a time, following none.
"""

import errno
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from goent.agent.ports import Desk, Need, ToolMistake
from goent.domain.types import Value
from goent.guarded_places import guard_base, guard_by_link, guard_of
from goent.policy.guarded import guard_reason

WIDE = 2  # parts of a path below which too much lies for one yes: `/`, `/home`
TELLTALE = frozenset({"environ", "mem"})
_FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
_FILE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


class Place(Value, frozen=True, kw_only=True):
    """Where a path leads. `path` has no link in it; `known` is the one that an editor goes by."""

    path: Path
    known: Path
    name: str
    root: Path | None  # which of the session's directories it lies in
    guard: str = ""  # why a change of it is always asked

    @property
    def reading(self) -> Need | None:
        """What must be permitted to look at it."""
        return None if self.root else self._outside

    @property
    def writing(self) -> Need:
        """What must be permitted to change it."""
        path = printable(str(self.path))
        if self.guard:
            permission = "edit" if self.root else "outside"
            return Need(
                permission=permission,
                patterns=(path,),
                always=(path,),
                exact=True,
                reason=self.guard,
            )
        if not self.root:
            return self._outside
        below = printable(str(self.root / "*"))
        return Need(permission="edit", patterns=(path,), always=(below,))

    @property
    def _outside(self) -> Need:
        path = printable(str(self.path))
        always = (path, printable(str(self.path / "*")))
        if len(self.path.parts) <= WIDE:
            always = (path,)
        return Need(permission="outside", patterns=(path,), always=always)


class Places:
    """The guard of one session's directories."""

    def __init__(self, desk: Desk) -> None:
        self._cwd = desk.cwd
        self._home = desk.environ.get("HOME", "")
        self._given = (desk.cwd, *desk.roots)
        self._roots = tuple(Path(os.path.realpath(root)) for root in self._given)
        self._bases = tuple(map(guard_base, self._roots))

    def find(self, asked: str) -> Place:
        """Raises `ToolMistake` for what cannot be a path."""
        if not asked or "\0" in asked:
            raise ToolMistake(f"{asked!r} is no path")
        if self._home and (asked == "~" or asked.startswith("~/")):
            asked = self._home + asked[1:]
        joined = self._cwd / asked
        path = Path(os.path.realpath(joined))
        try:
            endless = path.is_symlink()
        except OSError as error:
            raise ToolMistake(f"{asked[:200]!r} is no path: {error.strerror}") from None
        if endless:
            raise ToolMistake(f"{asked!r} is a link that leads to itself")
        if path.parts[1:2] == ("proc",) and path.name in TELLTALE:
            raise ToolMistake(f"{asked!r} is what a process keeps to itself: keys may be in it")
        # Without its `..` a path may lead elsewhere, if a link stands before them.
        known = Path(os.path.normpath(joined))
        if Path(os.path.realpath(known)) != path:
            known = path
        root = next((root for root in self._roots if path.is_relative_to(root)), None)
        if root is None and "*" in str(path):  # a yes to it would be one to all that it matches
            raise ToolMistake(f"{asked!r} has a * in it: outside, only plain paths are taken")
        return Place(
            path=path, known=known, name=self.name(known), root=root, guard=self._guard(path, known)
        )

    def _guard(self, path: Path, known: Path) -> str:
        """By where it leads, by how it is called, or by a link that leads there: each is enough."""
        found = self._named(path) or self._named(known)
        return found or guard_by_link(path, *self._bases, *self._roots)

    def _named(self, place: Path) -> str:
        given = zip((*self._roots, *self._given), self._roots * 2, self._bases * 2, strict=True)
        for root, real, base in given:
            if place.is_relative_to(root):
                return guard_of(real / place.relative_to(root), base)
        return guard_reason(place) or ""

    def again(self, place: Place) -> None:
        """Raises `ToolMistake` if the place leads elsewhere now."""
        if os.path.realpath(place.known) != str(place.path):
            raise ToolMistake(f"{place.name!r} leads elsewhere than a moment ago: nothing was done")

    def name(self, path: Path) -> str:
        """As people and models call it."""
        inside = path != self._cwd and path.is_relative_to(self._cwd)
        return printable(str(path.relative_to(self._cwd) if inside else path))


def printable(text: str) -> str:
    """A name as it can be shown in a line: no line breaks, no bytes that are no text."""
    plain = os.fsencode(text).decode(errors="backslashreplace")
    return plain if plain.isprintable() else "".join(map(_escaped, plain))


def _escaped(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()


@contextmanager
def trouble(place: Place, deed: str) -> Generator[None]:
    """What the system refuses, in words for the model."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            why = "a part of the path is a file, or became a link meanwhile"
        else:
            why = error.strerror or str(error)
        raise ToolMistake(f"cannot {deed} {place.name!r}: {why}") from None


@contextmanager
def opened(place: Place) -> Generator[tuple[int, os.stat_result]]:
    """The regular file there, to be read; what could block is refused. Raises `OSError` too."""
    with folder(place.path.parent) as parent:
        file = os.open(place.path.name or ".", os.O_RDONLY | _FILE, dir_fd=parent)
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise ToolMistake(f"{place.name!r} is {kind_of(status.st_mode)}, not a file")
        yield file, status
    finally:
        os.close(file)


@contextmanager
def folder(path: Path, *, make: bool = False) -> Generator[int]:
    """The folder, opened without following a link; made if need be. Raises `OSError`."""
    current = os.open(path.anchor, _FOLDER)
    try:
        for part in path.parts[1:]:
            below = _below(current, part, make=make)
            os.close(current)
            current = below
        yield current
    finally:
        os.close(current)


def _below(parent: int, name: str, *, make: bool) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=parent)
    except FileNotFoundError:
        if not make:
            raise
    with suppress(FileExistsError):
        os.mkdir(name, dir_fd=parent)
    return os.open(name, _FOLDER, dir_fd=parent)


def status_of(path: Path) -> os.stat_result | None:
    """None if nothing is there."""
    try:
        return path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None


_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a link",
}


def kind_of(mode: int) -> str:
    return _KINDS.get(stat.S_IFMT(mode), "a file")
