"""Merges the finished work of a swarm's tasks, and verifies the merge.

git merges in its object store; only a scratch folder is checked out, for the verify commands.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio
from msgspec.structs import replace

from goent.domain.errors import RequestError, WorkerError
from goent.domain.events import WorkMerged
from goent.domain.ports import Verifier
from goent.domain.requests import CancelRequest
from goent.domain.swarm_messages import LeftOver, SwarmMergeReply, SwarmMergeRequest, SwarmTask
from goent.domain.types import Check, Value
from goent.domain.verification import blank_commands, evidence_of
from goent.domain.workspace import (
    Conflict,
    Merge,
    Merger,
    UnmergedPiece,
    WorkPiece,
    Workspace,
    WorkspaceKind,
)
from goent.swarms.swarm_report import left_over
from goent.workers.change_attribution import first_failing
from goent.workers.feed import Feed
from goent.workers.orchestrator import Orchestrator
from goent.workers.views import SwarmTaskView, SwarmView

NOTHING_KEPT = "its work was not kept"


class MergeConflict(WorkerError):
    """The work that a task should start from does not merge."""

    kind = "merge_conflict"


class CheckedMerge(Value, frozen=True, kw_only=True):
    """A merge, and the results of the verify commands on it."""

    merge: Merge
    checks: tuple[Check, ...] = ()
    notes: tuple[str, ...] = ()


class VerifyCommands(Value, frozen=True, kw_only=True):
    """The verify commands: `common` for every merge, `own` for merges with that task's work."""

    common: tuple[str, ...] = ()
    own: Mapping[str, tuple[str, ...]] = {}

    def of(self, tasks: Sequence[str]) -> tuple[str, ...]:
        mine = (command for task in tasks for command in self.own.get(task, ()))
        return tuple(dict.fromkeys((*self.common, *mine)))


class SwarmWork(Value, frozen=True, kw_only=True):
    """The finished work of a swarm, its repository, and what is left out."""

    repository: str
    base: str
    pieces: tuple[WorkPiece, ...]
    subfolder: str = ""  # of the checkout, in which the swarm works
    left_out: Mapping[str, str] = {}
    after: Mapping[str, tuple[str, ...]] = {}
    kind: WorkspaceKind = "worktree"

    def resting_on(self, task: str) -> set[str]:
        """The task, and all tasks that started from its work."""
        found = {task}
        for _ in self.after:
            found |= {name for name, before in self.after.items() if found & set(before)}
        return found


class WorkJoiner:
    """Compares and joins the work of a swarm's workers."""

    def __init__(self, *, feed: Feed, merging: Merger, verifier: Verifier) -> None:
        self._feed = feed
        self._merging = merging
        self._verifier = verifier

    async def start_of(self, view: SwarmView, task: SwarmTask) -> str | None:
        """The commit that the task starts from: its predecessors' merged work.

        Raises `MergeConflict` if that does not merge.
        """
        before = self.pieces(view, [view.tasks[name] for name in task.after])
        if not before.pieces:
            return view.spawned.base or None
        if len(before.pieces) == 1:
            return before.pieces[0].commit
        message = f"go-ent: {', '.join(p.task for p in before.pieces)}, for {task.id}"
        merge = await self._merging.merge(before.repository, before.base, before.pieces, message)
        if merge.left:
            raise MergeConflict(
                f"task {task.id!r} starts from the work of {', '.join(task.after)}, which does not "
                f"merge: {_first_conflict(merge.left[0])}. Merge it by hand, or let one come after the "
                "other"
            )
        return merge.commit

    def pieces(self, view: SwarmView, tasks: Sequence[SwarmTaskView]) -> SwarmWork:
        """The work of the completed tasks, and why the others are left out."""
        found: list[WorkPiece] = []
        without: Mapping[str, str] = {}
        space: Workspace | None = None
        for task in tasks:
            name = task.task.id
            if task.settled is None or task.settled.state != "completed":
                without[name] = task.settled.state if task.settled else "not over"
                continue
            worker = self._feed.views.get(task.settled.worker)
            if worker is None or worker.spawned.workspace is None:
                without[name] = "it worked in the shared folder"
            elif worker.work is None or not worker.work.commit:
                without[name] = NOTHING_KEPT
            elif not worker.work.files:
                without[name] = "it changed nothing"
                space = space or worker.spawned.workspace
            else:
                space = space or worker.spawned.workspace
                found.append(WorkPiece(task=name, commit=worker.work.commit))
        if space is None:
            return SwarmWork(
                repository=view.spawned.repository,
                base=view.spawned.base,
                pieces=(),
                left_out=without,
            )
        return SwarmWork(
            repository=space.repository,
            base=view.spawned.base or space.base,
            pieces=tuple(found),
            subfolder=str(Path(space.cwd).relative_to(space.path)),
            left_out=without,
            after={name: task.task.after for name, task in view.tasks.items()},
            kind=space.kind,
        )

    async def conflicts(self, pieces: SwarmWork) -> tuple[Conflict, ...]:
        if len(pieces.pieces) < 2:  # noqa: PLR2004 (it takes two)
            return ()
        return await self._merging.conflicts(pieces.repository, pieces.base, pieces.pieces)

    async def merge(self, pieces: SwarmWork, message: str) -> Merge:
        if not pieces.pieces:
            return Merge(commit=pieces.base, merged=())
        return await self._merging.merge(pieces.repository, pieces.base, pieces.pieces, message)

    async def join(self, pieces: SwarmWork, message: str, proof: VerifyCommands) -> CheckedMerge:
        """Merge and verify. Work that merges but fails the commands is left out and reported."""
        set_aside: list[UnmergedPiece] = []
        notes: tuple[str, ...] = ()
        while True:
            merge = await self.merge(pieces, message)
            checks = await self._verify(pieces, merge.commit, proof.of(merge.merged))
            if _all_passed(checks) or not merge.merged:
                break
            if not _all_passed(await self._verify(pieces, pieces.base, proof.common)):
                notes = (
                    "the verify commands already fail on the commit that the tasks started from",
                )
                break
            alarm = await self._find_culprit(pieces, merge, proof, checks)
            culprit = alarm.tasks[0]
            gone = pieces.resting_on(culprit)
            set_aside += [
                UnmergedPiece(
                    task=piece.task, conflicts=(alarm,), instructions=_advice(alarm, piece.task)
                )
                for piece in pieces.pieces
                if piece.task in gone
            ]
            rest = tuple(piece for piece in pieces.pieces if piece.task not in gone)
            pieces = replace(pieces, pieces=rest)
        merge = replace(merge, left=(*merge.left, *set_aside))
        return CheckedMerge(merge=merge, checks=checks, notes=notes)

    async def _find_culprit(
        self, pieces: SwarmWork, merge: Merge, proof: VerifyCommands, checks: Sequence[Check]
    ) -> Conflict:
        """The first piece after which the commands fail on the merge."""
        known: dict[str, tuple[Check, ...]] = {}

        async def fails(commit: str) -> bool:
            there = len(merge.steps) - merge.steps[::-1].index(commit)
            commands = proof.of(merge.merged[:there])
            known[commit] = await self._verify(pieces, commit, commands)
            return not _all_passed(known[commit])

        found = await first_failing(merge.steps[:-1], fails)  # the last is known to fail
        first = len(merge.steps) - 1 if found is None else found
        checks = known.get(merge.steps[first], checks)
        failed = next(check for check in checks if check.exit != 0)
        return Conflict(
            kind="semantic",
            path="",
            tasks=(merge.merged[first], *merge.merged[:first]),
            detail=f"{failed.command!r} exits {failed.exit} on the merge: {failed.tail[-300:]}",
        )

    async def _verify(
        self, pieces: SwarmWork, commit: str, commands: Sequence[str]
    ) -> tuple[Check, ...]:
        if not commands:
            return ()
        async with self._merging.scratch(pieces.repository, commit) as folder:
            return await self._verifier.verify(commands, folder / pieces.subfolder)

    async def publish(
        self, pieces: SwarmWork, branch: str, commit: str, *, replaces: str | None
    ) -> None:
        """Set the branch. `replaces` is the commit of an earlier merge, which may be dropped."""
        await self._merging.publish(pieces.repository, branch, commit, replaces=replaces)

    async def apply(self, pieces: SwarmWork, checkout: Path, commit: str) -> str:
        if not pieces.pieces:
            raise RequestError("there is nothing to apply: no task has changed a file")
        return await self._merging.apply(pieces.repository, checkout, commit)


def _all_passed(checks: Sequence[Check]) -> bool:
    return all(check.exit == 0 for check in checks)


def _first_conflict(left: UnmergedPiece) -> str:
    one = left.conflicts[0] if left.conflicts else None
    return f"{one.kind} in {one.path!r} ({', '.join(one.tasks)})" if one else left.task


def _advice(alarm: Conflict, task: str) -> str:
    culprit, *others = alarm.tasks
    with_ = f" beside {', '.join(others)}" if others else ""
    from_ = "" if task == culprit else f"{task} starts from {culprit}. "
    return (
        f"{from_}{culprit} merges cleanly{with_}, but then {alarm.detail}. Prompt its worker to fix "
        "that on the merged branch, or retry it after the others"
    )


class SwarmMerger:
    """Merges a swarm's work on request. Only `apply` changes the user's checkout."""

    def __init__(self, *, feed: Feed, orchestrator: Orchestrator, joiner: WorkJoiner) -> None:
        self._feed = feed
        self._workers = orchestrator
        self._joiner = joiner

    async def merge(self, request: SwarmMergeRequest) -> SwarmMergeReply:
        for index, reason in blank_commands(request.verify or ()):
            raise RequestError(f"verify[{index}]: {reason}")
        view = self._feed.swarm(request.swarm_id)
        tasks = view.named(request.tasks)
        pieces = self._joiner.pieces(view, tasks)
        if not pieces.pieces:
            why = "; ".join(f"{name}: {reason}" for name, reason in pieces.left_out.items())
            raise RequestError(f"swarm {view.id!r} has nothing to merge ({why})")
        name = view.spawned.name
        proof = _verify_commands(request, view, tasks)
        joined = await self._joiner.join(pieces, f"go-ent: merge {name}", proof)
        branch = None if request.dry_run else request.branch or f"go-ent/{name}/merged"
        applied = None
        if branch and joined.merge.merged:
            before = [merged.commit for merged in view.merges if merged.branch == branch]
            replaces = before[-1] if before else None
            await self._joiner.publish(pieces, branch, joined.merge.commit, replaces=replaces)
            await self._feed.append(view.id, _merged_event(branch, joined))
            await self._feed.commit()
            if request.apply:
                _check_can_apply(joined, branch, pieces, view)
                applied = await self._joiner.apply(
                    pieces, Path(view.spawned.cwd), joined.merge.commit
                )
            await self._close_workers(view, joined.merge.merged)
        left = [left_over(each) for each in joined.merge.left]
        left += [LeftOver(task=task, reason=why) for task, why in pieces.left_out.items()]
        return SwarmMergeReply(
            swarm_id=view.id,
            branch=branch,
            commit=joined.merge.commit if joined.merge.merged else None,
            merged=joined.merge.merged,
            left=tuple(left),
            conflicts=tuple(c for each in joined.merge.left for c in each.conflicts),
            verify=joined.checks,
            evidence=evidence_of(joined.checks),
            applied=applied,
            notes=(*joined.notes, *_copy_notes(pieces, branch, view)),
        )

    async def _close_workers(self, view: SwarmView, merged: Sequence[str]) -> None:
        """Close the workers whose work is merged, and remove their folders."""
        async with anyio.create_task_group() as group:
            for worker in (w for name in merged for w in view.tasks[name].workers):
                if worker in self._workers.living_workers:
                    stop = CancelRequest(worker_id=worker, reason="its work is merged", close=True)
                    group.start_soon(self._workers.cancel, stop, "its swarm")
        await self._workers.worker_folders.tidy()  # also of workers that were closed before


def _verify_commands(
    request: SwarmMergeRequest, view: SwarmView, tasks: Sequence[SwarmTaskView]
) -> VerifyCommands:
    if request.dry_run:
        return VerifyCommands()
    if request.verify is not None:
        return VerifyCommands(common=request.verify)
    own = {task.task.id: task.task.verify for task in tasks}
    return VerifyCommands(common=view.spawned.request.verify, own=own)


def _merged_event(branch: str, joined: CheckedMerge) -> WorkMerged:
    return WorkMerged(
        branch=branch,
        commit=joined.merge.commit,
        merged=joined.merge.merged,
        checks=joined.checks,
    )


def _copy_notes(pieces: SwarmWork, branch: str | None, view: SwarmView) -> tuple[str, ...]:
    """How to get the merged files where the user's folder is no repository."""
    if pieces.kind != "copy" or branch is None:
        return ()
    taken = f"git --git-dir {pieces.repository} archive {branch} | tar -x -C {view.spawned.cwd}"
    return (f"the folder is no git repository: `{taken}` puts the merged files there",)


def _check_can_apply(joined: CheckedMerge, branch: str, pieces: SwarmWork, view: SwarmView) -> None:
    if evidence_of(joined.checks) == "refuted":
        raise RequestError(
            f"the verify commands fail on {branch}, so nothing was applied: fix that, or merge by hand"
        )
    for how in _copy_notes(pieces, branch, view):
        raise RequestError(f"merged, but nothing was applied: {how}")
