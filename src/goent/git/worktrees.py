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

FILL_TIMEOUT_S = 600.0  # seconds to write all files
# For a moment, another git holds a lock or has a half-made worktree.
TEMPORARY_FAILURE = re.compile(rf"\.lock': File exists|{HALF_MADE_WORKTREE.pattern}")
UNKNOWN_WORKTREE = "is not a working tree"
BRANCH_EXISTS = "already exists"


class BranchTaken(RequestError):
    """Another branch of that name exists."""


async def add_worktree(git: Git, path: Path, branch: str, base: str) -> Path:
    """Register an empty worktree; returns its git directory."""
    adding = ("worktree", "add", "--quiet", "--no-checkout")
    first = await git.run(*adding, "-b", branch, str(path), base)
    if BRANCH_EXISTS in first.errors:
        raise BranchTaken(f"{git.failure(first, *adding, branch)}. Rename or delete it")
    if first.exit:
        _check_fleeting(git, first, *adding, branch)
        await anyio.sleep(PAUSE_S)
        # If the branch exists now, the first attempt made it.
        await run_retrying(git, *adding, "-B", branch, str(path), base)
    said = await anyio.to_thread.run_sync((path / ".git").read_bytes)
    return Path(os.fsdecode(said.removeprefix(b"gitdir: ").removesuffix(b"\n")))


async def fill_worktree(git: Git, path: Path) -> None:
    """Check out the files of its commit; fewer, if the checkout is sparse."""
    resetting = ("reset", "--quiet", "--hard", "--no-recurse-submodules")
    await git.at(path).run_checked(*resetting, timeout=FILL_TIMEOUT_S)


async def run_retrying(git: Git, *arguments: str) -> None:
    """Run git, and retry a limited number of times while another git holds a lock."""
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
    """Remove the folder and git's record of it."""
    await anyio.to_thread.run_sync(remove_tree, path)
    # Twice, for a locked worktree. The folder may be gone already.
    try:
        await run_retrying(git, "worktree", "remove", "--force", "--force", str(path))
    except GitFailed as error:
        if UNKNOWN_WORKTREE not in str(error):
            raise


def remove_tree(path: Path) -> None:
    """Remove a folder, even with write-protected folders in it."""
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
    """Delete a branch, unless it is checked out or gone."""
    with suppress(GitFailed):
        await run_retrying(git, "branch", "--quiet", "-D", "--", branch)
