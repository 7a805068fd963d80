"""Determines which worker made a change, which changes overlap, and which one broke a merge.

An edit names its file; a shell command does not. A file that changed while exactly one worker had a
command running is attributed to that worker; for other changes the possible authors are listed. If
a file was last changed while none of its editors was working, somebody else changed it as well.
"""

import posixpath
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final

from goent.domain.types import Value
from goent.domain.workspace import Conflict, ObservedChange

CALL_SLACK_S: Final = 2.0  # on a busy machine, a call may have begun this long before its event
OVERLAP_SLACK_S: Final = 2.0  # error of a clock, a file system or an event
MAX_EDIT_LINES: Final = 400  # remembered lines of one edit
# By the names that OpenCode and go-ent's own agent use.
READ_ONLY_TOOLS: Final = frozenset(
    {
        *("read", "grep", "glob", "list", "ls", "lsp", "codesearch", "webfetch", "websearch"),
        *("todowrite", "todoread", "question", "skill", "plan_exit", "invalid"),
    }
)
EDIT_TOOLS: Final = frozenset({"edit", "write", "patch", "apply_patch", "multiedit"})
_OLD_TEXT_KEYS: Final = ("oldString", "old_string", "oldText")
_NEW_TEXT_KEYS: Final = ("newString", "new_string", "newText")
_COMPARED_WIDTH: Final = 300  # compared characters of a line

FileState = tuple[int, int]  # size, and time of change in nanoseconds since the epoch
FileStates = Mapping[str, FileState]


class CallSpan(Value, frozen=True, kw_only=True):
    """When a call ran; without an end it still does. `path` is the file that an edit named.

    Its first event came at `began`; it may have begun up to `slack` seconds before.
    """

    began: float
    ended: float | None = None
    slack: float = 0.0
    path: str = ""
    tool: str = ""

    def covers(self, at: float, *, early: bool = True) -> bool:
        began = self.began - self.slack if early else self.began
        return began <= at and self.ends_after(at)

    def ends_after(self, at: float) -> bool:
        return self.ended is None or at <= self.ended


def is_edit_of(edit: CallSpan, change: ObservedChange) -> bool:
    """Whether the edit may be the file's last change: it named the file, and ended no earlier."""
    timeless = change.at is None or not change.exact
    return edit.path == change.path and (timeless or edit.ends_after(change.at or 0.0))


class TurnActivity(Value, frozen=True, kw_only=True):
    """A worker's commands and edits in one turn."""

    worker: str
    commands: tuple[CallSpan, ...] = ()
    edits: tuple[CallSpan, ...] = ()


def possible_authors(change: ObservedChange, parts: Sequence[TurnActivity]) -> tuple[str, ...]:
    """The workers that may have made the change: one is certain; none means unknown."""
    at = change.at
    editors = tuple(
        part.worker for part in parts if any(is_edit_of(edit, change) for edit in part.edits)
    )
    if editors:
        return editors
    if at is None:
        return tuple(part.worker for part in parts if part.commands)
    if change.exact:
        return _running_at(parts, at, early=False) or _running_at(parts, at, early=True)
    # Only the folder's time is known, and the folder may have changed again since.
    begun = [part for part in parts if any(window.began <= at for window in part.commands)]
    if not any(w.covers(at) for part in begun for w in (*part.commands, *part.edits)):
        return ()
    return tuple(part.worker for part in begun)


def _running_at(parts: Sequence[TurnActivity], at: float, *, early: bool) -> tuple[str, ...]:
    return tuple(
        part.worker
        for part in parts
        if any(window.covers(at, early=early) for window in part.commands)
    )


class EditLines(Value, frozen=True, kw_only=True):
    """The lines that an edit removed and added."""

    removed: frozenset[str]
    added: frozenset[str]


def edit_lines(given: object) -> EditLines | None:
    """The lines of an edit tool's input; None if it does not have both texts."""
    if not isinstance(given, Mapping):
        return None
    old, new = (_first_text(given, names) for names in (_OLD_TEXT_KEYS, _NEW_TEXT_KEYS))  # pyright: ignore[reportUnknownArgumentType] (of JSON, and looked up by name alone)
    if old is None or new is None:
        return None
    before, after = lines_of(old), lines_of(new)
    if len(before) > MAX_EDIT_LINES or len(after) > MAX_EDIT_LINES:
        return None
    return EditLines(removed=before - after, added=after - before)


def _first_text(given: Mapping[object, object], names: Iterable[str]) -> str | None:
    return next((text for name in names if isinstance(text := given.get(name), str)), None)


def lines_of(text: str) -> frozenset[str]:
    """The lines of a text, stripped, without blank ones."""
    return frozenset(line[:_COMPARED_WIDTH] for line in map(str.strip, text.splitlines()) if line)


class SharedWork(Value, frozen=True, kw_only=True):
    """A worker's part in a shared folder: the files it edited, and when it worked."""

    task: str
    edited: tuple[str, ...]
    began: float
    ended: float

    def was_working_at(self, time: float) -> bool:
        return self.began - OVERLAP_SLACK_S <= time <= self.ended + OVERLAP_SLACK_S

    def overlaps(self, other: "SharedWork") -> bool:
        return self.began <= other.ended and other.began <= self.ended


def shared_overlaps(
    folder: str, works: Sequence[SharedWork], before: FileStates, after: FileStates
) -> tuple[Conflict, ...]:
    """One conflict per file that several changed. States are by path from the folder."""
    editors: dict[str, list[SharedWork]] = {}
    for work in works:
        for path in dict.fromkeys(_path_inside(folder, path) for path in work.edited):
            editors.setdefault(path, []).append(work)
    found: list[Conflict] = []
    for path, named in sorted(editors.items()):
        others = _other_workers(works, named, before.get(path), after.get(path))
        if len(named) > 1:
            found.append(_overlap(path, named, _overlap_detail(named)))
        elif others:
            detail = f"edited by {named[0].task!r}, and changed again while it was not working"
            if len(others) > 1:
                detail += f": by one of {_task_names(others)}"
            found.append(_overlap(path, (*named, *others), detail))
    return tuple(found)


def _other_workers(
    works: Sequence[SharedWork],
    named: Sequence[SharedWork],
    before: FileState | None,
    after: FileState | None,
) -> list[SharedWork]:
    """The workers that were working at the file's last change, if none of its editors was."""
    if after is None or after == before:
        return []
    time = after[1] / 1e9
    if any(work.was_working_at(time) for work in named):
        return []
    return [work for work in works if work.was_working_at(time)]


def _overlap_detail(named: Sequence[SharedWork]) -> str:
    together = any(one.overlaps(other) for n, one in enumerate(named) for other in named[:n])
    when = "at the same time" if together else "one after the other"
    return f"edited by {_task_names(named)} {when}, in one folder"


def _overlap(path: str, works: Iterable[SharedWork], detail: str) -> Conflict:
    tasks = tuple(work.task for work in works)
    return Conflict(kind="file_overlap", path=path, tasks=tasks, detail=detail)


def _task_names(works: Sequence[SharedWork]) -> str:
    return ", ".join(repr(work.task) for work in works)


def _path_inside(folder: str, path: str) -> str:
    """The path relative to the folder; absolute if it is outside."""
    whole = posixpath.normpath(posixpath.join(folder, path))
    inside = posixpath.relpath(whole, posixpath.normpath(folder))
    return whole if inside.startswith("../") else inside


async def first_failing(
    commits: Sequence[str], fails: Callable[[str], Awaitable[bool]]
) -> int | None:
    """The index of the first failing commit, by bisection; None if the last one passes.

    Commits after a failing one are assumed to fail too. `fails` runs about log2(n) + 1 times, once
    per commit at most.
    """
    known: dict[str, bool] = {}

    async def is_failing(commit: str) -> bool:
        if commit not in known:
            known[commit] = await fails(commit)
        return known[commit]

    if not commits or not await is_failing(commits[-1]):
        return None
    low, high = 0, len(commits) - 1  # the high one fails
    while low < high:
        middle = (low + high) // 2
        if await is_failing(commits[middle]):
            high = middle
        else:
            low = middle + 1
    return high
