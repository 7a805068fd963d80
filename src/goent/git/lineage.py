"""Where did pieces of work begin, who contains whom, and what did each touch since they parted?

git is asked twice, however many pieces there are: for their commits, and for their changes.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations
from typing import Final

from goent.domain.errors import RequestError
from goent.domain.workspaces import Piece
from goent.git.ancestry import Ancestry, parse_commits
from goent.git.command import Git, GitFailed
from goent.git.overlap import Touched, parse_changes
from goent.git.together import together

DIFF: Final = (
    "diff-tree",
    "--stdin",
    "--always",
    "-r",
    "-z",
    "--raw",
    "--no-renames",
    "--no-ext-diff",
)
Changes = Mapping[tuple[str, int], Touched]  # since a commit, of a piece
Meeting = tuple[int, int]  # two pieces, by number, of which neither contains the other


class Lineage:
    """Pieces, by number. Their changes are seen from where two of them parted, as git merges."""

    def __init__(
        self,
        pieces: Sequence[Piece],
        ancestry: Ancestry,
        latest: int,
        touched: Changes,
    ) -> None:
        self.pieces = pieces
        self.ancestry = ancestry
        self.latest = latest  # the time of the youngest commit
        self._touched = touched
        numbers = range(len(pieces))
        self._inside = [
            [m for m in numbers if self.contains(n, m) and not self.contains(m, n)] for n in numbers
        ]

    def contains(self, piece: int, other: int) -> bool:
        return self.ancestry.contains(self.pieces[piece].commit, self.pieces[other].commit)

    def touched(self, piece: int, path: bytes) -> bool:
        return any(path in each.changes for (_, n), each in self._touched.items() if n == piece)

    def meetings(self) -> Iterator[Meeting]:
        return _meetings(self.pieces, self.ancestry)

    def sides(self, meeting: Meeting) -> tuple[Touched, Touched]:
        base = self._bases(*meeting)[0]
        return self._touched[base, meeting[0]], self._touched[base, meeting[1]]

    def merged_paths(self, meetings: Iterable[Meeting]) -> set[bytes]:
        """The files that git may have to merge line by line, by the names they may have then."""
        found: set[bytes] = set()
        for ours, theirs in map(self.sides, meetings):
            found |= ours.shared(theirs)
            for side in (ours, theirs):
                found |= side.new if side.renamed else frozenset()
        return found

    def can_meet(self, meeting: Meeting) -> bool:
        """Whether merging them has to be tried; always, if they parted at several places."""
        ours, theirs = self.sides(meeting)
        return len(self._bases(*meeting)) > 1 or ours.can_meet(theirs)

    def is_inherited(self, meeting: Meeting, path: bytes) -> bool:
        """One of the two has the file from a piece that it contains, and that one is told of."""
        first, second = meeting
        return self._has_from_other(first, second, path) or self._has_from_other(
            second, first, path
        )

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

    def _bases(self, piece: int, other: int) -> tuple[str, ...]:
        return self.ancestry.bases(self.pieces[piece].commit, self.pieces[other].commit)


async def read_lineage(git: Git, base: str, pieces: Sequence[Piece]) -> Lineage:
    """Raises a `RequestError` if there is no such commit, or they have no history in common.

    Most pieces part at the base, so their changes since then are asked for meanwhile.
    """
    (ancestry, latest), guessed = await together(
        partial(_ancestry, git, base, pieces), partial(_changes_since, git, base, pieces)
    )
    wanted = {
        (ancestry.bases(pieces[pair[0]].commit, pieces[pair[1]].commit)[0], n)
        for pair in _meetings(pieces, ancestry)
        for n in pair
    }
    more = await _changes(git, pieces, sorted(wanted - guessed.keys()))
    return Lineage(pieces, ancestry, latest, {**guessed, **more})


def _meetings(pieces: Sequence[Piece], ancestry: Ancestry) -> Iterator[Meeting]:
    for (n, one), (m, other) in combinations(enumerate(pieces), 2):
        if not ancestry.contains(one.commit, other.commit) and not ancestry.contains(
            other.commit, one.commit
        ):
            yield n, m


async def _changes_since(git: Git, base: str, pieces: Sequence[Piece]) -> Changes:
    """Nothing if git cannot tell: why not is said where their commits are asked for."""
    if len(pieces) < 2:  # noqa: PLR2004 (it takes two to meet)
        return {}
    try:
        return await _changes(git, pieces, [(base, n) for n in range(len(pieces))])
    except GitFailed:
        return {}


async def _changes(git: Git, pieces: Sequence[Piece], wanted: Sequence[tuple[str, int]]) -> Changes:
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
