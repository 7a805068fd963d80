"""Where in a line of shell would a word that is put in quoted not stay one word?

Values of placeholders are quoted for a place where nothing is quoted: inside other quotes the two undo each
other, and what a case says would be run. Shells differ in finer points; what is asked here is the same in all.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

REMEDIES: Final[Mapping[str, str]] = {
    "quotes": "inside quotes it could be run; take the quotes around {} away",
    "back": "inside backquotes it could be run; write $(…) instead of them",
    "escape": "a backslash before it undoes that; take it away",
    "comment": "in a comment its second line could be run; take {} out of it",
    "here": "in a here-document quotes are no quotes; give {} as an argument instead",
    "sum": "in arithmetic, $((…)), it could be run; take {} out of it",
}
"""What is to be done, by what surrounds it."""

# What does not close as arithmetic does may be some all the same, to one shell or another.
_SUM: Final = r"\(\((?:(?:[^()]|\([^()]*\))*\)\)|.*)"
_BACK: Final = r"(?P<back>`(?:\\.|[^`\\])*`?)"
_ESCAPE: Final = r"(?P<escape>\\.)"
_OPEN: Final = re.compile(
    rf"(?P<quotes>'[^']*'?)|{_ESCAPE}|(?P<double>\")|{_BACK}"
    rf"|(?P<sum>\$?{_SUM})|(?P<open>\$?\()|(?P<close>\))"
    r"|(?P<comment>(?<![^\s;&|()<>])\#[^\n]*)"
    r"|<<(?P<dash>-?)[ \t]*(?P<here>(?:\\.|'[^']*'|\"[^\"]*\"|[^\s;&|()<>`'\"\\])+)"
    r"|(?P<line>\n)|.",
    re.DOTALL,
)
_DOUBLE: Final = re.compile(
    rf"(?P<double>\")|{_ESCAPE}|(?P<sum>\${_SUM})|(?P<open>\$\()|{_BACK}|(?P<quotes>.)", re.DOTALL
)
_MARKS: Final = re.compile(r"['\"\\]")


def around(command: str) -> Mapping[int, str]:
    """Which characters have something around them that undoes quotes: a key of `REMEDIES` each."""
    return {place: how for begin, end, how in _spans(command) for place in range(begin, end)}


def _spans(command: str) -> Iterator[tuple[int, int, str]]:
    inside: list[str] = []  # what was opened, and is not closed yet
    awaited: list[tuple[str, bool]] = []  # here-documents that begin with the next line
    at = 0
    while at < len(command):
        found = (_DOUBLE if inside[-1:] == ['"'] else _OPEN).match(command, at)
        assert found
        how, begin, at = found.lastgroup, at, found.end()
        match how:
            case "double" if inside[-1:] == ['"']:
                inside.pop()
            case "double" | "open":
                inside.append(found[0][-1])
            case "close":
                del inside[-1:]
            case "here":
                awaited.append((_MARKS.sub("", found["here"]), bool(found["dash"])))
                yield begin, at, how
            case "line":
                at = _after(command, at, awaited)
                awaited.clear()
                yield begin, at, "here"
            case str():
                yield begin, at, how
            case None:
                pass


def _after(command: str, at: int, awaited: list[tuple[str, bool]]) -> int:
    """Where the here-documents that begin there have ended."""
    for word, indented in awaited:
        tabs = r"\t*" if indented else ""
        last = re.compile(rf"^{tabs}{re.escape(word)}$", re.MULTILINE).search(command, at)
        at = last.end() if last else len(command)
    return at
