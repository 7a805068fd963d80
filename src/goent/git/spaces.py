"""Who makes a folder for each worker, keeps what was made there, and clears it away?

The port `Workspaces`, by the real git. A workspace lies below the project's state folder, outside
every repository and for the user alone; a record beside it says what it is. Nothing of the user's
checkout is written: not a file, not the index, no branch but the worker's own.
"""

import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
from msgspec.structs import replace

from goent.domain.errors import GoentError, RequestError
from goent.domain.workspaces import KeptSpace, Kind, Order, Work, Workspace
from goent.git import keeping, records, worktrees
from goent.git.carrying import carry_into, check_carried
from goent.git.command import Git
from goent.git.judging import Verdict, judge
from goent.git.paths import branch_of, check_free, make_folder, make_private, place_of
from goent.git.records import Record
from goent.git.repository import Checkout, NoRepository, look, needs_commit
from goent.git.snapshot import Folder, commit_tree

UNDOING = 30.0  # seconds to clear away what could not be finished
UNCOMMITTED = "The uncommitted changes that workers start with"


class GitWorkspaces:
    """All workspaces of one project. `in_use` says whether a worker lives."""

    def __init__(
        self,
        root: Path,
        *,
        environ: Callable[[], Mapping[str, str]],
        in_use: Callable[[str], bool] = lambda _: False,
        git: str = "git",
    ) -> None:
        self._root = root
        self._environ = environ
        self._in_use = in_use
        self._program = git
        self._is_new_enough = False
        self._held: set[str] = set()  # prepared by us and not released
        self._at_once = anyio.CapacityLimiter(os.cpu_count() or 1)
        # One git stumbles over the half-made worktree of another.
        self._registering = anyio.Lock()

    async def check(self, cwd: Path, kind: Kind) -> None:
        git = await self._git(cwd)
        if kind == "worktree":
            found = await look(git)
            if not found.commit:
                raise needs_commit(found)

    async def kind_for(self, cwd: Path) -> Kind:
        try:
            await look(await self._git(cwd))
        except NoRepository:
            return "copy"
        return "worktree"

    async def head(self, cwd: Path, *, uncommitted: bool = False) -> tuple[str, str]:
        git = await self._git(cwd)
        found = await look(git)
        return str(found.repository), await self._base(git, found, uncommitted=uncommitted)

    async def prepare(self, order: Order) -> Workspace:
        branch = branch_of(order.group, order.worker)
        path = place_of(self._root, order.kind, order.group, order.worker)
        if order.kind == "copy":
            raise RequestError("isolation 'copy' is not available in this version")
        git = await self._git(order.cwd)
        async with self._at_once:
            return await self._worktree(git, order, path, branch)

    async def _worktree(self, git: Git, order: Order, path: Path, branch: str) -> Workspace:
        found = await look(git, order.start)
        uncommitted = order.uncommitted and not order.start
        check_carried(order.carry, found.top)
        base = await self._base(git, found, uncommitted=uncommitted, without=order.carry)
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
            records.write(replace(record, git_dir=str(git_dir), carried=carried))
        return workspace

    async def _base(
        self, git: Git, found: Checkout, *, uncommitted: bool, without: Sequence[str] = ()
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
        async with folder.snapshot(otherwise=found.commit, without=without) as snapshot:
            if found.commit:
                committed = await git.do("rev-parse", f"{found.commit}^{{tree}}")
                if committed.text == snapshot.tree:
                    return found.commit
            return await commit_tree(git, snapshot.tree, found.commit, UNCOMMITTED)

    @asynccontextmanager
    async def _all_or_nothing(self, git: Git, record: Record) -> AsyncGenerator[None]:
        """Whatever goes wrong, nothing half-made stays."""
        path = Path(record.workspace.path)
        make_private(path.parent, self._root)
        check_free(path)
        self._held.add(record.worker)
        try:
            records.write(record)  # first: whoever finds it knows what it would have become
            yield
        except BaseException as error:
            self._held.discard(record.worker)
            with anyio.move_on_after(UNDOING, shield=True), suppress(GoentError, OSError):
                await self._undo(git, record, ours=not isinstance(error, worktrees.BranchTaken))
            if isinstance(error, OSError):
                raise RequestError(
                    f"the workspace {str(path)!r} cannot be made: {error}"
                ) from error
            raise

    async def _undo(self, git: Git, record: Record, *, ours: bool) -> None:
        try:
            async with self._registering:
                await worktrees.remove(git, Path(record.workspace.path))
                if ours:
                    await worktrees.delete_branch(git, record.workspace.branch)
        finally:
            records.forget(Path(record.workspace.path))

    async def keep(self, workspace: Workspace, message: str) -> Work:
        record = self._record(workspace)
        return await keeping.keep(await self._git(self._root), record, message)

    async def release(self, workspace: Workspace) -> bool:
        record = self._record(workspace)
        self._held.discard(record.worker)
        verdict = await judge(await self._git(self._root), record)
        if verdict.spent:
            await self._clear(record)
        return verdict.spent

    async def kept(self) -> Sequence[KeptSpace]:
        spaces: list[KeptSpace] = []
        for record in await self._records():
            verdict = await self._verdict(record)
            spaces.append(await self._told(record, verdict))
        return spaces

    async def clear(self) -> Sequence[KeptSpace]:
        removed: list[KeptSpace] = []
        for record in await self._records():
            if self._is_used(record.worker):
                continue
            verdict = await self._verdict(record)
            if verdict.spent:
                removed.append(await self._told(record, verdict))
                await self._clear(record)
        return removed

    async def remove(self, worker: str) -> KeptSpace:
        record = await anyio.to_thread.run_sync(records.find, self._root, worker)
        if record is None:
            raise RequestError(
                f"worker {worker!r} has no workspace; `go-ent gc` lists what is kept"
            )
        if self._is_used(worker):
            raise RequestError(
                f"worker {worker!r} is at work in its workspace: `go-ent cancel --close {worker}` first"
            )
        space = await self._told(record, await self._verdict(record))
        await self._clear(record)
        return space

    async def _records(self) -> Sequence[Record]:
        return await anyio.to_thread.run_sync(lambda: list(records.every(self._root)))

    async def _clear(self, record: Record) -> None:
        workspace = record.workspace
        git = (await self._git(self._root)).at(Path(workspace.repository))
        await anyio.to_thread.run_sync(worktrees.remove_tree, Path(workspace.path))
        async with self._registering:
            await worktrees.remove(git, Path(workspace.path))
            await worktrees.delete_branch(git, workspace.branch)
        records.forget(Path(workspace.path))

    async def _verdict(self, record: Record) -> Verdict:
        try:
            return await judge(await self._git(self._root), record)
        except GoentError:
            return Verdict(state="broken")

    async def _told(self, record: Record, verdict: Verdict) -> KeptSpace:
        workspace = record.workspace
        used = self._is_used(record.worker)
        return KeptSpace(
            worker=record.worker,
            group=record.group,
            kind=workspace.kind,
            path=workspace.path,
            branch=workspace.branch,
            bytes=await anyio.to_thread.run_sync(size, Path(workspace.path)),
            state="in_use" if used else verdict.state,
            commit=verdict.commit,
            repository=workspace.repository,
        )

    def _is_used(self, worker: str) -> bool:
        return worker in self._held or self._in_use(worker)

    def _record(self, workspace: Workspace) -> Record:
        path = Path(workspace.path)
        found = records.read(path)
        return found or Record(worker=path.name, group=path.parent.name, workspace=workspace)

    async def _git(self, folder: Path) -> Git:
        git = Git(folder, self._environ(), git=self._program)
        if not self._is_new_enough:
            await git.check_version()
            self._is_new_enough = True
        return git


def size(folder: Path) -> int:
    """What it takes on disk, in bytes."""
    total = 0
    for where, folders, files in os.walk(folder):
        for name in (*folders, *files):
            try:
                total += os.lstat(os.path.join(where, name)).st_blocks * 512  # noqa: PTH118 (fast)
            except OSError:
                continue
    return total
