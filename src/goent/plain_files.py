"""Reads a file that somebody else may have put there: a regular one, up to a bound, and no other.

A repository can make its settings file a pipe that never answers, a link to a device that never
ends, or a link to a file of the user's. Standard library only.
"""

import os
import stat
from contextlib import suppress
from pathlib import Path

CHUNK = 1 << 20
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}


class NotPlain(OSError):
    """A file that is not read: `strerror` says why, without its name."""

    def __init__(self, path: "str | os.PathLike[str]", why: str) -> None:
        super().__init__(None, why, os.fspath(path))

    def __str__(self) -> str:
        return f"{os.fspath(self.filename)!r} {self.strerror}"


class TooLarge(NotPlain):
    """It has more bytes than anybody means to read."""


def read_plain(path: "str | os.PathLike[str]", most: int, *, inside: Path | None = None) -> bytes:
    """All bytes of a regular file. Raises `NotPlain`, `TooLarge`, or what the system says.

    With `inside`, a link on the way may lead anywhere in that folder, and nowhere else.
    """
    data = read_beginning(path, most + 1, inside=inside)
    if len(data) > most:
        raise TooLarge(path, f"is larger than {most} bytes")
    return data


def read_beginning(
    path: "str | os.PathLike[str]", most: int, *, inside: Path | None = None
) -> bytes:
    """The first `most` bytes of a regular file, or fewer if it has fewer."""
    target = _real(path, inside) if inside else os.fspath(path)
    # Before it is opened: opening some devices does something. And after: it may be another by then.
    _check_regular(path, os.stat(target).st_mode)  # noqa: PTH116 (no Path is needed)
    descriptor = os.open(target, _FLAGS | (os.O_NOFOLLOW if inside else 0))
    try:
        _check_regular(path, os.fstat(descriptor).st_mode)
        return _read(descriptor, most)
    finally:
        os.close(descriptor)


def is_plain(path: "str | os.PathLike[str]") -> bool:
    """Whether a regular file is there, also by way of a link."""
    with suppress(OSError, ValueError):
        return stat.S_ISREG(os.stat(path).st_mode)  # noqa: PTH116 (no Path is needed)
    return False


def _real(path: "str | os.PathLike[str]", inside: Path) -> str:
    real = os.path.realpath(path)
    top = os.path.realpath(inside)
    if os.path.commonpath((real, top)) != top:
        raise NotPlain(
            path, f"is a link that leads out of {top!r}, to {real!r}: put the file itself there"
        )
    return real


def _check_regular(path: "str | os.PathLike[str]", mode: int) -> None:
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "something else")
        raise NotPlain(path, f"is {kind}, not a regular file")


def _read(descriptor: int, most: int) -> bytes:
    parts: list[bytes] = []
    missing = most
    while missing > 0 and (part := os.read(descriptor, min(missing, CHUNK))):
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)
