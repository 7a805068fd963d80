"""The ancestry of pieces of work, and the files that each changed.

Two pieces whose changes cannot conflict need no trial merge, which makes many pieces cheap to compare.
git runs twice, however many pieces there are: for their commits, and for their changes.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import combinations
from typing import Final

from goent.domain.errors import RequestError
from goent.domain.types import Value
from goent.domain.workspace import WorkPiece
from goent.git.git_command import Git, GitFailed
from goent.proc.concurrency import run_both

DIFF_COMMAND: Final = (
    *("diff-tree", "--stdin", "--always", "-r", "-z"),
    *("--raw", "--no-renames", "--no-ext-diff"),
)
PiecePair = tuple[int, int]  # numbers of two pieces, neither of which contains the other


class Ancestry:
    """Commits that descend from a root, with their parents.

    A commit that is not listed is the root or older, so every listed one contains it.
    """

    def __init__(self, root: str, parents: Mapping[str, tuple[str, ...]]) -> None:
        self.root = root
        self._parents = parents
        self._histories: dict[str, frozenset[str]] = {}

    def contains(self, commit: str, other: str) -> bool:
        return other not in self._parents or other in self._history(commit)

    def descends(self, commit: str) -> bool:
        """Whether the root is really an ancestor, not just a relative."""
        return commit not in self._parents or any(
            self.root in self._parents[each] for each in self._history(commit)
        )

    def bases(self, commit: str, other: str) -> tuple[str, ...]:
        """Their merge bases; several after criss-cross merges."""
        common = self._history(commit) & self._history(other)
        older = {parent for each in common for parent in self._parents[each]}
        return tuple(sorted(common - older)) or (self.root,)

    def _history(self, commit: str) -> frozenset[str]:
        if commit not in self._histories:
            seen: set[str] = set()
            ahead = [commit]
            while ahead:
                each = ahead.pop()
                if each in self._parents and each not in seen:
                    seen.add(each)
                    ahead += self._parents[each]
            self._histories[commit] = frozenset(seen)
        return self._histories[commit]


def parse_commits(output: bytes) -> tuple[dict[str, tuple[str, ...]], int]:
    """Parse `git rev-list --parents --timestamp`: parents by commit, and the latest time."""
    parents: dict[str, tuple[str, ...]] = {}
    latest = 0
    for line in output.decode().splitlines():
        time, commit, *before = line.split()
        parents[commit] = tuple(before)
        latest = max(latest, int(time))
    return parents, latest


class RawChange(Value, frozen=True, kw_only=True):
    """A changed file: git's status letter, its new mode, and the old and new content ids."""

    status: str
    mode: str
    before: str
    content: str


class ChangedFiles:
    """The files that differ between a base and a commit. A rename is a removed and a new file."""

    def __init__(self, changes: Mapping[bytes, RawChange]) -> None:
        self.changes = changes

    def shared(self, other: "ChangedFiles") -> frozenset[bytes]:
        return frozenset(self.changes.keys() & other.changes.keys())

    def may_conflict(self, other: "ChangedFiles") -> bool:
        """Whether merging both may be more than taking each side's files."""
        return (
            not self.changes.keys().isdisjoint(other.changes)
            or not self.folders.isdisjoint(other.new)
            or not other.folders.isdisjoint(self.new)
            # One side may have moved a folder, and git moves the other's new files along.
            or (self.renamed and bool(other.new))
            or (other.renamed and bool(self.new))
        )

    @cached_property
    def new(self) -> frozenset[bytes]:
        return frozenset(path for path, change in self.changes.items() if change.status == "A")

    @cached_property
    def folders(self) -> frozenset[bytes]:
        """All folders of the new files: none of them may be a file on the other side."""
        found: set[bytes] = set()
        for path in self.new:
            folder = path.rpartition(b"/")[0]
            while folder and folder not in found:
                found.add(folder)
                folder = folder.rpartition(b"/")[0]
        return frozenset(found)

    @cached_property
    def moved_here(self) -> frozenset[bytes]:
        """New files with the content of a removed one."""
        gone = {change.before for change in self.changes.values() if change.status == "D"}
        return frozenset(path for path in self.new if self.changes[path].content in gone)

    @cached_property
    def renamed(self) -> bool:
        """Whether there may be a rename: a removed file and a new one."""
        gone = any(change.status == "D" for change in self.changes.values())
        return gone and bool(self.new)


def parse_changed_files(output: bytes) -> list[ChangedFiles]:
    """Parse `git diff-tree --stdin --always -r -z --raw --no-renames`, one entry per commit."""
    found: list[dict[bytes, RawChange]] = []
    fields = iter(output.split(b"\0"))
    for field in fields:
        if field.startswith(b":"):
            _, mode, before, content, status = field.decode().split(" ")
            found[-1][next(fields)] = RawChange(
                status=status[0], mode=mode, before=before, content=content
            )
        elif field:
            found.append({})  # the commit id; its changes follow
    return [ChangedFiles(changes) for changes in found]


PieceChanges = Mapping[tuple[str, int], ChangedFiles]  # by base commit and piece


class Lineage:
    """Pieces by number, with their changes since the merge base of each pair."""

    def __init__(
        self,
        pieces: Sequence[WorkPiece],
        ancestry: Ancestry,
        latest: int,
        touched: PieceChanges,
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

    def meetings(self) -> Iterator[PiecePair]:
        return _piece_pairs(self.pieces, self.ancestry)

    def sides(self, meeting: PiecePair) -> tuple[ChangedFiles, ChangedFiles]:
        base = self._bases(*meeting)[0]
        return self._touched[base, meeting[0]], self._touched[base, meeting[1]]

    def merged_paths(self, meetings: Iterable[PiecePair]) -> set[bytes]:
        """The files that git may have to merge line by line, under all their possible names."""
        found: set[bytes] = set()
        for ours, theirs in map(self.sides, meetings):
            found |= ours.shared(theirs)
            for side in (ours, theirs):
                found |= side.new if side.renamed else frozenset()
        return found

    def may_conflict(self, meeting: PiecePair) -> bool:
        """Whether a trial merge is needed; always, if there are several merge bases."""
        ours, theirs = self.sides(meeting)
        return len(self._bases(*meeting)) > 1 or ours.may_conflict(theirs)

    def is_inherited(self, meeting: PiecePair, path: bytes) -> bool:
        """Whether one of the two has the change from a piece that it contains, which reports it."""
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


async def read_lineage(git: Git, base: str, pieces: Sequence[WorkPiece]) -> Lineage:
    """Raises a `RequestError` for missing commits or unrelated histories.

    Most pieces branch off at the base, so the changes since then are read at the same time.
    """
    (ancestry, latest), guessed = await run_both(
        partial(_ancestry, git, base, pieces), partial(_changes_since, git, base, pieces)
    )
    wanted = {
        (ancestry.bases(pieces[pair[0]].commit, pieces[pair[1]].commit)[0], n)
        for pair in _piece_pairs(pieces, ancestry)
        for n in pair
    }
    more = await _changes(git, pieces, sorted(wanted - guessed.keys()))
    return Lineage(pieces, ancestry, latest, {**guessed, **more})


def _piece_pairs(pieces: Sequence[WorkPiece], ancestry: Ancestry) -> Iterator[PiecePair]:
    for (n, one), (m, other) in combinations(enumerate(pieces), 2):
        if not ancestry.contains(one.commit, other.commit) and not ancestry.contains(
            other.commit, one.commit
        ):
            yield n, m


async def _changes_since(git: Git, base: str, pieces: Sequence[WorkPiece]) -> PieceChanges:
    """Empty if git fails: reading the commits reports the reason."""
    if len(pieces) < 2:  # noqa: PLR2004 (it takes two to meet)
        return {}
    try:
        return await _changes(git, pieces, [(base, n) for n in range(len(pieces))])
    except GitFailed:
        return {}


async def _changes(
    git: Git, pieces: Sequence[WorkPiece], wanted: Sequence[tuple[str, int]]
) -> PieceChanges:
    if not wanted:
        return {}
    asked = "".join(f"{pieces[n].commit} {base}\n" for base, n in wanted).encode()
    answer = await git.run_checked(*DIFF_COMMAND, stdin=asked)
    return dict(zip(wanted, parse_changed_files(answer.output), strict=True))


async def _ancestry(git: Git, base: str, pieces: Sequence[WorkPiece]) -> tuple[Ancestry, int]:
    commits = list(dict.fromkeys(piece.commit for piece in pieces))
    found, latest = await _commits(git, base, pieces)
    if all(found.descends(commit) for commit in commits):
        return found, latest
    shared = await git.run("merge-base", "--octopus", base, *commits)
    if shared.exit:
        raise RequestError(
            f"the commits of {[piece.task for piece in pieces]} in {str(git.folder)!r} have no "
            f"history in common with {base!r}, so they cannot be compared: start them all from one "
            "commit (in a shallow clone: `git fetch --unshallow`)"
        )
    return await _commits(git, shared.text, pieces)


async def _commits(git: Git, root: str, pieces: Sequence[WorkPiece]) -> tuple[Ancestry, int]:
    asked = "".join((f"^{root}\n", *(f"{piece.commit}\n" for piece in pieces))).encode()
    answer = await git.run("rev-list", "--parents", "--timestamp", "--stdin", stdin=asked)
    if answer.exit:
        raise RequestError(
            f"not all of the commits {[(piece.task, piece.commit) for piece in pieces]} from "
            f"{root!r} are in {str(git.folder)!r}: {answer.errors[-300:]}"
        )
    parents, latest = parse_commits(answer.output)
    return Ancestry(root, parents), latest
