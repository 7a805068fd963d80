"""How does a session's file come in and go out: through the client's editor, or directly?"""

import os
import stat
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

import anyio
import anyio.to_thread

from goent.agent.content import Diff
from goent.agent.ports import Desk, ToolMistake
from goent.agent.tools.places import Place, Places, folder, opened, trouble
from goent.agent.tools.texts import Seen, Written, as_stored, clean, kind_of_data, written

WHOLE = 10_000_000  # bytes: a file that is read at once, and can be edited
BY_CLIENT = 2_000_000  # bytes: what is asked of an editor; its messages are single lines
CLIENT_S = 30.0
SHOWN = 100_000  # characters of a file that is shown whole when it changes
AROUND = 3  # lines before and after a change
T = TypeVar("T")


class Files:
    """Texts of one session."""

    def __init__(self, desk: Desk) -> None:
        self.places = Places(desk)
        self.seen = Seen()
        self._reading = desk.reading
        self._writing = desk.writing

    async def load(self, place: Place) -> Written:
        """The text as the editor has it, else as it is stored.

        Raises `ToolMistake` if it is none, or too long, and `FileNotFoundError`.
        """
        stored: Written | None = None
        with suppress(FileNotFoundError):
            stored = written(await in_thread(lambda: _stored(place)))
        unsaved = await self._unsaved(place, stored)
        # Of a file that is nowhere, some editors (toad, CodeCompanion) say that it is empty.
        if unsaved or (unsaved is not None and stored):
            return as_stored(written(unsaved), stored)
        if stored is None:
            raise FileNotFoundError(place.name)
        return stored

    async def _unsaved(self, place: Place, stored: Written | None) -> str | None:
        reading = self._reading
        if not (reading and place.root and _plain(place)):
            return None
        if stored and (len(stored.text) > BY_CLIENT or stored.odd):
            return None
        try:
            return await _by_client(lambda: reading.read(place.known), place, "read")
        except OSError:
            return None  # the client knows no more of it than the disk does

    async def save(self, place: Place, text: Written) -> None:
        """Raises `ToolMistake` if it cannot be."""
        self.places.again(place)
        writing = self._writing
        if writing and _plain(place) and not text.odd and len(text.text) <= BY_CLIENT:
            try:
                await _by_client(lambda: writing.write(place.known, text.whole), place, "write")
            except OSError as error:
                raise ToolMistake(f"the editor cannot write {place.name!r}: {error}") from None
        else:
            # Not to be given up half-way: who cancels waits for one small write.
            with anyio.CancelScope(shield=True):
                await in_thread(lambda: _store(place, text.encoded()))
        self.seen.note(place.path, text)


def _plain(place: Place) -> bool:
    """Its name can be told to the client."""
    return clean(str(place.known)) == str(place.known)


async def _by_client(ask: Callable[[], Awaitable[T]], place: Place, deed: str) -> T:
    with anyio.move_on_after(CLIENT_S):
        return await ask()
    raise ToolMistake(
        f"the editor did not {deed} {place.name!r} within {CLIENT_S:g} s: try again, or use Bash"
    )


async def in_thread(work: Callable[[], T]) -> T:
    return await anyio.to_thread.run_sync(work, abandon_on_cancel=True)


def _stored(place: Place) -> bytes:
    with trouble(place, "read"):
        try:
            with opened(place) as (file, status):
                if status.st_size > WHOLE:
                    raise ToolMistake(
                        f"{place.name!r} has {status.st_size:,} bytes: too long to be written or"
                        " edited here. Use Bash (sed, head, tail)."
                    )
                data = read_up_to(file, WHOLE)
        except FileNotFoundError:
            data = None
    if data is None:
        raise FileNotFoundError(place.name)
    if kind := kind_of_data(data):
        raise ToolMistake(f"{place.name!r} is no text ({kind}): Bash can work on it")
    return data


def read_up_to(file: int, limit: int) -> bytes:
    """As much as there is; never waits for more."""
    pieces: list[bytes] = []
    while limit > 0 and (piece := os.read(file, min(limit, 1 << 20))):
        pieces.append(piece)
        limit -= len(piece)
    return b"".join(pieces)


def _store(place: Place, data: bytes) -> None:
    """All or nothing: into a new file beside it, which then takes the name."""
    with trouble(place, "write"), folder(place.path.parent, make=True) as parent:
        name = place.path.name
        old = _replaced(parent, name, place)
        temporary = f".{name[:50]}.{os.urandom(4).hex()}"
        file = os.open(
            temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=parent
        )
        try:
            with open(file, "wb", buffering=0) as new:  # noqa: PTH123 (a descriptor, no path)
                if old:
                    _as_before(file, old)
                rest = memoryview(data)
                while rest:
                    rest = rest[new.write(rest) :]
            os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=parent)
            raise


def _replaced(parent: int, name: str, place: Place) -> os.stat_result | None:
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


def _as_before(file: int, old: os.stat_result) -> None:
    """Whose it is, as far as we may say so, and its mode bits."""
    if (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
        with suppress(PermissionError):
            os.fchown(file, old.st_uid, old.st_gid)
    os.fchmod(file, stat.S_IMODE(old.st_mode))


def difference(place: Place, old: Written | None, new: Written) -> Diff:
    """What people are shown: the whole file if it is short, else the part that changes, whole."""
    before, after = (old.text if old else None), new.text
    if before is not None and max(len(before), len(after)) > SHOWN:
        before, after = _changed_part(before, after)
    return replacement(place, before, after)


def replacement(place: Place, before: str | None, after: str) -> Diff:
    """The same of a file that may not be looked at: these words for those."""
    return Diff(
        path=clean(str(place.known)),
        old=None if before is None else clean(before),
        new=clean(after),
    )


def _changed_part(before: str, after: str) -> tuple[str, str]:
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    most = min(len(old), len(new))
    head = next((n for n in range(most) if old[n] != new[n]), most)
    tail = next((n for n in range(most - head) if old[-1 - n] != new[-1 - n]), most - head)
    start, end = max(0, head - AROUND), max(0, tail - AROUND)
    return "".join(old[start : len(old) - end]), "".join(new[start : len(new) - end])
