"""Verify commands: which are accepted, what their outcome proves, and how it is shown."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from goent.domain.types import Check, Evidence

MAX_QUOTED_COMMAND: Final = 80  # characters of a command that an error quotes
OUTCOME_MARKS: Final[dict[Evidence | None, str]] = {
    "verified": "✓",
    "claimed": "~",
    "refuted": "✗",
    None: "~",
}
# A line that begins like one of go-ent's own lines for an outcome, a check or a call.
_OWN_MARK = re.compile(r"^(?=[─✓✗■~●])", re.MULTILINE)


def is_blank(command: str) -> bool:
    """Whether a shell would run nothing: only white space, comments and line continuations."""
    lines = (line.strip() for line in command.split("\n"))
    return all(line in ("", "\\") or line.startswith("#") for line in lines)


def blank_reason(command: str) -> str | None:
    """Why a verify command is refused, if it is blank."""
    if not is_blank(command):
        return None
    return (
        f"{command[:MAX_QUOTED_COMMAND]!r} is a blank command: it would check nothing and always pass. "
        "Give a command that fails unless the work is done, or leave it out"
    )


def blank_commands(commands: Sequence[str]) -> Iterator[tuple[int, str]]:
    """The position of each blank verify command, and why it is refused."""
    for index, command in enumerate(commands):
        if reason := blank_reason(command):
            yield index, reason


def evidence_of(checks: Sequence[Check]) -> Evidence | None:
    """The evidence from verify commands; None without any. Blank ones, in old journals, do not count."""
    exits = [check.exit for check in checks if not is_blank(check.command)]
    if not exits:
        return None
    return "verified" if all(code == 0 for code in exits) else "refuted"


def outcome_words(state: str, evidence: Evidence | None) -> str:
    """A state with its evidence, such as `completed, refuted`."""
    return f"{state}, {evidence}" if evidence else state


def outcome_mark(state: str, evidence: Evidence | None) -> str:
    """The mark of a worker, a task or a swarm that has ended; empty for one that has not.

    Only verified work has a check mark.
    """
    match state:
        case "completed":
            return OUTCOME_MARKS[evidence]
        case "failed":
            return "✗"
        case "cancelled":
            return "✗" if evidence == "refuted" else "■"
        case _:
            return ""


def quote_worker_text(text: str, *, within_line: bool = False) -> str:
    """A worker's text between go-ent's own lines: lines that look like those are quoted.

    With `within_line`, the text continues a line that has begun.
    """
    head, end, rest = text.partition("\n") if within_line else ("", "", text)
    return head + end + _OWN_MARK.sub("> ", rest)
