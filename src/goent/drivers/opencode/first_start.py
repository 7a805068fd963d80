"""How do two first starts of OpenCode keep out of each other's way?

The first process of a data folder makes its database there, and two that do so at once can break
each other. So one makes it while the others wait, in this go-ent and in those of other projects.
"""

import fcntl
import os
import stat
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio

from goent.domain.errors import EnvironmentTrouble

POLL = 0.1
OTHERS = 0o077
PATIENCE = 90.0  # seconds; then a start beside another one is the smaller evil


@asynccontextmanager
async def first_start(database: Path) -> AsyncGenerator[Callable[[], None]]:
    """Entered when nobody makes the database; left, or `done` called, once it is made."""
    try:
        database.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        make_private(database)
        folder = os.open(database.parent, os.O_RDONLY)
    except OSError as error:
        raise EnvironmentTrouble(
            f"OpenCode's data folder {str(database.parent)!r} cannot be used: {error.strerror}"
        ) from error

    def done() -> None:
        make_private(database)
        fcntl.flock(folder, fcntl.LOCK_UN)

    try:
        with anyio.move_on_after(PATIENCE):
            while not _locked(folder):  # noqa: ASYNC110 (a lock of another process announces nothing)
                await anyio.sleep(POLL)
        if _is_made(database):
            done()
        yield done
    finally:
        os.close(folder)


def make_private(database: Path) -> None:
    """Nobody else is to read what OpenCode keeps: it gives its database mode 644.

    What SQLite makes anew beside the database gets the database's mode.
    """
    for end in ("", "-wal", "-shm"):
        path = database.with_name(f"{database.name}{end}")
        with suppress(OSError):  # it is not there, or its file system knows no modes
            info = path.lstat()
            ours = info.st_uid == os.geteuid() and not stat.S_ISLNK(info.st_mode)
            if ours and info.st_mode & OTHERS:
                path.chmod(stat.S_IMODE(info.st_mode) & ~OTHERS)


def _is_made(database: Path) -> bool:
    return database.exists()


def _locked(folder: int) -> bool:
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
