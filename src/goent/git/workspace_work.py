"""Commits the work in a workspace to its branch, and decides whether the workspace may go.

A worker may commit, switch branches, reset or delete `.git`: what counts is the state of its files.
"""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

import anyio
from msgspec.structs import replace

from goent.domain.errors import WorkspaceLost
from goent.domain.types import FileChange, Value
from goent.domain.workspace import Work, Workspace
from goent.git.git_command import Git, readable_path
from goent.git.tree_snapshot import SUBMODULE_MODE, GitFolder, TreeSnapshot, commit_tree
from goent.git.workspace_records import MERGED_BRANCH, WorkspaceRecord, is_own_folder

MAX_WARNING_CHARS = 300  # of git's message in a warning
MAX_FILES = 2000  # that are listed in the journal
WorkspaceState = Literal["unmerged", "merged", "clean", "broken"]


class CommitChanges(Value, frozen=True, kw_only=True):
    """`inner` are new repositories inside, of which git keeps only the commit id."""

    files: tuple[FileChange, ...] = ()
    inner: tuple[str, ...] = ()


async def read_commit_changes(git: Git, repository: Path, base: str, commit: str) -> CommitChanges:
    """The changed files. A renamed one is a single change, `old => new`; binary ones have no lines."""
    if base == commit:
        return CommitChanges()
    answer = await git.run_checked(
        *("diff-tree", "-r", "-z", "--raw", "--numstat", "-M", "--no-ext-diff", "--no-textconv"),
        *(base, commit),
        env={"GIT_DIR": str(repository)},
    )
    return parse_raw_diff(answer.output)


def parse_raw_diff(output: bytes) -> CommitChanges:
    """Parse `diff-tree -z --raw --numstat`: first the raw entries, then the line counts."""
    fields = iter(output.split(b"\0"))
    files: list[FileChange] = []
    inner: list[str] = []
    for field in fields:
        if field.startswith(b":"):
            new = _inner_repository(field, fields)
            if new is not None:
                inner.append(readable_path(new))
        elif field:
            files.append(_file_change(field, fields))
    return CommitChanges(files=tuple(files), inner=tuple(inner))


def _inner_repository(field: bytes, rest: Iterator[bytes]) -> bytes | None:
    """The path, if the entry is a new repository."""
    old, new, _, _, status = field[1:].split(b" ")
    path = next(rest)
    if status[:1] in (b"R", b"C"):
        path = next(rest)
    return path if new == SUBMODULE_MODE and old != SUBMODULE_MODE else None


def _file_change(field: bytes, rest: Iterator[bytes]) -> FileChange:
    added, removed, path = field.split(b"\t", 2)
    names = [path] if path else [next(rest), next(rest)]
    name = " => ".join(map(readable_path, names))
    return FileChange(path=name, added=_count(added), removed=_count(removed))


def _count(digits: bytes) -> int | None:
    return None if digits == b"-" else int(digits)


class BranchTip(Value, frozen=True, kw_only=True):
    """The tip of a branch, and whether the workspace has it checked out."""

    commit: str
    tree: str
    is_checked_out: bool


def git_folder_of(git: Git, record: WorkspaceRecord) -> GitFolder:
    """The workspace's files. Raises `WorkspaceLost` if they are gone."""
    workspace = record.workspace
    top = Path(workspace.path)
    if not is_own_folder(workspace.path):
        raise WorkspaceLost(
            f"the workspace {str(top)!r} was removed, together with any work that was not yet on its "
            f"branch {workspace.branch!r}: spawn another worker for the task"
        )
    own = Path(record.git_dir or workspace.repository)
    known = (own / "HEAD").exists()
    return GitFolder(
        git=git, git_dir=own if known else Path(workspace.repository), top=top, own=known
    )


async def keep_work(git: Git, record: WorkspaceRecord, message: str) -> Work:
    """Commit all changes, if there are any, and return the difference from the base."""
    inside = [await _keep_one(git, inner, message) for inner in _present_submodules(record)]
    outer = await _keep_one(git, record, message)
    top = Path(record.workspace.path)
    files = [
        replace(change, path=f"{Path(inner.workspace.path).relative_to(top)}/{change.path}")
        for inner, work in zip(_present_submodules(record), inside, strict=True)
        for change in work.files
    ]
    warnings = [warning for work in (*inside, outer) for warning in work.warnings]
    files = [*outer.files, *files]
    if len(files) > MAX_FILES:
        warnings.append(f"{len(files):,} files were changed, of which {MAX_FILES:,} are listed")
    return replace(outer, files=tuple(files[:MAX_FILES]), warnings=tuple(warnings))


def _present_submodules(record: WorkspaceRecord) -> Sequence[WorkspaceRecord]:
    """Its submodules, inner ones first: an outer one refers to an inner one's commit."""
    return [each for each in reversed(record.inner) if is_own_folder(each.workspace.path)]


async def _keep_one(git: Git, record: WorkspaceRecord, message: str) -> Work:
    workspace = record.workspace
    folder = git_folder_of(git, record)
    async with folder.snapshot(otherwise=workspace.base, without=record.carried) as snapshot:
        commit = await _commit_snapshot(folder, workspace, snapshot, message)
    made = await read_commit_changes(git, Path(workspace.repository), workspace.base, commit)
    return Work(
        commit=commit,
        base=workspace.base,
        files=made.files,
        warnings=(*_left_out_warnings(snapshot), *map(_inner_warning, made.inner)),
    )


async def _commit_snapshot(
    folder: GitFolder, workspace: Workspace, snapshot: TreeSnapshot, message: str
) -> str:
    commit = workspace.base
    with anyio.CancelScope(shield=True):  # a killed git would leave its lock behind
        tip = await tip_of(folder, workspace)
        commit = await _commit_tree(folder, workspace, tip, snapshot.tree, message)
        if tip and tip.is_checked_out and tip.commit != commit:
            install_index(snapshot.index, folder.git_dir)
    return commit


async def tip_of(folder: GitFolder, workspace: Workspace) -> BranchTip | None:
    """None if the branch is gone."""
    answer = await folder.git.run_checked(
        *("for-each-ref", "--format=%(objectname) %(tree) %(HEAD)"),
        f"refs/heads/{workspace.branch}",
        env={"GIT_DIR": str(folder.git_dir)},
    )
    if not answer.text:
        return None
    commit, tree, *here = answer.text.split()
    return BranchTip(commit=commit, tree=tree, is_checked_out=here == ["*"])


async def _commit_tree(
    folder: GitFolder, workspace: Workspace, tip: BranchTip | None, tree: str, message: str
) -> str:
    git, env = folder.git, {"GIT_DIR": workspace.repository}
    if tip and await _grew_from(git, workspace, tip.commit):
        if tip.tree == tree:
            return tip.commit
        parent = tip.commit
    else:
        parent = workspace.base
    at_base = await git.run_checked("rev-parse", f"{workspace.base}^{{tree}}", env=env)
    if parent == workspace.base and at_base.text == tree:
        commit = workspace.base
    else:
        commit = await commit_tree(git, tree, parent, message, env)
    before = tip.commit if tip else "0" * len(commit)
    await git.run_checked("update-ref", f"refs/heads/{workspace.branch}", commit, before, env=env)
    return commit


async def _grew_from(git: Git, workspace: Workspace, commit: str) -> bool:
    """Whether the branch still descends from the base: a worker may have moved it."""
    if commit == workspace.base:
        return True
    answer = await git.run(
        *("merge-base", "--is-ancestor", workspace.base, commit),
        env={"GIT_DIR": workspace.repository},
    )
    return not answer.exit


def install_index(index: Path, git_dir: Path) -> None:
    """Update the worker's index; otherwise its `git status` would show the commit as undone."""
    lock = git_dir / "index.lock"
    with suppress(OSError):  # the worker's own git is writing it, and wins
        os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        try:
            shutil.copy2(index, lock)
            lock.replace(git_dir / "index")
        finally:
            lock.unlink(missing_ok=True)


def _left_out_warnings(snapshot: TreeSnapshot) -> tuple[str, ...]:
    if not snapshot.left_out:
        return ()
    return (f"not all files could be committed: {snapshot.left_out[-MAX_WARNING_CHARS:]}",)


def _inner_warning(path: str) -> str:
    return (
        f"{path!r} is a git repository of its own: its files are not on the branch, only in the "
        "workspace's folder"
    )


class WorkspaceVerdict(Value, frozen=True, kw_only=True):
    """`commit` is where the branch is; `is_disposable` means nothing is lost if all of it is removed."""

    state: WorkspaceState
    commit: str = ""
    is_disposable: bool = False


async def judge_workspace(git: Git, record: WorkspaceRecord) -> WorkspaceVerdict:
    """Judge by its current files, and by commits that are only on its branch."""
    if not record.ready:  # its making was interrupted
        return WorkspaceVerdict(state="clean", is_disposable=True)
    verdict = await _judge_one(git, record)
    for inner in record.inner:
        if verdict.is_disposable and not (await _judge_one(git, inner)).is_disposable:
            return replace(verdict, state="unmerged", is_disposable=False)
    return verdict


async def _judge_one(git: Git, record: WorkspaceRecord) -> WorkspaceVerdict:
    workspace = record.workspace
    env = {"GIT_DIR": workspace.repository}
    found = await git.run(
        *("rev-parse", "--quiet", f"{workspace.base}^{{tree}}"),
        *(f"refs/heads/{workspace.branch}^{{{kind}}}" for kind in ("commit", "tree")),
        env=env,
    )
    at_base, commit, at_tip = (*found.text.split(), "", "", "")[:3] if not found.exit else ("",) * 3
    joined = bool(commit) and await _is_merged(git, record, commit)
    empty = bool(commit) and at_tip == at_base
    try:
        folder = git_folder_of(git, record)
    except WorkspaceLost:
        gone = not commit or empty or joined
        return WorkspaceVerdict(state="broken", commit=commit, is_disposable=gone)
    if not commit:  # the repository or the branch is gone, so its files cannot be judged
        return WorkspaceVerdict(state="broken")
    async with folder.snapshot(otherwise=workspace.base, without=record.carried) as snapshot:
        as_on_branch = snapshot.tree == at_tip and not snapshot.left_out
    if not as_on_branch:
        return WorkspaceVerdict(state="unmerged", commit=commit)
    if empty:
        return WorkspaceVerdict(state="clean", commit=commit, is_disposable=True)
    made = await read_commit_changes(git, Path(workspace.repository), workspace.base, commit)
    if joined and not made.inner:
        return WorkspaceVerdict(state="merged", commit=commit, is_disposable=True)
    return WorkspaceVerdict(state="unmerged", commit=commit)


async def _is_merged(git: Git, record: WorkspaceRecord, commit: str) -> bool:
    """Whether it is merged into the user's checkout, or into its group's merged branch."""
    workspace = record.workspace
    repository = {"GIT_DIR": workspace.repository}
    joined = f"refs/heads/go-ent/{record.group}/{MERGED_BRANCH}"
    if await _is_part(git, commit, joined, repository):
        return True
    if workspace.kind != "worktree" or not is_own_folder(workspace.origin):
        return False
    return await _is_part(git.at(Path(workspace.origin)), commit, "HEAD", {})


async def _is_part(git: Git, commit: str, of: str, env: dict[str, str]) -> bool:
    answer = await git.run("merge-base", "--is-ancestor", commit, of, env=env)
    return not answer.exit
