"""A checkout for a moment: made outside the repository, gone with its record whatever happens."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import anyio

from goent.git.aside import a_folder, common, left_behind, remove_folder
from goent.git.command import Git
from goent.git.worktrees import patiently

SCRATCH: Final = "scratch"
ORIGIN: Final = "repository"  # a file beside the checkout: whose record there may be


@asynccontextmanager
async def a_checkout(git: Git, root: Path, commit: str) -> AsyncGenerator[Path]:
    """A detached worktree of git's repository, with all of its files even if that is sparse."""
    folder = await anyio.to_thread.run_sync(_prepared, root, git.folder)
    place = folder / folder.name
    try:
        with anyio.CancelScope(shield=True):  # a git that is killed may still write for a moment
            await patiently(
                git,
                *("-c", "core.sparseCheckout=false"),
                *("worktree", "add", "--quiet", "--force", "--detach", str(place), commit),
            )
        yield place
    finally:
        with anyio.CancelScope(shield=True):
            await clear(git, folder)


async def clear(git: Git, folder: Path) -> None:
    """Remove a scratch folder, and what the repository knows of it."""
    place = folder / folder.name
    await anyio.to_thread.run_sync(_forget, common(git.folder), place)
    await anyio.to_thread.run_sync(remove_folder, folder)


async def clear_left_behind(git: Git, root: Path) -> None:
    """What a go-ent that was killed could not remove."""
    for folder in await anyio.to_thread.run_sync(left_behind, root, SCRATCH):
        origin = await anyio.to_thread.run_sync(_origin, folder)
        await clear(git.at(origin), folder)


def _prepared(root: Path, repository: Path) -> Path:
    folder = a_folder(root, SCRATCH)
    (folder / ORIGIN).write_bytes(os.fsencode(repository.resolve()))
    return folder


def _origin(folder: Path) -> Path:
    with suppress(OSError):
        return Path(os.fsdecode((folder / ORIGIN).read_bytes()))
    return folder


def _forget(repository: Path, place: Path) -> None:
    """By hand: `git worktree prune` would also forget what the user has on another disk."""
    for record in repository.glob("worktrees/*/gitdir"):
        with suppress(OSError):
            if os.fsdecode(record.read_bytes()).strip() == str(place / ".git"):
                remove_folder(record.parent)
    with suppress(OSError):
        (repository / "worktrees").rmdir()  # if it was the last, as git does
