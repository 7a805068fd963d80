"""How does what is in a workspace become a commit on its branch, whatever its worker did with git?

A worker may commit, switch branches, reset or delete `.git`: what counts is the state of its files.
"""

import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import anyio
from msgspec.structs import replace

from goent.domain.errors import WorkspaceLost
from goent.domain.types import Value
from goent.domain.workspaces import Work, Workspace
from goent.git.changes import changes
from goent.git.command import Git
from goent.git.paths import is_folder
from goent.git.records import Record
from goent.git.snapshot import Folder, Snapshot, commit_tree

LONGEST = 300  # characters of git's own words in a warning
MOST_FILES = 2000  # that a journal and its readers have to carry


class Tip(Value, frozen=True, kw_only=True):
    """Where a branch is; `here` if it is what the workspace has checked out."""

    commit: str
    tree: str
    here: bool


def folder_of(git: Git, record: Record) -> Folder:
    """The workspace's files. Raises `WorkspaceLost` if they are gone."""
    workspace = record.workspace
    top = Path(workspace.path)
    if not is_folder(workspace.path):
        raise WorkspaceLost(
            f"the workspace {str(top)!r} is gone, and with it what was not yet on its branch "
            f"{workspace.branch!r}: somebody removed it. Spawn another worker for the task"
        )
    own = Path(record.git_dir or workspace.repository)
    known = (own / "HEAD").exists()
    return Folder(git=git, git_dir=own if known else Path(workspace.repository), top=top, own=known)


async def keep(git: Git, record: Record, message: str) -> Work:
    """Commit all that is new, if anything is, and say how it differs from the base."""
    inside = [await _keep(git, inner, message) for inner in _there(record)]
    outer = await _keep(git, record, message)
    top = Path(record.workspace.path)
    files = [
        replace(change, path=f"{Path(inner.workspace.path).relative_to(top)}/{change.path}")
        for inner, work in zip(_there(record), inside, strict=True)
        for change in work.files
    ]
    warnings = [warning for work in (*inside, outer) for warning in work.warnings]
    files = [*outer.files, *files]
    if len(files) > MOST_FILES:
        warnings.append(f"{len(files):,} files were changed, of which {MOST_FILES:,} are listed")
    return replace(outer, files=tuple(files[:MOST_FILES]), warnings=tuple(warnings))


def _there(record: Record) -> Sequence[Record]:
    """Its submodules, inner ones first: an outer one names the commit of an inner one."""
    return [each for each in reversed(record.inner) if is_folder(each.workspace.path)]


async def _keep(git: Git, record: Record, message: str) -> Work:
    workspace = record.workspace
    folder = folder_of(git, record)
    async with folder.snapshot(otherwise=workspace.base, without=record.carried) as snapshot:
        commit = await _committed(folder, workspace, snapshot, message)
    made = await changes(git, Path(workspace.repository), workspace.base, commit)
    return Work(
        commit=commit,
        base=workspace.base,
        files=made.files,
        warnings=(*_left_out(snapshot), *map(_inner, made.inner)),
    )


async def _committed(folder: Folder, workspace: Workspace, snapshot: Snapshot, message: str) -> str:
    commit = workspace.base
    with anyio.CancelScope(shield=True):  # a git that is ended here would leave its lock behind
        tip = await tip_of(folder, workspace)
        commit = await _commit(folder, workspace, tip, snapshot.tree, message)
        if tip and tip.here and tip.commit != commit:
            install(snapshot.index, folder.git_dir)
    return commit


async def tip_of(folder: Folder, workspace: Workspace) -> Tip | None:
    """None if the branch is gone."""
    answer = await folder.git.do(
        *("for-each-ref", "--format=%(objectname) %(tree) %(HEAD)"),
        f"refs/heads/{workspace.branch}",
        env={"GIT_DIR": str(folder.git_dir)},
    )
    if not answer.text:
        return None
    commit, tree, *here = answer.text.split()
    return Tip(commit=commit, tree=tree, here=here == ["*"])


async def _commit(
    folder: Folder, workspace: Workspace, tip: Tip | None, tree: str, message: str
) -> str:
    git, env = folder.git, {"GIT_DIR": workspace.repository}
    if tip and await _grew_from(git, workspace, tip.commit):
        if tip.tree == tree:
            return tip.commit
        parent = tip.commit
    else:
        parent = workspace.base
    at_base = await git.do("rev-parse", f"{workspace.base}^{{tree}}", env=env)
    if parent == workspace.base and at_base.text == tree:
        commit = workspace.base
    else:
        commit = await commit_tree(git, tree, parent, message, env)
    before = tip.commit if tip else "0" * len(commit)
    await git.do("update-ref", f"refs/heads/{workspace.branch}", commit, before, env=env)
    return commit


async def _grew_from(git: Git, workspace: Workspace, commit: str) -> bool:
    """Whether the branch still goes on from the base: a worker may have moved it elsewhere."""
    if commit == workspace.base:
        return True
    answer = await git.ask(
        *("merge-base", "--is-ancestor", workspace.base, commit),
        env={"GIT_DIR": workspace.repository},
    )
    return not answer.exit


def install(index: Path, git_dir: Path) -> None:
    """Else the worker's own `git status` would say that it has undone what was just committed."""
    lock = git_dir / "index.lock"
    with suppress(OSError):  # a git of the worker's is at it: then that one is right
        os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        try:
            shutil.copy2(index, lock)
            lock.replace(git_dir / "index")
        finally:
            lock.unlink(missing_ok=True)


def _left_out(snapshot: Snapshot) -> tuple[str, ...]:
    if not snapshot.left_out:
        return ()
    return (f"not all files could be kept: {snapshot.left_out[-LONGEST:]}",)


def _inner(path: str) -> str:
    return (
        f"{path!r} is a git repository of its own: what is in it is not kept on the branch, "
        "only in the workspace's folder"
    )
