"""Reads and writes regular files only, in folders that others may have prepared.

In a repository, a settings file can be a pipe that never answers, a link to an endless device, or a link
to one of the user's files. Standard library only.
"""

import errno
import os
import secrets
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

READ_CHUNK = 1 << 20
LARGE_FILE = 1 << 31  # bytes: the limit for files that may be long, such as the rows of a run
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}


class NotPlainFile(OSError):
    """A file that is neither read nor written; `why` is the reason without its name."""

    def __init__(self, path: "str | os.PathLike[str]", why: str) -> None:
        super().__init__(errno.EINVAL, why, os.fspath(path))
        self.why = why

    def __str__(self) -> str:
        return f"{os.fspath(self.filename)!r} {self.why}"


class FileTooLarge(NotPlainFile):
    """The file has more bytes than the limit."""


def read_plain(path: "str | os.PathLike[str]", most: int, *, inside: Path | None = None) -> bytes:
    """All bytes of a regular file. Raises `NotPlainFile`, `FileTooLarge` or another `OSError`.

    With `inside`, links in the path may lead only to places in that folder.
    """
    data = read_beginning(path, most + 1, inside=inside)
    if len(data) > most:
        raise FileTooLarge(path, f"is larger than {most} bytes")
    return data


def read_plain_text(
    path: "str | os.PathLike[str]", most: int, *, inside: Path | None = None
) -> str:
    """As `read_plain`, as UTF-8 text with line feeds only. May raise `UnicodeDecodeError`."""
    text = read_plain(path, most, inside=inside).decode("utf-8-sig")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_beginning(
    path: "str | os.PathLike[str]", most: int, *, inside: Path | None = None
) -> bytes:
    """The first `most` bytes of a regular file, or fewer if it has fewer."""
    target = _resolve_inside(path, inside) if inside else os.fspath(path)
    # Before opening, because opening some devices has effects; and after, because the file may be replaced.
    _check_regular(path, os.stat(target).st_mode)  # noqa: PTH116 (no Path is needed)
    descriptor = os.open(target, _FLAGS | (os.O_NOFOLLOW if inside else 0))
    try:
        _check_regular(path, os.fstat(descriptor).st_mode)
        return _read(descriptor, most)
    finally:
        os.close(descriptor)


@contextmanager
def plain_folder(path: Path, *, make: bool = False) -> Generator["PlainFolder"]:
    """A folder to write in; `make` creates it. Raises `NotPlainFile` if it is a link or not a folder."""
    if make:
        with suppress(FileExistsError):
            path.mkdir()
    check_no_link(path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except NotADirectoryError:
        raise NotPlainFile(path, "is no folder: remove it") from None
    try:
        yield PlainFolder(path, descriptor)
    finally:
        os.close(descriptor)


class PlainFolder:
    """Writes in one open folder, even if its path changes, and follows no link in it."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    def create(self, name: str, content: bytes, mode: int = 0o666) -> None:
        """A new file. Raises `FileExistsError`, or `NotPlainFile` for a link that is there."""
        check_no_link(self._path / name)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(name, flags, mode, dir_fd=self._descriptor)
        with open(descriptor, "wb") as file:  # noqa: PTH123 (a descriptor, no path)
            file.write(content)

    def replace(self, name: str, content: bytes) -> None:
        """Write the file atomically; an existing one keeps its mode."""
        check_no_link(self._path / name)
        fresh = f".{name}.{secrets.token_hex(6)}"
        try:
            self.create(fresh, content)
            with suppress(FileNotFoundError):
                found = os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
                os.chmod(fresh, stat.S_IMODE(found.st_mode), dir_fd=self._descriptor)
            os.replace(fresh, name, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)
        except OSError:
            with suppress(OSError):
                os.unlink(fresh, dir_fd=self._descriptor)
            raise


def check_no_link(path: Path) -> None:
    """Raise `NotPlainFile` for a link: writing through it would change a file elsewhere."""
    if path.is_symlink():
        target = os.fspath(path.readlink())
        raise NotPlainFile(
            path, f"is a link to {target!r}, and go-ent writes through none: remove the link"
        )


def is_plain(path: "str | os.PathLike[str]") -> bool:
    """Whether the path is a regular file, or a link to one."""
    with suppress(OSError, ValueError):
        return stat.S_ISREG(os.stat(path).st_mode)  # noqa: PTH116 (no Path is needed)
    return False


def _resolve_inside(path: "str | os.PathLike[str]", inside: Path) -> str:
    real = os.path.realpath(path)
    top = os.path.realpath(inside)
    if os.path.commonpath((real, top)) != top:
        raise NotPlainFile(
            path, f"is a link that leads out of {top!r}, to {real!r}: put the file itself there"
        )
    return real


def _check_regular(path: "str | os.PathLike[str]", mode: int) -> None:
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "something else")
        raise NotPlainFile(path, f"is {kind}, not a regular file")


def _read(descriptor: int, most: int) -> bytes:
    parts: list[bytes] = []
    missing = most
    while missing > 0 and (part := os.read(descriptor, min(missing, READ_CHUNK))):
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)
