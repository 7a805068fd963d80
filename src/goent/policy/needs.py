"""Does a task need hands, or will words do?"""

import re
from typing import Final

from goent.domain.tasks import TaskType

TALKING: Final[frozenset[TaskType]] = frozenset({"analyze", "review", "documentation"})

_ASKS: Final = re.compile(
    r"\?\s*$|^\s*(?:what|why|how|when|which|who|where|is|are|does|do|can|could|should|would"
    r"|explain|describe|compare|summari[sz]e|tell me|translate)\b",
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
MOST: Final = 20_000  # characters that are looked at


def talk_only(text: str, kind: TaskType, *, attached: bool) -> bool:
    """A question whose answer is words, and all that it is about comes with it.

    `attached`: what there is to read is handed over with the task.
    """
    said = text[:MOST]
    if kind not in TALKING or not _ASKS.search(said) or _CHANGES.search(said):
        return False
    return attached or not _AROUND.search(said)
