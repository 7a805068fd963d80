"""Permission questions as text: nothing hidden, and shortened only with head, tail and a count.

A command can be written so that its end is off the screen or invisible: with blanks, line feeds, control
characters, or letters that print as nothing. Here these are spelled out.
"""

import json
import re
from collections.abc import Sequence

MAX_BLANKS = 40  # in a row, and so they stay; more are counted
MAX_EMPTY_LINES = 3  # lines in a row
MAX_REPEATS = 3  # of a character that does not print, in a row
GAP_MARK_WIDTH = 14  # characters of the mark that stands for what is left out of a line
MAX_RULE = 300  # characters of a rule that are shown
# Letters and marks that print as nothing, though they count as printable.
_INKLESS = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0" + "".join(map(chr, range(0xFE00, 0xFE10)))
)
_EMPTY_LINES = re.compile(rf"\n(?:[^\S\n]*\n){{{MAX_EMPTY_LINES + 1},}}")
_BLANKS = re.compile(rf"[ \t]{{{MAX_BLANKS + 1},}}")


def visible_text(text: str) -> str:
    """The text with invisible characters spelled out and long gaps replaced by their length."""
    text = _EMPTY_LINES.sub(lambda gap: f"\n⟨{gap[0].count(chr(10)) - 1:,} empty lines⟩\n", text)
    text = _BLANKS.sub(lambda gap: f"⟨{len(gap[0]):,} blanks⟩", text)
    if not _INKLESS.isdisjoint(text) or not text.replace("\n", "").replace("\t", "").isprintable():
        text = "".join(_spell_out(run) for run in _runs(text))
    return text


def _runs(text: str) -> Sequence[str]:
    """The characters; repeated invisible ones are joined."""
    found: list[str] = []
    for letter in text:
        if found and found[-1][0] == letter and not _prints(letter):
            found[-1] += letter
        else:
            found.append(letter)
    return found


def _spell_out(run: str) -> str:
    if _prints(run[0]):
        return run
    named = run[0].encode("unicode_escape").decode()
    if named == run[0]:
        named = f"\\u{ord(run[0]):04x}"
    return named * len(run) if len(run) <= MAX_REPEATS else f"⟨{len(run):,} x {named}⟩"


def _prints(letter: str) -> bool:
    return letter in "\n\t" or (letter.isprintable() and letter not in _INKLESS)


def excerpt(text: str, limit: int, how: str = "") -> str:
    """About `limit` characters: head and tail, and between them the number of those left out.

    `how` says how to see the whole text.
    """
    if len(text) <= limit:
        return text
    tail = limit // 3
    head = limit - tail
    return f"{text[:head]}{_gap_note(len(text) - limit, how)}{text[len(text) - tail :]}"


def fit_rows(text: str, width: int, rows: int, how: str = "") -> str:
    """The first and last lines that fit into the rows of a terminal.

    A line that is too long for its share is cut on the side of the gap.
    """
    lines = text.split("\n")
    if sum(_height(line, width) for line in lines) <= rows:
        return text
    share = max(1, rows // 3)
    tail = [
        line[::-1] for line in _first_lines([line[::-1] for line in reversed(lines)], width, share)
    ]
    head = _first_lines(lines, width, max(1, rows - 1 - share))
    kept = "\n".join(head), "\n".join(reversed(tail))
    left = len(text) - len(kept[0]) - len(kept[1])
    return text if left <= 0 else f"{kept[0]}\n{_gap_note(left, how)}\n{kept[1]}"


def _first_lines(lines: Sequence[str], width: int, rows: int) -> list[str]:
    """The first lines; at least a part of the very first."""
    found: list[str] = []
    for line in lines:
        height = _height(line, width)
        if height > rows:
            return found or [line[: rows * width]]
        found.append(line)
        rows -= height
    return found


def _height(line: str, width: int) -> int:
    return max(1, -(-len(line) // max(1, width)))


def one_line(text: str, limit: int) -> str:
    """The text as one line of a list, shortened to head and tail."""
    line = " ".join(visible_text(text).strip().replace("\n", " ⏎ ").split())
    if len(line) <= limit:
        return line
    room = max(2, limit - GAP_MARK_WIDTH)
    tail = room // 2
    return f"{line[: room - tail]}…{len(line) - room:,} more…{line[len(line) - tail :]}"


def always_rule(tool: str, patterns: Sequence[str]) -> str:
    """What `allow_always` would allow; empty if no more than this call."""
    if not patterns:
        return ""
    named = ", ".join(visible_text(json.dumps(pattern, ensure_ascii=False)) for pattern in patterns)
    return f"allow {tool} {excerpt(named, MAX_RULE)} for this worker"


def _gap_note(count: int, how: str) -> str:
    return f"⟨… {count:,} more characters{'; ' if how else ''}{how} …⟩"
