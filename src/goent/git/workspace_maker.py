"""Makes a worker's workspace, a worktree or a copy, completely or not at all.

Carried files are copied, never linked, so that the worker cannot change the user's own. Submodules
become worktrees too, of the repository of the user's checkout, on a branch of the same name; one that
the user has not checked out stays empty. A copy is a worktree of a private repository, one per copied
folder, whose first commit is the folder as it was: so work is kept, compared and merged as everywhere
else, and the folder itself needs no git.
"""

import errno
import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import anyio
import anyio.from_thread
from msgspec.structs import replace

from goent.domain.errors import EnvironmentTrouble, GoentError, RequestError
from goent.domain.workspace import Workspace, WorkspaceRequest
from goent.git import workspace_records, worktrees
from goent.git.git_command import Git
from goent.git.repository import Checkout, NoRepository, find_checkout, needs_commit
from goent.git.tree_snapshot import SUBMODULE_MODE, GitFolder, commit_tree
from goent.git.workspace_records import (
    WorkspaceRecord,
    check_free,
    is_own_folder,
    make_folder,
    make_private,
    worker_branch,
    workspace_folder,
)
from goent.git.workspace_work import install_index
from goent.git.worktrees import remove_tree

COPY_REPOSITORIES: Final = "copied"
EMPTY_COMMIT: Final = "refs/go-ent/nothing"  # a commit without files, for new worktrees
FICLONE: Final = 0x40049409  # Linux: share two files' blocks until one is written
# The same files make the same commit, in every worker's copy.
FIXED_IDENTITY: Final = {
    "GIT_AUTHOR_DATE": "@0 +0000",
    "GIT_COMMITTER_DATE": "@0 +0000",
    "GIT_AUTHOR_NAME": "go-ent",
    "GIT_COMMITTER_NAME": "go-ent",
    "GIT_AUTHOR_EMAIL": "go-ent@localhost",
    "GIT_COMMITTER_EMAIL": "go-ent@localhost",
}
FIRST_MESSAGE: Final = "The folder as it was"
UNDO_TIMEOUT_S = 30.0  # seconds to remove an unfinished workspace
SUBMODULE_WARNING = "uncommitted changes inside submodules are not included: commit them there"
UNCOMMITTED_MESSAGE = "The uncommitted changes that workers start with"


def check_carry(carry: Sequence[str], found: Checkout) -> None:
    """Raise for carried files that are missing, or not in the checkout."""
    if carry and found.bare:
        raise RequestError(
            f"carry {carry[0]!r}: the bare repository {str(found.top)!r} has no untracked files"
        )
    check_carry_paths(carry, found.top)


def check_carry_paths(carry: Sequence[str], top: Path) -> None:
    """Raise for carried files that are missing, or not in the folder."""
    for name in carry:
        path = top / name
        parts = Path(name).parts
        if not parts or Path(name).is_absolute() or ".." in parts or ".git" in parts:
            raise RequestError(
                f"carry {name!r} is not a path from the top of the checkout {str(top)!r}"
            )
        if not _exists(path):
            raise RequestError(f"carry {name!r} does not exist in {str(top)!r}")
        if not path.resolve().is_relative_to(top):
            raise RequestError(
                f"carry {name!r} leads out of {str(top)!r}: only files inside can be carried"
            )


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # e.g. a name that is too long
        return False


def copy_carried(carry: Sequence[str], origin: Path, top: Path) -> tuple[str, ...]:
    """Copy carried files; returns those that are not part of the commit."""
    new = [name for name in carry if not (top / name).exists()]
    for name in new:
        source, target = origin / name, top / name
        if not target.parent.resolve().is_relative_to(top):  # by a committed link
            raise RequestError(f"carry {name!r} leads out of the workspace {str(top)!r}")
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True)
        else:
            shutil.copy2(source, target)
    return tuple(Path(name).as_posix() for name in new)


async def make_submodules(
    git: Git, record: WorkspaceRecord, registering: anyio.Lock
) -> AsyncGenerator[WorkspaceRecord | str]:
    """Make the submodules, outer ones first: yields a record of each, or why it stays empty."""
    origin, top = Path(record.workspace.origin), Path(record.workspace.path)
    for name, commit in await _submodule_commits(git.at(top), top):
        if not is_folder_of_its_own(origin / name):
            continue  # not checked out by the user
        try:
            made = await _make_submodule(git.at(origin / name), record, name, commit, registering)
        except GoentError as error:
            make_folder(top / name)  # else it would count as removed by the worker
            yield f"the submodule {name!r} stays empty: {error}"
            continue
        yield made
        async for inner in make_submodules(git, made, registering):
            yield inner


async def _make_submodule(
    git: Git, outer: WorkspaceRecord, name: str, commit: str, registering: anyio.Lock
) -> WorkspaceRecord:
    found = await find_checkout(git)
    path = Path(outer.workspace.path) / name
    workspace = Workspace(
        kind="worktree",
        path=str(path),
        cwd=str(path),
        origin=str(found.top),
        repository=str(found.repository),
        branch=outer.workspace.branch,
        base=commit,
    )
    record = replace(outer, workspace=workspace, carried=(), inner=())
    async with registering:
        git_dir = await worktrees.add_worktree(git, path, workspace.branch, commit)
    await worktrees.fill_worktree(git, path)
    return replace(record, git_dir=str(git_dir))


async def _submodule_commits(git: Git, top: Path) -> list[tuple[str, str]]:
    if not has_submodules(top):
        return []
    listed = await git.run_checked("ls-files", "--stage", "-z")
    entries = (line.split(b"\t", 1) for line in listed.output.split(b"\0") if line)
    return [
        (os.fsdecode(path), head.split(b" ")[1].decode())
        for head, path in entries
        if head.startswith(SUBMODULE_MODE)
    ]


def has_submodules(top: Path) -> bool:
    return (top / ".gitmodules").exists()


def is_folder_of_its_own(submodule: Path) -> bool:
    """Whether the user has checked it out; if not, git sees only the repository around it."""
    return (submodule / ".git").exists()


def repository_for(root: Path, origin: Path) -> Path:
    """The private repository for copies of a folder."""
    digest = hashlib.sha256(os.fsencode(origin)).hexdigest()[:16]
    return root / COPY_REPOSITORIES / f"{digest}.git"


async def make_repository(git: Git, root: Path, repository: Path) -> None:
    """Make the private repository, unless it exists."""
    if is_repository(repository):
        return
    make_private(repository.parent, root)
    with tempfile.TemporaryDirectory(
        dir=repository.parent, prefix="new-", ignore_cleanup_errors=True
    ) as folder:
        new = git.at(Path(folder))
        env = {"GIT_DIR": folder, **FIXED_IDENTITY}
        await new.run_checked("init", "--quiet", "--bare", "--template=", folder)
        tree = (await new.run_checked("mktree", env=env)).text
        nothing = await commit_tree(new, tree, "", "Nothing", env)
        await new.run_checked("update-ref", EMPTY_COMMIT, nothing, env=env)
        with suppress(OSError):  # made by another process meanwhile
            os.rename(folder, repository)  # noqa: PTH104 (whole or not at all)


async def drop_repository(git: Git, repository: Path) -> None:
    """Remove the private repository once it has no branches."""
    if not is_repository(repository):
        return
    branches = await git.run("for-each-ref", "refs/heads", env={"GIT_DIR": str(repository)})
    if not branches.exit and not branches.text:
        await anyio.to_thread.run_sync(remove_tree, repository)


def is_repository(path: Path) -> bool:
    return (path / "HEAD").exists()


def check_origin(origin: Path, root: Path) -> None:
    if root.resolve().is_relative_to(origin):
        raise RequestError(
            f"{str(origin)!r} cannot be copied, because it contains go-ent's own state at {str(root)!r}: "
            "choose a smaller folder, or isolation 'shared'"
        )


async def begin_branch(folder: GitFolder, branch: str, without: Sequence[str]) -> str:
    """Commit the files as they are, as the branch's first commit; returns the commit."""
    env = {"GIT_DIR": str(folder.git_dir), **FIXED_IDENTITY}
    async with folder.snapshot(without=without) as snapshot:
        commit = await commit_tree(folder.git, snapshot.tree, EMPTY_COMMIT, FIRST_MESSAGE, env)
        await folder.git.run_checked("update-ref", f"refs/heads/{branch}", commit, env=env)
        install_index(snapshot.index, folder.git_dir)
    return commit


async def reset_to(folder: GitFolder, start: str) -> str:
    """Reset the files to another commit; untracked files stay."""
    git = folder.git.at(folder.top)
    answer = await git.run("rev-parse", "--verify", "--quiet", f"{start}^{{commit}}")
    if answer.exit:
        raise RequestError(f"there is no commit {start!r} in {str(folder.git_dir)!r}")
    await git.run_checked("reset", "--quiet", "--hard", answer.text)
    return answer.text


async def copy_files(origin: Path, to: Path) -> None:
    """Copy files and links, but no sockets, pipes, devices or git directories."""
    try:
        await anyio.to_thread.run_sync(_copy_folder, os.fsencode(origin), os.fsencode(to))
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise EnvironmentTrouble(
                f"no space for a copy of {str(origin)!r}: {error}. Free some; `go-ent gc` lists "
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
        except OSError:  # another file system, or not supported
            shutil.copyfileobj(source, target, 2**20)
    shutil.copystat(origin, to)


class WorkspaceMaker:
    """Makes workspaces below the root. `registering` serializes changes to git's worktree list."""

    def __init__(self, root: Path, registering: anyio.Lock) -> None:
        self._root = root
        self._registering = registering

    async def make(self, git: Git, order: WorkspaceRequest) -> Workspace:
        branch = worker_branch(order.group, order.worker)
        path = workspace_folder(self._root, order.kind, order.group, order.worker)
        if order.kind == "copy":
            return await self._copy(git, order, path, branch)
        return await self._worktree(git, order, path, branch)

    async def _worktree(
        self, git: Git, order: WorkspaceRequest, path: Path, branch: str
    ) -> Workspace:
        found = await find_checkout(git, order.start)
        uncommitted = order.uncommitted and not order.start
        check_carry(order.carry, found)
        base = await find_base(git, found, uncommitted=uncommitted, without=order.carry)
        workspace = Workspace(
            kind="worktree",
            path=str(path),
            cwd=str(path / found.inside),
            origin=str(found.top),
            repository=str(found.repository),
            branch=branch,
            base=base,
        )
        record = WorkspaceRecord(worker=order.worker, group=order.group, workspace=workspace)
        async with self._rollback_on_error(git, record):
            async with self._registering:
                git_dir = await worktrees.add_worktree(git, path, branch, base)
            await worktrees.fill_worktree(git, path)
            make_folder(Path(workspace.cwd))  # it may be untracked in the commit
            carried = await anyio.to_thread.run_sync(copy_carried, order.carry, found.top, path)
            record = replace(record, git_dir=str(git_dir), carried=carried)
            workspace_records.write_record(record)
            record = replace(await self._with_submodules(git, record), ready=True)
            workspace_records.write_record(record)
        if record.inner and uncommitted:
            warnings = (*record.workspace.warnings, SUBMODULE_WARNING)
            return replace(record.workspace, warnings=warnings)
        return record.workspace

    async def _with_submodules(self, git: Git, record: WorkspaceRecord) -> WorkspaceRecord:
        async for made in make_submodules(git, record, self._registering):
            if isinstance(made, str):
                space = record.workspace
                record = replace(record, workspace=replace(space, warnings=(*space.warnings, made)))
            else:
                record = replace(record, inner=(*record.inner, made))
                workspace_records.write_record(record)
        return record

    async def _copy(self, git: Git, order: WorkspaceRequest, path: Path, branch: str) -> Workspace:
        origin, inside = await self.copy_origin(git)
        check_carry_paths(order.carry, origin)
        repository = repository_for(self._root, origin)
        workspace = Workspace(
            kind="copy",
            path=str(path),
            cwd=str(path / inside),
            origin=str(origin),
            repository=str(repository),
            branch=branch,
            base=order.start or "",
        )
        record = WorkspaceRecord(worker=order.worker, group=order.group, workspace=workspace)
        async with self._rollback_on_error(git.at(repository), record):
            async with self._registering:
                await make_repository(git, self._root, repository)
                git = git.at(repository)
                git_dir = await worktrees.add_worktree(git, path, branch, EMPTY_COMMIT)
            await copy_files(origin, path)
            folder = GitFolder(git=git, git_dir=git_dir, top=path)
            base = await begin_branch(folder, branch, order.carry)
            if order.start:
                base = await reset_to(folder, order.start)
            workspace = replace(workspace, base=base)
            carried = tuple(Path(name).as_posix() for name in order.carry)
            done = replace(record, workspace=workspace, git_dir=str(git_dir), carried=carried)
            workspace_records.write_record(replace(done, ready=True))
        return workspace

    async def copy_origin(self, git: Git) -> tuple[Path, Path]:
        """The folder to copy (a checkout as a whole), and where in it the worker works."""
        try:
            found = await find_checkout(git)
        except NoRepository:
            origin, inside = git.folder.resolve(), Path()
        else:
            if found.bare:
                raise RequestError(
                    f"{str(found.top)!r} is a bare repository, which has no files to copy: "
                    "use isolation 'worktree'"
                )
            origin, inside = found.top, found.inside
        check_origin(origin, self._root)
        return origin, inside

    @asynccontextmanager
    async def _rollback_on_error(self, git: Git, record: WorkspaceRecord) -> AsyncGenerator[None]:
        """Remove the unfinished workspace if anything fails."""
        path = Path(record.workspace.path)
        check_free(path)
        try:
            make_private(path.parent, self._root)
            workspace_records.write_record(record)  # first, so that a later cleanup finds it
            yield
        except BaseException as error:
            with anyio.move_on_after(UNDO_TIMEOUT_S, shield=True), suppress(GoentError, OSError):
                await self._undo(git, record, ours=not isinstance(error, worktrees.BranchTaken))
            if isinstance(error, OSError):
                raise EnvironmentTrouble(
                    f"the workspace {str(path)!r} cannot be made: {error}"
                ) from error
            raise

    async def _undo(self, git: Git, record: WorkspaceRecord, *, ours: bool) -> None:
        path = Path(record.workspace.path)
        try:
            async with self._registering:
                await remove_workspace(
                    git, workspace_records.read_record(path) or record, branches=ours
                )
        finally:
            workspace_records.forget_record(path)


async def find_base(
    git: Git, found: Checkout, *, uncommitted: bool, without: Sequence[str] = ()
) -> str:
    """The commit to start from. Raises if there is none."""
    if uncommitted and found.bare:
        raise RequestError(
            f"{str(found.top)!r} is a bare repository and has no uncommitted changes: "
            "leave `uncommitted` out"
        )
    if not uncommitted:
        if not found.commit:
            raise needs_commit(found)
        return found.commit
    folder = GitFolder(git=git.at(found.top), git_dir=found.git_dir, top=found.top)
    unknown = [name for name in without if not await _is_tracked(folder, name)]
    async with folder.snapshot(otherwise=found.commit, without=unknown) as snapshot:
        if found.commit:
            committed = await git.run_checked("rev-parse", f"{found.commit}^{{tree}}")
            if committed.text == snapshot.tree:
                return found.commit
        return await commit_tree(git, snapshot.tree, found.commit, UNCOMMITTED_MESSAGE)


async def _is_tracked(folder: GitFolder, name: str) -> bool:
    listed = await folder.git.run_checked("ls-files", "-z", "--", f":(top,literal){name}")
    return bool(listed.output)


async def remove_workspace(git: Git, record: WorkspaceRecord, *, branches: bool = True) -> None:
    """Remove the folder, its worktrees and submodules, and their branches."""
    for each in (record, *record.inner):
        if not is_own_folder(each.workspace.repository):  # only the folder is left
            await anyio.to_thread.run_sync(worktrees.remove_tree, Path(each.workspace.path))
            continue
        own = git.at(Path(each.workspace.repository))
        await worktrees.remove_worktree(own, Path(each.workspace.path))
        if branches:
            await worktrees.delete_branch(own, each.workspace.branch)
    if record.workspace.kind == "copy":
        await drop_repository(git, Path(record.workspace.repository))
