"""Resolves, guards, reads and writes a session's files, through the client's editor or directly.

A path is judged by where it leads, links followed. Between the look and the deed a link may have
been put in its way: so a file is opened from `/` downwards, one folder at a time, following none.
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
    """A file's text, without its byte order mark. Bytes that are no UTF-8 are kept as surrogates."""

    text: str
    has_bom: bool = False

    def encoded(self) -> bytes:
        return self.with_bom.encode(errors="surrogateescape")

    @property
    def with_bom(self) -> str:
        return BOM + self.text if self.has_bom else self.text

    @property
    def has_invalid_utf8(self) -> bool:
        """Not all of it is UTF-8."""
        return not self.text.isascii() and valid_unicode(self.text) != self.text


def decode_text(data: bytes | str) -> FileText:
    text = data if isinstance(data, str) else data.decode(errors="surrogateescape")
    return FileText(text=text.removeprefix(BOM), has_bom=text.startswith(BOM))


def with_stored_endings(text: FileText, stored: FileText | None) -> FileText:
    """A text as an editor tells it, with the line endings and the mark that editors keep aside."""
    if not stored:
        return text
    plain = "\n" in stored.text.replace("\r\n", "")
    if "\r\n" in stored.text and "\r\n" not in text.text and not plain:
        text = FileText(text=text.text.replace("\n", "\r\n"))
    return FileText(text=text.text, has_bom=text.has_bom or stored.has_bom)


def valid_unicode(text: str) -> str:
    """Fit to be sent: bytes that are no text become marks."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="surrogateescape").decode(errors="replace")
    return text


def binary_kind(head: bytes) -> str | None:
    """What a file is that is no text, by how it begins; None for text."""
    for magic, kind in _MAGIC:
        if head.startswith(magic):
            return kind
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return "binary" if b"\0" in head[:SNIFFED_BYTES] else None


class SeenFiles:
    """Which files the model knows, as they were when it saw them last."""

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


BROAD_PATH_PARTS = 2  # parts of a path below which too much lies for one yes: `/`, `/home`
SECRET_PROC_FILES = frozenset({"environ", "mem"})
_FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
_FILE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


class SessionPath(Value, frozen=True, kw_only=True):
    """Where a path leads. `path` has no link in it; `known` is the one that an editor goes by."""

    path: Path
    client_path: Path
    name: str
    root: Path | None  # which of the session's directories it lies in
    guard_reason: str = ""  # why a change of it is always asked

    @property
    def read_need(self) -> PermissionNeed | None:
        """What must be permitted to look at it."""
        return None if self.root else self._outside

    @property
    def write_need(self) -> PermissionNeed:
        """What must be permitted to change it."""
        path = printable(str(self.path))
        if self.guard_reason:
            permission = "edit" if self.root else "outside"
            return PermissionNeed(
                permission=permission,
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
        always = (path, printable(str(self.path / "*")))
        if len(self.path.parts) <= BROAD_PATH_PARTS:
            always = (path,)
        return PermissionNeed(permission="outside", patterns=(path,), always=always)


class SessionPaths:
    """The guard of one session's directories."""

    def __init__(self, desk: ToolContext) -> None:
        self._cwd = desk.cwd
        self._home = desk.environ.get("HOME", "")
        self._given = (desk.cwd, *desk.roots)
        self._roots = tuple(Path(os.path.realpath(root)) for root in self._given)
        self._bases = tuple(map(guard_base, self._roots))

    def resolve(self, asked: str) -> SessionPath:
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
        if path.parts[1:2] == ("proc",) and path.name in SECRET_PROC_FILES:
            raise ToolMistake(f"{asked!r} is what a process keeps to itself: keys may be in it")
        # Without its `..` a path may lead elsewhere, if a link stands before them.
        known = Path(os.path.normpath(joined))
        if Path(os.path.realpath(known)) != path:
            known = path
        root = next((root for root in self._roots if path.is_relative_to(root)), None)
        if root is None and "*" in str(path):  # a yes to it would be one to all that it matches
            raise ToolMistake(f"{asked!r} has a * in it: outside, only plain paths are taken")
        return SessionPath(
            path=path,
            client_path=known,
            name=self.name(known),
            root=root,
            guard_reason=self._guard(path, known),
        )

    def _guard(self, path: Path, known: Path) -> str:
        """By where it leads, by how it is called, or by a link that leads there: each is enough."""
        found = self._guard_of_name(path) or self._guard_of_name(known)
        return found or guard_by_link(path, *self._bases, *self._roots)

    def _guard_of_name(self, place: Path) -> str:
        given = zip((*self._roots, *self._given), self._roots * 2, self._bases * 2, strict=True)
        for root, real, base in given:
            if place.is_relative_to(root):
                return guard_of(real / place.relative_to(root), base)
        return guard_reason(place) or ""

    def recheck(self, place: SessionPath) -> None:
        """Raises `ToolMistake` if the place leads elsewhere now."""
        if os.path.realpath(place.client_path) != str(place.path):
            raise ToolMistake(f"{place.name!r} leads elsewhere than a moment ago: nothing was done")

    def name(self, path: Path) -> str:
        """As people and models call it."""
        inside = path != self._cwd and path.is_relative_to(self._cwd)
        return printable(str(path.relative_to(self._cwd) if inside else path))


def printable(text: str) -> str:
    """A name as it can be shown in a line: no line breaks, no bytes that are no text."""
    plain = os.fsencode(text).decode(errors="backslashreplace")
    return plain if plain.isprintable() else "".join(map(_escape, plain))


def _escape(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()


@contextmanager
def explain_os_errors(place: SessionPath, deed: str) -> Generator[None]:
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
def open_regular_file(place: SessionPath) -> Generator[tuple[int, os.stat_result]]:
    """The regular file there, to be read; what could block is refused. Raises `OSError` too."""
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
    """The folder, opened without following a link; made if need be. Raises `OSError`."""
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


def file_kind(mode: int) -> str:
    return _KINDS.get(stat.S_IFMT(mode), "a file")


MAX_WHOLE_BYTES = 10_000_000  # bytes: a file that is read at once, and can be edited
MAX_CLIENT_BYTES = 2_000_000  # bytes: what is asked of an editor; its messages are single lines
CLIENT_S = 30.0
MAX_DIFF_CHARS = 100_000  # characters of a file that is shown whole when it changes
CONTEXT_LINES = 3  # lines before and after a change
T = TypeVar("T")


class SessionFiles:
    """Texts of one session."""

    def __init__(self, desk: ToolContext) -> None:
        self.places = SessionPaths(desk)
        self.seen = SeenFiles()
        self._reading = desk.file_reader
        self._writing = desk.file_writer

    async def load(self, place: SessionPath) -> FileText:
        """The text as the editor has it, else as it is stored.

        Raises `ToolMistake` if it is none, or too long, and `FileNotFoundError`.
        """
        stored: FileText | None = None
        with suppress(FileNotFoundError):
            stored = decode_text(await in_thread(lambda: _read_stored(place)))
        unsaved = await self._unsaved(place, stored)
        # Of a file that is nowhere, some editors (toad, CodeCompanion) say that it is empty.
        if unsaved or (unsaved is not None and stored):
            return with_stored_endings(decode_text(unsaved), stored)
        if stored is None:
            raise FileNotFoundError(place.name)
        return stored

    async def _unsaved(self, place: SessionPath, stored: FileText | None) -> str | None:
        reading = self._reading
        if not (reading and place.root and _has_plain_name(place)):
            return None
        if stored and (len(stored.text) > MAX_CLIENT_BYTES or stored.has_invalid_utf8):
            return None
        try:
            return await _by_client(lambda: reading.read(place.client_path), place, "read")
        except OSError:
            return None  # the client knows no more of it than the disk does

    async def save(self, place: SessionPath, text: FileText) -> None:
        """Raises `ToolMistake` if it cannot be."""
        self.places.recheck(place)
        writing = self._writing
        if (
            writing
            and _has_plain_name(place)
            and not text.has_invalid_utf8
            and len(text.text) <= MAX_CLIENT_BYTES
        ):
            try:
                await _by_client(
                    lambda: writing.write(place.client_path, text.with_bom), place, "write"
                )
            except OSError as error:
                raise ToolMistake(f"the editor cannot write {place.name!r}: {error}") from None
        else:
            # Not to be given up half-way: who cancels waits for one small write.
            with anyio.CancelScope(shield=True):
                await in_thread(lambda: _store(place, text.encoded()))
        self.seen.remember(place.path, text)


def _has_plain_name(place: SessionPath) -> bool:
    """Its name can be told to the client."""
    return valid_unicode(str(place.client_path)) == str(place.client_path)


async def _by_client(ask: Callable[[], Awaitable[T]], place: SessionPath, deed: str) -> T:
    with anyio.move_on_after(CLIENT_S):
        return await ask()
    raise ToolMistake(
        f"the editor did not {deed} {place.name!r} within {CLIENT_S:g} s: try again, or use Bash"
    )


async def in_thread(work: Callable[[], T]) -> T:
    return await anyio.to_thread.run_sync(work, abandon_on_cancel=True)


def _read_stored(place: SessionPath) -> bytes:
    with explain_os_errors(place, "read"):
        try:
            with open_regular_file(place) as (file, status):
                if status.st_size > MAX_WHOLE_BYTES:
                    raise ToolMistake(
                        f"{place.name!r} has {status.st_size:,} bytes: too long to be written or"
                        " edited here. Use Bash (sed, head, tail)."
                    )
                data = read_up_to(file, MAX_WHOLE_BYTES)
        except FileNotFoundError:
            data = None
    if data is None:
        raise FileNotFoundError(place.name)
    if kind := binary_kind(data):
        raise ToolMistake(f"{place.name!r} is no text ({kind}): Bash can work on it")
    return data


def read_up_to(file: int, limit: int) -> bytes:
    """As much as there is; never waits for more."""
    pieces: list[bytes] = []
    while limit > 0 and (piece := os.read(file, min(limit, 1 << 20))):
        pieces.append(piece)
        limit -= len(piece)
    return b"".join(pieces)


def _store(place: SessionPath, data: bytes) -> None:
    """All or nothing: into a new file beside it, which then takes the name."""
    with explain_os_errors(place, "write"), open_folder(place.path.parent, make=True) as parent:
        name = place.path.name
        old = _status_to_replace(parent, name, place)
        temporary = f".{name[:50]}.{os.urandom(4).hex()}"
        file = os.open(
            temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=parent
        )
        try:
            with open(file, "wb", buffering=0) as new:  # noqa: PTH123 (a descriptor, no path)
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
    """None if nothing is there."""
    try:
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        raise ToolMistake(f"{place.name!r} is no file any more: nothing was written")
    if not os.access(name, os.W_OK, dir_fd=parent):
        raise ToolMistake(f"{place.name!r} is read-only: nothing was written")
    return status


def _restore_owner(file: int, old: os.stat_result) -> None:
    """Whose it is, as far as we may say so, and its mode bits."""
    if (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
        with suppress(PermissionError):
            os.fchown(file, old.st_uid, old.st_gid)
    os.fchmod(file, stat.S_IMODE(old.st_mode))


def file_diff(place: SessionPath, old: FileText | None, new: FileText) -> DiffPart:
    """What people are shown: the whole file if it is short, else the part that changes, whole."""
    before, after = (old.text if old else None), new.text
    if before is not None and max(len(before), len(after)) > MAX_DIFF_CHARS:
        before, after = _changed_part(before, after)
    return partial_diff(place, before, after)


def partial_diff(place: SessionPath, before: str | None, after: str) -> DiffPart:
    """The same of a file that may not be looked at: these words for those."""
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
