"""Implements `Merger` with git: compares pieces, merges them, and publishes the result."""

import os
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final

import anyio

from goent.domain.errors import RequestError
from goent.domain.workspace import Conflict, Merge, WorkPiece
from goent.git.git_command import Git, GitFailed, readable_path
from goent.git.integration import Integration
from goent.git.scratch_space import (
    ScratchArea,
    clear_abandoned,
    clear_trials,
    copy_objects,
    scratch_area,
    scratch_checkout,
)
from goent.git.work_survey import Survey, lay_out_attributes, survey_pieces

HEADS: Final = "refs/heads/"
MAX_NAMES: Final = 3  # changed files that a message lists
SurveyKey = tuple[str, str, tuple[WorkPiece, ...]]  # repository, base and pieces


async def publish_branch(git: Git, branch: str, commit: str, replaces: str | None) -> None:
    """Point the branch to the commit, unless that loses commits other than `replaces`."""
    name = branch.removeprefix(HEADS)
    ref = HEADS + name
    valid = await git.run("check-ref-format", ref)
    if valid.exit or name.startswith("-") or name == "HEAD":
        raise RequestError(f"{branch!r} is not a valid branch name: see `git check-ref-format`")
    if place := await _checkout_of(git, ref):
        raise RequestError(
            f"the branch {name!r} is checked out in {place!r}, where moving it would show changes: "
            "name another branch, or check out something else there"
        )
    old = (await git.run("rev-parse", "--verify", "--quiet", ref)).text
    await _check_loses_nothing(git, name, old, commit, replaces)
    moved = await git.run(
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
    known = await git.run("cat-file", "-e", f"{commit}^{{commit}}")
    if known.exit:
        raise RequestError(f"there is no commit {commit!r} in {str(git.folder)!r}")
    if not old or old == replaces:
        return
    if (await git.run("merge-base", "--is-ancestor", old, commit)).exit:
        raise RequestError(
            f"the branch {name!r} is at {old!r}, which {commit!r} does not have: moving it would "
            "lose commits. Name another branch, or merge that one by hand"
        )


async def _checkout_of(git: Git, ref: str) -> str:
    """The path of the checkout that has the branch, or empty."""
    place = b""
    for line in (await git.run_checked("worktree", "list", "--porcelain", "-z")).output.split(
        b"\0"
    ):
        if line.startswith(b"worktree "):
            place = line.removeprefix(b"worktree ")
        elif line == b"branch " + os.fsencode(ref):
            return os.fsdecode(place)
    return ""


async def fast_forward(git: Git, repository: Path, commit: str) -> str:
    """Fast-forward the checkout in git's folder; returns its branch."""
    where = str(git.folder)
    await _check_is_of(git, repository)
    branch = await git.run("symbolic-ref", "--quiet", "--short", "HEAD")
    if branch.exit:
        raise RequestError(
            f"{where!r} has a detached HEAD: check a branch out there, or merge {commit!r}"
        )
    changed = await git.run_checked(
        *("status", "--porcelain", "-z", "--untracked-files=no", "--ignore-submodules=dirty")
    )
    if changed.output:
        raise RequestError(
            f"{where!r} has uncommitted changes ({_changed_names(changed.output)}): commit or stash them, then "
            f"run `git merge --ff-only {commit}` there"
        )
    if (await git.run("merge-base", "--is-ancestor", "HEAD", commit)).exit:
        raise RequestError(
            f"{branch.text!r} in {where!r} has commits that {commit!r} does not have, so it cannot "
            f"fast-forward: run `git merge {commit}` there, or merge the swarm again"
        )
    with anyio.CancelScope(shield=True):  # an interrupted checkout is worse than a late answer
        await _move(git, commit)
    return branch.text


async def _move(git: Git, commit: str) -> None:
    try:
        await git.run_checked(
            *("merge", "--ff-only", "--no-autostash", "--no-overwrite-ignore", "--no-stat"),
            *("--quiet", commit),
        )
    except GitFailed as error:
        raise RequestError(
            f"{error}. Nothing was changed: move the files that are in the way, then run "
            f"`git merge --ff-only {commit}` there"
        ) from None


async def _check_is_of(git: Git, repository: Path) -> None:
    found = await git.run("rev-parse", "--path-format=absolute", "--git-common-dir")
    theirs = await git.at(repository).run("rev-parse", "--path-format=absolute", "--git-common-dir")
    if found.exit or theirs.exit or not _is_same_path(found.text, theirs.text):
        raise RequestError(f"{str(git.folder)!r} is not a checkout of {str(repository)!r}")


def _is_same_path(one: str, other: str) -> bool:
    return Path(one).resolve() == Path(other).resolve()


def _changed_names(status: bytes) -> str:
    names = [readable_path(each[3:]) for each in status.split(b"\0") if each]
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return ", ".join(names[:MAX_NAMES]) + more


class GitMerging:
    """Merges pieces of work. `root` is a private folder for temporary files."""

    def __init__(self, git: Git, root: Path) -> None:
        self._git = git
        self._root = root
        self._last: tuple[SurveyKey, Survey] | None = None  # conflicts and merge follow each other

    async def conflicts(
        self, repository: str, base: str, pieces: Sequence[WorkPiece]
    ) -> tuple[Conflict, ...]:
        git = self._at(repository)
        if known := self._known(_key(git, base, pieces)):
            return known.conflicts()
        async with scratch_area(git.folder, self._root) as place:
            return (await self._survey_once(git, base, pieces, place)).conflicts()

    async def merge(
        self, repository: str, base: str, pieces: Sequence[WorkPiece], message: str
    ) -> Merge:
        git = self._at(repository)
        async with scratch_area(git.folder, self._root) as place:
            found = await self._survey_once(git, base, pieces, place)
            merge = await Integration(git, base, found, message, place).merge()
            if merge.commit != base:
                there = [base, *(piece.commit for piece in pieces)]
                await copy_objects(git, merge.commit, there, place.env)
        return merge

    async def publish(
        self, repository: str, branch: str, commit: str, *, replaces: str | None = None
    ) -> None:
        await publish_branch(self._at(repository), branch, commit, replaces)

    async def apply(self, repository: str, checkout: Path, commit: str) -> str:
        return await fast_forward(self._git.at(checkout), Path(repository), commit)

    def scratch(self, repository: str, commit: str) -> AbstractAsyncContextManager[Path]:
        return scratch_checkout(self._at(repository), self._root, commit)

    async def sweep(self) -> None:
        """Remove what killed daemons left in the root."""
        await clear_abandoned(self._git, self._root)
        await anyio.to_thread.run_sync(clear_trials, self._root)

    def _at(self, repository: str) -> Git:
        return self._git.at(Path(repository).absolute())

    async def _survey_once(
        self, git: Git, base: str, pieces: Sequence[WorkPiece], place: ScratchArea
    ) -> Survey:
        key = _key(git, base, pieces)
        if known := self._known(key):
            await lay_out_attributes(git, base, known.lineage.merged_paths(known.met), place.tree)
            return known
        found = await survey_pieces(git, base, pieces, place)
        self._last = key, found
        return found

    def _known(self, key: SurveyKey) -> Survey | None:
        """The last survey, if it has this key: commits never change."""
        return self._last[1] if self._last and self._last[0] == key else None


def _key(git: Git, base: str, pieces: Sequence[WorkPiece]) -> SurveyKey:
    return str(git.folder), base, tuple(pieces)
