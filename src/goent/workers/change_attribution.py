"""Tells which worker made a change, which changes overlap, and which one broke a merge.

An edit names its file. A shell command does not: what changed while one worker alone had a command running
is that worker's. Of the rest it is said who can have done it, or that nobody is known.

Their edits say who wrote what; but a shell command writes without an edit. So the files' states
before and after speak too: what was changed last while its editor was not at work, somebody else
changed as well.
"""

import posixpath
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from goent.domain.types import Value
from goent.domain.workspace import Conflict, ObservedChange

CALL_SLACK_S: Final = (
    2.0  # seconds: on a busy machine a call may have begun so long before it was heard of
)
MAX_EDIT_LINES: Final = 400  # of one edit, that are remembered
# Tools that only look, by the names that OpenCode and go-ent's own agent give them.
READ_ONLY_TOOLS: Final = frozenset(
    {
        *("read", "grep", "glob", "list", "ls", "lsp", "codesearch", "webfetch", "websearch"),
        *("todowrite", "todoread", "question", "skill", "plan_exit", "invalid"),
    }
)
EDIT_TOOLS: Final = frozenset({"edit", "write", "patch", "apply_patch", "multiedit"})
_OLD_TEXT_KEYS: Final = ("oldString", "old_string", "oldText")
_NEW_TEXT_KEYS: Final = ("newString", "new_string", "newText")
_COMPARED_WIDTH: Final = 300  # characters of a line that are compared


class CallSpan(Value, frozen=True, kw_only=True):
    """From when to when a call ran; without an end it still does. `path` is the file that an edit named.

    It was heard of at `began`, and may have begun up to `slack` seconds before.
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
    """Whether an edit that named the file can be what changed it last.

    When it began does not matter: a file that was not changed after the edit was changed last by it.
    """
    timeless = change.at is None or not change.exact
    return edit.path == change.path and (timeless or edit.ends_after(change.at or 0.0))


class TurnActivity(Value, frozen=True, kw_only=True):
    """What a worker did in one turn: its commands, and its edits."""

    worker: str
    commands: tuple[CallSpan, ...] = ()
    edits: tuple[CallSpan, ...] = ()


def possible_authors(change: ObservedChange, parts: Sequence[TurnActivity]) -> tuple[str, ...]:
    """The workers that can have made it. One: it is theirs; none: somebody else's, or it cannot be told."""
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
    # Only the folder's time is known: it may have changed again since then.
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
    """The lines that an edit took out, and those that it put in."""

    removed: frozenset[str]
    added: frozenset[str]


def edit_lines(given: object) -> EditLines | None:
    """Of what an edit tool was given; None where it does not say both."""
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
    """Without the blank ones, which are everywhere."""
    return frozenset(line[:_COMPARED_WIDTH] for line in map(str.strip, text.splitlines()) if line)


OVERLAP_SLACK_S: Final = 2.0  # seconds that a clock, a file system or an event may be off
FileState = tuple[int, int]  # size, and when it was changed, in nanoseconds of the epoch
FileStates = Mapping[str, FileState]


class SharedWork(Value, frozen=True, kw_only=True):
    """A worker's part: the files that its edits name, and from when to when it worked."""

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
    """One for each file that several changed. States are by path from the folder."""
    editors: dict[str, list[SharedWork]] = {}
    for work in works:
        for path in dict.fromkeys(_path_inside(folder, path) for path in work.edited):
            editors.setdefault(path, []).append(work)
    return tuple(_overlaps(works, editors, before, after))


def _overlaps(
    works: Sequence[SharedWork],
    editors: Mapping[str, Sequence[SharedWork]],
    before: FileStates,
    after: FileStates,
) -> Iterator[Conflict]:
    for path, named in sorted(editors.items()):
        others = _other_workers(works, named, before.get(path), after.get(path))
        if len(named) > 1:
            yield _overlap(path, named, _overlap_detail(named))
        elif others:
            detail = f"edited by {named[0].task!r}, and changed again while it was not at work"
            if len(others) > 1:
                detail += f": by one of {_task_names(others)}"
            yield _overlap(path, (*named, *others), detail)


def _other_workers(
    works: Sequence[SharedWork],
    named: Sequence[SharedWork],
    before: FileState | None,
    after: FileState | None,
) -> list[SharedWork]:
    """Who was at work when the file was changed last, if no editor of it was."""
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
    """From the folder, however the edit named it."""
    whole = posixpath.normpath(posixpath.join(folder, path))
    inside = posixpath.relpath(whole, posixpath.normpath(folder))
    return whole if inside.startswith("../") else inside


async def first_failing(
    commits: Sequence[str], fails: Callable[[str], Awaitable[bool]]
) -> int | None:
    """The first commit of a row of merges that fails; None if even the last one does not.

    Once one fails, those after it are taken to fail too: `fails` is asked about log2(n) + 1 times,
    and never twice for one commit.
    """
    known: dict[str, bool] = {}

    async def told(commit: str) -> bool:
        if commit not in known:
            known[commit] = await fails(commit)
        return known[commit]

    if not commits or not await told(commits[-1]):
        return None
    low, high = 0, len(commits) - 1  # the high one fails
    while low < high:
        middle = (low + high) // 2
        if await told(commits[middle]):
            high = middle
        else:
            low = middle + 1
    return high
