"""Does a path match a pattern with `*`, `**` and `{a,b}`? Standard library only.

Matched folder by folder, so that no pattern takes long, whatever is in it.
"""

import re
from collections.abc import Callable, Sequence
from fnmatch import translate

WAYS = 256  # alternatives that the braces of one pattern may make
_BRACES = re.compile(r"\{([^{}]*)\}")
_Part = Callable[[str], object] | None  # None is `**`


class TooManyWays(ValueError):
    """The braces of a pattern make more alternatives than anybody means."""


class Glob:
    """A pattern. Without a `/` in it, it is about names in any folder."""

    def __init__(self, pattern: str, *, braces: bool = True) -> None:
        ways = alternatives(pattern) if braces else [pattern]
        self._ways = [_parts(way) for way in ways]

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
        if len(written) > WAYS:
            raise TooManyWays(f"{pattern!r} makes more than {WAYS} alternatives")
        ways = written
    return ways


def _parts(pattern: str) -> list[_Part]:
    anywhere = "/" not in pattern.rstrip("/")
    names = [name for name in pattern.split("/") if name not in ("", ".")]
    if anywhere:
        names.insert(0, "**")
    if names and names[-1] == "**":
        names.append("*")  # a folder is not below itself
    return [None if name == "**" else matcher(name) for name in names]


def matcher(name: str) -> Callable[[str], object]:
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
        elif wanted is not None and _is(wanted(names[name])):
            part, name = part + 1, name + 1
        elif retry:
            part, name = retry[0] + 1, retry[1] + 1
            retry = (retry[0], name)
        else:
            return False
    return all(rest is None for rest in parts[part:])


def _is(answer: object) -> bool:
    return answer is not None and answer is not False
