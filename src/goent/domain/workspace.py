"""Workspaces, the work done in them, conflicts, merges, and the ports that provide these.

A workspace is a folder of a worker's own: a git worktree, or a copy where there is no git. Its work
is kept as a commit on a branch of its own; all comparing and merging is done with such commits, and
nothing of the user's checkout is touched.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final, Literal, Protocol

from goent.domain.types import FileChange, Value


class ObservedChange(Value, frozen=True, kw_only=True):
    """A file that is new, gone or different. `path` is absolute.

    `at` is when it was changed last, as far as the file system tells: without `exact` it is the time of
    the folder that the file was in, or came with. Lines are None where they are not known.
    """

    path: str
    at: float | None = None
    exact: bool = True
    added: int | None = None
    removed: int | None = None


class ObservedChanges(Value, frozen=True, kw_only=True):
    """All of them but `more`; `unseen` says what could not be compared, and why."""

    files: tuple[ObservedChange, ...] = ()
    more: int = 0
    unseen: str = ""


class Observation(Protocol):
    """How the files of a folder were at one moment."""

    async def changes(self) -> ObservedChanges:
        """What is different now."""
        ...

    async def close(self) -> None:
        """Forget it. Raises nothing."""
        ...


class FolderObserver(Protocol):
    """Who looks at the files of a folder, and changes nothing there: no index, no ref, no file."""

    async def observe(self, cwd: Path, project: Path) -> Observation:
        """The project, if the directory lies in it; else the checkout around it, or itself."""
        ...


WorkspaceKind = Literal["worktree", "copy"]
# In the project's state folder: where the workspaces of each kind lie.
WORKSPACE_FOLDERS: Final[Mapping[WorkspaceKind, str]] = {"worktree": "worktrees", "copy": "copies"}
ConflictKind = Literal[
    "file_overlap", "hunk_conflict", "delete_modify", "rename", "binary", "mode", "semantic"
]


class WorkspaceRequest(Value, frozen=True, kw_only=True):
    """What a worker's workspace shall be.

    `cwd` is where the worker would work if it shared the user's folder. `start` is a commit to
    begin with instead of the checkout's own; `uncommitted` takes the user's uncommitted changes
    along. `carry` are untracked files, by path from the top of the checkout, that the work needs.
    """

    worker: str
    group: str
    cwd: Path
    kind: WorkspaceKind
    start: str | None = None
    uncommitted: bool = False
    carry: tuple[str, ...] = ()


class Workspace(Value, frozen=True, kw_only=True):
    """A folder of a worker's own.

    `path` is its top and `cwd` where in it the worker works; `origin` is the user's folder that it
    was made from. `repository` is the git directory that holds its `branch`: the user's, or for a
    copy a private one. `base` is the commit that its work is compared with. `warnings` tell how it
    differs from the user's folder.
    """

    kind: WorkspaceKind
    path: str
    cwd: str
    origin: str
    repository: str
    branch: str
    base: str
    warnings: tuple[str, ...] = ()


class Work(Value, frozen=True, kw_only=True):
    """What was made in a workspace: a commit, and how it differs from the base.

    `warnings` tell what could not be kept in the commit.
    """

    commit: str
    base: str
    files: tuple[FileChange, ...] = ()
    warnings: tuple[str, ...] = ()


class KeptSpace(Value, frozen=True, kw_only=True):
    """A workspace that is still there, and why. `bytes` is what it takes on disk.

    `commit` of `repository` is where its branch is; empty if there is none.
    """

    worker: str
    group: str
    kind: WorkspaceKind
    path: str
    branch: str
    bytes: int
    state: Literal["in_use", "unmerged", "merged", "clean", "broken"]
    commit: str = ""
    repository: str = ""


class WorkspaceManager(FolderObserver, Protocol):
    """Who makes workspaces, clears them away, and looks at the folders that nobody has for themselves."""

    async def check(self, cwd: Path, kind: WorkspaceKind) -> None:
        """Raise a `RequestError` or `EnvironmentTrouble` if there can be none for that folder."""
        ...

    async def default_kind(self, cwd: Path) -> WorkspaceKind:
        """A worktree inside a git repository; else a copy."""
        ...

    async def head(self, cwd: Path, *, uncommitted: bool = False) -> tuple[str, str]:
        """The repository (its git directory) and the commit that work from here would begin with."""
        ...

    async def uncommitted(self, cwd: Path) -> int:
        """How many files of the checkout are changed or new, and in no commit."""
        ...

    async def prepare(self, order: WorkspaceRequest) -> Workspace: ...

    async def commit_work(self, workspace: Workspace, message: str) -> Work:
        """Commit all that is new in it to its branch; also when there is nothing new."""
        ...

    async def release(self, workspace: Workspace) -> bool:
        """Nobody works there any more: remove it if its work is nothing, or merged. Whether it did."""
        ...

    async def list_kept(self) -> Sequence[KeptSpace]:
        """All workspaces of this project that are there."""
        ...

    async def remove_finished(self) -> Sequence[KeptSpace]:
        """Remove all that nobody works in and that are clean or merged; which they were."""
        ...

    async def file_states(self, folder: Path) -> Mapping[str, tuple[int, int]]:
        """Size and time of change (in ns) of its files, by path; bounded in number and time."""
        ...

    async def remove(self, worker: str) -> KeptSpace:
        """Remove a workspace with all that is in it, because somebody asked for just that."""
        ...


class WorkPiece(Value, frozen=True, kw_only=True):
    """One task's work, as a commit."""

    task: str
    commit: str


class Conflict(Value, frozen=True, kw_only=True):
    """Where the work of several does not go together, or may not.

    `hunks` show both sides between conflict markers that name whose they are. A `semantic` one
    merges cleanly, but a verify command fails on the merge.
    """

    kind: ConflictKind
    path: str
    tasks: tuple[str, ...]
    detail: str = ""
    hunks: tuple[str, ...] = ()


class UnmergedPiece(Value, frozen=True, kw_only=True):
    """A piece that could not be merged, with what it collides, and exactly what to do about it."""

    task: str
    conflicts: tuple[Conflict, ...]
    instructions: str


class Merge(Value, frozen=True, kw_only=True):
    """What merging gives: `commit` has all of `merged`, in that order; the rest is `left`.

    `steps` are the commits that first had each of the merged ones.
    """

    commit: str
    merged: tuple[str, ...]
    steps: tuple[str, ...] = ()
    left: tuple[UnmergedPiece, ...] = ()


class Merger(Protocol):
    """Who compares and joins pieces of work, in a repository's objects alone."""

    async def conflicts(
        self, repository: str, base: str, pieces: Sequence[WorkPiece]
    ) -> tuple[Conflict, ...]:
        """Between each two of them."""
        ...

    async def merge(
        self, repository: str, base: str, pieces: Sequence[WorkPiece], message: str
    ) -> Merge:
        """As many as go together, in the order that merges the most. Writes objects, no branch."""
        ...

    async def publish(
        self, repository: str, branch: str, commit: str, *, replaces: str | None = None
    ) -> None:
        """Let the branch point to the commit; made if it is not there, refused if checked out.

        It moves forward only, unless it is just where an earlier merge put it: at `replaces`.
        """
        ...

    async def apply(self, repository: str, checkout: Path, commit: str) -> str:
        """Move the branch that is checked out there forward to the commit; its name.

        Refused, and nothing changed, if there are uncommitted changes or files in the way.
        """
        ...

    def scratch(self, repository: str, commit: str) -> AbstractAsyncContextManager[Path]:
        """A checkout of the commit to run commands in, gone when the context closes."""
        ...
