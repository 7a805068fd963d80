"""How is a workspace made, so that it is there whole or not at all?"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
from msgspec.structs import replace

from goent.domain.errors import EnvironmentTrouble, GoentError, RequestError
from goent.domain.workspaces import Order, Workspace
from goent.git import copies, records, worktrees
from goent.git.carrying import carry_into, check_carried, check_there
from goent.git.command import Git
from goent.git.paths import branch_of, check_free, is_folder, make_folder, make_private, place_of
from goent.git.records import Record
from goent.git.repository import Checkout, NoRepository, look, needs_commit
from goent.git.snapshot import Folder, commit_tree
from goent.git.submodules import submodules

UNDOING = 30.0  # seconds to clear away what could not be finished
NOT_FROM_SUBMODULES = "uncommitted changes inside submodules do not go along: commit them there"
UNCOMMITTED = "The uncommitted changes that workers start with"


class Maker:
    """Makes workspaces below the root. Who holds `registering` changes what git knows of them."""

    def __init__(self, root: Path, registering: anyio.Lock) -> None:
        self._root = root
        self._registering = registering

    async def make(self, git: Git, order: Order) -> Workspace:
        branch = branch_of(order.group, order.worker)
        path = place_of(self._root, order.kind, order.group, order.worker)
        if order.kind == "copy":
            return await self._copy(git, order, path, branch)
        return await self._worktree(git, order, path, branch)

    async def _worktree(self, git: Git, order: Order, path: Path, branch: str) -> Workspace:
        found = await look(git, order.start)
        uncommitted = order.uncommitted and not order.start
        check_carried(order.carry, found)
        base = await base_of(git, found, uncommitted=uncommitted, without=order.carry)
        workspace = Workspace(
            kind="worktree",
            path=str(path),
            cwd=str(path / found.inside),
            origin=str(found.top),
            repository=str(found.repository),
            branch=branch,
            base=base,
        )
        record = Record(worker=order.worker, group=order.group, workspace=workspace)
        async with self._all_or_nothing(git, record):
            async with self._registering:
                git_dir = await worktrees.add(git, path, branch, base)
            await worktrees.fill(git, path)
            make_folder(Path(workspace.cwd))  # it may be untracked
            carried = await anyio.to_thread.run_sync(carry_into, order.carry, found.top, path)
            record = replace(record, git_dir=str(git_dir), carried=carried)
            records.write(record)
            record = replace(await self._with_submodules(git, record), ready=True)
            records.write(record)
        if record.inner and uncommitted:
            warnings = (*record.workspace.warnings, NOT_FROM_SUBMODULES)
            return replace(record.workspace, warnings=warnings)
        return record.workspace

    async def _with_submodules(self, git: Git, record: Record) -> Record:
        async for made in submodules(git, record, self._registering):
            if isinstance(made, str):
                space = record.workspace
                record = replace(record, workspace=replace(space, warnings=(*space.warnings, made)))
            else:
                record = replace(record, inner=(*record.inner, made))
                records.write(record)
        return record

    async def _copy(self, git: Git, order: Order, path: Path, branch: str) -> Workspace:
        origin, inside = await self.copied(git)
        check_there(order.carry, origin)
        repository = copies.repository_for(self._root, origin)
        workspace = Workspace(
            kind="copy",
            path=str(path),
            cwd=str(path / inside),
            origin=str(origin),
            repository=str(repository),
            branch=branch,
            base=order.start or "",
        )
        record = Record(worker=order.worker, group=order.group, workspace=workspace)
        async with self._all_or_nothing(git.at(repository), record):
            async with self._registering:
                await copies.make_repository(git, self._root, repository)
                git = git.at(repository)
                git_dir = await worktrees.add(git, path, branch, copies.NOTHING)
            await copies.copy_files(origin, path)
            folder = Folder(git=git, git_dir=git_dir, top=path)
            base = await copies.begin(folder, branch, order.carry)
            if order.start:
                base = await copies.move_to(folder, order.start)
            workspace = replace(workspace, base=base)
            carried = tuple(Path(name).as_posix() for name in order.carry)
            done = replace(record, workspace=workspace, git_dir=str(git_dir), carried=carried)
            records.write(replace(done, ready=True))
        return workspace

    async def copied(self, git: Git) -> tuple[Path, Path]:
        """What is copied, and where in it the worker works: a checkout goes whole."""
        try:
            found = await look(git)
        except NoRepository:
            origin, inside = git.folder.resolve(), Path()
        else:
            if found.bare:
                raise RequestError(
                    f"{str(found.top)!r} is a bare repository, where there is nothing to copy: "
                    "use isolation 'worktree'"
                )
            origin, inside = found.top, found.inside
        copies.check_origin(origin, self._root)
        return origin, inside

    @asynccontextmanager
    async def _all_or_nothing(self, git: Git, record: Record) -> AsyncGenerator[None]:
        """Whatever goes wrong, nothing half-made stays."""
        path = Path(record.workspace.path)
        check_free(path)
        try:
            make_private(path.parent, self._root)
            records.write(record)  # first: whoever finds it knows what it would have become
            yield
        except BaseException as error:
            with anyio.move_on_after(UNDOING, shield=True), suppress(GoentError, OSError):
                await self._undo(git, record, ours=not isinstance(error, worktrees.BranchTaken))
            if isinstance(error, OSError):
                raise EnvironmentTrouble(
                    f"the workspace {str(path)!r} cannot be made: {error}"
                ) from error
            raise

    async def _undo(self, git: Git, record: Record, *, ours: bool) -> None:
        path = Path(record.workspace.path)
        try:
            async with self._registering:
                await remove_all(git, records.read(path) or record, branches=ours)
        finally:
            records.forget(path)


async def base_of(
    git: Git, found: Checkout, *, uncommitted: bool, without: Sequence[str] = ()
) -> str:
    """The commit to begin with. Raises if there is none."""
    if uncommitted and found.bare:
        raise RequestError(
            f"{str(found.top)!r} is a bare repository and has no uncommitted changes: "
            "leave `uncommitted` out"
        )
    if not uncommitted:
        if not found.commit:
            raise needs_commit(found)
        return found.commit
    folder = Folder(git=git.at(found.top), git_dir=found.git_dir, top=found.top)
    unknown = [name for name in without if not await _is_tracked(folder, name)]
    async with folder.snapshot(otherwise=found.commit, without=unknown) as snapshot:
        if found.commit:
            committed = await git.do("rev-parse", f"{found.commit}^{{tree}}")
            if committed.text == snapshot.tree:
                return found.commit
        return await commit_tree(git, snapshot.tree, found.commit, UNCOMMITTED)


async def _is_tracked(folder: Folder, name: str) -> bool:
    listed = await folder.git.do("ls-files", "-z", "--", f":(top,literal){name}")
    return bool(listed.output)


async def remove_all(git: Git, record: Record, *, branches: bool = True) -> None:
    """The folder, git's records of it and of its submodules, and their branches."""
    for each in (record, *record.inner):
        if not is_folder(each.workspace.repository):  # then there is nothing but the folder
            await anyio.to_thread.run_sync(worktrees.remove_tree, Path(each.workspace.path))
            continue
        own = git.at(Path(each.workspace.repository))
        await worktrees.remove(own, Path(each.workspace.path))
        if branches:
            await worktrees.delete_branch(own, each.workspace.branch)
    if record.workspace.kind == "copy":
        await copies.drop_repository(git, Path(record.workspace.repository))
