"""Where in a text is the old part, what is the text with the new one, and what came near?

Line endings are the file's business: a model writes line feeds, and whatever it replaces
keeps the kind of ending that is there.
"""

import re
from collections.abc import Iterator, Sequence
from heapq import nlargest
from itertools import islice

from goent.domain.types import Value

NEAR = 3  # places that are told when the old part is not there
LOOKED = 20_000  # lines that are looked through for them
HOPEFUL = 50  # of them are compared closely: that takes its time
COMPARED = 200  # characters of a line
LIKE = 0.6  # as `difflib` has it
TOLD = 10  # lines that are named when the old part is there more than once
_NUMBERED = re.compile(r" *\d+\t")


class NotReplaced(Exception):
    """Why nothing was replaced, and what may help."""


class Replaced(Value, frozen=True, kw_only=True):
    """The text afterwards; `line` is where the first change begins."""

    text: str
    line: int
    count: int


def replaced(text: str, old: str, new: str, *, everywhere: bool = False) -> Replaced:
    """Raises `NotReplaced`."""
    # Where lines end in two characters, a line feed alone would be found inside of an ending.
    spans = [] if "\r\n" in text else list(_spans(text, old))
    if not spans:
        old, new = _as_lines(old), _as_lines(new)
        spans = list(_spans_of_any_ending(text, old))
    if not spans and old.endswith("\n") and text.endswith(old[:-1]):  # the last line has no ending
        spans, new = [(len(text) - len(old) + 1, len(text))], new.removesuffix("\n")
    if not spans:
        raise NotReplaced(missed(text, old))
    if len(spans) > 1 and not everywhere:
        raise NotReplaced(_ambiguous(text, spans))
    pieces, end = list[str](), 0
    for start, stop in spans:
        pieces += text[end:start], _with_endings_of(text, start, new)
        end = stop
    return Replaced(
        text="".join([*pieces, text[end:]]), line=_line(text, spans[0][0]), count=len(spans)
    )


def _spans(text: str, old: str) -> Iterator[tuple[int, int]]:
    start = text.find(old)
    while start >= 0:
        yield start, start + len(old)
        start = text.find(old, start + len(old))


def _spans_of_any_ending(text: str, old: str) -> Iterator[tuple[int, int]]:
    pattern = r"\r?\n".join(map(re.escape, old.split("\n")))
    return (match.span() for match in re.finditer(pattern, text))


def _as_lines(text: str) -> str:
    return text.replace("\r\n", "\n")


def _with_endings_of(text: str, start: int, new: str) -> str:
    """What is put in ends its lines as the line does in which it begins, or the one before."""
    end = text.find("\n", start)
    if end < 0:
        end = text.rfind("\n", 0, start)
    if end > 0 and text[end - 1] == "\r":
        return _as_lines(new).replace("\n", "\r\n")
    return new


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def _ambiguous(text: str, spans: Sequence[tuple[int, int]]) -> str:
    lines = ", ".join(str(_line(text, start)) for start, _ in spans[:TOLD])
    more = ", ..." if len(spans) > TOLD else ""
    return (
        f"old_string is there {len(spans)} times, in lines {lines}{more}: give more of the lines"
        " around it, so that it is there once, or set replace_all"
    )


def missed(text: str, old: str) -> str:
    """Why the old part is not there, as far as can be seen."""
    wanted = old.split("\n")
    if not old.strip():
        return "old_string is nothing but space, and so it is not there: give the lines around it"
    if all(_NUMBERED.match(line) for line in wanted if line):
        return "old_string is not there: leave out the line numbers and tabs that Read puts first"
    lines = list(islice((line.rstrip("\r") for line in text.split("\n")), LOOKED))
    if (found := _but_for_spaces(lines, wanted)) is not None:
        shown = _numbered(lines, found, found + len(_stripped(wanted)))
        return f"old_string is not there, but something that differs only in spaces or tabs is:\n{shown}"
    near = sorted(_near(lines, wanted))
    if not near:
        return "old_string is not there, nor anything like it: Read the file again"
    shown = "\n".join(_numbered(lines, start, start + 1) for start in near)
    return f"old_string is not there. The lines that come nearest to it:\n{shown}"


def _but_for_spaces(lines: Sequence[str], wanted: Sequence[str]) -> int | None:
    sought = _stripped(wanted)
    bare = ["".join(line.split()) for line in lines]
    begun = (n for n, line in enumerate(bare) if line == sought[0])
    return next((n for n in begun if bare[n : n + len(sought)] == sought), None)


def _stripped(wanted: Sequence[str]) -> list[str]:
    return "\n".join("".join(line.split()) for line in wanted).strip("\n").split("\n")


def _near(lines: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Lines that are like the longest of those that were asked for."""
    from difflib import SequenceMatcher  # noqa: PLC0415 (only for a miss)

    telling = max(wanted, key=len).strip()[:COMPARED]
    matcher = SequenceMatcher(b=telling, autojunk=False)

    def quickly(line: str) -> float:
        matcher.set_seq1(line.strip()[:COMPARED])
        return min(matcher.real_quick_ratio(), matcher.quick_ratio())

    def exactly(line: str) -> float:
        matcher.set_seq1(line.strip()[:COMPARED])
        return matcher.ratio()

    hopeful = nlargest(HOPEFUL, ((quickly(line), -n) for n, line in enumerate(lines)))
    scored = [(exactly(lines[-n]), n) for quick, n in hopeful if quick > LIKE]
    return [-n for ratio, n in nlargest(NEAR, scored) if ratio > LIKE]


def _numbered(lines: Sequence[str], start: int, end: int) -> str:
    pairs = enumerate(lines[start : min(end, start + TOLD)], start=start + 1)
    return "\n".join(f"{number:>6}\t{line[:500]}" for number, line in pairs)
