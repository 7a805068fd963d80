"""Who makes a folder for each worker, keeps what was made there, and clears it away?

The port `Workspaces`, by the real git. A workspace lies below the project's state folder, outside
every repository and for the user alone; a record beside it says what it is. Nothing of the user's
checkout is written: not a file, not the index, no branch but the worker's own.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import anyio

from goent.domain.errors import GoentError, RequestError
from goent.domain.workspaces import KeptSpace, Kind, Order, Work, Workspace
from goent.git import keeping, records, worktrees
from goent.git.aside import left_behind, remove_folder
from goent.git.command import Git, Heard, Trusted, none_trusted
from goent.git.judging import Verdict, judge
from goent.git.making import Maker, base_of, remove_all
from goent.git.observation import OBSERVED, FolderObservation, GitObserver
from goent.git.records import Record
from goent.git.repository import NoRepository, look
from goent.git.states import snapshot

# Not looking into submodules, where git would be another one.
STATUS = ("status", "--porcelain", "--ignore-submodules=dirty")
OWN_SETTINGS = ".goent"  # no work of anybody's


class GitWorkspaces:
    """All workspaces of one project. `in_use` says whether a worker lives; `trusted` as in `Git`."""

    def __init__(
        self,
        root: Path,
        *,
        environ: Callable[[], Mapping[str, str]],
        in_use: Callable[[str], bool] = lambda _: False,
        git: str = "git",
        trusted: Trusted = none_trusted,
    ) -> None:
        self._root = root
        self._environ = environ
        self._in_use = in_use
        self._program = git
        self._trusted = trusted
        self._heard = Heard()
        self._is_new_enough = False
        self._held: set[str] = set()  # prepared by us and not released
        self._at_once = anyio.CapacityLimiter(os.cpu_count() or 1)
        # One git stumbles over the half-made worktree of another.
        self._registering = anyio.Lock()
        self._maker = Maker(root, self._registering)

    async def check(self, cwd: Path, kind: Kind) -> None:
        git = await self._git(cwd)
        if kind == "copy":
            await self._maker.copied(git)
        else:
            await look(git)

    async def states(self, folder: Path) -> Mapping[str, tuple[int, int]]:
        return (await snapshot(folder)).states

    async def observe(self, cwd: Path, project: Path) -> FolderObservation:
        return await GitObserver(self._root, self._any_git(cwd)).observe(cwd, project)

    async def head(self, cwd: Path, *, uncommitted: bool = False) -> tuple[str, str]:
        git = await self._git(cwd)
        found = await look(git)
        return str(found.repository), await base_of(git, found, uncommitted=uncommitted)

    async def uncommitted(self, cwd: Path) -> int:
        everything = (":/", f":(exclude,top){OWN_SETTINGS}")
        answer = await (await self._git(cwd)).ask(*STATUS, "--", *everything)
        return 0 if answer.exit else len(answer.output.splitlines())

    async def prepare(self, order: Order) -> Workspace:
        git = await self._git(order.cwd)
        self._held.add(order.worker)
        try:
            async with self._at_once:
                return await self._maker.make(git, order)
        except BaseException:
            self._held.discard(order.worker)
            raise

    async def kind_for(self, cwd: Path) -> Kind:
        try:
            await look(await self._git(cwd))
        except NoRepository:
            return "copy"
        return "worktree"

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
            used = self._is_used(record.worker)  # then nobody knows what it will be
            verdict = Verdict(state="unmerged") if used else await self._verdict(record)
            spaces.append(await self._told(record, verdict))
        return spaces

    async def clear(self) -> Sequence[KeptSpace]:
        await anyio.to_thread.run_sync(_clear_observations, self._root)
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
            raise RequestError(f"worker {worker!r} still has its workspace in use")
        space = await self._told(record, await self._verdict(record))
        await self._clear(record)
        return space

    async def _records(self) -> Sequence[Record]:
        return await anyio.to_thread.run_sync(lambda: list(records.every(self._root)))

    async def _clear(self, record: Record) -> None:
        workspace = record.workspace
        git = await self._git(self._root)
        await anyio.to_thread.run_sync(worktrees.remove_tree, Path(workspace.path))
        async with self._registering:
            await remove_all(git, record)
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
        return found or Record(
            worker=path.name, group=path.parent.name, workspace=workspace, ready=True
        )

    async def _git(self, folder: Path) -> Git:
        git = self._any_git(folder)
        if not self._is_new_enough:
            await git.check_version()
            self._is_new_enough = True
        return git

    def _any_git(self, folder: Path) -> Git:
        """Whatever its version, also if there is none."""
        return Git(
            folder,
            self._environ(),
            git=self._program,
            trusted=self._trusted,
            heard=self._heard,
        )


def _clear_observations(root: Path) -> None:
    """What a go-ent that was killed left behind."""
    for folder in left_behind(root, OBSERVED):
        remove_folder(folder)


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
