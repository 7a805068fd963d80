"""Which files did several workers change that shared one folder? Pure: no git tells them apart.

Their edits say who wrote what; but a shell command writes without an edit. So the files' states
before and after speak too: what was changed last while its editor was not at work, somebody else
changed as well.
"""

import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from goent.domain.types import Value
from goent.domain.workspaces import Conflict

SLACK: Final = 2.0  # seconds that a clock, a file system or an event may be off
FileState = tuple[int, int]  # size, and when it was changed, in nanoseconds of the epoch
FileStates = Mapping[str, FileState]


class SharedWork(Value, frozen=True, kw_only=True):
    """A worker's part: the files that its edits name, and from when to when it worked."""

    task: str
    edited: tuple[str, ...]
    began: float
    ended: float

    def works_at(self, time: float) -> bool:
        return self.began - SLACK <= time <= self.ended + SLACK

    def meets(self, other: "SharedWork") -> bool:
        return self.began <= other.ended and other.began <= self.ended


def shared_overlaps(
    folder: str, works: Sequence[SharedWork], before: FileStates, after: FileStates
) -> tuple[Conflict, ...]:
    """One for each file that several changed. States are by path from the folder."""
    editors: dict[str, list[SharedWork]] = {}
    for work in works:
        for path in dict.fromkeys(_inside(folder, path) for path in work.edited):
            editors.setdefault(path, []).append(work)
    return tuple(_overlaps(works, editors, before, after))


def _overlaps(
    works: Sequence[SharedWork],
    editors: Mapping[str, Sequence[SharedWork]],
    before: FileStates,
    after: FileStates,
) -> Iterator[Conflict]:
    for path, named in sorted(editors.items()):
        others = _others(works, named, before.get(path), after.get(path))
        if len(named) > 1:
            yield _overlap(path, named, _how(named))
        elif others:
            detail = f"edited by {named[0].task!r}, and changed again while it was not at work"
            if len(others) > 1:
                detail += f": by one of {_names(others)}"
            yield _overlap(path, (*named, *others), detail)


def _others(
    works: Sequence[SharedWork],
    named: Sequence[SharedWork],
    before: FileState | None,
    after: FileState | None,
) -> list[SharedWork]:
    """Who was at work when the file was changed last, if no editor of it was."""
    if after is None or after == before:
        return []
    time = after[1] / 1e9
    if any(work.works_at(time) for work in named):
        return []
    return [work for work in works if work.works_at(time)]


def _how(named: Sequence[SharedWork]) -> str:
    together = any(one.meets(other) for n, one in enumerate(named) for other in named[:n])
    when = "at the same time" if together else "one after the other"
    return f"edited by {_names(named)} {when}, in one folder"


def _overlap(path: str, works: Iterable[SharedWork], detail: str) -> Conflict:
    tasks = tuple(work.task for work in works)
    return Conflict(kind="file_overlap", path=path, tasks=tasks, detail=detail)


def _names(works: Sequence[SharedWork]) -> str:
    return ", ".join(repr(work.task) for work in works)


def _inside(folder: str, path: str) -> str:
    """From the folder, however the edit named it."""
    whole = posixpath.normpath(posixpath.join(folder, path))
    inside = posixpath.relpath(whole, posixpath.normpath(folder))
    return whole if inside.startswith("../") else inside
