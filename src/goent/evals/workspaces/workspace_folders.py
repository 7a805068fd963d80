"""Creates, keeps and removes the folders of a run, and its scratch space.

Each run has a folder below the root, and holds a lock in it for as long as it lives. Whoever comes
next removes what runs without a holder left behind, but for attempts that were to be kept: those
stay for two weeks.

In a folder that the run holds for as long as it lives. What a killed one left there, prompts and answers
among it, is removed by the next.
"""

import os
import re
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

import anyio

from goent.domain.errors import EnvironmentTrouble
from goent.git.scratch_space import remove_folder
from goent.git.workspace_records import PRIVATE
from goent.system.project_folders import state_dir
from goent.system.project_lock import take_lock

RUN_PREFIX: Final = "run-"
KEPT_MARKER: Final = "kept"  # a file that says so
KEPT_S: Final = 14 * 24 * 3600.0
INCOMPLETE_S: Final = 3600.0  # a folder without a lock may be somebody's who is just beginning
_LOCK: Final = "lock"
_TRIES: Final = 10
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]+")


def workspaces_root(environ: Mapping[str, str]) -> Path:
    """The usual place, for the user alone. Not made yet."""
    return state_dir(environ) / "evals" / "workspaces"


class RunFolder:
    """The folder of one run. It is there once something is to be in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._folder: Path | None = None
        self._lock: int | None = None
        self._creation = anyio.Lock()
        self._numbers = count(1)

    async def new(self, name: str) -> Path:
        """An empty folder of the run, called somehow like that. Raises `EnvironmentTrouble`."""
        async with self._creation:
            if self._folder is None:
                self._folder, self._lock = await anyio.to_thread.run_sync(
                    _make_run_folder, self.root
                )
        readable = _UNSAFE.sub("-", name)[:40].strip("-")
        folder = self._folder / f"{next(self._numbers)}-{readable}"
        try:
            folder.mkdir(PRIVATE)
        except OSError as error:
            raise _unusable_error(folder, error) from None
        return folder

    async def close(self) -> None:
        """Remove what is not to be kept."""
        if self._folder is not None and self._lock is not None:
            await anyio.to_thread.run_sync(_clear, self._folder)
            os.close(self._lock)
            self._folder = self._lock = None


def keep_folder(folder: Path) -> None:
    """Let a folder of a run outlive it."""
    (folder / KEPT_MARKER).touch()


async def drop_folder(folder: Path, *parts: Path) -> None:
    """Remove a folder of a run; `parts` are what it holds if it was never used."""
    try:
        for part in (*parts, folder):
            part.rmdir()  # cheap: most attempts leave nothing, and no thread is needed
    except OSError:
        await anyio.to_thread.run_sync(remove_folder, folder)


def _make_run_folder(root: Path) -> tuple[Path, int]:
    try:
        root.mkdir(PRIVATE, parents=True, exist_ok=True)
        _sweep(root)
        for _ in range(_TRIES):
            folder = Path(mkdtemp(prefix=RUN_PREFIX, dir=root))
            held = take_lock(folder, _LOCK)
            if held is not None:  # else somebody who sweeps was faster, and takes it away
                return folder, held
    except OSError as error:
        raise _unusable_error(root, error) from None
    raise EnvironmentTrouble(f"{str(root)!r}: others remove every folder that is made there")


def _sweep(root: Path) -> None:
    for folder in root.glob(f"{RUN_PREFIX}*"):
        with suppress(OSError):
            if not (folder / _LOCK).exists():
                if time.time() - folder.stat().st_mtime > INCOMPLETE_S:
                    remove_folder(folder)
                continue
            held = take_lock(folder, _LOCK)
            if held is not None:
                _clear(folder)
                os.close(held)


def _clear(folder: Path) -> None:
    """The lock goes last: until then the folder has a holder."""
    with suppress(FileNotFoundError):
        for entry in list(folder.iterdir()):
            if entry.name != _LOCK and not _is_kept(entry):
                remove_folder(entry)
        if [entry.name for entry in folder.iterdir()] == [_LOCK]:
            (folder / _LOCK).unlink()
            folder.rmdir()


def _is_kept(entry: Path) -> bool:
    try:
        return time.time() - (entry / KEPT_MARKER).stat().st_mtime < KEPT_S
    except OSError:
        return False


def _unusable_error(folder: Path, error: OSError) -> EnvironmentTrouble:
    return EnvironmentTrouble(
        f"no workspace can be made at {str(folder)!r}: {error.strerror}. Make room there, or make it "
        "writable; XDG_STATE_HOME moves it"
    )


def scratch_root(environ: Mapping[str, str]) -> Path:
    """The usual place, for the user alone. Not made yet."""
    return state_dir(environ) / "evals" / "scratch"


@asynccontextmanager
async def open_scratch(root: Path) -> AsyncGenerator[Path]:
    """A folder of this run's own, gone in the end. Raises `EnvironmentTrouble`."""
    run = RunFolder(root)
    try:
        yield await run.new("scratch")
    finally:
        with anyio.CancelScope(shield=True):
            await run.close()
