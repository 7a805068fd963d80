"""What holds around a file of an evaluation? Variables of `.env` files, and which files are guidelines."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from goent.plain_files import read_plain_text
from goent.project import UnsafeFolder, find_project

GUIDELINES: Final = ("**/*.instructions.md", "**/*.prompt.md", "**/SKILL.md")
LARGEST: Final = 1024 * 1024  # bytes of a `.env` file
_LINE: Final = re.compile(
    r"^[ \t]*(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*"
    r"(?:(?:\"((?:[^\"\\]|\\.)*+)\"|'([^']*+)')[ \t]*+(?:#.*)?$|([^#\n]*+))",
    re.MULTILINE,
)
_GLOB: Final = re.compile(r"\*\*/|\*\*|\*|\?")
_GLOBS: Final = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def upward(folder: Path) -> Iterator[Path]:
    """The folder and those above it, up to its project's: what lies higher may be anybody's."""
    here = folder.resolve()
    try:
        top = find_project(here)
    except UnsafeFolder:  # a folder of somebody else says nothing about those above it
        top = here
    for each in (here, *here.parents):
        yield each
        if each == top:
            return


def variables(folder: Path) -> Mapping[str, str]:
    """What `.env` files say there; the nearest wins. For the files of evaluations alone: no process gets them."""
    found: dict[str, str] = {}
    for each in upward(folder):
        path = each / ".env"
        try:
            found = parse_variables(read_plain_text(path, LARGEST)) | found
        except (OSError, UnicodeError):
            continue
    return found


def parse_variables(text: str) -> dict[str, str]:
    """`NAME=value` a line; quotes are taken off, and comments left out."""
    return {
        line[1]: _unescaped(line[2])
        if line[2] is not None
        else line[3] or (line[4] or "").rstrip(" \t")
        for line in _LINE.finditer(text.replace("\r\n", "\n"))
    }


def _unescaped(text: str) -> str:
    return re.sub(
        r"\\(.)", lambda found: {"n": "\n", "t": "\t", "r": "\r"}.get(found[1], found[1]), text
    )


class Guidelines:
    """Files whose names fit are instructions. The patterns are seen from `top`."""

    def __init__(self, top: Path, patterns: tuple[str, ...] = GUIDELINES) -> None:
        self._top = top
        self._patterns = tuple(map(_compiled, patterns))

    def fit(self, path: Path) -> bool:
        seen = path.relative_to(self._top) if path.is_relative_to(self._top) else path
        return any(pattern.fullmatch(seen.as_posix()) for pattern in self._patterns)


def _compiled(pattern: str) -> re.Pattern[str]:
    whole = pattern if "/" in pattern else f"**/{pattern}"
    words = iter(_GLOB.split(whole))
    globs = (_GLOBS[found[0]] for found in _GLOB.finditer(whole))
    regex = re.escape(next(words)) + "".join(
        glob + re.escape(word) for glob, word in zip(globs, words, strict=True)
    )
    return re.compile(regex, re.DOTALL)
