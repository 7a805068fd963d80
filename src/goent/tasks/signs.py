"""What do people write when they mean one kind of task and no other? Rules by hand.

The learned weights have seen descriptions of changes. They have not seen questions, requests for a
review, stack traces, or a type that the author wrote in front: those are told apart here.
"""

import re
from typing import Final

from goent.domain.tasks import TaskType
from goent.domain.types import Value

PREFIXED: Final = 100  # characters in which a type may stand in front
READ: Final = 20_000  # characters in which signs are looked for
SURE: Final = 12.0
CLEAR: Final = 4.0
LIKELY: Final = 2.5
PREFIXES: Final[dict[str, TaskType]] = {
    "feat": "implement",
    "feature": "implement",
    "implement": "implement",
    "fix": "fix",
    "bugfix": "fix",
    "hotfix": "fix",
    "bug": "fix",
    "refactor": "refactor",
    "docs": "documentation",
    "doc": "documentation",
    "documentation": "documentation",
    "test": "test",
    "tests": "test",
    "style": "format",
    "lint": "format",
    "format": "format",
    "review": "review",
    "analyze": "analyze",
    "analyse": "analyze",
}

_PREFIX: Final = re.compile(
    rf"\s*({'|'.join(PREFIXES)})(\([^()\n]{{1,40}}\))?!?:\s+", re.IGNORECASE
)
_OPENING: Final = r"\s{0,80}(?:(?:please|can you|could you|i want you to|now|just)[\s,]{1,3}){0,3}"


_WHAT: Final = (
    r"(?:the|this|that|these|my|our|all|how|why|what|where|which|whether|if|me|us|[\w.-]*/)"
)


class Sign(Value, frozen=True, kw_only=True):
    """Something that speaks for a type, and how loudly."""

    name: str
    type: TaskType
    weight: float


_REVIEW: Final = (
    r"(?:(?:code[ -])?review|critique|audit|give (?:me )?feedback on|look over)\s+"
    r"(?:the|this|that|these|my|our|all|any|pr|pull|changes|diff|code|commit|branch|[\w.-]*/)"
)
_QUESTION: Final = (
    r"(?:why|what|what's|where|which|who|when|is|are|does|do|did"
    r"|how\s+(?:do|does|did|is|are|many|much|come|would|should|can))\s[^\n]{0,300}\?\s*(?:\Z|\n)"
)
_EXPLANATION: Final = (
    r"(?:explain|investigate|analy[sz]e|diagnose|find out|figure out|look into|summari[sz]e"
    r"|tell me|walk me through|understand|research)\s+"
)
_TESTS: Final = r"(?:(?:write|add) (?:\w+ ){0,2}tests?|test (?:that|the))\b"
_UNTOUCHED: Final = (
    r"\b(?:do not|don't|without) (?:chang|edit|modify|touch)\w{0,4} (?:any|the code|code|files)"
    r"|\bno (?:code )?changes\b"
)
_TRACE: Final = (
    r"Traceback \(most recent call last\)|\bpanicked at\b|^[ \t]{1,40}at [^\n]{1,200}:\d+\)?$"
    r"|^\w{0,40}(?:Error|Exception): |segmentation fault"
)
_FIRST: Final = (
    (Sign(name="asks for a review", type="review", weight=SURE), _REVIEW),
    (Sign(name="asks a question", type="analyze", weight=SURE), _QUESTION),
    (Sign(name="asks for an explanation", type="analyze", weight=SURE), _EXPLANATION + _WHAT),
    (Sign(name="asks to refactor", type="refactor", weight=CLEAR), r"refactor(?:ing)?\b"),
    (Sign(name="asks for a document", type="documentation", weight=LIKELY), r"document\b"),
    (Sign(name="asks for tests", type="test", weight=LIKELY), _TESTS),
    (Sign(name="asks to format", type="format", weight=LIKELY), r"(?:(?:re)?format|lint)\b"),
)
_ANYWHERE: Final = (
    (Sign(name="nothing is to be changed", type="analyze", weight=LIKELY), _UNTOUCHED),
    (Sign(name="stack trace", type="fix", weight=LIKELY), _TRACE),
)
_openings: Final = tuple(
    (sign, re.compile(_OPENING + pattern, re.IGNORECASE).match) for sign, pattern in _FIRST
)
_searches: Final = tuple(
    (sign, re.compile(pattern, re.IGNORECASE | re.MULTILINE).search) for sign, pattern in _ANYWHERE
)


def prefix(text: str) -> tuple[Sign | None, str]:
    """The type that the author wrote in front (`fix(ui): …`), and the text without it."""
    found = _PREFIX.match(text[:PREFIXED])
    if not found or found.end() == len(text):
        return None, text
    kind = PREFIXES[found[1].lower()]
    return Sign(name=f"begins with {found[1]!r}", type=kind, weight=SURE), text[found.end() :]


def signs(text: str) -> list[Sign]:
    read = text[:READ]
    return [sign for sign, found in (*_openings, *_searches) if found(read)]
