"""Does a task need hands, or will words do? And does it ask for an edit, beyond doubt?"""

import re
from typing import Final

from goent.domain.tasks import Classification, TaskType

TALKING: Final[frozenset[TaskType]] = frozenset({"analyze", "review", "documentation"})
EDITING: Final[frozenset[TaskType]] = frozenset(
    {"implement", "fix", "refactor", "documentation", "test", "format"}
)
SURE: Final = 0.6  # of the type

_ASKS: Final = re.compile(
    r"\?\s*$|^\s*(?:what|why|how|when|which|who|where|is|are|does|do|can|could|should|would"
    r"|explain|describe|compare|summari[sz]e|tell me|translate)\b",
    re.IGNORECASE,
)
_LOOKS: Final = re.compile(
    r"\s*(?:please\s+)?(?:review|check|find|list|look|show|read|count|search|inspect|examine|audit)\b",
    re.IGNORECASE,
)
# Whoever says these has something on disk in mind, which only a worker with tools can open.
_AROUND: Final = re.compile(
    r"\b(?:this|these|those|repo(?:sitory)?|code ?base|here|our|my|we|us|it)\b"
    r"|\bthe (?!differences?|best|most|main|same|meaning|purpose|point|advantages?|concept|usual)\w"
    r"|(?<![\w-])[\w-]+/[\w./-]|\b\w+\.(?:py|js|ts|tsx|go|rs|java|c|h|cpp|rb|md|toml|ya?ml|json|sh|sql)\b",
    re.IGNORECASE,
)
_CHANGES: Final = re.compile(
    r"\b(?:write|add|create|change|edit|update|rename|move|delete|remove|fix|refactor|implement"
    r"|replace|commit|run|install)\b",
    re.IGNORECASE,
)
# The task begins with one of these: what comes later may be about them, or a condition.
_EDITS: Final = re.compile(
    r"\s*(?:(?:feat|fix|bugfix|refactor|docs?|tests?|style|lint|format)(?:\([^()\n]{1,40}\))?!?:\s"
    r"|(?:(?:please|now|just|then)[\s,]{1,3}){0,3}"
    r"(?:fix|implement|refactor|add|remove|delete|rename|replace|update|edit|change|move|extract"
    r"|split|introduce|document|format|reformat|lint|bump|upgrade|migrate|(?P<makes>write|create))"
    r"\b(?!\s+(?:me|us|nothing|up)\b))",
    re.IGNORECASE,
)
_QUOTED: Final = re.compile("```.*?(?:```|\\Z)", re.DOTALL)
_FILE: Final = re.compile(
    r"(?<![\w-])[\w.-]+/(?:[\w.-]+/|[\w-]*\.\w)|\b(?:readme|changelog|makefile)\b"
    r"|\b\w+\.(?:py|js|ts|tsx|css|html|go|rs|java|c|h|cpp|rb|md|txt|toml|ya?ml|json|sh|sql)\b",
    re.IGNORECASE,
)
_OF_PROJECT: Final = re.compile(
    r"\b(?:repo(?:sitory)?|code ?base|our|my)\b"
    r"|\bthe (?!following|differences?|best|most|main|same|meaning|purpose|point|concept|usual)\w",
    re.IGNORECASE,
)
_UNTOUCHED: Final = re.compile(
    r"\b(?:do not|don't|without) (?:actually )?(?:chang|edit|modify|touch|writ)\w{0,4} "
    r"(?:any|the code|the files|code|files|it\b|to disk)"
    r"|\b(?:change|edit|modify|touch) nothing\b|\bno (?:code |file )?(?:changes|edits)\b|\bdry[ -]run\b"
    r"|\b(?:just|only) (?:say|tell|answer|reply|suggest|propose|plan|show|print)\b"
    r"|\b(?:answer|reply|respond) (?:with|in|by|only)\b",
    re.IGNORECASE,
)
MOST: Final = 20_000  # characters that are looked at


def talk_only(text: str, kind: TaskType, *, attached: bool) -> bool:
    """A question whose answer is words, and all that it is about comes with it.

    `attached`: what there is to read is handed over with the task.
    """
    said = text[:MOST]
    if kind not in TALKING or not _ASKS.search(said) or _CHANGES.search(said):
        return False
    return attached or not _AROUND.search(said)


def only_reads(text: str, kind: TaskType) -> bool:
    """Whether all that the task asks for is to look at something and tell."""
    said = text[:MOST]
    if kind not in TALKING or _CHANGES.search(said):
        return False
    return kind != "documentation" or bool(_ASKS.search(said) or _LOOKS.match(said))


def edits_asked(text: str, task: Classification) -> bool:
    """Whether an answer in words alone cannot be what was asked for.

    In doubt it can: a right answer that is called wrong does more harm than a wrong one that passes.
    """
    said = _QUOTED.sub(" ", text[:MOST])
    begins = _EDITS.match(said)
    if task.type not in EDITING or begins is None or _ASKS.search(said) or _UNTOUCHED.search(said):
        return False
    if begins["makes"] and task.type == "documentation":
        return False  # a text, which may stand in the answer
    if _FILE.search(said):
        return True
    quotes = said != text[:MOST]  # what is quoted can be worked on in the answer
    return task.confidence >= SURE and not quotes and bool(_OF_PROJECT.search(said))
