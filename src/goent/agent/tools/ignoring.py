"""Which files does a project want to be passed over? By `.gitignore` and `.ignore`, as git reads them.

Standard library only.
"""

import os
import re

from goent.agent.tools.globs import Glob
from goent.plain_files import read_beginning

FILES = (".gitignore", ".ignore")
LONGEST = 1_000_000  # bytes of such a file that are read


class Rules:
    """What the ignore files of one folder say about what lies below it; the last word counts."""

    def __init__(self, lines: list[str]) -> None:
        rules = [rule for line in lines if (rule := _rule(line))]
        self._rules = rules[::-1]

    def __bool__(self) -> bool:
        return bool(self._rules)

    def verdict(self, path: str, *, folder: bool) -> bool | None:
        """Whether the path, relative to the folder, is passed over; None if nothing is said."""
        for glob, only_folders, ignored in self._rules:
            if (folder or not only_folders) and glob.matches(path):
                return ignored
        return None


def _rule(line: str) -> tuple[Glob, bool, bool] | None:
    pattern = _without_last_spaces(line.rstrip("\r"))
    if not pattern or pattern.startswith("#"):
        return None
    ignored = not pattern.startswith("!")
    pattern = pattern.removeprefix("!")
    only_folders = pattern.endswith("/")
    pattern = pattern.rstrip("/") if only_folders else pattern
    if not pattern:
        return None
    pattern = re.sub(r"\\(.)", lambda escaped: _literally(escaped[1]), pattern)
    return Glob(pattern, braces=False), only_folders, ignored


def _without_last_spaces(line: str) -> str:
    bare = line.rstrip(" ")
    return bare + " " if bare.endswith("\\") and bare != line else bare


def _literally(character: str) -> str:
    return f"[{character}]" if character in "*?[" else character


def rules_of(folder: str) -> Rules:
    """Of the ignore files in that folder."""
    lines: list[str] = []
    for name in (os.path.join(".git", "info", "exclude"), *FILES):  # noqa: PTH118 (many calls)
        lines += _lines(os.path.join(folder, name))  # noqa: PTH118 (many calls)
    return Rules(lines)


def _lines(path: str) -> list[str]:
    try:
        data = read_beginning(path, LONGEST)
    except OSError:  # none, or no file
        return []
    return data.decode(errors="surrogateescape").split("\n")


class Ignoring:
    """The rules that hold in one folder: its own, then those of the folders above it."""

    def __init__(self, folder: str, above: "Ignoring | None") -> None:
        top = os.path.lexists(os.path.join(folder, ".git"))  # noqa: PTH118 (many calls)
        self.name = os.path.basename(folder)  # noqa: PTH119 (many calls)
        self.above = None if top else above
        self.rules = rules_of(folder)

    def passes_over(self, path: str, *, folder: bool) -> bool:
        """Of something below the folder."""
        here: Ignoring | None = self
        while here:  # no recursion: folders can be nested deeper than Python can
            verdict = here.rules.verdict(path, folder=folder)
            if verdict is not None:
                return verdict
            path = f"{here.name}/{path}"
            here = here.above
        return False


def ignoring_at(folder: str) -> Ignoring:
    """With all that is said above the folder, up to the top of its repository."""
    above: Ignoring | None = None
    parts = folder.split("/")
    for count in range(1, len(parts)):
        above = Ignoring("/".join(parts[:count]) or "/", above)
    return Ignoring(folder, above)
