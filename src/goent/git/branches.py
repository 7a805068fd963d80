"""How does merged work come to a branch, or into the user's checkout, without losing anything?"""

import os
from pathlib import Path
from typing import Final

import anyio

from goent.domain.errors import RequestError
from goent.git.command import Git, GitFailed
from goent.git.names import readable

HEADS: Final = "refs/heads/"
SHOWN: Final = 3  # files that are in the way: enough to know them by


async def publish(git: Git, branch: str, commit: str, replaces: str | None) -> None:
    """Let the branch point to the commit, if that loses nothing but what it replaces."""
    name = branch.removeprefix(HEADS)
    ref = HEADS + name
    valid = await git.ask("check-ref-format", ref)
    if valid.exit or name.startswith("-") or name == "HEAD":
        raise RequestError(f"{branch!r} cannot be a branch's name: see `git check-ref-format`")
    if place := await _checked_out(git, ref):
        raise RequestError(
            f"the branch {name!r} is checked out in {place!r}, and moving it would change what is "
            "seen there: name another branch, or check out something else there"
        )
    old = (await git.ask("rev-parse", "--verify", "--quiet", ref)).text
    await _check_loses_nothing(git, name, old, commit, replaces)
    moved = await git.ask(
        *("update-ref", "--no-deref", "-m", "go-ent: merged work", ref, commit, old)
    )
    if moved.exit:
        raise RequestError(
            f"the branch {name!r} could not be set to {commit!r} in {str(git.folder)!r}: somebody "
            f"else moved it just now, or its name collides; look at it and try again ({moved.errors})"
        )


async def _check_loses_nothing(
    git: Git, name: str, old: str, commit: str, replaces: str | None
) -> None:
    known = await git.ask("cat-file", "-e", f"{commit}^{{commit}}")
    if known.exit:
        raise RequestError(f"there is no commit {commit!r} in {str(git.folder)!r}")
    if not old or old == replaces:
        return
    if (await git.ask("merge-base", "--is-ancestor", old, commit)).exit:
        raise RequestError(
            f"the branch {name!r} is at {old!r}, which {commit!r} does not have: moving it would "
            "lose commits. Name another branch, or merge that one by hand"
        )


async def _checked_out(git: Git, ref: str) -> str:
    """The checkout that has it, or nothing."""
    place = b""
    for line in (await git.do("worktree", "list", "--porcelain", "-z")).output.split(b"\0"):
        if line.startswith(b"worktree "):
            place = line.removeprefix(b"worktree ")
        elif line == b"branch " + os.fsencode(ref):
            return os.fsdecode(place)
    return ""


async def apply(git: Git, repository: Path, commit: str) -> str:
    """Fast-forward what is checked out in git's folder; the branch's name."""
    where = str(git.folder)
    await _check_is_of(git, repository)
    branch = await git.ask("symbolic-ref", "--quiet", "--short", "HEAD")
    if branch.exit:
        raise RequestError(f"{where!r} is on no branch: check one out there, or merge {commit!r}")
    changed = await git.do(
        *("status", "--porcelain", "-z", "--untracked-files=no", "--ignore-submodules=dirty")
    )
    if changed.output:
        raise RequestError(
            f"{where!r} has uncommitted changes ({_some(changed.output)}): commit or stash them, then "
            f"run `git merge --ff-only {commit}` there"
        )
    if (await git.ask("merge-base", "--is-ancestor", "HEAD", commit)).exit:
        raise RequestError(
            f"{branch.text!r} in {where!r} has commits that {commit!r} does not have, so it cannot "
            f"simply move forward: run `git merge {commit}` there, or merge the swarm again"
        )
    with anyio.CancelScope(shield=True):  # half a checkout is worse than a late answer
        await _move(git, commit)
    return branch.text


async def _move(git: Git, commit: str) -> None:
    try:
        await git.do(
            *("merge", "--ff-only", "--no-autostash", "--no-overwrite-ignore", "--no-stat"),
            *("--quiet", commit),
        )
    except GitFailed as error:
        raise RequestError(
            f"{error}. Nothing was changed: move what is in the way, then run "
            f"`git merge --ff-only {commit}` there"
        ) from None


async def _check_is_of(git: Git, repository: Path) -> None:
    found = await git.ask("rev-parse", "--path-format=absolute", "--git-common-dir")
    theirs = await git.at(repository).ask("rev-parse", "--path-format=absolute", "--git-common-dir")
    if found.exit or theirs.exit or not _is_one(found.text, theirs.text):
        raise RequestError(f"{str(git.folder)!r} is no checkout of {str(repository)!r}")


def _is_one(one: str, other: str) -> bool:
    return Path(one).resolve() == Path(other).resolve()


def _some(status: bytes) -> str:
    names = [readable(each[3:]) for each in status.split(b"\0") if each]
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
