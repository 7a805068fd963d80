"""Provides private object stores and checkouts for trial merges, and removes them afterwards.

A trial's new objects go to a folder that only its own git reads. Of a successful merge, only the
objects that its last commit needs are copied to the repository.
"""

import os
import shutil
import stat
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

import anyio

from goent.domain.errors import EnvironmentTrouble
from goent.domain.types import Value
from goent.git.git_command import Git
from goent.git.worktrees import remove_tree, run_retrying
from goent.proc.process_table import is_alive, start_time

PRIVATE: Final = 0o700
TRIAL: Final = "trial"
OBJECTS: Final = "objects"
TREE: Final = "tree"
MEMORY: Final = Path("/dev/shm")  # noqa: S108 (only a private folder in it)
TRIES: Final = 10
PAUSE: Final = 0.05
MIN_FREE_BYTES: Final = 2**30  # required there; some containers have very little
SCRATCH: Final = "scratch"
ORIGIN: Final = "repository"  # a file beside the checkout with the repository's path


class ScratchArea(Value, frozen=True, kw_only=True):
    """A place for a trial: `env` redirects git's new objects, `tree` is its checkout."""

    tree: Path
    env: Mapping[str, str]


@asynccontextmanager
async def scratch_area(repository: Path, root: Path) -> AsyncGenerator[ScratchArea]:
    """A scratch area for the block, removed with everything in it at the end."""
    folder = await anyio.to_thread.run_sync(_folder_for_objects, root)
    try:
        env = {
            "GIT_OBJECT_DIRECTORY": str(folder / OBJECTS),
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": _as_git_path(common_dir(repository) / "objects"),
            "GIT_DIR": str(repository),
            "GIT_WORK_TREE": str(folder / TREE),
        }
        yield ScratchArea(tree=folder / TREE, env=env)
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(remove_folder, folder)


async def copy_objects(
    git: Git, commit: str, without: Sequence[str], env: Mapping[str, str]
) -> None:
    """Copy the commit and its objects into the repository, except those of `without`."""
    wanted = "".join((f"{commit}\n", *(f"^{each}\n" for each in without))).encode()
    packed = await git.run_checked(
        "pack-objects", "--revs", "--stdout", "-q", stdin=wanted, env=env
    )
    await git.run_checked("unpack-objects", "-q", stdin=packed.output)


def clear_trials(root: Path) -> None:
    """Remove what trials of killed daemons left behind."""
    for place in (root, _memory_folder()):
        for folder in abandoned_folders(place, TRIAL) if place else ():
            remove_folder(folder)


def common_dir(repository: Path) -> Path:
    """The directory that all checkouts of a repository share."""
    try:
        return repository / os.fsdecode((repository / "commondir").read_bytes().strip())
    except OSError:
        return repository


def make_scratch_folder(root: Path, kind: str) -> Path:
    """Make a private folder whose name identifies this process, for a later cleanup."""
    pid = os.getpid()
    try:
        root.mkdir(PRIVATE, parents=True, exist_ok=True)
        return Path(mkdtemp(prefix=f"{kind}-{pid}-{start_time(pid)}-", dir=root))
    except OSError as error:
        raise EnvironmentTrouble(
            f"cannot make a temporary folder in {str(root)!r}: {error}. Free some space there, or make "
            "it writable"
        ) from None


def abandoned_folders(root: Path, kind: str) -> list[Path]:
    """The scratch folders of processes that have ended."""
    return [each for each in sorted(root.glob(f"{kind}-*")) if not _has_maker(each)]


def remove_folder(folder: Path) -> None:
    """Also while a git that was killed still writes into it, which is a moment."""
    for _ in range(TRIES):
        with suppress(OSError):
            remove_tree(folder)
            return
        time.sleep(PAUSE)


def _folder_for_objects(root: Path) -> Path:
    """In memory if there is room: a trial of many merges writes thousands of small files."""
    memory = _memory_folder()
    roomy = memory and shutil.disk_usage(memory.parent).free >= MIN_FREE_BYTES
    folder = make_scratch_folder(memory if memory and roomy else root, TRIAL)
    (folder / OBJECTS).mkdir()
    (folder / TREE).mkdir()
    return folder


def _memory_folder() -> Path | None:
    """A private folder in memory, per process namespace; None if it cannot be made."""
    try:
        namespace = Path("/proc/self/ns/pid").stat().st_ino
        folder = MEMORY / f"goent-{os.getuid()}-{namespace}"
        folder.mkdir(PRIVATE, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return None
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    return folder if ours and not found.st_mode & 0o077 else None


def _has_maker(folder: Path) -> bool:
    parts = folder.name.split("-")
    return len(parts) > 3 and parts[1].isdigit() and is_alive(int(parts[1]), parts[2])  # noqa: PLR2004 (kind, process, its start, something random)


def _as_git_path(path: Path) -> str:
    """Quoted for git's colon-separated path lists."""
    text = str(path)
    if ":" not in text and not text.startswith('"'):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


@asynccontextmanager
async def scratch_checkout(git: Git, root: Path, commit: str) -> AsyncGenerator[Path]:
    """A detached worktree with all files of the commit, even in a sparse repository."""
    folder = await anyio.to_thread.run_sync(_prepare_folder, root, git.folder)
    place = folder / folder.name
    try:
        with anyio.CancelScope(shield=True):  # a killed git may still write for a moment
            await run_retrying(
                git,
                *("-c", "core.sparseCheckout=false"),
                *("worktree", "add", "--quiet", "--force", "--detach", str(place), commit),
            )
        yield place
    finally:
        with anyio.CancelScope(shield=True):
            await clear_scratch(git, folder)


async def clear_scratch(git: Git, folder: Path) -> None:
    """Remove a scratch folder, and the repository's record of it."""
    place = folder / folder.name
    await anyio.to_thread.run_sync(_forget_worktree, common_dir(git.folder), place)
    await anyio.to_thread.run_sync(remove_folder, folder)


async def clear_abandoned(git: Git, root: Path) -> None:
    """Remove what killed daemons left behind."""
    for folder in await anyio.to_thread.run_sync(abandoned_folders, root, SCRATCH):
        origin = await anyio.to_thread.run_sync(_origin, folder)
        await clear_scratch(git.at(origin), folder)


def _prepare_folder(root: Path, repository: Path) -> Path:
    folder = make_scratch_folder(root, SCRATCH)
    (folder / ORIGIN).write_bytes(os.fsencode(repository.resolve()))
    return folder


def _origin(folder: Path) -> Path:
    with suppress(OSError):
        return Path(os.fsdecode((folder / ORIGIN).read_bytes()))
    return folder


def _forget_worktree(repository: Path, place: Path) -> None:
    """Remove the record by hand: `git worktree prune` would also drop worktrees on unmounted disks."""
    for record in repository.glob("worktrees/*/gitdir"):
        with suppress(OSError):
            if os.fsdecode(record.read_bytes()).strip() == str(place / ".git"):
                remove_folder(record.parent)
    with suppress(OSError):
        (repository / "worktrees").rmdir()  # if it was the last, as git does
