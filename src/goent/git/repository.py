"""Finds the checkout or bare repository around a folder."""

import os
from pathlib import Path

from goent.domain.errors import RequestError
from goent.domain.types import Value
from goent.git.git_command import Git

# `rev-parse` echoes unknown flags: a separator that no path ends with.
FIELD_MARK = "--goent-next"


class Checkout(Value, frozen=True, kw_only=True):
    """A folder in a checkout or bare repository.

    `top` is the checkout's top, or the bare repository; `git_dir` is the checkout's own, `repository`
    the one that all checkouts share. `commit` is empty if there is none.
    """

    cwd: Path
    top: Path
    git_dir: Path
    repository: Path
    bare: bool
    commit: str

    @property
    def inside(self) -> Path:
        """The folder's path below the top."""
        return self.cwd.relative_to(self.top)


class NoRepository(RequestError):
    """There is no git repository around the folder."""


async def find_checkout(git: Git, start: str | None = None) -> Checkout:
    """The checkout at git's folder, and the commit to start from, in one git process."""
    answer = await git.run(
        "rev-parse",
        "--path-format=absolute",
        *("--is-bare-repository", FIELD_MARK),
        *("--is-inside-git-dir", FIELD_MARK),
        *("--show-cdup", FIELD_MARK),
        *("--git-dir", FIELD_MARK),
        *("--git-common-dir", FIELD_MARK),
        f"{start or 'HEAD'}^{{commit}}",
    )
    parts = [part.removesuffix(b"\n") for part in answer.output.split(FIELD_MARK.encode() + b"\n")]
    if len(parts) < 6:  # noqa: PLR2004 (the five fields and the commit)
        raise _no_repository(git.folder, answer.errors)
    bare, in_git_dir = (part == b"true" for part in parts[:2])
    above, git_dir, repository = (Path(os.fsdecode(part)) for part in parts[2:5])
    cwd = git.folder.resolve()
    found = Checkout(
        cwd=cwd,
        top=repository if bare else _top_of(cwd, above),
        git_dir=git_dir,
        repository=repository,
        bare=bare,
        commit="" if answer.exit else os.fsdecode(parts[5]),
    )
    _check_place(found, in_git_dir=in_git_dir)
    if start and not found.commit:
        raise RequestError(f"there is no commit {start!r} in {str(found.repository)!r}")
    return found


def _top_of(cwd: Path, above: Path) -> Path:
    return cwd.parents[len(above.parts) - 1] if above.parts else cwd


def _no_repository(folder: Path, words: str) -> RequestError:
    if "not a git repository" in words:
        return NoRepository(
            f"{str(folder)!r} is in no git repository, so it can have no worktree: use isolation "
            "'copy', or run `git init` there and make a first commit"
        )
    return RequestError(f"git does not work in {str(folder)!r}: {words[-500:]}")


def _check_place(found: Checkout, *, in_git_dir: bool) -> None:
    for path in (found.cwd, found.repository):
        try:
            str(path).encode()
        except UnicodeEncodeError:
            raise RequestError(
                f"the path {str(path)!r} is not UTF-8, so it cannot appear in messages: rename the "
                "folder"
            ) from None
    if (in_git_dir and not found.bare) or (found.bare and found.cwd != found.repository):
        raise RequestError(
            f"{str(found.cwd)!r} is inside a git directory, which has no files to work on: "
            "name a folder of the checkout"
        )


def needs_commit(found: Checkout) -> RequestError:
    """The error for a repository without commits."""
    return RequestError(
        f"the repository {str(found.top)!r} has no commit yet, so a worktree has nothing to start "
        "from: make a first commit, start with the uncommitted files (`uncommitted: true` in a "
        "swarm), or use isolation 'copy'"
    )
