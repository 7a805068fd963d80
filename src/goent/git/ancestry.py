"""What does a commit contain, and where did two of them part? Pure, from one list of commits."""

from collections.abc import Mapping


class Ancestry:
    """Commits beyond a root that all of them descend from, with their parents.

    A commit that is not listed is the root, or older: every other one contains it.
    """

    def __init__(self, root: str, parents: Mapping[str, tuple[str, ...]]) -> None:
        self.root = root
        self._parents = parents
        self._histories: dict[str, frozenset[str]] = {}

    def contains(self, commit: str, other: str) -> bool:
        return other not in self._parents or other in self._history(commit)

    def descends(self, commit: str) -> bool:
        """Whether the root is really an ancestor; by the list alone it might be a cousin."""
        return commit not in self._parents or any(
            self.root in self._parents[each] for each in self._history(commit)
        )

    def bases(self, commit: str, other: str) -> tuple[str, ...]:
        """Their best common ancestors: what git merges them by. Several if they crossed."""
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
    """What `git rev-list --parents --timestamp` said: parents by commit, and the latest time."""
    parents: dict[str, tuple[str, ...]] = {}
    latest = 0
    for line in output.decode().splitlines():
        time, commit, *before = line.split()
        parents[commit] = tuple(before)
        latest = max(latest, int(time))
    return parents, latest
