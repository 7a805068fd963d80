"""Where does a worker work: in the folder it was asked for, or in one of its own?"""

import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from msgspec.structs import replace

from goent.core.intake import Within, existing_files
from goent.core.views import shorten
from goent.domain.errors import GoentError, RequestError, WorkspaceLost
from goent.domain.events import AnyEvent, Noticed, WorkerSpawned, WorkKept
from goent.domain.replies import Cleared, SpaceList
from goent.domain.requests import ClearRequest, SpawnRequest
from goent.domain.workspaces import KeptSpace, Order, Workspace, Workspaces

log = logging.getLogger(__name__)

SOLO = "solo"  # the group of workers that are in no swarm
CLEARING = 30.0  # seconds to remove a folder that is not needed any more
KEEPING = 60.0  # seconds to keep what an unfinished turn has made
LONGEST_SUBJECT = 70


class Places:
    """Gives workers their folders, and takes them back."""

    def __init__(self, workspaces: Workspaces) -> None:
        self.workspaces = workspaces

    @asynccontextmanager
    async def settled(
        self, worker: str, spawned: WorkerSpawned, request: SpawnRequest, within: Within
    ) -> AsyncGenerator[WorkerSpawned]:
        """The task as it is worked on. If what follows fails, no folder stays."""
        if spawned.isolation not in ("worktree", "copy"):
            yield spawned
            return
        order = Order(
            worker=worker,
            group=within.label or within.group or SOLO,
            cwd=Path(spawned.cwd),
            kind=spawned.isolation,
            start=within.start,
            uncommitted=request.uncommitted,
            carry=request.carry,
        )
        workspace = await self.workspaces.prepare(order)
        try:
            yield replace(
                spawned,
                cwd=workspace.cwd,
                files=existing_files(inside(workspace, spawned.files), Path(workspace.cwd)),
                warnings=(*spawned.warnings, *workspace.warnings),
                workspace=workspace,
            )
        except BaseException:
            await self.give_back(workspace)
            raise

    async def give_back(self, workspace: Workspace | None) -> None:
        """Nobody works there any more. What stays, and a failure to remove it, `gc` tells."""
        if workspace is None:
            return
        with anyio.move_on_after(CLEARING, shield=True):
            try:
                await self.workspaces.release(workspace)
            except GoentError as error:
                log.warning("the workspace %r stays: %s", workspace.path, error)

    async def keep(self, workspace: Workspace, prompt: str, worker: str) -> Sequence[AnyEvent]:
        """Have what was made on the branch; what to tell of it. Raises only `WorkspaceLost`."""
        subject = shorten(prompt, LONGEST_SUBJECT) or "Work"
        try:
            work = await self.workspaces.keep(workspace, f"{subject}\n\nBy worker {worker}\n")
        except WorkspaceLost:
            raise
        except GoentError as error:
            return [Noticed(text=f"not on its branch, only in {workspace.path!r}: {error}")]
        return [WorkKept(work=work), *(Noticed(text=warning) for warning in work.warnings)]

    async def keep_what_is_there(
        self, workspace: Workspace, prompt: str, worker: str
    ) -> Sequence[AnyEvent]:
        """The same for a turn that did not come to its end: raises nothing, and does not wait long."""
        with anyio.move_on_after(KEEPING, shield=True):
            try:
                return await self.keep(workspace, prompt, worker)
            except WorkspaceLost as lost:
                return [Noticed(text=str(lost))]
        return [
            Noticed(
                text=f"not on its branch, only in {workspace.path!r}: "
                f"git did not end within {KEEPING:g} s"
            )
        ]

    async def listed(self) -> SpaceList:
        spaces = await self.workspaces.kept()
        return SpaceList(spaces=tuple(spaces), bytes=sum(space.bytes for space in spaces))

    async def cleared(self, request: ClearRequest) -> Cleared:
        """Those that were named, and only if all of them can be; else what nobody needs."""
        if not request.workers:
            removed = await self.workspaces.clear()
            return Cleared(removed=tuple(removed), kept=tuple(await self.workspaces.kept()))
        kept = {space.worker: space for space in await self.workspaces.kept()}
        for worker in request.workers:
            _check_removable(worker, kept)
        gone = [await self.workspaces.remove(worker) for worker in dict.fromkeys(request.workers)]
        rest = (space for name, space in kept.items() if name not in request.workers)
        return Cleared(removed=tuple(gone), kept=tuple(rest))

    async def tidy(self) -> None:
        """Remove what earlier workers left and nobody needs."""
        try:
            for gone in await self.workspaces.clear():
                log.info("removed the workspace %r: %s", gone.path, gone.state)
        except GoentError as error:
            log.warning("workspaces were not looked through: %s", error)


def _check_removable(worker: str, kept: Mapping[str, KeptSpace]) -> None:
    if worker not in kept:
        there = ", ".join(kept) or "none"
        raise RequestError(f"worker {worker!r} has no workspace; there are: {there}")
    if kept[worker].state == "in_use":
        raise RequestError(
            f"worker {worker!r} is still open and has its workspace in use: close it first, with "
            f"`go-ent cancel --close {worker}`"
        )


def inside(workspace: Workspace | None, files: Sequence[str]) -> tuple[str, ...]:
    """The files where the worker has them; one that is only in the user's folder stays there."""
    if workspace is None:
        return tuple(files)
    return tuple(_inside(workspace, Path(file)) for file in files)


def _inside(workspace: Workspace, file: Path) -> str:
    origin = Path(workspace.origin)
    if not file.is_relative_to(origin):
        return str(file)
    own = Path(workspace.path) / file.relative_to(origin)
    return str(own if own.exists() else file)
