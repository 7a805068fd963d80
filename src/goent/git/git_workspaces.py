"""Implements `WorkspaceManager` with git: makes, keeps and removes a folder for each worker.

A workspace lies below the project's state folder, outside every repository and private to the user; a
record beside it describes it. Nothing in the user's checkout is written: no file, no index, and no
branch except the worker's own.
"""

import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import anyio

from goent.domain.errors import GoentError, RequestError
from goent.domain.types import Value
from goent.domain.workspace import KeptSpace, Work, Workspace, WorkspaceKind, WorkspaceRequest
from goent.git import workspace_records, workspace_work, worktrees
from goent.git.folder_observation import OBSERVED, GitFolderObservation, GitObserver
from goent.git.git_command import ConfigCache, Git, IsTrusted, readable_path, trust_none
from goent.git.repository import NoRepository, find_checkout
from goent.git.scratch_space import abandoned_folders, remove_folder
from goent.git.workspace_maker import WorkspaceMaker, find_base, remove_workspace
from goent.git.workspace_records import WorkspaceRecord
from goent.git.workspace_work import WorkspaceVerdict, judge_workspace

MAX_FILES: Final = 50_000
WALK_S: Final = 3.0
GIT: Final = ".git"
# Without looking into submodules, where another configuration applies.
STATUS = ("status", "--porcelain", "--ignore-submodules=dirty")
OWN_SETTINGS = ".goent"  # not work


class FileStates(Value, frozen=True, kw_only=True):
    """Size and modification time of each file, by path from the folder."""

    states: Mapping[str, tuple[int, int]]
    complete: bool = True


async def read_file_states(
    folder: Path, *, most: int = MAX_FILES, seconds: float = WALK_S
) -> FileStates:
    """Breadth first, within limits. Links are not followed, and git's own files are left out."""
    return await anyio.to_thread.run_sync(_walk_files, folder, most, seconds)


def _walk_files(folder: Path, most: int, seconds: float) -> FileStates:
    states: dict[str, tuple[int, int]] = {}
    until = time.monotonic() + seconds
    ahead = deque([b""])
    top = os.fsencode(folder)
    while ahead:
        below = ahead.popleft()
        for entry in _entries(os.path.join(top, below)):  # noqa: PTH118 (a name need not be text)
            path = below + entry.name
            if entry.is_dir(follow_symlinks=False):
                if entry.name != GIT.encode():
                    ahead.append(path + b"/")
                continue
            if len(states) >= most or time.monotonic() > until:
                return FileStates(states=states, complete=False)
            if state := _file_state(entry):
                states[readable_path(path)] = state
    return FileStates(states=states)


def _entries(folder: bytes) -> list[os.DirEntry[bytes]]:
    try:
        with os.scandir(folder) as found:
            return sorted(found, key=lambda entry: entry.name)
    except OSError:  # gone meanwhile, or not readable
        return []


def _file_state(entry: os.DirEntry[bytes]) -> tuple[int, int] | None:
    try:
        found = entry.stat(follow_symlinks=False)
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns


class GitWorkspaces:
    """All workspaces of one project. `in_use`: whether a worker is living; `trusted` as in `Git`."""

    def __init__(
        self,
        root: Path,
        *,
        environ: Callable[[], Mapping[str, str]],
        in_use: Callable[[str], bool] = lambda _: False,
        git: str = "git",
        trusted: IsTrusted = trust_none,
    ) -> None:
        self._root = root
        self._environ = environ
        self._in_use = in_use
        self._program = git
        self._trusted = trusted
        self._config_cache = ConfigCache()
        self._is_new_enough = False
        self._prepared: set[str] = set()  # prepared here and not yet released
        self._parallel = anyio.CapacityLimiter(os.cpu_count() or 1)
        # One git fails on the half-made worktree of another.
        self._registering = anyio.Lock()
        self._maker = WorkspaceMaker(root, self._registering)

    async def check(self, cwd: Path, kind: WorkspaceKind) -> None:
        git = await self._git(cwd)
        if kind == "copy":
            await self._maker.copy_origin(git)
        else:
            await find_checkout(git)

    async def file_states(self, folder: Path) -> Mapping[str, tuple[int, int]]:
        return (await read_file_states(folder)).states

    async def observe(self, cwd: Path, project: Path) -> GitFolderObservation:
        return await GitObserver(self._root, self._any_git(cwd)).observe(cwd, project)

    async def head(self, cwd: Path, *, uncommitted: bool = False) -> tuple[str, str]:
        git = await self._git(cwd)
        found = await find_checkout(git)
        return str(found.repository), await find_base(git, found, uncommitted=uncommitted)

    async def uncommitted(self, cwd: Path) -> int:
        everything = (":/", f":(exclude,top){OWN_SETTINGS}")
        answer = await (await self._git(cwd)).run(*STATUS, "--", *everything)
        return 0 if answer.exit else len(answer.output.splitlines())

    async def prepare(self, order: WorkspaceRequest) -> Workspace:
        git = await self._git(order.cwd)
        self._prepared.add(order.worker)
        try:
            async with self._parallel:
                return await self._maker.make(git, order)
        except BaseException:
            self._prepared.discard(order.worker)
            raise

    async def default_kind(self, cwd: Path) -> WorkspaceKind:
        try:
            await find_checkout(await self._git(cwd))
        except NoRepository:
            return "copy"
        return "worktree"

    async def commit_work(self, workspace: Workspace, message: str) -> Work:
        record = self._record(workspace)
        return await workspace_work.keep_work(await self._git(self._root), record, message)

    async def release(self, workspace: Workspace) -> bool:
        record = self._record(workspace)
        self._prepared.discard(record.worker)
        verdict = await judge_workspace(await self._git(self._root), record)
        if verdict.is_disposable:
            await self._clear(record)
        return verdict.is_disposable

    async def list_kept(self) -> Sequence[KeptSpace]:
        spaces: list[KeptSpace] = []
        for record in await self._records():
            used = self._is_used(record.worker)  # its final state is not known yet
            verdict = WorkspaceVerdict(state="unmerged") if used else await self._verdict(record)
            spaces.append(await self._describe(record, verdict))
        return spaces

    async def remove_finished(self) -> Sequence[KeptSpace]:
        await anyio.to_thread.run_sync(_clear_observations, self._root)
        removed: list[KeptSpace] = []
        for record in await self._records():
            if self._is_used(record.worker):
                continue
            verdict = await self._verdict(record)
            if verdict.is_disposable:
                removed.append(await self._describe(record, verdict))
                await self._clear(record)
        return removed

    async def remove(self, worker: str) -> KeptSpace:
        record = await anyio.to_thread.run_sync(workspace_records.find_record, self._root, worker)
        if record is None:
            raise RequestError(
                f"worker {worker!r} has no workspace; `go-ent gc` lists what is kept"
            )
        if self._is_used(worker):
            raise RequestError(f"worker {worker!r} still has its workspace in use")
        space = await self._describe(record, await self._verdict(record))
        await self._clear(record)
        return space

    async def _records(self) -> Sequence[WorkspaceRecord]:
        return await anyio.to_thread.run_sync(
            lambda: list(workspace_records.all_records(self._root))
        )

    async def _clear(self, record: WorkspaceRecord) -> None:
        workspace = record.workspace
        git = await self._git(self._root)
        await anyio.to_thread.run_sync(worktrees.remove_tree, Path(workspace.path))
        async with self._registering:
            await remove_workspace(git, record)
        workspace_records.forget_record(Path(workspace.path))

    async def _verdict(self, record: WorkspaceRecord) -> WorkspaceVerdict:
        try:
            return await judge_workspace(await self._git(self._root), record)
        except GoentError:
            return WorkspaceVerdict(state="broken")

    async def _describe(self, record: WorkspaceRecord, verdict: WorkspaceVerdict) -> KeptSpace:
        workspace = record.workspace
        used = self._is_used(record.worker)
        return KeptSpace(
            worker=record.worker,
            group=record.group,
            kind=workspace.kind,
            path=workspace.path,
            branch=workspace.branch,
            bytes=await anyio.to_thread.run_sync(folder_bytes, Path(workspace.path)),
            state="in_use" if used else verdict.state,
            commit=verdict.commit,
            repository=workspace.repository,
        )

    def _is_used(self, worker: str) -> bool:
        return worker in self._prepared or self._in_use(worker)

    def _record(self, workspace: Workspace) -> WorkspaceRecord:
        path = Path(workspace.path)
        found = workspace_records.read_record(path)
        return found or WorkspaceRecord(
            worker=path.name, group=path.parent.name, workspace=workspace, ready=True
        )

    async def _git(self, folder: Path) -> Git:
        git = self._any_git(folder)
        if not self._is_new_enough:
            await git.check_version()
            self._is_new_enough = True
        return git

    def _any_git(self, folder: Path) -> Git:
        """Git of any version, even if it is missing."""
        return Git(
            folder,
            self._environ(),
            git=self._program,
            trusted=self._trusted,
            cache=self._config_cache,
        )


def _clear_observations(root: Path) -> None:
    """Remove what killed daemons left behind."""
    for folder in abandoned_folders(root, OBSERVED):
        remove_folder(folder)


def folder_bytes(folder: Path) -> int:
    """The disk usage of a folder."""
    total = 0
    for where, folders, files in os.walk(folder):
        for name in (*folders, *files):
            try:
                total += os.lstat(os.path.join(where, name)).st_blocks * 512  # noqa: PTH118 (fast)
            except OSError:
                continue
    return total
