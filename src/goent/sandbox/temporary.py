"""Private temporary folders of confined processes: made with them, and gone with them.

A folder's name is a mark: what it is mounted for can be found by it, and the next go-ent removes what a
killed one left.
"""

import logging
import os
import shutil
import stat
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
from anyio import to_thread

from goent.domain.errors import WorkerCrashed
from goent.proc.marks import MOUNTED, lives, mounted_name, new_mark, new_owner

FOLDER = "tmp"

log = logging.getLogger(__name__)


@asynccontextmanager
async def temporary_folder(state: Path) -> AsyncGenerator[Path]:
    """A new folder below the state folder, removed with all that is in it.

    Raises `WorkerCrashed` if it cannot be made: what was to be confined there is not started.
    """
    folder = await to_thread.run_sync(_make, state)
    try:
        yield folder
    finally:
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(_remove, folder)


def remove_leftovers(state: Path) -> None:
    """Remove the folders whose owners are dead."""
    with suppress(OSError):
        for folder in (state / FOLDER).iterdir():
            if not lives(folder.name.removeprefix(MOUNTED).rpartition("~")[0]):
                _remove(folder)


def _make(state: Path) -> Path:
    folder = state / FOLDER / mounted_name(new_mark(new_owner(state.name)))
    try:
        folder.parent.mkdir(0o700, parents=True, exist_ok=True)
        folder.mkdir(0o700)
    except OSError as error:
        raise WorkerCrashed(
            f"the sandbox has no temporary folder in {str(folder.parent)!r}: {error.strerror}; "
            "free some space, or check its owner and mode"
        ) from error
    return folder


def mark_of(folder: Path) -> str:
    """The mark of the processes that such a folder is mounted for."""
    return folder.name.removeprefix(MOUNTED).replace("~", "/")


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():  # a worker may have closed a folder of its own
        for path, folders, _ in os.walk(folder):
            for name in folders:
                with suppress(OSError):
                    Path(path, name).chmod(stat.S_IRWXU)
        shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        log.warning("the temporary folder %s could not be removed", folder)
