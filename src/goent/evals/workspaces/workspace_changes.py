"""Checks out the commit an attempt starts from, and records in a private git what changed since.

The record is beside the directory, not in it: neither the agent's own commits nor the user's git settings
change the comparison.
"""

import os
import re
import shutil
from collections.abc import Awaitable, Callable, Hashable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, Generic, TypeVar

import anyio

from goent.domain.errors import GoentError, RequestError
from goent.domain.types import Value
from goent.evals.workspaces.workspace_folders import RunFolder
from goent.git.git_command import IDENTITY, Git, GitAnswer
from goent.git.repository import NoRepository, find_checkout
from goent.git.scratch_space import common_dir
from goent.git.tree_snapshot import BROKEN, INDEX_SETTINGS, add_all

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class OncePerKey(Generic[K, V]):
    """Makes a value once per key; a failure is the same for all."""

    def __init__(self) -> None:
        self._made: dict[K, V | GoentError] = {}
        self._making: dict[K, anyio.Lock] = {}

    async def get(self, key: K, make: Callable[[], Awaitable[V]]) -> V:
        async with self._making.setdefault(key, anyio.Lock()):
            if key not in self._made:
                try:
                    self._made[key] = await make()
                except GoentError as error:
                    self._made[key] = error
            made = self._made[key]
        if isinstance(made, GoentError):
            raise made.with_traceback(None)  # otherwise it grows with each raise
        return made


FETCH_TIMEOUT_S: Final = 600.0
NO_REPOSITORY: Final = (
    "{folder!r} is not in a git repository; use `template` for a plain folder, or run `git init` there "
    "and make a first commit"
)


class CloneOrigin(Value, frozen=True, kw_only=True):
    """A commit of a local repository; `folder` is the run's copy of a remote one."""

    repository: Path
    commit: str
    folder: Path | None = None


class CloneOrigins:
    """Finds commits. A remote repository is fetched once per run; a local one is read in place."""

    def __init__(self, run: RunFolder, git: Git) -> None:
        self._run = run
        self._git = git
        self._fetched: OncePerKey[str, Path] = OncePerKey()
        self._found: OncePerKey[tuple[str, str], CloneOrigin] = OncePerKey()

    async def of(self, repository: str, ref: str) -> CloneOrigin:
        """Raises a `GoentError` for a missing repository or commit."""
        return await self._found.get((repository, ref), lambda: self._look(repository, ref))

    async def _look(self, repository: str, ref: str) -> CloneOrigin:
        if is_local(repository):
            try:
                found = await find_checkout(self._git.at(Path(repository)), ref or "HEAD")
            except NoRepository:
                raise RequestError(NO_REPOSITORY.format(folder=repository)) from None
            return CloneOrigin(repository=common_dir(found.repository), commit=found.commit)
        folder = await self._fetched.get(repository, lambda: self._fetch(repository))
        found = await find_checkout(self._git.at(folder / "origin.git"), ref or "HEAD")
        return CloneOrigin(repository=found.repository, commit=found.commit, folder=folder)

    async def _fetch(self, repository: str) -> Path:
        folder = await self._run.new("origin")
        cloning = ("clone", "--quiet", "--bare", "--", repository, "origin.git")
        await self._git.at(folder).run_checked(*cloning, timeout=FETCH_TIMEOUT_S)
        return folder


def is_local(repository: str) -> bool:
    return Path(repository).is_dir()


LARGEST_DIFF: Final = 1024 * 1024  # bytes of a diff
LARGEST_SHOWN_FILE: Final = "1m"  # a larger one counts as binary
BRANCH: Final = "refs/heads/main"
_GIT_CONFIG: Final = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n"
_ISOLATED_ENV: Final = {  # neither the user's settings and ignored files, nor the machine's
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_ATTR_NOSYSTEM": "1",
    "HOME": os.devnull,
    "XDG_CONFIG_HOME": os.devnull,
    **{
        f"GIT_{role}_{what}": it
        for role in ("AUTHOR", "COMMITTER")
        for what, it in IDENTITY.items()
    },
}
_GIT_SETTINGS: Final = (
    *INDEX_SETTINGS,
    *("-c", f"core.bigFileThreshold={LARGEST_SHOWN_FILE}"),
    *("-c", "core.looseCompression=0"),
    *("-c", "core.fsync=none"),
    *("-c", "advice.addEmbeddedRepo=false"),
)
_DEEPEST_REPOSITORY: Final = 5  # repositories in each other
_INNER_REPOSITORY: Final = re.compile(  # the last is said where nothing was committed yet
    r"^warning: adding embedded git repository: (.+?)/?$"
    r"|^error: '(.+?)/?' does not have a commit checked out$",
    re.MULTILINE,
)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_NO_OBJECT: Final = "0" * 40
_EMPTY_FILE: Final = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"  # the file without content
_EMPTY_TREE: Final = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"  # the tree without files


class ChangeRecord:
    """The record of the directory `top`, kept in `folder`."""

    def __init__(self, git: Git, folder: Path, top: Path) -> None:
        self._git = git.at(top)
        self._folder = folder
        self._top = top
        self._base = _EMPTY_TREE

    async def check_out(self, origin: CloneOrigin) -> None:
        """Fills the directory with the files of a commit."""
        await self._begin(origin)
        await self._do("read-tree", "-u", "--reset", origin.commit)
        self._base = origin.commit

    async def commit_baseline(self, message: str, origin: CloneOrigin | None = None) -> None:
        """Makes the current files the baseline."""
        if not self._folder.exists():
            await self._begin(origin)
        await self._add()
        text = _CONTROL.sub("?", message)
        await self._do("commit", "--quiet", "--allow-empty", "--message", text)
        self._base = (self._folder / BRANCH).read_text().strip()

    def link_repository(self) -> None:
        """Gives the directory a repository of its own, with the baseline as its commit.

        An existing one stays. The new one borrows the record's objects and cannot change them.
        """
        inner = self._top / ".git"
        if inner.exists() or inner.is_symlink():
            return
        _make_git_folder(inner, self._base, self._folder)
        shutil.copy2(self._folder / "index", inner / "index")

    async def changes(self) -> str:
        """A unified diff since the baseline, with new, deleted and binary files."""
        if not self._folder.exists():
            if not any(self._top.iterdir()):
                return ""
            await self._begin(None)
        left_out = await self._add()
        tree = (await self._do("write-tree")).text
        told = self._folder / "told.diff"
        await self._do(
            *("diff", "--no-color", "--no-ext-diff", "--no-textconv", "-M", f"--output={told}"),
            *(self._base, tree),
        )
        shown = await anyio.to_thread.run_sync(read_diff, told)
        return shown if not left_out else f"{shown}[could not be read: {left_out}]\n"

    async def _begin(self, origin: CloneOrigin | None) -> None:
        commit = origin.commit if origin else ""
        await anyio.to_thread.run_sync(
            _make_git_folder, self._folder, commit, origin.repository if origin else None
        )

    async def _add(self) -> str:
        """Adds all files, those of inner repositories too. Returns git's errors for unreadable ones."""
        left_out, index = "", self._folder / "index"
        for _ in range(_DEEPEST_REPOSITORY):
            answer, adding = await add_all(self._git, index, settings=_GIT_SETTINGS, env=self._env)
            if answer.exit == BROKEN:
                raise self._git.failure(answer, *adding)
            left_out = answer.errors if answer.exit else ""
            inner = [found[1] or found[2] for found in _INNER_REPOSITORY.finditer(answer.errors)]
            if not inner:
                break
            # git descends into an inner repository if the index has a file there; it drops this one again.
            known = (
                f"0 {_NO_OBJECT}\t{name}\n100644 {_EMPTY_FILE} 0\t{name}/.goent\n" for name in inner
            )
            listed = "".join(known).encode(errors="surrogateescape")
            await self._git.run_checked(
                *_GIT_SETTINGS, "update-index", "--index-info", stdin=listed, env=self._env
            )
        return left_out

    async def _do(self, *arguments: str) -> GitAnswer:
        return await self._git.run_checked(*_GIT_SETTINGS, *arguments, env=self._env)

    @property
    def _env(self) -> Mapping[str, str]:
        return {**_ISOLATED_ENV, "GIT_DIR": str(self._folder), "GIT_WORK_TREE": str(self._top)}


def read_diff(path: Path) -> str:
    """The beginning of a diff, up to a whole line, and its full size."""
    size = path.stat().st_size
    with path.open("rb") as file:
        told = file.read(LARGEST_DIFF)
    path.unlink()
    if size <= LARGEST_DIFF:
        return told.decode(errors="replace")
    whole = told[: told.rfind(b"\n") + 1]
    return f"{whole.decode(errors='replace')}[the first {len(whole)} of {size} bytes]\n"


def _make_git_folder(folder: Path, commit: str, borrowed: Path | None) -> None:
    """Makes a git directory without a process; it borrows the objects of another."""
    for part in ("objects/info", "objects/pack", "refs/heads", "refs/tags"):
        (folder / part).mkdir(parents=True)
    (folder / "HEAD").write_text(f"ref: {BRANCH}\n")
    (folder / "config").write_text(_GIT_CONFIG)
    if commit:
        (folder / BRANCH).write_text(f"{commit}\n")
    if borrowed:
        alternates = os.fsencode(borrowed / "objects") + b"\n"
        (folder / "objects" / "info" / "alternates").write_bytes(alternates)
        with suppress(FileNotFoundError):
            shutil.copyfile(borrowed / "shallow", folder / "shallow")
