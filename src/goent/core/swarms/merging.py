"""`swarm_merge`: the finished work of a swarm on one branch, checked there."""

from collections.abc import Sequence
from pathlib import Path

import anyio

from goent.core.feed import Feed
from goent.core.orchestrator import Orchestrator
from goent.core.swarms.joining import Joined, Joiner, Pieces, Proof
from goent.core.swarms.telling import left_over
from goent.core.swarms.view import SwarmView, TaskView
from goent.domain.errors import RequestError
from goent.domain.events import WorkMerged
from goent.domain.requests import CancelRequest
from goent.domain.swarms import LeftOver, SwarmMerged, SwarmMergeRequest
from goent.domain.verification import blank_commands, evidence_of


class SwarmMerger:
    """Joins what the tasks made. Nothing of the user's is touched but by `apply`."""

    def __init__(self, *, feed: Feed, orchestrator: Orchestrator, joiner: Joiner) -> None:
        self._feed = feed
        self._workers = orchestrator
        self._joiner = joiner

    async def merge(self, request: SwarmMergeRequest) -> SwarmMerged:
        for index, reason in blank_commands(request.verify or ()):
            raise RequestError(f"verify[{index}]: {reason}")
        view = self._feed.swarm(request.swarm_id)
        tasks = view.named(request.tasks)
        pieces = self._joiner.pieces(view, tasks)
        if not pieces.pieces:
            why = "; ".join(f"{name}: {reason}" for name, reason in pieces.without.items())
            raise RequestError(f"swarm {view.id!r} has nothing to merge ({why})")
        name = view.spawned.name
        proof = _proof(request, view, tasks)
        joined = await self._joiner.join(pieces, f"go-ent: merge {name}", proof)
        branch = None if request.dry_run else request.branch or f"go-ent/{name}/merged"
        applied = None
        if branch and joined.merge.merged:
            before = [merged.commit for merged in view.merges if merged.branch == branch]
            replaces = before[-1] if before else None
            await self._joiner.publish(pieces, branch, joined.merge.commit, replaces=replaces)
            await self._feed.append(view.id, _merged(branch, joined))
            await self._feed.commit()
            if request.apply:
                _check_can_apply(joined, branch, pieces, view)
                applied = await self._joiner.apply(
                    pieces, Path(view.spawned.cwd), joined.merge.commit
                )
            await self._dismiss(view, joined.merge.merged)
        left = [left_over(each) for each in joined.merge.left]
        left += [LeftOver(task=task, reason=why) for task, why in pieces.without.items()]
        return SwarmMerged(
            swarm_id=view.id,
            branch=branch,
            commit=joined.merge.commit if joined.merge.merged else None,
            merged=joined.merge.merged,
            left=tuple(left),
            conflicts=tuple(c for each in joined.merge.left for c in each.conflicts),
            verify=joined.checks,
            evidence=evidence_of(joined.checks),
            applied=applied,
            notes=(*joined.notes, *_where(pieces, branch, view)),
        )

    async def _dismiss(self, view: SwarmView, merged: Sequence[str]) -> None:
        """What is merged needs no folder any more, and its worker none to work in."""
        async with anyio.create_task_group() as group:
            for worker in (w for name in merged for w in view.tasks[name].workers):
                if worker in self._workers.living:
                    stop = CancelRequest(worker_id=worker, reason="its work is merged", close=True)
                    group.start_soon(self._workers.cancel, stop, "its swarm")
        await self._workers.places.tidy()  # also the folders of those that were closed before


def _proof(request: SwarmMergeRequest, view: SwarmView, tasks: Sequence[TaskView]) -> Proof:
    if request.dry_run:
        return Proof()
    if request.verify is not None:
        return Proof(common=request.verify)
    own = {task.task.id: task.task.verify for task in tasks}
    return Proof(common=view.spawned.request.verify, own=own)


def _merged(branch: str, joined: Joined) -> WorkMerged:
    return WorkMerged(
        branch=branch,
        commit=joined.merge.commit,
        merged=joined.merge.merged,
        checks=joined.checks,
    )


def _where(pieces: Pieces, branch: str | None, view: SwarmView) -> tuple[str, ...]:
    """Where there is no git, the branch is in a repository that nobody knows."""
    if pieces.kind != "copy" or branch is None:
        return ()
    taken = f"git --git-dir {pieces.repository} archive {branch} | tar -x -C {view.spawned.cwd}"
    return (f"the folder is no git repository: `{taken}` puts the merged files there",)


def _check_can_apply(joined: Joined, branch: str, pieces: Pieces, view: SwarmView) -> None:
    if evidence_of(joined.checks) == "refuted":
        raise RequestError(
            f"the verify commands fail on {branch}, so nothing was applied: mend that, or merge by hand"
        )
    for how in _where(pieces, branch, view):
        raise RequestError(f"merged, but nothing was applied: {how}")
