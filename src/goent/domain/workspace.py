"""Workspaces, the work done in them, conflicts, merges, and the ports that provide these.

A workspace is a worker's own folder: a git worktree, or a copy if there is no git. Its work is stored as a
commit on its own branch; comparing and merging use such commits, and do not touch the user's checkout.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final, Literal, Protocol

from goent.domain.types import FileChange, Value


class ObservedChange(Value, frozen=True, kw_only=True):
    """A file that is new, deleted or different. `path` is absolute.

    `at` is when it changed last; without `exact` it is the time of its folder. Line counts are None if unknown.
    """

    path: str
    at: float | None = None
    exact: bool = True
    added: int | None = None
    removed: int | None = None


class ObservedChanges(Value, frozen=True, kw_only=True):
    """The changes, without `more` others; `unseen` says what could not be compared, and why."""

    files: tuple[ObservedChange, ...] = ()
    more: int = 0
    unseen: str = ""


class Observation(Protocol):
    """The state of a folder's files at one moment."""

    async def changes(self) -> ObservedChanges:
        """The differences now."""
        ...

    async def close(self) -> None:
        """Discard the observation. Raises nothing."""
        ...


class FolderObserver(Protocol):
    """Observes the files of a folder without changing anything there: no index, no ref, no file."""

    async def observe(self, cwd: Path, project: Path) -> Observation:
        """Observe the project if `cwd` is in it, else the checkout around `cwd`, or `cwd` itself."""
        ...


WorkspaceKind = Literal["worktree", "copy"]
# The folders of each kind of workspace, in the project's state folder.
WORKSPACE_FOLDERS: Final[Mapping[WorkspaceKind, str]] = {"worktree": "worktrees", "copy": "copies"}
ConflictKind = Literal[
    "file_overlap", "hunk_conflict", "delete_modify", "rename", "binary", "mode", "semantic"
]


class WorkspaceRequest(Value, frozen=True, kw_only=True):
    """The workspace that a worker needs.

    `cwd` is where the worker would work in the user's folder. `start` is a commit to begin with instead of the
    checkout's own; `uncommitted` includes the user's uncommitted changes. `carry` are untracked files that the
    work needs, relative to the top of the checkout.
    """

    worker: str
    group: str
    cwd: Path
    kind: WorkspaceKind
    start: str | None = None
    uncommitted: bool = False
    carry: tuple[str, ...] = ()


class Workspace(Value, frozen=True, kw_only=True):
    """A worker's own folder.

    `path` is its top and `cwd` the worker's directory in it; `origin` is the user's folder that it was made
    from. `repository` is the git directory with its `branch`: the user's, or for a copy a private one. `base`
    is the commit that its work is compared with. `warnings` say how it differs from the user's folder.
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
    """The work in a workspace: a commit, and how it differs from the base.

    `warnings` say what could not be committed.
    """

    commit: str
    base: str
    files: tuple[FileChange, ...] = ()
    warnings: tuple[str, ...] = ()


class KeptSpace(Value, frozen=True, kw_only=True):
    """An existing workspace, and why it is kept. `bytes` is its size on disk.

    Its branch is at `commit` of `repository`; empty if there is none.
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
    """Creates and removes workspaces, and observes shared folders."""

    async def check(self, cwd: Path, kind: WorkspaceKind) -> None:
        """Raise a `RequestError` or `EnvironmentTrouble` if the folder can have none."""
        ...

    async def default_kind(self, cwd: Path) -> WorkspaceKind:
        """A worktree inside a git repository; else a copy."""
        ...

    async def head(self, cwd: Path, *, uncommitted: bool = False) -> tuple[str, str]:
        """The repository (its git directory), and the commit that work in `cwd` would begin with."""
        ...

    async def uncommitted(self, cwd: Path) -> int:
        """The number of files of the checkout with uncommitted changes."""
        ...

    async def prepare(self, order: WorkspaceRequest) -> Workspace: ...

    async def commit_work(self, workspace: Workspace, message: str) -> Work:
        """Commit everything new in it to its branch, even if nothing is new."""
        ...

    async def release(self, workspace: Workspace) -> bool:
        """Remove a workspace that is no longer used, if it has no unmerged work; returns whether it did."""
        ...

    async def list_kept(self) -> Sequence[KeptSpace]:
        """All existing workspaces of this project."""
        ...

    async def remove_finished(self) -> Sequence[KeptSpace]:
        """Remove all unused workspaces that are clean or merged, and return them."""
        ...

    async def file_states(self, folder: Path) -> Mapping[str, tuple[int, int]]:
        """Size and modification time (in ns) of a folder's files, by path; limited in number and time."""
        ...

    async def remove(self, worker: str) -> KeptSpace:
        """Remove a workspace with its content, at the user's explicit request."""
        ...


class WorkPiece(Value, frozen=True, kw_only=True):
    """One task's work, as a commit."""

    task: str
    commit: str


class Conflict(Value, frozen=True, kw_only=True):
    """A conflict between the work of several tasks.

    `hunks` show both sides between conflict markers that name the tasks. A `semantic` conflict merges cleanly,
    but a verify command fails on the merge.
    """

    kind: ConflictKind
    path: str
    tasks: tuple[str, ...]
    detail: str = ""
    hunks: tuple[str, ...] = ()


class UnmergedPiece(Value, frozen=True, kw_only=True):
    """A piece that could not be merged, its conflicts, and what to do about them."""

    task: str
    conflicts: tuple[Conflict, ...]
    instructions: str


class Merge(Value, frozen=True, kw_only=True):
    """The result of merging: `commit` contains `merged`, in that order; the rest is `left`.

    `steps` are the commits that first contained each of the merged pieces.
    """

    commit: str
    merged: tuple[str, ...]
    steps: tuple[str, ...] = ()
    left: tuple[UnmergedPiece, ...] = ()


class Merger(Protocol):
    """Compares and merges pieces of work, using only a repository's objects."""

    async def conflicts(
        self, repository: str, base: str, pieces: Sequence[WorkPiece]
    ) -> tuple[Conflict, ...]:
        """The conflicts between each two of them."""
        ...

    async def merge(
        self, repository: str, base: str, pieces: Sequence[WorkPiece], message: str
    ) -> Merge:
        """Merge as many as possible, in the best order. Writes objects, but no branch."""
        ...

    async def publish(
        self, repository: str, branch: str, commit: str, *, replaces: str | None = None
    ) -> None:
        """Point the branch to the commit; it is created if missing, and refused if checked out.

        It only moves forward, unless it is still where an earlier merge put it: at `replaces`.
        """
        ...

    async def apply(self, repository: str, checkout: Path, commit: str) -> str:
        """Fast-forward the branch that is checked out there to the commit, and return its name.

        Refused without any change if there are uncommitted changes or files in the way.
        """
        ...

    def scratch(self, repository: str, commit: str) -> AbstractAsyncContextManager[Path]:
        """A temporary checkout of the commit, removed when the context closes."""
        ...
