"""Creates, keeps and removes the folders of a run, and its scratch space.

Each run locks its folder for as long as it lives. The next run removes what killed ones left behind,
prompts and answers included, except attempts that were to be kept: those stay for two weeks.
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
KEPT_MARKER: Final = "kept"  # marks a folder to keep
KEPT_S: Final = 14 * 24 * 3600.0
INCOMPLETE_S: Final = 3600.0  # a folder without a lock may be a run that is just starting
_LOCK: Final = "lock"
_TRIES: Final = 10
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]+")


def workspaces_root(environ: Mapping[str, str]) -> Path:
    return state_dir(environ) / "evals" / "workspaces"


class RunFolder:
    """The folder of one run, made on first use."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._folder: Path | None = None
        self._lock: int | None = None
        self._creation = anyio.Lock()
        self._numbers = count(1)

    async def new(self, name: str) -> Path:
        """Makes an empty folder with a name like this. Raises `EnvironmentTrouble`."""
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
        """Removes what is not kept."""
        if self._folder is not None and self._lock is not None:
            await anyio.to_thread.run_sync(_clear, self._folder)
            os.close(self._lock)
            self._folder = self._lock = None


def keep_folder(folder: Path) -> None:
    """Marks a folder to outlive its run."""
    (folder / KEPT_MARKER).touch()


async def drop_folder(folder: Path, *parts: Path) -> None:
    """Removes a folder of a run; `parts` are what it holds if it was never used."""
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
            if held is not None:  # otherwise another run is removing it
                return folder, held
    except OSError as error:
        raise _unusable_error(root, error) from None
    raise EnvironmentTrouble(f"{str(root)!r}: other processes remove every folder in it")


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
    """Removes the lock last, so that the folder stays locked until then."""
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
        f"cannot make a workspace at {str(folder)!r}: {error.strerror}. Make room there, or make it "
        "writable; XDG_STATE_HOME moves it"
    )


def scratch_root(environ: Mapping[str, str]) -> Path:
    return state_dir(environ) / "evals" / "scratch"


@asynccontextmanager
async def open_scratch(root: Path) -> AsyncGenerator[Path]:
    """A temporary folder for this run. Raises `EnvironmentTrouble`."""
    run = RunFolder(root)
    try:
        yield await run.new("scratch")
    finally:
        with anyio.CancelScope(shield=True):
            await run.close()
