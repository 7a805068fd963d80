"""Matches paths against glob patterns and ignore files, on the standard library alone.

Paths are matched name by name, so that no pattern takes long, whatever it contains.
"""

import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from fnmatch import translate

from goent.system.plain_files import read_beginning

MAX_ALTERNATIVES = 256  # that the braces of one pattern may stand for
_BRACES = re.compile(r"\{([^{}]*)\}")
_Part = Callable[[str], object] | None  # None is `**`


class TooManyAlternatives(ValueError):
    """The braces of a pattern stand for more than `MAX_ALTERNATIVES` alternatives."""


class PathGlob:
    """A glob pattern. Without a `/` in it, it matches names in any folder."""

    def __init__(self, pattern: str, *, braces: bool = True) -> None:
        ways = alternatives(pattern) if braces else [pattern]
        self._ways = [_pattern_parts(way) for way in ways]

    def matches(self, path: str) -> bool:
        names = path.split("/")
        return any(_matches(way, names) for way in self._ways)


def alternatives(pattern: str) -> list[str]:
    """The pattern with its braces expanded."""
    ways = [pattern]
    while any(_BRACES.search(way) for way in ways):
        written: list[str] = []
        for way in ways:
            found = _BRACES.search(way)
            choices = found[1].split(",") if found else [""]
            begin, end = found.span() if found else (len(way), len(way))
            written += [way[:begin] + choice + way[end:] for choice in choices]
        if len(written) > MAX_ALTERNATIVES:
            raise TooManyAlternatives(f"{pattern!r} has more than {MAX_ALTERNATIVES} alternatives")
        ways = written
    return ways


def _pattern_parts(pattern: str) -> list[_Part]:
    anywhere = "/" not in pattern.rstrip("/")
    names = [name for name in pattern.split("/") if name not in ("", ".")]
    if anywhere:
        names.insert(0, "**")
    if names and names[-1] == "**":
        names.append("*")  # `a/**` does not match `a` itself
    return [None if name == "**" else name_matcher(name) for name in names]


def name_matcher(name: str) -> Callable[[str], object]:
    """Matches one name."""
    if not re.search(r"[*?[]", name):
        return name.__eq__
    return re.compile(translate(re.sub(r"\*+", "*", name))).match


def _matches(parts: Sequence[_Part], names: Sequence[str]) -> bool:
    """Linear matching: the last `**` takes one more name whenever the rest does not match."""
    part = name = 0
    retry: tuple[int, int] | None = None
    while name < len(names):
        more = part < len(parts)
        wanted = parts[part] if more else None
        if more and wanted is None:
            retry, part = (part, name), part + 1
        elif wanted is not None and wanted(names[name]):
            part, name = part + 1, name + 1
        elif retry:
            part, name = retry[0] + 1, retry[1] + 1
            retry = (retry[0], name)
        else:
            return False
    return all(rest is None for rest in parts[part:])


IGNORE_FILES = (".gitignore", ".ignore")
MAX_IGNORE_BYTES = 1_000_000  # of such a file that are read


class IgnoreRules:
    """The rules in the ignore files of one folder; the last matching one applies."""

    def __init__(self, lines: list[str]) -> None:
        rules = [rule for line in lines if (rule := _parse_rule(line))]
        self._rules = rules[::-1]

    def __bool__(self) -> bool:
        return bool(self._rules)

    def verdict(self, path: str, *, folder: bool) -> bool | None:
        """Whether the path, relative to the folder, is ignored; None if no rule matches."""
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
    lines: list[str] = []
    for name in (".git/info/exclude", *IGNORE_FILES):
        with suppress(OSError):  # missing, or not a file
            data = read_beginning(f"{folder}/{name}", MAX_IGNORE_BYTES)
            lines += data.decode(errors="surrogateescape").split("\n")
    return IgnoreRules(lines)


class FolderIgnores:
    """The rules that apply in one folder: its own, then those of the folders above it."""

    def __init__(self, folder: str, above: "FolderIgnores | None") -> None:
        top = os.path.lexists(os.path.join(folder, ".git"))  # noqa: PTH118 (many calls)
        self.name = os.path.basename(folder)  # noqa: PTH119 (many calls)
        self.parent = None if top else above
        self.rules = read_ignore_rules(folder)

    def is_ignored(self, path: str, *, folder: bool) -> bool:
        """Whether an entry below the folder is ignored."""
        here: FolderIgnores | None = self
        while here:  # no recursion: folders may be nested deeper than Python's stack
            verdict = here.rules.verdict(path, folder=folder)
            if verdict is not None:
                return verdict
            path = f"{here.name}/{path}"
            here = here.parent
        return False


def folder_ignores(folder: str) -> FolderIgnores:
    """The rules of a folder and those above it, up to the top of its repository."""
    above: FolderIgnores | None = None
    parts = folder.split("/")
    for count in range(1, len(parts)):
        above = FolderIgnores("/".join(parts[:count]) or "/", above)
    return FolderIgnores(folder, above)
