"""Finds the parts of a shell command in which a quoted value would lose its quotes.

Placeholders are filled with quoted values; inside other quotes the two cancel out, and text of a case
would be run. Shells differ in finer points; these rules hold in all of them.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

QUOTE_REMEDIES: Final[Mapping[str, str]] = {
    "quotes": "inside quotes it could be run; take the quotes around {} away",
    "back": "inside backquotes it could be run; write $(…) instead of them",
    "escape": "a backslash before it undoes that; remove it",
    "comment": "in a comment its second line could be run; take {} out of it",
    "here": "in a here-document quotes are no quotes; give {} as an argument instead",
    "sum": "in arithmetic, $((…)), it could be run; take {} out of it",
}
"""The remedy, by what surrounds a placeholder."""

# Some shells read arithmetic even where it is not closed like that.
_SUM: Final = r"\(\((?:(?:[^()]|\([^()]*\))*\)\)|.*)"
_BACK: Final = r"(?P<back>`(?:\\.|[^`\\])*`?)"
_ESCAPE: Final = r"(?P<escape>\\.)"
_UNQUOTED: Final = re.compile(
    rf"(?P<quotes>'[^']*'?)|{_ESCAPE}|(?P<double>\")|{_BACK}"
    rf"|(?P<sum>\$?{_SUM})|(?P<open>\$?\()|(?P<close>\))"
    r"|(?P<comment>(?<![^\s;&|()<>])\#[^\n]*)"
    r"|<<(?P<dash>-?)[ \t]*(?P<here>(?:\\.|'[^']*'|\"[^\"]*\"|[^\s;&|()<>`'\"\\])+)"
    r"|(?P<line>\n)|.",
    re.DOTALL,
)
_DOUBLE_QUOTED: Final = re.compile(
    rf"(?P<double>\")|{_ESCAPE}|(?P<sum>\${_SUM})|(?P<open>\$\()|{_BACK}|(?P<quotes>.)", re.DOTALL
)
_QUOTE_MARKS: Final = re.compile(r"['\"\\]")


def quote_contexts(command: str) -> Mapping[int, str]:
    """For each character in such a part, its key in `QUOTE_REMEDIES`."""
    return {place: how for begin, end, how in _quote_spans(command) for place in range(begin, end)}


def _quote_spans(command: str) -> Iterator[tuple[int, int, str]]:
    inside: list[str] = []  # opened and not closed yet
    awaited: list[tuple[str, bool]] = []  # here-documents that begin with the next line
    at = 0
    while at < len(command):
        found = (_DOUBLE_QUOTED if inside[-1:] == ['"'] else _UNQUOTED).match(command, at)
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
                awaited.append((_QUOTE_MARKS.sub("", found["here"]), bool(found["dash"])))
                yield begin, at, how
            case "line":
                at = _here_document_end(command, at, awaited)
                awaited.clear()
                yield begin, at, "here"
            case str():
                yield begin, at, how
            case None:
                pass


def _here_document_end(command: str, at: int, awaited: list[tuple[str, bool]]) -> int:
    """Where the here-documents that begin at `at` have ended."""
    for word, indented in awaited:
        tabs = r"\t*" if indented else ""
        last = re.compile(rf"^{tabs}{re.escape(word)}$", re.MULTILINE).search(command, at)
        at = last.end() if last else len(command)
    return at
