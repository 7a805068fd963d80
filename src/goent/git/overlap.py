"""Which files did a piece of work touch, and can two pieces meet at all? Pure, from a raw diff.

Two pieces that cannot meet need no trial merge: that is what makes many of them cheap to compare.
"""

from collections.abc import Mapping
from functools import cached_property

from goent.domain.types import Value


class Change(Value, frozen=True, kw_only=True):
    """What became of a file: git's letter for it, its mode now, and its content then and now."""

    status: str
    mode: str
    before: str
    content: str


class Touched:
    """The files that differ between a base and a commit. A renamed file is one gone, one new."""

    def __init__(self, changes: Mapping[bytes, Change]) -> None:
        self.changes = changes

    def shared(self, other: "Touched") -> frozenset[bytes]:
        return frozenset(self.changes.keys() & other.changes.keys())

    def can_meet(self, other: "Touched") -> bool:
        """Whether merging both can be more than taking each one's files."""
        return (
            not self.changes.keys().isdisjoint(other.changes)
            or not self.folders.isdisjoint(other.new)
            or not other.folders.isdisjoint(self.new)
            # Whoever renamed may have moved a folder, and git lets the other's new files follow.
            or (self.renamed and bool(other.new))
            or (other.renamed and bool(self.new))
        )

    @cached_property
    def new(self) -> frozenset[bytes]:
        return frozenset(path for path, change in self.changes.items() if change.status == "A")

    @cached_property
    def folders(self) -> frozenset[bytes]:
        """All folders that the new files lie in: none of them can be a file of the other's."""
        found: set[bytes] = set()
        for path in self.new:
            folder = path.rpartition(b"/")[0]
            while folder and folder not in found:
                found.add(folder)
                folder = folder.rpartition(b"/")[0]
        return frozenset(found)

    @cached_property
    def moved_here(self) -> frozenset[bytes]:
        """New files that have what a file that is gone had."""
        gone = {change.before for change in self.changes.values() if change.status == "D"}
        return frozenset(path for path in self.new if self.changes[path].content in gone)

    @cached_property
    def renamed(self) -> bool:
        """It may have: something is gone and something is new."""
        gone = any(change.status == "D" for change in self.changes.values())
        return gone and bool(self.new)


def parse_changes(output: bytes) -> list[Touched]:
    """What `git diff-tree --stdin --always -r -z --raw --no-renames` said, one by one."""
    found: list[dict[bytes, Change]] = []
    fields = iter(output.split(b"\0"))
    for field in fields:
        if field.startswith(b":"):
            _, mode, before, content, status = field.decode().split(" ")
            found[-1][next(fields)] = Change(
                status=status[0], mode=mode, before=before, content=content
            )
        elif field:
            found.append({})  # the commit's id: its changes follow
    return [Touched(changes) for changes in found]
