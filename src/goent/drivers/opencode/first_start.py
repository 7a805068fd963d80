"""How do two first starts of OpenCode keep out of each other's way?

The first process of a data folder makes its database there, and two that do so at once can break
each other. So one makes it while the others wait, in this go-ent and in those of other projects.
"""

import fcntl
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio

from goent.domain.errors import EnvironmentTrouble

POLL = 0.1
PATIENCE = 90.0  # seconds; then a start beside another one is the smaller evil


@asynccontextmanager
async def first_start(database: Path) -> AsyncGenerator[Callable[[], None]]:
    """Entered when nobody makes the database; left, or `done` called, once it is made."""
    try:
        database.parent.mkdir(parents=True, exist_ok=True)
        folder = os.open(database.parent, os.O_RDONLY)
    except OSError as error:
        raise EnvironmentTrouble(
            f"OpenCode's data folder {str(database.parent)!r} cannot be used: {error.strerror}"
        ) from error
    done = partial(fcntl.flock, folder, fcntl.LOCK_UN)
    try:
        with anyio.move_on_after(PATIENCE):
            while not _locked(folder):  # noqa: ASYNC110 (a lock of another process announces nothing)
                await anyio.sleep(POLL)
        if _is_made(database):
            done()
        yield done
    finally:
        os.close(folder)


def _is_made(database: Path) -> bool:
    return database.exists()


def _locked(folder: int) -> bool:
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
