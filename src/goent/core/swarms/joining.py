"""How does the work of several tasks become one?

Asked of git, in objects; nothing is checked out but in a scratch folder, where the verify commands
run on the merge.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from goent.core.feed import Feed
from goent.core.swarms.view import SwarmView, TaskView
from goent.domain.errors import RequestError, WorkerError
from goent.domain.ports import Verifier
from goent.domain.swarms import SwarmTask
from goent.domain.types import Check, Value
from goent.domain.workspaces import Conflict, Kind, Left, Merge, Merging, Piece, Workspace
from goent.policy.suspects import first_failing

NOTHING_KEPT = "its work was not kept"


class MergeConflict(WorkerError):
    """What a task should start from does not go together."""

    kind = "merge_conflict"


class Joined(Value, frozen=True, kw_only=True):
    """A merge, and what the verify commands said on it."""

    merge: Merge
    checks: tuple[Check, ...] = ()
    notes: tuple[str, ...] = ()


class Proof(Value, frozen=True, kw_only=True):
    """The commands that must succeed: `common` ones anywhere, `own` ones where a task's work is."""

    common: tuple[str, ...] = ()
    own: Mapping[str, tuple[str, ...]] = {}

    def of(self, tasks: Sequence[str]) -> tuple[str, ...]:
        mine = (command for task in tasks for command in self.own.get(task, ()))
        return tuple(dict.fromkeys((*self.common, *mine)))


class Pieces(Value, frozen=True, kw_only=True):
    """The finished work of a swarm, the place where it is, and what is not there."""

    repository: str
    base: str
    pieces: tuple[Piece, ...]
    below: str = ""  # where the swarm works, from the top of the checkout
    without: Mapping[str, str] = {}
    after: Mapping[str, tuple[str, ...]] = {}
    kind: Kind = "worktree"

    def resting_on(self, task: str) -> set[str]:
        """The task, and all that started from its work."""
        found = {task}
        for _ in self.after:
            found |= {name for name, before in self.after.items() if found & set(before)}
        return found


class Joiner:
    """Compares and joins what a swarm's workers made."""

    def __init__(self, *, feed: Feed, merging: Merging, verifier: Verifier) -> None:
        self._feed = feed
        self._merging = merging
        self._verifier = verifier

    async def start_of(self, view: SwarmView, task: SwarmTask) -> str | None:
        """The commit that the task begins with: its predecessors' merged work.

        Raises `MergeConflict` if that does not go together.
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
                f"go together: {_first(merge.left[0])}. Merge them by hand, or let one come after "
                "the other"
            )
        return merge.commit

    def pieces(self, view: SwarmView, tasks: Sequence[TaskView]) -> Pieces:
        """Of those that are completed; the others, and why not."""
        found: list[Piece] = []
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
                found.append(Piece(task=name, commit=worker.work.commit))
        if space is None:
            return Pieces(
                repository=view.spawned.repository,
                base=view.spawned.base,
                pieces=(),
                without=without,
            )
        return Pieces(
            repository=space.repository,
            base=view.spawned.base or space.base,
            pieces=tuple(found),
            below=str(Path(space.cwd).relative_to(space.path)),
            without=without,
            after={name: task.task.after for name, task in view.tasks.items()},
            kind=space.kind,
        )

    async def conflicts(self, pieces: Pieces) -> tuple[Conflict, ...]:
        if len(pieces.pieces) < 2:  # noqa: PLR2004 (it takes two)
            return ()
        return await self._merging.conflicts(pieces.repository, pieces.base, pieces.pieces)

    async def merge(self, pieces: Pieces, message: str) -> Merge:
        if not pieces.pieces:
            return Merge(commit=pieces.base, merged=())
        return await self._merging.merge(pieces.repository, pieces.base, pieces.pieces, message)

    async def join(self, pieces: Pieces, message: str, proof: Proof) -> Joined:
        """Merge, and verify: what merges cleanly but fails the commands is left out, and named."""
        set_aside: list[Left] = []
        notes: tuple[str, ...] = ()
        while True:
            merge = await self.merge(pieces, message)
            checks = await self._checked(pieces, merge.commit, proof.of(merge.merged))
            if _passed(checks) or not merge.merged:
                break
            if not _passed(await self._checked(pieces, pieces.base, proof.common)):
                notes = ("the verify commands fail already on what the tasks started from",)
                break
            alarm = await self._alarm(pieces, merge, proof, checks)
            culprit = alarm.tasks[0]
            gone = pieces.resting_on(culprit)
            set_aside += [
                Left(task=piece.task, conflicts=(alarm,), instructions=_advice(alarm, piece.task))
                for piece in pieces.pieces
                if piece.task in gone
            ]
            rest = tuple(piece for piece in pieces.pieces if piece.task not in gone)
            pieces = replace(pieces, pieces=rest)
        merge = replace(merge, left=(*merge.left, *set_aside))
        return Joined(merge=merge, checks=checks, notes=notes)

    async def _alarm(
        self, pieces: Pieces, merge: Merge, proof: Proof, checks: Sequence[Check]
    ) -> Conflict:
        """Whose work makes the commands fail on the merge: the first after which they do."""
        said: dict[str, tuple[Check, ...]] = {}

        async def fails(commit: str) -> bool:
            there = len(merge.steps) - merge.steps[::-1].index(commit)
            commands = proof.of(merge.merged[:there])
            said[commit] = await self._checked(pieces, commit, commands)
            return not _passed(said[commit])

        found = await first_failing(merge.steps[:-1], fails)  # that the last fails is known
        first = len(merge.steps) - 1 if found is None else found
        checks = said.get(merge.steps[first], checks)
        failed = next(check for check in checks if check.exit != 0)
        return Conflict(
            kind="semantic",
            path="",
            tasks=(merge.merged[first], *merge.merged[:first]),
            detail=f"{failed.command!r} exits {failed.exit} on the merge: {failed.tail[-300:]}",
        )

    async def _checked(
        self, pieces: Pieces, commit: str, commands: Sequence[str]
    ) -> tuple[Check, ...]:
        if not commands:
            return ()
        async with self._merging.scratch(pieces.repository, commit) as folder:
            return await self._verifier.verify(commands, folder / pieces.below)

    async def publish(
        self, pieces: Pieces, branch: str, commit: str, *, replaces: str | None
    ) -> None:
        """`replaces` is where an earlier merge put the branch: from there it may move anywhere."""
        await self._merging.publish(pieces.repository, branch, commit, replaces=replaces)

    async def apply(self, pieces: Pieces, checkout: Path, commit: str) -> str:
        if not pieces.pieces:
            raise RequestError("there is nothing to apply: no task has changed anything")
        return await self._merging.apply(pieces.repository, checkout, commit)


def _passed(checks: Sequence[Check]) -> bool:
    return all(check.exit == 0 for check in checks)


def _first(left: Left) -> str:
    one = left.conflicts[0] if left.conflicts else None
    return f"{one.kind} in {one.path!r} ({', '.join(one.tasks)})" if one else left.task


def _advice(alarm: Conflict, task: str) -> str:
    culprit, *others = alarm.tasks
    with_ = f" beside {', '.join(others)}" if others else ""
    from_ = "" if task == culprit else f"{task} starts from {culprit}. "
    return (
        f"{from_}{culprit} merges cleanly{with_}, but then {alarm.detail}. Prompt its worker to mend "
        "that on the merged branch, or retry it after the others"
    )
