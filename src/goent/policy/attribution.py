"""Whose work is a change in a folder that several share? Pure: told by when it happened, and who was at work.

An edit names its file. A shell command does not: what changed while one worker alone had a command running
is that worker's. Of the rest it is said who can have done it, or that nobody is known.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from goent.domain.observation import Changed
from goent.domain.types import Value

SLACK: Final = (
    2.0  # seconds: on a busy machine a call may have begun so long before it was heard of
)
MOST_LINES: Final = 400  # of one edit, that are remembered
# Tools that only look, by the names that OpenCode and go-ent's own agent give them.
LOOKING: Final = frozenset(
    {
        *("read", "grep", "glob", "list", "ls", "lsp", "codesearch", "webfetch", "websearch"),
        *("todowrite", "todoread", "question", "skill", "plan_exit", "invalid"),
    }
)
EDITING: Final = frozenset({"edit", "write", "patch", "apply_patch", "multiedit"})
_OLD: Final = ("oldString", "old_string", "oldText")
_NEW: Final = ("newString", "new_string", "newText")
_WIDTH: Final = 300  # characters of a line that are compared


class Window(Value, frozen=True, kw_only=True):
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


def is_edit_of(edit: Window, change: Changed) -> bool:
    """Whether an edit that named the file can be what changed it last.

    When it began does not matter: a file that was not changed after the edit was changed last by it.
    """
    timeless = change.at is None or not change.exact
    return edit.path == change.path and (timeless or edit.ends_after(change.at or 0.0))


class Part(Value, frozen=True, kw_only=True):
    """What a worker did in one turn: its commands, and its edits."""

    worker: str
    commands: tuple[Window, ...] = ()
    edits: tuple[Window, ...] = ()


def candidates(change: Changed, parts: Sequence[Part]) -> tuple[str, ...]:
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
        return _running(parts, at, early=False) or _running(parts, at, early=True)
    # Only the folder's time is known: it may have changed again since then.
    begun = [part for part in parts if any(window.began <= at for window in part.commands)]
    if not any(w.covers(at) for part in begun for w in (*part.commands, *part.edits)):
        return ()
    return tuple(part.worker for part in begun)


def _running(parts: Sequence[Part], at: float, *, early: bool) -> tuple[str, ...]:
    return tuple(
        part.worker
        for part in parts
        if any(window.covers(at, early=early) for window in part.commands)
    )


class Wording(Value, frozen=True, kw_only=True):
    """The lines that an edit took out, and those that it put in."""

    gone: frozenset[str]
    new: frozenset[str]


def wording(given: object) -> Wording | None:
    """Of what an edit tool was given; None where it does not say both."""
    if not isinstance(given, Mapping):
        return None
    old, new = (_first(given, names) for names in (_OLD, _NEW))  # pyright: ignore[reportUnknownArgumentType] (of JSON, and looked up by name alone)
    if old is None or new is None:
        return None
    before, after = lines_of(old), lines_of(new)
    if len(before) > MOST_LINES or len(after) > MOST_LINES:
        return None
    return Wording(gone=before - after, new=after - before)


def _first(given: Mapping[object, object], names: Iterable[str]) -> str | None:
    return next((text for name in names if isinstance(text := given.get(name), str)), None)


def lines_of(text: str) -> frozenset[str]:
    """Without the blank ones, which are everywhere."""
    return frozenset(line[:_WIDTH] for line in map(str.strip, text.splitlines()) if line)
