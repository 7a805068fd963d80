"""Merges all pairs of pieces that may conflict, and reports their overlaps and conflicts.

`git merge` reads `.gitattributes` from the checkout. A trial merge has no checkout, so the attribute
files that apply to the merged files are written to its scratch area first.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import anyio
from msgspec import structs

from goent.domain.types import Value
from goent.domain.workspace import Conflict, WorkPiece
from goent.git.git_command import Git, read_objects, readable_path
from goent.git.lineage import ChangedFiles, Lineage, PiecePair, read_lineage
from goent.git.scratch_space import ScratchArea
from goent.git.trial_merge import (
    MergeSide,
    MergeTrial,
    PathConflict,
    conflicts_of,
    files_with_hunks,
    try_merges,
)

ATTRIBUTES_FILE: Final = b".gitattributes"
MAX_PAIRS: Final = 6  # pairs that an overlap lists


async def lay_out_attributes(git: Git, commit: str, paths: Iterable[bytes], folder: Path) -> None:
    """Write the commit's attribute files for these paths below the folder."""
    wanted = sorted({above + ATTRIBUTES_FILE for path in paths for above in _folders_above(path)})
    names = [commit.encode() + b":" + path for path in wanted]
    for path, content in zip(wanted, await read_objects(git, names), strict=True):
        if content:
            await anyio.to_thread.run_sync(_write, folder / os.fsdecode(path), content)


def _folders_above(path: bytes) -> Iterable[bytes]:
    yield b""
    at = path.find(b"/")
    while at >= 0:
        yield path[: at + 1]
        at = path.find(b"/", at + 1)


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


class Survey:
    """The results of the trials. `met` are the tried pairs, `collisions` their conflicts."""

    def __init__(
        self, lineage: Lineage, trials: Mapping[PiecePair, Sequence[PathConflict]]
    ) -> None:
        self.lineage = lineage
        self.met = trials.keys()
        self.collisions = {
            meeting: [_with_moves(found, *lineage.sides(meeting)) for found in founds]
            for meeting, founds in trials.items()
            if founds
        }

    def conflicts(self) -> tuple[Conflict, ...]:
        """Overlaps first, by file; then conflicts, by file and pair."""
        collisions = [
            (found.conflict.path, meeting, found)
            for meeting, founds in self.collisions.items()
            for found in founds
            if not self.lineage.is_inherited(meeting, found.path)
        ]
        collisions.sort(key=lambda each: each[:2])
        return (*self._overlaps(), *(found.conflict for _, _, found in collisions))

    def _overlaps(self) -> Iterator[Conflict]:
        by_path: dict[bytes, set[int]] = {}
        colliding: dict[bytes, list[PiecePair]] = {}
        for meeting in self.lineage.meetings():
            ours, theirs = self.lineage.sides(meeting)
            for path in ours.shared(theirs):
                if not self.lineage.is_inherited(meeting, path):
                    by_path.setdefault(path, set()).update(meeting)
            for found in self.collisions.get(meeting, ()):
                colliding.setdefault(found.path, []).append(meeting)
        for path, numbers in sorted(by_path.items()):
            yield Conflict(
                kind="file_overlap",
                path=readable_path(path),
                tasks=tuple(self.lineage.pieces[n].task for n in sorted(numbers)),
                detail=self._how_it_merges(colliding.get(path, [])),
            )

    def _how_it_merges(self, colliding: Sequence[PiecePair]) -> str:
        if not colliding:
            return "merges cleanly"
        names = [
            [repr(self.lineage.pieces[n].task) for n in pair] for pair in colliding[:MAX_PAIRS]
        ]
        more = f" and {len(colliding) - MAX_PAIRS} more pairs" if len(colliding) > MAX_PAIRS else ""
        return f"does not merge: {', '.join(map(' with '.join, names))}{more}"


async def survey_pieces(
    git: Git, base: str, pieces: Sequence[WorkPiece], place: ScratchArea
) -> Survey:
    """Try all pairs. Raises a `RequestError` for missing commits or unrelated histories.

    The base's attribute files stay in the scratch area, for later merges there.
    """
    lineage = await read_lineage(git, base, pieces)
    close = [meeting for meeting in lineage.meetings() if lineage.may_conflict(meeting)]
    await lay_out_attributes(git, base, lineage.merged_paths(close), place.tree)
    pairs = [(pieces[n].commit, pieces[m].commit) for n, m in close]
    trials = await try_merges(git.at(place.tree), pairs, place.env)
    clashes = [
        Clash(trial=trial, ours=piece_side(pieces[n]), theirs=piece_side(pieces[m]))
        for (n, m), trial in zip(close, trials, strict=True)
    ]
    founds = await read_conflicts(git, clashes, place.env)
    return Survey(lineage, dict(zip(close, founds, strict=True)))


class Clash(Value, frozen=True, kw_only=True):
    """A trial merge, with its sides."""

    trial: MergeTrial
    ours: MergeSide
    theirs: MergeSide


def piece_side(piece: WorkPiece) -> MergeSide:
    return MergeSide(commit=piece.commit, name=piece.task, tasks=(piece.task,))


async def read_conflicts(
    git: Git, clashes: Sequence[Clash], env: Mapping[str, str]
) -> list[list[PathConflict]]:
    """The conflicts of each trial, with hunks."""
    wanted = [
        (number, path)
        for number, clash in enumerate(clashes)
        if not clash.trial.clean
        for path in files_with_hunks(clash.trial)
    ]
    texts: list[dict[bytes, bytes]] = [{} for _ in clashes]
    names = [clashes[n].trial.tree.encode() + b":" + path for n, path in wanted]
    for (number, path), text in zip(wanted, await read_objects(git, names, env), strict=True):
        texts[number][path] = text
    return [
        [] if each.trial.clean else conflicts_of(each.trial, each.ours, each.theirs, files)
        for each, files in zip(clashes, texts, strict=True)
    ]


def _with_moves(found: PathConflict, ours: ChangedFiles, theirs: ChangedFiles) -> PathConflict:
    """Report a move onto the other side's new file as a rename, where git sees two new files."""
    moved = found.path in ours.moved_here or found.path in theirs.moved_here
    if found.conflict.kind != "hunk_conflict" or not moved:
        return found
    return PathConflict(path=found.path, conflict=structs.replace(found.conflict, kind="rename"))
