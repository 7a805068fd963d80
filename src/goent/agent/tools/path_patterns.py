"""Matches paths against glob patterns and ignore files, on the standard library alone.

Matched folder by folder, so that no pattern takes long, whatever is in it.

Standard library only.
"""

import os
import re
from collections.abc import Callable, Sequence
from fnmatch import translate

from goent.system.plain_files import read_beginning

MAX_ALTERNATIVES = 256  # alternatives that the braces of one pattern may make
_BRACES = re.compile(r"\{([^{}]*)\}")
_Part = Callable[[str], object] | None  # None is `**`


class TooManyAlternatives(ValueError):
    """The braces of a pattern make more alternatives than anybody means."""


class PathGlob:
    """A pattern. Without a `/` in it, it is about names in any folder."""

    def __init__(self, pattern: str, *, braces: bool = True) -> None:
        ways = alternatives(pattern) if braces else [pattern]
        self._ways = [_pattern_parts(way) for way in ways]

    def matches(self, path: str) -> bool:
        names = path.split("/")
        return any(_matches(way, names) for way in self._ways)


def alternatives(pattern: str) -> list[str]:
    """What the braces stand for, written out."""
    ways = [pattern]
    while any(_BRACES.search(way) for way in ways):
        written: list[str] = []
        for way in ways:
            found = _BRACES.search(way)
            choices = found[1].split(",") if found else [""]
            begin, end = found.span() if found else (len(way), len(way))
            written += [way[:begin] + choice + way[end:] for choice in choices]
        if len(written) > MAX_ALTERNATIVES:
            raise TooManyAlternatives(
                f"{pattern!r} makes more than {MAX_ALTERNATIVES} alternatives"
            )
        ways = written
    return ways


def _pattern_parts(pattern: str) -> list[_Part]:
    anywhere = "/" not in pattern.rstrip("/")
    names = [name for name in pattern.split("/") if name not in ("", ".")]
    if anywhere:
        names.insert(0, "**")
    if names and names[-1] == "**":
        names.append("*")  # a folder is not below itself
    return [None if name == "**" else name_matcher(name) for name in names]


def name_matcher(name: str) -> Callable[[str], object]:
    """Matches one name."""
    if not re.search(r"[*?[]", name):
        return name.__eq__
    return re.compile(translate(re.sub(r"\*+", "*", name))).match


def _matches(parts: Sequence[_Part], names: Sequence[str]) -> bool:
    """The last `**` takes one name more whenever what follows it does not fit."""
    part = name = 0
    retry: tuple[int, int] | None = None
    while name < len(names):
        fits = part < len(parts)
        wanted = parts[part] if fits else None
        if fits and wanted is None:
            retry, part = (part, name), part + 1
        elif wanted is not None and _is_match(wanted(names[name])):
            part, name = part + 1, name + 1
        elif retry:
            part, name = retry[0] + 1, retry[1] + 1
            retry = (retry[0], name)
        else:
            return False
    return all(rest is None for rest in parts[part:])


def _is_match(answer: object) -> bool:
    return answer is not None and answer is not False


IGNORE_FILES = (".gitignore", ".ignore")
MAX_IGNORE_BYTES = 1_000_000  # bytes of such a file that are read


class IgnoreRules:
    """What the ignore files of one folder say about what lies below it; the last word counts."""

    def __init__(self, lines: list[str]) -> None:
        rules = [rule for line in lines if (rule := _parse_rule(line))]
        self._rules = rules[::-1]

    def __bool__(self) -> bool:
        return bool(self._rules)

    def verdict(self, path: str, *, folder: bool) -> bool | None:
        """Whether the path, relative to the folder, is passed over; None if nothing is said."""
        for glob, only_folders, ignored in self._rules:
            if (folder or not only_folders) and glob.matches(path):
                return ignored
        return None


def _parse_rule(line: str) -> tuple[PathGlob, bool, bool] | None:
    pattern = _strip_trailing_spaces(line.rstrip("\r"))
    if not pattern or pattern.startswith("#"):
        return None
    ignored = not pattern.startswith("!")
    pattern = pattern.removeprefix("!")
    only_folders = pattern.endswith("/")
    pattern = pattern.rstrip("/") if only_folders else pattern
    if not pattern:
        return None
    pattern = re.sub(r"\\(.)", lambda escaped: _literal(escaped[1]), pattern)
    return PathGlob(pattern, braces=False), only_folders, ignored


def _strip_trailing_spaces(line: str) -> str:
    bare = line.rstrip(" ")
    return bare + " " if bare.endswith("\\") and bare != line else bare


def _literal(character: str) -> str:
    return f"[{character}]" if character in "*?[" else character


def read_ignore_rules(folder: str) -> IgnoreRules:
    """Of the ignore files in that folder."""
    lines: list[str] = []
    for name in (os.path.join(".git", "info", "exclude"), *IGNORE_FILES):  # noqa: PTH118 (many calls)
        lines += _read_lines(os.path.join(folder, name))  # noqa: PTH118 (many calls)
    return IgnoreRules(lines)


def _read_lines(path: str) -> list[str]:
    try:
        data = read_beginning(path, MAX_IGNORE_BYTES)
    except OSError:  # none, or no file
        return []
    return data.decode(errors="surrogateescape").split("\n")


class FolderIgnores:
    """The rules that hold in one folder: its own, then those of the folders above it."""

    def __init__(self, folder: str, above: "FolderIgnores | None") -> None:
        top = os.path.lexists(os.path.join(folder, ".git"))  # noqa: PTH118 (many calls)
        self.name = os.path.basename(folder)  # noqa: PTH119 (many calls)
        self.parent = None if top else above
        self.rules = read_ignore_rules(folder)

    def is_ignored(self, path: str, *, folder: bool) -> bool:
        """Of something below the folder."""
        here: FolderIgnores | None = self
        while here:  # no recursion: folders can be nested deeper than Python can
            verdict = here.rules.verdict(path, folder=folder)
            if verdict is not None:
                return verdict
            path = f"{here.name}/{path}"
            here = here.parent
        return False


def folder_ignores(folder: str) -> FolderIgnores:
    """With all that is said above the folder, up to the top of its repository."""
    above: FolderIgnores | None = None
    parts = folder.split("/")
    for count in range(1, len(parts)):
        above = FolderIgnores("/".join(parts[:count]) or "/", above)
    return FolderIgnores(folder, above)
