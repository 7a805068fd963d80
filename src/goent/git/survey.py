"""How do pieces of work stand to one another: who contains whom, who touched what, who collides?

git is asked four times, however many pieces there are: for their commits, for the files that each
touched, for the merges of all pairs that can meet, and for the files that conflict in them.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Final

from msgspec import structs

from goent.domain.errors import RequestError
from goent.domain.types import Value
from goent.domain.workspaces import Conflict, Piece
from goent.git.ancestry import Ancestry, parse_commits
from goent.git.command import Git
from goent.git.conflicts import Found, Side, Texts, conflicts_of, with_hunks
from goent.git.merge_tree import Trial, try_merges
from goent.git.names import readable
from goent.git.overlap import Touched, parse_changes

DIFF: Final = ("diff-tree", "--stdin", "--always", "-r", "-z", "--raw", "--no-renames")
Meeting = tuple[int, int]


class Survey:
    """Pieces, by number, and the pairs of them that collide."""

    def __init__(
        self,
        pieces: Sequence[Piece],
        ancestry: Ancestry,
        latest: int,
        touched: Mapping[tuple[str, int], Touched],
        trials: Mapping[Meeting, Sequence[Found]],
    ) -> None:
        self.pieces = pieces
        self.ancestry = ancestry
        self.latest = latest  # the time of the youngest commit
        self.met = trials.keys()  # the pairs that had to be tried
        self.collisions = {meeting: found for meeting, found in trials.items() if found}
        self._touched = touched
        numbers = range(len(pieces))
        self._inside = [
            [m for m in numbers if self.contains(n, m) and not self.contains(m, n)] for n in numbers
        ]

    def contains(self, piece: int, other: int) -> bool:
        return self.ancestry.contains(self.pieces[piece].commit, self.pieces[other].commit)

    def touched(self, piece: int, path: bytes) -> bool:
        return any(
            path in touched.changes for (_, n), touched in self._touched.items() if n == piece
        )

    def conflicts(self) -> tuple[Conflict, ...]:
        """Overlaps first, by file; then what collides, by file and pair."""
        collisions = [
            (found.conflict.path, meeting, found)
            for meeting, founds in self.collisions.items()
            for found in founds
            if not self._is_inherited(meeting, found.path)
        ]
        collisions.sort(key=lambda each: each[:2])
        return (*self._overlaps(), *(found.conflict for _, _, found in collisions))

    def _overlaps(self) -> Iterator[Conflict]:
        by_path: dict[bytes, set[int]] = {}
        colliding: dict[bytes, list[Meeting]] = {}
        for meeting in meetings(self.pieces, self.ancestry):
            ours, theirs = self._sides(meeting)
            for path in ours.shared(theirs):
                if not self._is_inherited(meeting, path):
                    by_path.setdefault(path, set()).update(meeting)
            for found in self.collisions.get(meeting, ()):
                colliding.setdefault(found.path, []).append(meeting)
        for path, numbers in sorted(by_path.items()):
            yield Conflict(
                kind="file_overlap",
                path=readable(path),
                tasks=tuple(self.pieces[n].task for n in sorted(numbers)),
                detail=self._how_it_merges(colliding.get(path, [])),
            )

    def _how_it_merges(self, colliding: Sequence[Meeting]) -> str:
        pairs = [" with ".join(repr(self.pieces[n].task) for n in pair) for pair in colliding]
        return f"does not merge: {', '.join(pairs)}" if pairs else "merges cleanly"

    def _is_inherited(self, meeting: Meeting, path: bytes) -> bool:
        """One of the two has the file from a piece that it contains, and that one is told of."""
        first, second = meeting
        return any(self._has_from_other(n, m, path) for n, m in ((first, second), (second, first)))

    def _has_from_other(self, piece: int, partner: int, path: bytes) -> bool:
        if not self._inside[piece]:
            return False
        bases = self._bases(piece, partner)
        mine = self._touched[bases[0], piece].changes.get(path)
        return mine is not None and any(
            self._bases(other, partner) == bases
            and (bases[0], other) in self._touched
            and self._touched[bases[0], other].changes.get(path) == mine
            for other in self._inside[piece]
        )

    def _sides(self, meeting: Meeting) -> tuple[Touched, Touched]:
        base = self._bases(*meeting)[0]
        return self._touched[base, meeting[0]], self._touched[base, meeting[1]]

    def _bases(self, piece: int, other: int) -> tuple[str, ...]:
        return self.ancestry.bases(self.pieces[piece].commit, self.pieces[other].commit)


def meetings(pieces: Sequence[Piece], ancestry: Ancestry) -> Iterator[Meeting]:
    """The pairs of which neither contains the other."""
    for (n, one), (m, other) in combinations(enumerate(pieces), 2):
        if not ancestry.contains(one.commit, other.commit) and not ancestry.contains(
            other.commit, one.commit
        ):
            yield n, m


async def survey(git: Git, base: str, pieces: Sequence[Piece], env: Mapping[str, str]) -> Survey:
    """Raises a `RequestError` if there is no such commit, or they have no history in common."""
    ancestry, latest = await _ancestry(git, base, pieces)
    pairs = list(meetings(pieces, ancestry))
    bases = {(n, m): ancestry.bases(pieces[n].commit, pieces[m].commit) for n, m in pairs}
    touched = await _touched(git, pieces, bases)
    close = [
        (n, m)
        for n, m in pairs
        if len(bases[n, m]) > 1 or touched[bases[n, m][0], n].can_meet(touched[bases[n, m][0], m])
    ]
    trials = await try_merges(git, [(pieces[n].commit, pieces[m].commit) for n, m in close], env)
    clashes = [
        Clash(trial=trial, ours=side_of(pieces[n]), theirs=side_of(pieces[m]))
        for (n, m), trial in zip(close, trials, strict=True)
    ]
    founds = [
        [
            _with_moves(each, touched[bases[n, m][0], n], touched[bases[n, m][0], m])
            for each in found
        ]
        for (n, m), found in zip(close, await read_conflicts(git, clashes, env), strict=True)
    ]
    return Survey(pieces, ancestry, latest, touched, dict(zip(close, founds, strict=True)))


def _with_moves(found: Found, ours: Touched, theirs: Touched) -> Found:
    """To git a file moved to where the other made one is two new files; that one moved says more."""
    if found.conflict.kind != "hunk_conflict" or found.path not in (
        ours.moved_here | theirs.moved_here
    ):
        return found
    return Found(path=found.path, conflict=structs.replace(found.conflict, kind="rename"))


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
    for (number, path), text in zip(wanted, await _contents(git, names, env), strict=True):
        texts[number][path] = text
    return [_founds(clash, each) for clash, each in zip(clashes, texts, strict=True)]


def _founds(clash: Clash, texts: Texts) -> list[Found]:
    if clash.trial.clean:
        return []
    return conflicts_of(clash.trial, clash.ours, clash.theirs, texts)


async def _contents(git: Git, names: Sequence[bytes], env: Mapping[str, str]) -> list[bytes]:
    if not names:
        return []
    asked = b"".join(name + b"\0" for name in names)
    output = (await git.do("cat-file", "--batch", "-z", stdin=asked, env=env)).output
    found: list[bytes] = []
    at = 0
    for name in names:
        if output.startswith(name + b" missing\n", at):
            found.append(b"")
            at += len(name) + len(b" missing\n")
            continue
        end = output.index(b"\n", at)
        size = int(output[at:end].split(b" ")[2])
        found.append(output[end + 1 : end + 1 + size])
        at = end + 1 + size + 1
    return found


async def _touched(
    git: Git, pieces: Sequence[Piece], bases: Mapping[Meeting, Sequence[str]]
) -> dict[tuple[str, int], Touched]:
    wanted = sorted({(each[0], n) for pair, each in bases.items() for n in pair})
    if not wanted:
        return {}
    asked = "".join(f"{pieces[n].commit} {base}\n" for base, n in wanted).encode()
    answer = await git.do(*DIFF, stdin=asked)
    return dict(zip(wanted, parse_changes(answer.output), strict=True))


async def _ancestry(git: Git, base: str, pieces: Sequence[Piece]) -> tuple[Ancestry, int]:
    commits = list(dict.fromkeys(piece.commit for piece in pieces))
    found, latest = await _commits(git, base, pieces)
    if all(found.descends(commit) for commit in commits):
        return found, latest
    shared = await git.ask("merge-base", "--octopus", base, *commits)
    if shared.exit:
        raise RequestError(
            f"the commits of {[piece.task for piece in pieces]} in {str(git.folder)!r} have no "
            f"history in common with {base!r}, so they cannot be compared: start them all from one "
            "commit (in a shallow clone: `git fetch --unshallow`)"
        )
    return await _commits(git, shared.text, pieces)


async def _commits(git: Git, root: str, pieces: Sequence[Piece]) -> tuple[Ancestry, int]:
    asked = "".join((f"^{root}\n", *(f"{piece.commit}\n" for piece in pieces))).encode()
    answer = await git.ask("rev-list", "--parents", "--timestamp", "--stdin", stdin=asked)
    if answer.exit:
        raise RequestError(
            f"not all of the commits {[(piece.task, piece.commit) for piece in pieces]} from "
            f"{root!r} are in {str(git.folder)!r}: {answer.errors[-300:]}"
        )
    parents, latest = parse_commits(answer.output)
    return Ancestry(root, parents), latest
