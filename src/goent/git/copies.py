"""How does a worker get a copy of a folder that git does not know, so that git knows the copy?

The copy is a worktree of a private repository, one for each folder that is copied; its first commit
is the folder as it was. So work is kept, compared and merged as everywhere else, and the folder
itself never has anything to do with git.
"""

import errno
import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio
import anyio.from_thread

from goent.domain.errors import EnvironmentTrouble, RequestError
from goent.git.command import Git
from goent.git.keeping import install
from goent.git.paths import make_private
from goent.git.snapshot import Folder, commit_tree
from goent.git.worktrees import remove_tree

REPOSITORIES: Final = "copied"
NOTHING: Final = "refs/go-ent/nothing"  # a commit without files, for a worktree to begin with
FICLONE: Final = 0x40049409  # Linux: let two files share their blocks until one is written
# The same files make the same commit, whichever worker's copy it is.
ALWAYS_THE_SAME: Final = {
    "GIT_AUTHOR_DATE": "@0 +0000",
    "GIT_COMMITTER_DATE": "@0 +0000",
    "GIT_AUTHOR_NAME": "go-ent",
    "GIT_COMMITTER_NAME": "go-ent",
    "GIT_AUTHOR_EMAIL": "go-ent@localhost",
    "GIT_COMMITTER_EMAIL": "go-ent@localhost",
}
AS_IT_WAS: Final = "The folder as it was"


def repository_for(root: Path, origin: Path) -> Path:
    """The folder's own private one."""
    digest = hashlib.sha256(os.fsencode(origin)).hexdigest()[:16]
    return root / REPOSITORIES / f"{digest}.git"


async def make_repository(git: Git, root: Path, repository: Path) -> None:
    """If it is not there yet."""
    if is_repository(repository):
        return
    make_private(repository.parent, root)
    with tempfile.TemporaryDirectory(
        dir=repository.parent, prefix="new-", ignore_cleanup_errors=True
    ) as folder:
        new = git.at(Path(folder))
        env = {"GIT_DIR": folder, **ALWAYS_THE_SAME}
        await new.do("init", "--quiet", "--bare", "--template=", folder)
        tree = (await new.do("mktree", env=env)).text
        nothing = await commit_tree(new, tree, "", "Nothing", env)
        await new.do("update-ref", NOTHING, nothing, env=env)
        with suppress(OSError):  # somebody else was faster: theirs is as good
            os.rename(folder, repository)  # noqa: PTH104 (whole or not at all)


async def drop_repository(git: Git, repository: Path) -> None:
    """Once no branch is left in it."""
    if not is_repository(repository):
        return
    branches = await git.ask("for-each-ref", "refs/heads", env={"GIT_DIR": str(repository)})
    if not branches.exit and not branches.text:
        await anyio.to_thread.run_sync(remove_tree, repository)


def is_repository(path: Path) -> bool:
    return (path / "HEAD").exists()


def check_origin(origin: Path, root: Path) -> None:
    if root.resolve().is_relative_to(origin):
        raise RequestError(
            f"{str(origin)!r} cannot be copied: go-ent's own state is in it, at {str(root)!r}. "
            "Choose a smaller folder, or isolation 'shared'"
        )


async def begin(folder: Folder, branch: str, without: Sequence[str]) -> str:
    """Let the branch begin with the files as they are; returns that commit."""
    env = {"GIT_DIR": str(folder.git_dir), **ALWAYS_THE_SAME}
    async with folder.snapshot(without=without) as snapshot:
        commit = await commit_tree(folder.git, snapshot.tree, NOTHING, AS_IT_WAS, env)
        await folder.git.do("update-ref", f"refs/heads/{branch}", commit, env=env)
        install(snapshot.index, folder.git_dir)
    return commit


async def move_to(folder: Folder, start: str) -> str:
    """Let the files be those of another commit; what git does not know stays."""
    git = folder.git.at(folder.top)
    answer = await git.ask("rev-parse", "--verify", "--quiet", f"{start}^{{commit}}")
    if answer.exit:
        raise RequestError(f"there is no commit {start!r} in {str(folder.git_dir)!r}")
    await git.do("reset", "--quiet", "--hard", answer.text)
    return answer.text


async def copy_files(origin: Path, to: Path) -> None:
    """All files and links; no sockets, pipes and devices, and nothing of git's own."""
    try:
        await anyio.to_thread.run_sync(_copy_folder, os.fsencode(origin), os.fsencode(to))
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise EnvironmentTrouble(
                f"no room for a copy of {str(origin)!r}: {error}. Make room; `go-ent gc` lists "
                "workspaces"
            ) from None
        raise RequestError(f"{str(origin)!r} cannot be copied: {error}") from None


def _copy_folder(origin: bytes, to: bytes) -> None:
    anyio.from_thread.check_cancelled()
    os.makedirs(to, exist_ok=True)  # noqa: PTH103 (bytes: a name need not be text)
    with os.scandir(origin) as entries:
        for entry in entries:
            if entry.name == b".git":
                continue
            target = to + b"/" + entry.name
            if entry.is_symlink():
                os.symlink(os.readlink(entry.path), target)  # noqa: PTH115, PTH211 (bytes)
            elif entry.is_dir():
                _copy_folder(entry.path, target)
            elif entry.is_file():
                _copy_file(entry.path, target)
    shutil.copystat(origin, to)


def _copy_file(origin: bytes, to: bytes) -> None:
    with open(origin, "rb") as source, open(to, "wb") as target:  # noqa: PTH123 (bytes)
        try:
            fcntl.ioctl(target.fileno(), FICLONE, source.fileno())
        except OSError:  # another file system, or one that cannot
            shutil.copyfileobj(source, target, 2**20)
    shutil.copystat(origin, to)
