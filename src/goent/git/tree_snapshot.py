"""Writes the files of a folder, committed or not, as a git tree.

It uses a private copy of the folder's index, so git reads only changed files, and the user's index,
stash and files stay untouched.
"""

import os
import shutil
import tempfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio

from goent.domain.types import Value
from goent.git.git_command import DISK_FULL, Git, GitAnswer, GitFailed

INDEX_SETTINGS = (
    *("-c", "core.splitIndex=false"),  # else part of the index would lie in the git directory
    *("-c", "core.safecrlf=false"),  # else a line's end could keep a file out
)
SUBMODULE_MODE = b"160000"  # the mode of an entry that is another repository's commit
# That mode in an index, or a sign that entries are in a shared or sparse index.
LINK_SIGNS = (b"\x00\x00\xe0\x00", b"link", b"sdir")
BROKEN = 128  # exit code of a fatal error, such as a damaged index


class TreeSnapshot(Value, frozen=True, kw_only=True):
    """A tree, the private index behind it, and git's messages on files that it `left_out`."""

    tree: str
    index: Path
    left_out: str = ""


class GitFolder(Value, frozen=True, kw_only=True):
    """The files below `top`, for the repository at `git_dir`; with `own`, that has their index.

    Both are passed to git explicitly, whatever a worker did to its `.git`.
    """

    git: Git
    git_dir: Path
    top: Path
    own: bool = True

    @asynccontextmanager
    async def snapshot(
        self, *, otherwise: str = "", without: Sequence[str] = ()
    ) -> AsyncGenerator[TreeSnapshot]:
        """A tree of all files that git does not ignore, except the paths `without`.

        `otherwise` is the tree to start from if the folder's own index cannot be used.
        """
        with tempfile.TemporaryDirectory(prefix="goent-index-") as folder:
            index = Path(folder) / "index"
            known = self.own and _copy_index(self.git_dir / "index", index)
            left_out = await self._fill(index, otherwise, without, known=known)
            tree = (
                await self.git.run_checked(*INDEX_SETTINGS, "write-tree", env=self.env(index))
            ).text
            yield TreeSnapshot(tree=tree, index=index, left_out=left_out)

    def env(self, index: Path) -> dict[str, str]:
        return {
            "GIT_DIR": str(self.git_dir),
            "GIT_WORK_TREE": str(self.top),
            "GIT_INDEX_FILE": str(index),
        }

    async def _fill(
        self, index: Path, otherwise: str, without: Sequence[str], *, known: bool
    ) -> str:
        env = self.env(index)
        if not known and otherwise:
            await self.git.run_checked(*INDEX_SETTINGS, "read-tree", otherwise, env=env)
        try:
            answer, adding = await add_all(
                self.git, index, without, settings=INDEX_SETTINGS, env=env
            )
        except GitFailed:
            if not known:
                raise
            _drop_index(index)
            return await self._fill(index, otherwise, without, known=False)
        if answer.exit == BROKEN and known:
            _drop_index(index)
            return await self._fill(index, otherwise, without, known=False)
        if answer.exit == BROKEN or any(sign in answer.errors for sign in DISK_FULL):
            raise self.git.failure(answer, *adding)
        if without:
            named = [f":(top,literal){path}" for path in without]
            await self.git.run_checked(
                *(*INDEX_SETTINGS, "rm", "-r", "--cached", "--quiet", "--force"),
                *("--ignore-unmatch", "--sparse", "--", *named),
                env=env,
            )
        return answer.errors if answer.exit else ""


async def add_all(
    git: Git,
    index: Path,
    without: Sequence[str] = (),
    *,
    settings: Sequence[str],
    env: Mapping[str, str],
) -> tuple[GitAnswer, Sequence[str]]:
    """Add all files except `without` to the index; returns git's answer and the arguments.

    `git add` would start another git inside every submodule, subject to the configuration there. So
    submodules are excluded, and their commits entered separately.
    """
    links = await _links(git, index, settings, env)
    spared = [f":(top,exclude,literal){path}" for path in (*without, *links)]
    adding = ("add", "--all", "--sparse", "--ignore-errors", "--", ":(top)", *spared)
    answer = await git.run(*settings, *adding, env=env)
    if links and answer.exit != BROKEN:
        wanted = "".join(f"{link}\0" for link in links if link not in without)
        await git.run_checked(
            *(*settings, "update-index", "--add", "--remove", "--replace", "-z", "--stdin"),
            stdin=os.fsencode(wanted),
            env=env,
        )
    return answer, adding


async def _links(
    git: Git, index: Path, settings: Sequence[str], env: Mapping[str, str]
) -> list[str]:
    """The submodule entries. git runs only if there may be any."""
    if not await anyio.to_thread.run_sync(may_have_links, index):
        return []
    listed = (await git.run_checked(*settings, "ls-files", "--stage", "-z", env=env)).output
    entries = (line.partition(b"\t") for line in listed.split(b"\0"))
    return [os.fsdecode(path) for about, _, path in entries if about.startswith(SUBMODULE_MODE)]


def may_have_links(index: Path) -> bool:
    """Whether the index may have submodule entries."""
    try:
        content = index.read_bytes()
    except OSError:
        return False
    return any(sign in content for sign in LINK_SIGNS)


def _copy_index(index: Path, to: Path) -> bool:
    with suppress(OSError):
        # With its time stamp: git trusts an index only for files that are older than it.
        shutil.copy2(index, to)
        return True
    return False


def _drop_index(index: Path) -> None:
    index.unlink(missing_ok=True)


async def commit_tree(
    git: Git, tree: str, parent: str, message: str, env: dict[str, str] | None = None
) -> str:
    """A commit of the tree, on no branch yet."""
    parents = ("-p", parent) if parent else ()
    answer = await git.run_checked("commit-tree", tree, *parents, stdin=message.encode(), env=env)
    return answer.text
