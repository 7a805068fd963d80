"""Where does a path lead, seen from a worker's directory?

Agents write paths in many ways: from the directory, from the home, as addresses.
"""

import os
import re
from pathlib import Path
from urllib.parse import unquote

_FILE = re.compile(r"file:(?://(?:localhost(?=/))?)?", re.IGNORECASE)
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


class Ground:
    """A worker's directory, and the checkout that edits are named from, as OpenCode does."""

    def __init__(self, cwd: Path) -> None:
        self._cwd = Path(os.path.realpath(cwd))
        folders = (self._cwd, *self._cwd.parents)
        self._top = next((each for each in folders if (each / ".git").exists()), self._cwd)

    def real(self, path: str) -> Path | None:
        """Where a path leads, links followed; None: nobody can tell."""
        local = _local(path)
        if local is None:
            return None
        try:
            return Path(os.path.realpath(self._cwd / Path(local).expanduser()))
        except (OSError, ValueError, RuntimeError):
            return None

    def holds(self, path: Path) -> bool:
        return path.is_relative_to(self._cwd)

    def shown(self, path: Path) -> str:
        return os.path.relpath(path, self._top)


def is_file_address(text: str) -> bool:
    return _FILE.match(text) is not None


def _local(text: str) -> str | None:
    """The path that is meant; None for an address of what is no file here."""
    if begin := _FILE.match(text):
        path = text[begin.end() :]
        # Some drop what is behind these, and some do not.
        return unquote(path) if path.startswith("/") and not set(path) & {"?", "#"} else None
    return None if _ADDRESS.match(text) else text
