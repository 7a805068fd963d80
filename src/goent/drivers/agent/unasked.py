"""What has an agent done that nobody was asked about and no rule allows?

Rules hold for what an agent asks. Here is the second look: at what it tells of its tool calls, and at
the files of a worker that must not change any.
"""

import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from goent.acp.content import Diff
from goent.acp.updates import ToolFields
from goent.domain.settings import PermissionRule
from goent.drivers.agent.asking import OUTSIDE, matters
from goent.drivers.agent.subjects import subject
from goent.drivers.ground import Ground
from goent.drivers.questions import Matter, verdict
from goent.drivers.rules import oversight_level

MOST_FILES = 20_000  # of a tree; nothing can be said of a larger one
_ACTS = frozenset({"edit", "delete", "move", "execute"})
# What changes no files, or those that it names.
_BOUNDED = frozenset({"edit", "read", "grep", "think", "webfetch", OUTSIDE})
# Of git's own folder only what makes it act: looking around writes the rest.
_OF_GIT = ("config", "hooks", "HEAD")

Listing = Mapping[str, tuple[int, int, int]]


class Permitted:
    """What was allowed in one turn: calls by their ids, and what they were about."""

    def __init__(self) -> None:
        self._calls: dict[str, set[tuple[str, str]]] = {}
        self._vague: set[str] = set()
        self._matters: set[tuple[str, str]] = set()

    def add(self, call: ToolFields, about: Sequence[Matter]) -> None:
        named = {(each.permission, p) for each in about for p in each.patterns}
        self._calls.setdefault(call.tool_call_id, set()).update(named)
        self._matters |= named
        told = subject(call)
        if not (told.command or told.paths):
            self._vague.add(call.tool_call_id)

    def call(self, name: str, matter: Matter) -> bool:
        """Whether the call was allowed to do this; one that did not tell what it would do, anything."""
        if name in self._vague:
            return True
        named = {(matter.permission, each) for each in matter.patterns if each != "*"}
        return name in self._calls and named <= self._calls[name]

    @property
    def commands(self) -> bool:
        """Whether something was allowed that may change any file."""
        return any(permission not in _BOUNDED for permission, _ in self._matters)

    def edits(self, path: str) -> bool:
        """Whether this file may be changed, or one below this folder."""
        named = (pattern for permission, pattern in self._matters if permission == "edit")
        return any(name == path or name.startswith(f"{path}/") for name in named)

    def covers(self, matter: Matter) -> bool:
        """Some agents ask for a call by one name, and tell of it by another."""
        return {(matter.permission, each) for each in matter.patterns} <= self._matters


def is_act(call: ToolFields) -> bool:
    """Whether it changes something, or runs a command, by what it tells."""
    diff = any(isinstance(part, Diff) for part in call.content or ())
    return diff or call.kind in _ACTS or bool(subject(call).command)


def unasked(
    call: ToolFields, ground: Ground, rules: Sequence[PermissionRule], permitted: Permitted
) -> Matter | None:
    """What of a call that was completed nobody has allowed; None if all is well."""
    if not is_act(call):
        return None
    careful = oversight_level(rules) != "free"
    for matter in matters(call, ground):
        if permitted.call(call.tool_call_id, matter):
            continue
        if matter.permission == OUTSIDE and not careful:
            continue
        if verdict(replace(matter, reason=""), rules) != "allow" and not permitted.covers(matter):
            return matter
    return None


def listing(folder: Path) -> Listing | None:
    """The files below it: inode, size and time of the last change. None if there are too many."""
    found: dict[str, tuple[int, int, int]] = {}
    folders = [folder]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders += _of_git(entry) if entry.name == ".git" else [Path(entry.path)]
                    _note(found, entry.path, folder)
        except OSError:
            continue  # it went away, or is not ours to see
        if len(found) > MOST_FILES:
            return None
    for name in _OF_GIT:
        _note(found, str(folder / ".git" / name), folder)
    return found


def _of_git(entry: "os.DirEntry[str]") -> list[Path]:
    return [Path(entry.path) / "hooks"]


def _note(found: dict[str, tuple[int, int, int]], path: str, folder: Path) -> None:
    try:
        state = os.lstat(path)
    except OSError:
        return
    if stat.S_ISDIR(state.st_mode):  # its time tells of files in it, which tell for themselves
        found[os.path.relpath(path, folder)] = (state.st_ino, 0, 0)
    else:
        found[os.path.relpath(path, folder)] = (state.st_ino, state.st_size, state.st_mtime_ns)


def changed(before: Listing, after: Listing) -> tuple[str, ...]:
    """The names that came, went or are others now."""
    names = before.keys() | after.keys()
    return tuple(sorted(name for name in names if before.get(name) != after.get(name)))
