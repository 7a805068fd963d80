"""Where do pieces of work overlap, and where do they collide? All pairs that can meet are tried."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import structs

from goent.domain.types import Value
from goent.domain.workspaces import Conflict, Piece
from goent.git.aside import Aside
from goent.git.attributes import lay_out_attributes
from goent.git.command import Git
from goent.git.conflicts import Found, Side, Texts, conflicts_of, with_hunks
from goent.git.contents import contents
from goent.git.lineage import Lineage, Meeting, read_lineage
from goent.git.merge_tree import Trial, try_merges
from goent.git.names import readable
from goent.git.overlap import Touched

PAIRS: Final = 6  # that an overlap names


class Survey:
    """What came of the trials. `met` are the pairs that were tried, `collisions` what they found."""

    def __init__(self, lineage: Lineage, trials: Mapping[Meeting, Sequence[Found]]) -> None:
        self.lineage = lineage
        self.met = trials.keys()
        self.collisions = {
            meeting: [_with_moves(found, *lineage.sides(meeting)) for found in founds]
            for meeting, founds in trials.items()
            if founds
        }

    def conflicts(self) -> tuple[Conflict, ...]:
        """Overlaps first, by file; then what collides, by file and pair."""
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
        colliding: dict[bytes, list[Meeting]] = {}
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
                path=readable(path),
                tasks=tuple(self.lineage.pieces[n].task for n in sorted(numbers)),
                detail=self._how_it_merges(colliding.get(path, [])),
            )

    def _how_it_merges(self, colliding: Sequence[Meeting]) -> str:
        if not colliding:
            return "merges cleanly"
        names = [[repr(self.lineage.pieces[n].task) for n in pair] for pair in colliding[:PAIRS]]
        more = f" and {len(colliding) - PAIRS} more pairs" if len(colliding) > PAIRS else ""
        return f"does not merge: {', '.join(map(' with '.join, names))}{more}"


async def survey(git: Git, base: str, pieces: Sequence[Piece], place: Aside) -> Survey:
    """Raises a `RequestError` if there is no such commit, or they have no history in common.

    The place has the base's attributes then: whatever else is tried there is tried by them.
    """
    lineage = await read_lineage(git, base, pieces)
    close = [meeting for meeting in lineage.meetings() if lineage.can_meet(meeting)]
    await lay_out_attributes(git, base, lineage.merged_paths(close), place.tree)
    pairs = [(pieces[n].commit, pieces[m].commit) for n, m in close]
    trials = await try_merges(git.at(place.tree), pairs, place.env)
    clashes = [
        Clash(trial=trial, ours=side_of(pieces[n]), theirs=side_of(pieces[m]))
        for (n, m), trial in zip(close, trials, strict=True)
    ]
    founds = await read_conflicts(git, clashes, place.env)
    return Survey(lineage, dict(zip(close, founds, strict=True)))


class Clash(Value, frozen=True, kw_only=True):
    """A trial, and whose sides they were."""

    trial: Trial
    ours: Side
    theirs: Side


def side_of(piece: Piece) -> Side:
    return Side(commit=piece.commit, name=piece.task, tasks=(piece.task,))


async def read_conflicts(
    git: Git, clashes: Sequence[Clash], env: Mapping[str, str]
) -> list[list[Found]]:
    """Their conflicts, with hunks. Those that are clean have none."""
    wanted = [
        (number, path)
        for number, clash in enumerate(clashes)
        if not clash.trial.clean
        for path in with_hunks(clash.trial)
    ]
    texts: list[dict[bytes, bytes]] = [{} for _ in clashes]
    names = [clashes[n].trial.tree.encode() + b":" + path for n, path in wanted]
    for (number, path), text in zip(wanted, await contents(git, names, env), strict=True):
        texts[number][path] = text
    return [_founds(clash, each) for clash, each in zip(clashes, texts, strict=True)]


def _founds(clash: Clash, texts: Texts) -> list[Found]:
    if clash.trial.clean:
        return []
    return conflicts_of(clash.trial, clash.ours, clash.theirs, texts)


def _with_moves(found: Found, ours: Touched, theirs: Touched) -> Found:
    """To git a file moved to where the other made one is two new files; that one moved says more."""
    moved = found.path in ours.moved_here or found.path in theirs.moved_here
    if found.conflict.kind != "hunk_conflict" or not moved:
        return found
    return Found(path=found.path, conflict=structs.replace(found.conflict, kind="rename"))
