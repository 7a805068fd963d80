"""Resolves the paths that agents write, as seen from a worker's directory.

Agents write paths in many ways: from the directory, from the home, as addresses.
"""

import os
import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote

from goent.permissions.guarded_links import guard_base, guard_by_link, guard_of

_FILE = re.compile(r"file:(?://(?:localhost(?=/))?)?", re.IGNORECASE)
OUTSIDE = "external_directory"  # the permission to leave the worker's directory
ANYWHERE = "/*"  # an unknown place, possibly outside the directory
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


class WorkerPaths:
    """A worker's directory, and its checkout, from which edits are named as in OpenCode."""

    def __init__(self, cwd: Path) -> None:
        self._cwd = Path(os.path.realpath(cwd))
        folders = (self._cwd, *self._cwd.parents)
        self._top = next((each for each in folders if (each / ".git").exists()), self._cwd)
        self._base = guard_base(self._cwd)

    def resolve(self, path: str) -> Path | None:
        """The real path, links followed; None if it cannot be resolved."""
        local = _local_path(path)
        if local is None:
            return None
        try:
            return Path(os.path.realpath(self._cwd / Path(local).expanduser()))
        except (OSError, ValueError, RuntimeError):
            return None

    def guard_reason(self, path: str) -> str:
        """Why a change there always needs a question; empty if it does not."""
        real, written = self.resolve(path), self._written(path)
        found = next(
            filter(None, (guard_of(each, self._base) for each in (real, written) if each)), ""
        )
        return found or (guard_by_link(real, self._base, self._cwd) if real else "")

    def _written(self, path: str) -> Path | None:
        """The absolute path without following links."""
        local = _local_path(path)
        try:
            place = self._cwd / Path(local or "").expanduser()
        except (ValueError, RuntimeError):
            return None
        return Path(os.path.normpath(place))

    def contains(self, path: Path) -> bool:
        return path.is_relative_to(self._cwd)

    def outside_patterns(self, paths: Iterable[str]) -> list[str]:
        """Patterns of the folders outside that paths lead to; unresolved ones may be anywhere."""
        places = {path: self.resolve(path) for path in paths if path}
        return [
            self._folder_pattern(place) if place else ANYWHERE
            for place in places.values()
            if not (place and self.contains(place))
        ]

    def _folder_pattern(self, place: Path) -> str:
        """A pattern for everything in the folder of `place`."""
        return str((place if place.is_dir() else place.parent) / "*")

    def command_in(self, folder: str, command: str) -> str:
        """The command as shown and remembered: after a `cd` if it is run elsewhere."""
        place = self.resolve(folder)
        if place == self._cwd:
            return command
        inside = place is not None and self.contains(place)
        target = os.path.relpath(place, self._cwd) if place and inside else str(place or folder)
        return f"cd {shlex.quote(target)} && {command}"

    def from_checkout(self, path: Path) -> str:
        return os.path.relpath(path, self._top)


def is_file_address(text: str) -> bool:
    return _FILE.match(text) is not None


def _local_path(text: str) -> str | None:
    """The local path of a text; None for an address that is not a file here."""
    if begin := _FILE.match(text):
        path = text[begin.end() :]
        # Agents disagree whether these end the path.
        return unquote(path) if path.startswith("/") and not set(path) & {"?", "#"} else None
    return None if _ADDRESS.match(text) else text
