"""What changed in a directory? A private git remembers what it began with.

The record lies beside the directory, not in it: whatever an agent does to the `.git` that it finds,
and whatever the user's git is set to, the comparison is with what was there before.
"""

import os
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio

from goent.evals.workspaces.clones import Origin
from goent.git.command import IDENTITY, Answer, Git
from goent.git.snapshot import BROKEN, OWN, add_all

MOST: Final = 1024 * 1024  # bytes of a diff that are told
LARGEST: Final = "1m"  # of a file whose lines are told
BRANCH: Final = "refs/heads/main"
_CONFIG: Final = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n"
_ALONE: Final = {  # neither the user's settings and ignored files, nor the machine's
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
_SETTINGS: Final = (
    *OWN,
    *("-c", f"core.bigFileThreshold={LARGEST}"),
    *("-c", "core.looseCompression=0"),
    *("-c", "core.fsync=none"),
    *("-c", "advice.addEmbeddedRepo=false"),
)
_DEEPEST: Final = 5  # repositories in each other
_INNER: Final = re.compile(  # the last is said where nothing was committed yet
    r"^warning: adding embedded git repository: (.+?)/?$"
    r"|^error: '(.+?)/?' does not have a commit checked out$",
    re.MULTILINE,
)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_NONE: Final = "0" * 40
_EMPTY: Final = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"  # the file without content
_NOTHING: Final = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"  # the tree without files


class Record:
    """The record of the directory `top`, kept in `folder`."""

    def __init__(self, git: Git, folder: Path, top: Path) -> None:
        self._git = git.at(top)
        self._folder = folder
        self._top = top
        self._base = _NOTHING

    async def check_out(self, origin: Origin) -> None:
        """Let the directory be filled with the files of a commit."""
        await self._begin(origin)
        await self._do("read-tree", "-u", "--reset", origin.commit)
        self._base = origin.commit

    async def remember(self, message: str, origin: Origin | None = None) -> None:
        """The files as they are now are what it begins with."""
        if not self._folder.exists():
            await self._begin(origin)
        await self._add()
        said = _CONTROL.sub("?", message)
        await self._do("commit", "--quiet", "--allow-empty", "--message", said)
        self._base = (self._folder / BRANCH).read_text().strip()

    def show(self) -> None:
        """Let whoever works there find a repository of its own, with that beginning as its commit.

        One that is there already stays. It borrows our objects and can change none of them.
        """
        inner = self._top / ".git"
        if inner.exists() or inner.is_symlink():
            return
        _bones(inner, self._base, self._folder)
        shutil.copy2(self._folder / "index", inner / "index")

    async def changes(self) -> str:
        """A unified diff since the beginning, with what is new, gone and binary."""
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
        shown = await anyio.to_thread.run_sync(bounded, told)
        return shown if not left_out else f"{shown}[could not be read: {left_out}]\n"

    async def _begin(self, origin: Origin | None) -> None:
        commit = origin.commit if origin else ""
        await anyio.to_thread.run_sync(
            _bones, self._folder, commit, origin.repository if origin else None
        )

    async def _add(self) -> str:
        """All files, those of repositories inside as well; what could not be read, in git's words."""
        left_out, index = "", self._folder / "index"
        for _ in range(_DEEPEST):
            answer, adding = await add_all(self._git, index, settings=_SETTINGS, env=self._env)
            if answer.exit == BROKEN:
                raise self._git.failure(answer, *adding)
            left_out = answer.errors if answer.exit else ""
            inner = [found[1] or found[2] for found in _INNER.finditer(answer.errors)]
            if not inner:
                break
            # git looks into a repository inside if it knows a file there: this one it forgets again.
            known = (f"0 {_NONE}\t{name}\n100644 {_EMPTY} 0\t{name}/.goent\n" for name in inner)
            listed = "".join(known).encode(errors="surrogateescape")
            await self._git.do(
                *_SETTINGS, "update-index", "--index-info", stdin=listed, env=self._env
            )
        return left_out

    async def _do(self, *arguments: str) -> Answer:
        return await self._git.do(*_SETTINGS, *arguments, env=self._env)

    @property
    def _env(self) -> Mapping[str, str]:
        return {**_ALONE, "GIT_DIR": str(self._folder), "GIT_WORK_TREE": str(self._top)}


def bounded(path: Path) -> str:
    """The beginning of a diff, up to a whole line, and how much of it there would be."""
    size = path.stat().st_size
    with path.open("rb") as file:
        told = file.read(MOST)
    path.unlink()
    if size <= MOST:
        return told.decode(errors="replace")
    whole = told[: told.rfind(b"\n") + 1]
    return f"{whole.decode(errors='replace')}[the first {len(whole)} of {size} bytes]\n"


def _bones(folder: Path, commit: str, borrowed: Path | None) -> None:
    """A git directory, which needs no process; it looks for objects in another one as well."""
    for part in ("objects/info", "objects/pack", "refs/heads", "refs/tags"):
        (folder / part).mkdir(parents=True)
    (folder / "HEAD").write_text(f"ref: {BRANCH}\n")
    (folder / "config").write_text(_CONFIG)
    if commit:
        (folder / BRANCH).write_text(f"{commit}\n")
    if borrowed:
        alternates = os.fsencode(borrowed / "objects") + b"\n"
        (folder / "objects" / "info" / "alternates").write_bytes(alternates)
        with suppress(FileNotFoundError):
            shutil.copyfile(borrowed / "shallow", folder / "shallow")
