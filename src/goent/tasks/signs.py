"""Signs of a task's type that are read by hand-written rules, each with a weight.

The learned weights have seen descriptions of changes. They have not seen requests, questions, stack
traces, or a type that the author wrote in front.
"""

import re
from typing import Final

from goent.domain.tasks import TaskType
from goent.domain.types import Value
from goent.tasks.plain import COMPLAINT, NOTED, Reading

PREFIXED: Final = 100  # characters in which a type may stand in front
READ: Final = 20_000  # characters in which signs are looked for
SURE: Final = 20.0
CLEAR: Final = 4.0
LIKELY: Final = 2.5
BELOW: Final = 4.0  # the types that nothing was learned of begin so far below the others
UNLEARNED: Final[frozenset[TaskType]] = frozenset({"analyze", "review"})
WIDE: Final[frozenset[TaskType]] = frozenset({"implement", "refactor"})  # their verbs mean much
_NARROW: Final = (2.5, CLEAR, 8.0)  # as worded: like a change, likely to somebody, to somebody
_WIDE: Final = (0.25, 1.5, 8.0)
_COMPLAINT: Final = (1.5, 3.0, 3.0)
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


class Sign(Value, frozen=True, kw_only=True):
    """Something that speaks for a type, and how loudly."""

    name: str
    type: TaskType
    weight: float


_UNTOUCHED: Final = (
    r"\b(?:do not|don't|without) (?:chang|edit|modify|touch)\w{0,4} (?:any|the code|code|files)"
    r"|\bno (?:code )?changes\b"
)
_TRACE: Final = (
    r"Traceback \(most recent call last\)|\bpanicked at\b|^[ \t]{1,40}at [^\n]{1,200}:\d+\)?$"
    r"|^\w{0,40}(?:Error|Exception): |segmentation fault"
)
_ANYWHERE: Final = (
    (Sign(name="nothing is to be changed", type="analyze", weight=LIKELY), _UNTOUCHED),
    (Sign(name="stack trace", type="fix", weight=LIKELY), _TRACE),
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


def signs(text: str, asked: Reading | None) -> list[Sign]:
    """What `asked` says, and what is found anywhere."""
    read = text[:READ]
    found = [sign for sign, search in _searches if search(read)]
    return [_of_reading(asked), *found] if asked else found


def _of_reading(asked: Reading) -> Sign:
    """Changes are described in the words of requests: there the learned weights know better."""
    by_manner = _COMPLAINT if asked.rank == COMPLAINT else _WIDE if asked.type in WIDE else _NARROW
    weight = by_manner[asked.manner]
    if asked.type in UNLEARNED and asked.manner != NOTED:
        weight += BELOW
    return Sign(name=asked.name, type=asked.type, weight=weight)
