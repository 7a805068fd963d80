"""Adds, fills and removes worktrees while others work on the same repository."""

import os
import re
import shutil
import stat
from contextlib import suppress
from pathlib import Path

import anyio

from goent.domain.errors import RequestError
from goent.git.git_command import HALF_MADE_WORKTREE, PAUSE_S, TRIES, Git, GitAnswer, GitFailed

FILL_TIMEOUT_S = 600.0  # seconds in which all files are written
# What another git does to this one, for a moment: it holds a lock, or its worktree is half made.
TEMPORARY_FAILURE = re.compile(rf"\.lock': File exists|{HALF_MADE_WORKTREE.pattern}")
UNKNOWN_WORKTREE = "is not a working tree"
BRANCH_EXISTS = "already exists"


class BranchTaken(RequestError):
    """There is a branch of that name, and it is not ours."""


async def add_worktree(git: Git, path: Path, branch: str, base: str) -> Path:
    """Let git know of it; returns its own git directory. No file is in it yet."""
    adding = ("worktree", "add", "--quiet", "--no-checkout")
    first = await git.run(*adding, "-b", branch, str(path), base)
    if BRANCH_EXISTS in first.errors:
        raise BranchTaken(
            f"{git.failure(first, *adding, branch)}. Rename or delete what is in the way"
        )
    if first.exit:
        _check_fleeting(git, first, *adding, branch)
        await anyio.sleep(PAUSE_S)
        # The branch may be there now, and is ours: somebody else's would have been in the way.
        await run_retrying(git, *adding, "-B", branch, str(path), base)
    said = await anyio.to_thread.run_sync((path / ".git").read_bytes)
    return Path(os.fsdecode(said.removeprefix(b"gitdir: ").removesuffix(b"\n")))


async def fill_worktree(git: Git, path: Path) -> None:
    """The files of its commit: as many as are wanted there, if the checkout is sparse."""
    resetting = ("reset", "--quiet", "--hard", "--no-recurse-submodules")
    await git.at(path).run_checked(*resetting, timeout=FILL_TIMEOUT_S)


async def run_retrying(git: Git, *arguments: str) -> None:
    """Again, if another git holds a lock; an end comes anyway."""
    for attempt in range(1, TRIES):
        answer = await git.run(*arguments)
        if not answer.exit:
            return
        _check_fleeting(git, answer, *arguments)
        await anyio.sleep(PAUSE_S * attempt)
    await git.run_checked(*arguments)


def _check_fleeting(git: Git, answer: GitAnswer, *arguments: str) -> None:
    if not TEMPORARY_FAILURE.search(answer.errors):
        raise git.failure(answer, *arguments)


async def remove_worktree(git: Git, path: Path) -> None:
    """The folder with all that is in it, and git's record of it. No other worktree is touched."""
    await anyio.to_thread.run_sync(remove_tree, path)
    # Twice: also one that was locked. It does not mind that the folder is gone.
    try:
        await run_retrying(git, "worktree", "remove", "--force", "--force", str(path))
    except GitFailed as error:
        if UNKNOWN_WORKTREE not in str(error):
            raise


def remove_tree(path: Path) -> None:
    """Also folders that their maker wrote-protected."""
    if path.is_symlink():
        path.unlink()
    if not path.exists():
        return
    with suppress(PermissionError):
        shutil.rmtree(path)
        return
    for folder, _, _ in os.walk(path):
        Path(folder).chmod(stat.S_IRWXU)
    shutil.rmtree(path)


async def delete_branch(git: Git, branch: str) -> None:
    """Unless somebody has it checked out, or it is gone already."""
    with suppress(GitFailed):
        await run_retrying(git, "branch", "--quiet", "-D", "--", branch)
