"""Resolves, guards, reads and writes a session's files, through the client's editor or directly.

A path is judged by its target, links followed. A link may be placed in it between the check and
the access, so files are opened from `/` downwards, one folder at a time, following no links.
"""

import errno
import os
import stat
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread

from goent.agent.agent_events import DiffPart
from goent.agent.agent_ports import PermissionNeed, ToolContext, ToolMistake
from goent.domain.types import Value
from goent.permissions.guarded_links import guard_base, guard_by_link, guard_of
from goent.permissions.permission_rules import guard_reason

BOM = "\N{ZERO WIDTH NO-BREAK SPACE}"
SNIFFED_BYTES = 8192
_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "PDF"),
    (b"PK\x03\x04", "zip archive"),
    (b"\x1f\x8b", "gzip"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\x7fELF", "ELF program"),
    (b"SQLite format 3\x00", "SQLite database"),
    (b"\xff\xfe", "UTF-16 text"),
    (b"\xfe\xff", "UTF-16 text"),
)


class FileText(Value, frozen=True, kw_only=True):
    """A file's text, without its byte order mark. Invalid UTF-8 is kept as surrogates."""

    text: str
    has_bom: bool = False

    def encoded(self) -> bytes:
        return self.with_bom.encode(errors="surrogateescape")

    @property
    def with_bom(self) -> str:
        return BOM + self.text if self.has_bom else self.text

    @property
    def has_invalid_utf8(self) -> bool:
        return not self.text.isascii() and valid_unicode(self.text) != self.text


def decode_text(data: bytes | str) -> FileText:
    text = data if isinstance(data, str) else data.decode(errors="surrogateescape")
    return FileText(text=text.removeprefix(BOM), has_bom=text.startswith(BOM))


def with_stored_endings(text: FileText, stored: FileText | None) -> FileText:
    """An editor's text with the line endings and the byte order mark that editors strip."""
    if not stored:
        return text
    has_bare_lf = "\n" in stored.text.replace("\r\n", "")
    if "\r\n" in stored.text and "\r\n" not in text.text and not has_bare_lf:
        text = FileText(text=text.text.replace("\n", "\r\n"))
    return FileText(text=text.text, has_bom=text.has_bom or stored.has_bom)


def valid_unicode(text: str) -> str:
    """The text with replacement characters for surrogates, so that it can be sent."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="surrogateescape").decode(errors="replace")
    return text


def binary_kind(head: bytes) -> str | None:
    """The kind of a file that is not text, by its first bytes; None for text."""
    for magic, kind in _MAGIC:
        if head.startswith(magic):
            return kind
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return "binary" if b"\0" in head[:SNIFFED_BYTES] else None


class SeenFiles:
    """The files that the model has seen, and their content at that time."""

    def __init__(self) -> None:
        self._digests: dict[Path, bytes] = {}

    def remember(self, path: Path, text: FileText) -> None:
        self._digests[path] = _digest(text)

    def knows(self, path: Path) -> bool:
        return path in self._digests

    def is_current(self, path: Path, text: FileText) -> bool:
        return self._digests.get(path) == _digest(text)


def _digest(text: FileText) -> bytes:
    return blake2b(text.encoded(), digest_size=16).digest()


BROAD_PATH_PARTS = 2  # paths with so few parts are too broad for one permission: `/`, `/home`
SECRET_PROC_FILES = frozenset({"environ", "mem"})
_FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
_FILE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


class SessionPath(Value, frozen=True, kw_only=True):
    """A resolved path. `path` has no links in it; `client_path` is the one that an editor uses."""

    path: Path
    client_path: Path
    name: str
    root: Path | None  # the session's directory that contains it
    guard_reason: str = ""  # why a change always needs a question

    @property
    def read_need(self) -> PermissionNeed | None:
        return None if self.root else self._outside

    @property
    def write_need(self) -> PermissionNeed:
        path = printable(str(self.path))
        if self.guard_reason:
            return PermissionNeed(
                permission="edit" if self.root else "outside",
                patterns=(path,),
                always=(path,),
                exact=True,
                reason=self.guard_reason,
            )
        if not self.root:
            return self._outside
        below = printable(str(self.root / "*"))
        return PermissionNeed(permission="edit", patterns=(path,), always=(below,))

    @property
    def _outside(self) -> PermissionNeed:
        path = printable(str(self.path))
        broad = len(self.path.parts) <= BROAD_PATH_PARTS
        always = (path,) if broad else (path, printable(str(self.path / "*")))
        return PermissionNeed(permission="outside", patterns=(path,), always=always)


class SessionPaths:
    """Resolves the paths of one session."""

    def __init__(self, context: ToolContext) -> None:
        self._cwd = context.cwd
        self._home = context.environ.get("HOME", "")
        self._given = (context.cwd, *context.roots)
        self._roots = tuple(Path(os.path.realpath(root)) for root in self._given)
        self._bases = tuple(map(guard_base, self._roots))

    def resolve(self, asked: str) -> SessionPath:
        """Raises `ToolMistake` for an invalid path."""
        if not asked or "\0" in asked:
            raise ToolMistake(f"{asked!r} is not a path")
        if self._home and (asked == "~" or asked.startswith("~/")):
            asked = self._home + asked[1:]
        joined = self._cwd / asked
        path = Path(os.path.realpath(joined))
        try:
            endless = path.is_symlink()
        except OSError as error:
            raise ToolMistake(f"{asked[:200]!r} is not a path: {error.strerror}") from None
        if endless:
            raise ToolMistake(f"{asked!r} is a link to itself")
        if path.parts[1:2] == ("proc",) and path.name in SECRET_PROC_FILES:
            raise ToolMistake(f"{asked!r} cannot be read: it may contain keys")
        # Without its `..` a path may lead elsewhere, if a link precedes them.
        client_path = Path(os.path.normpath(joined))
        if Path(os.path.realpath(client_path)) != path:
            client_path = path
        root = next((root for root in self._roots if path.is_relative_to(root)), None)
        if root is None and "*" in str(path):  # allowing it would allow all paths that it matches
            raise ToolMistake(f"{asked!r} has a * in it: outside, use plain paths")
        # Guarded by its target, by its name, or by a link that leads there: each is enough.
        guard = self._guard_of_name(path) or self._guard_of_name(client_path)
        return SessionPath(
            path=path,
            client_path=client_path,
            name=self.name(client_path),
            root=root,
            guard_reason=guard or guard_by_link(path, *self._bases, *self._roots),
        )

    def _guard_of_name(self, place: Path) -> str:
        given = zip((*self._roots, *self._given), self._roots * 2, self._bases * 2, strict=True)
        for root, real, base in given:
            if place.is_relative_to(root):
                return guard_of(real / place.relative_to(root), base)
        return guard_reason(place) or ""

    def recheck(self, place: SessionPath) -> None:
        """Raises `ToolMistake` if the path has another target now."""
        if os.path.realpath(place.client_path) != str(place.path):
            raise ToolMistake(f"the target of {place.name!r} has changed: nothing was done")

    def name(self, path: Path) -> str:
        """The name for people and models: relative to the working directory inside of it."""
        inside = path != self._cwd and path.is_relative_to(self._cwd)
        return printable(str(path.relative_to(self._cwd) if inside else path))


def printable(text: str) -> str:
    """A name on one line: line breaks and invalid UTF-8 escaped."""
    plain = os.fsencode(text).decode(errors="backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in plain)


@contextmanager
def explain_os_errors(place: SessionPath, action: str) -> Generator[None]:
    """Raises `OSError` as a `ToolMistake` for the model."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            why = "a part of the path is a file, or has become a link"
        else:
            why = error.strerror or str(error)
        raise ToolMistake(f"cannot {action} {place.name!r}: {why}") from None


@contextmanager
def open_regular_file(place: SessionPath) -> Generator[tuple[int, os.stat_result]]:
    """Opens a regular file for reading, without blocking. Raises `OSError` too."""
    with open_folder(place.path.parent) as parent:
        file = os.open(place.path.name or ".", os.O_RDONLY | _FILE, dir_fd=parent)
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise ToolMistake(f"{place.name!r} is {file_kind(status.st_mode)}, not a file")
        yield file, status
    finally:
        os.close(file)


@contextmanager
def open_folder(path: Path, *, make: bool = False) -> Generator[int]:
    """Opens a folder without following links, and creates it if `make`. Raises `OSError`."""
    current = os.open(path.anchor, _FOLDER)
    try:
        for part in path.parts[1:]:
            below = _open_subfolder(current, part, make=make)
            os.close(current)
            current = below
        yield current
    finally:
        os.close(current)


def _open_subfolder(parent: int, name: str, *, make: bool) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=parent)
    except FileNotFoundError:
        if not make:
            raise
    with suppress(FileExistsError):
        os.mkdir(name, dir_fd=parent)
    return os.open(name, _FOLDER, dir_fd=parent)


def status_of(path: Path) -> os.stat_result | None:
    """None if the path does not exist."""
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


def file_kind(mode: int) -> str:
    return _KINDS.get(stat.S_IFMT(mode), "a file")


MAX_WHOLE_BYTES = 10_000_000  # of a file that is read whole, and can be edited
MAX_CLIENT_BYTES = 2_000_000  # of a file that goes through the editor, in one line
CLIENT_S = 30.0
MAX_DIFF_CHARS = 100_000  # of a file whose diff shows it whole
CONTEXT_LINES = 3  # before and after a change
T = TypeVar("T")


class SessionFiles:
    """Reads and writes the text files of one session."""

    def __init__(self, context: ToolContext) -> None:
        self.places = SessionPaths(context)
        self.seen = SeenFiles()
        self._reader = context.file_reader
        self._writer = context.file_writer

    async def load(self, place: SessionPath) -> FileText:
        """The text as the editor has it, else as it is stored.

        Raises `ToolMistake` if it is not text, or too long, and `FileNotFoundError`.
        """
        stored: FileText | None = None
        with suppress(FileNotFoundError):
            stored = decode_text(await in_thread(lambda: _read_stored(place)))
        unsaved = await self._unsaved(place, stored)
        # Some editors (toad, CodeCompanion) report a missing file as empty.
        if unsaved or (unsaved is not None and stored):
            return with_stored_endings(decode_text(unsaved), stored)
        if stored is None:
            raise FileNotFoundError(place.name)
        return stored

    async def _unsaved(self, place: SessionPath, stored: FileText | None) -> str | None:
        reader = self._reader
        if not (reader and place.root and (stored is None or _fits_client(place, stored))):
            return None
        if not _has_plain_name(place):
            return None
        try:
            return await _by_client(lambda: reader.read(place.client_path), place, "read")
        except OSError:
            return None  # the client knows no more about it than the disk

    async def save(self, place: SessionPath, text: FileText) -> None:
        """Raises `ToolMistake` if the file cannot be written."""
        self.places.recheck(place)
        writer = self._writer
        if writer and _fits_client(place, text):
            try:
                await _by_client(
                    lambda: writer.write(place.client_path, text.with_bom), place, "write"
                )
            except OSError as error:
                raise ToolMistake(f"the editor cannot write {place.name!r}: {error}") from None
        else:
            # Never interrupted: a cancellation waits for one small write.
            with anyio.CancelScope(shield=True):
                await in_thread(lambda: _store(place, text.encoded()))
        self.seen.remember(place.path, text)


def _fits_client(place: SessionPath, text: FileText) -> bool:
    """Whether the file can go through the client, whose messages are JSON on one line."""
    plain = _has_plain_name(place) and not text.has_invalid_utf8
    return plain and len(text.text) <= MAX_CLIENT_BYTES


def _has_plain_name(place: SessionPath) -> bool:
    return valid_unicode(str(place.client_path)) == str(place.client_path)


async def _by_client(request: Callable[[], Awaitable[T]], place: SessionPath, action: str) -> T:
    with anyio.move_on_after(CLIENT_S):
        return await request()
    raise ToolMistake(
        f"the editor did not {action} {place.name!r} within {CLIENT_S:g} s: try again, or use Bash"
    )


async def in_thread(work: Callable[[], T]) -> T:
    return await anyio.to_thread.run_sync(work, abandon_on_cancel=True)


def _read_stored(place: SessionPath) -> bytes:
    with explain_os_errors(place, "read"):
        try:
            with open_regular_file(place) as (file, status):
                if status.st_size > MAX_WHOLE_BYTES:
                    raise ToolMistake(
                        f"{place.name!r} has {status.st_size:,} bytes: too large to be written or"
                        " edited. Use Bash (sed, head, tail)."
                    )
                data = read_up_to(file, MAX_WHOLE_BYTES)
        except FileNotFoundError:
            data = None
    if data is None:
        raise FileNotFoundError(place.name)
    if kind := binary_kind(data):
        raise ToolMistake(f"{place.name!r} is not text ({kind}): use Bash")
    return data


def read_up_to(file: int, limit: int) -> bytes:
    pieces: list[bytes] = []
    while limit > 0 and (piece := os.read(file, min(limit, 1 << 20))):
        pieces.append(piece)
        limit -= len(piece)
    return b"".join(pieces)


def _store(place: SessionPath, data: bytes) -> None:
    """Writes atomically: to a new file beside it, which is then renamed."""
    with explain_os_errors(place, "write"), open_folder(place.path.parent, make=True) as parent:
        name = place.path.name
        old = _status_to_replace(parent, name, place)
        temporary = f".{name[:50]}.{os.urandom(4).hex()}"
        file = os.open(
            temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=parent
        )
        try:
            with open(file, "wb", buffering=0) as new:  # noqa: PTH123 (a descriptor, not a path)
                if old:
                    _restore_owner(file, old)
                rest = memoryview(data)
                while rest:
                    rest = rest[new.write(rest) :]
            os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=parent)
            raise


def _status_to_replace(parent: int, name: str, place: SessionPath) -> os.stat_result | None:
    """None if the file does not exist."""
    try:
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        raise ToolMistake(f"{place.name!r} is no longer a file: nothing was written")
    if not os.access(name, os.W_OK, dir_fd=parent):
        raise ToolMistake(f"{place.name!r} is read-only: nothing was written")
    return status


def _restore_owner(file: int, old: os.stat_result) -> None:
    """Restores the owner, as far as permitted, and the mode bits."""
    if (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
        with suppress(PermissionError):
            os.fchown(file, old.st_uid, old.st_gid)
    os.fchmod(file, stat.S_IMODE(old.st_mode))


def file_diff(place: SessionPath, old: FileText | None, new: FileText) -> DiffPart:
    """The diff for people: of the whole file if it is short, else of the changed part."""
    before, after = (old.text if old else None), new.text
    if before is not None and max(len(before), len(after)) > MAX_DIFF_CHARS:
        before, after = _changed_part(before, after)
    return partial_diff(place, before, after)


def partial_diff(place: SessionPath, before: str | None, after: str) -> DiffPart:
    """A diff of a part, such as for a file that may not be read yet."""
    return DiffPart(
        path=valid_unicode(str(place.client_path)),
        old=None if before is None else valid_unicode(before),
        new=valid_unicode(after),
    )


def _changed_part(before: str, after: str) -> tuple[str, str]:
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    most = min(len(old), len(new))
    head = next((n for n in range(most) if old[n] != new[n]), most)
    tail = next((n for n in range(most - head) if old[-1 - n] != new[-1 - n]), most - head)
    start, end = max(0, head - CONTEXT_LINES), max(0, tail - CONTEXT_LINES)
    return "".join(old[start : len(old) - end]), "".join(new[start : len(new) - end])
