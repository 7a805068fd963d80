"""What version 0.1 told of the state that is recorded in `v0_1/`, and how it is compared.

`state_recorder.py` recorded it when that version was current; it never changes. What was asked for then is in
`recorded_script.py`; `answers.json` is what the commands of version 0.1 told.
"""

from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from recorded_state import Recorded

FOLDER = Path(__file__).parent / "v0_1"
RECORDED = Recorded(FOLDER)
SESSION = "agent-3a572550d9ae"
TIDY, LEFT = "s-jrtnx", "s-ux3ca"


class Worker(NamedTuple):
    """A worker as version 0.1 told of it; `failure` is the kind of its failure."""

    id: str
    method: str
    provider: str
    state: str
    evidence: str | None
    failure: str | None
    cost_usd: float | None
    tokens: int
    files: tuple[str, ...] = ()


WORKERS = {
    "by acp": Worker("w-2gqyg", "acp", "glm", "completed", "claimed", None, 0.00102, 1100),
    "by cli": Worker("w-hvutx", "cli", "glm", "completed", "claimed", None, 0.00102, 1100),
    "by serve": Worker("w-ax7yj", "serve", "glm", "completed", "claimed", None, 0.00102, 1100),
    "by api": Worker("w-g4wn2", "api", "glm", "completed", "claimed", None, 0.00102, 1100),
    "by agent": Worker("w-aqska", "agent", "glm", "completed", "claimed", None, 0.00102, 1100),
    "two turns": Worker(
        "w-a9fzw", "acp", "glm", "completed", "verified", None, 0.00056, 480, ("hello.txt",)
    ),
    "verified": Worker(
        "w-tmurd", "acp", "glm", "completed", "verified", None, 0.00042, 360, ("hello.txt",)
    ),
    "refuted": Worker(
        "w-ccddy", "acp", "glm", "failed", "refuted", "verify_failed", 0.00042, 360, ("hello.txt",)
    ),
    "in a worktree": Worker(
        "w-jxbt9", "acp", "glm", "completed", "claimed", None, 0.00042, 360, ("hello.txt",)
    ),
    "over budget": Worker(
        *("w-dz28d", "acp", "glm", "failed", None, "budget_exceeded", 2.00002, 2_000_010),
        ("dear.txt",),
    ),
    "warned": Worker(
        "w-m6cwr", "acp", "glm", "completed", "claimed", None, 0.09516, 95130, ("some.txt",)
    ),
    "many turns": Worker("w-dd4sv", "api", "haiku", "completed", "claimed", None, 0.01445, 13770),
    "moved": Worker(
        "w-fru9v", "acp", "mine", "completed", "claimed", None, 0.00028, 240, ("direct.txt",)
    ),
    "call moved": Worker("w-8pfrw", "acp", "away", "completed", "claimed", None, 0.00014, 120),
    "stayed": Worker("w-shqqk", "acp", "away", "failed", None, "provider_overloaded", None, 0),
    "closed": Worker("w-kyqdy", "acp", "glm", "completed", "claimed", None, 0.00102, 1100),
    "allowed": Worker("w-dw7dj", "acp", "glm", "completed", "claimed", None, 0.00028, 240),
    "rejected": Worker("w-87sh7", "acp", "glm", "failed", None, "permission_denied", 0.00014, 120),
    "cancelled": Worker("w-wkapd", "acp", "glm", "cancelled", None, None, None, 0),
    "cancelled while it asked": Worker(
        "w-vpegv", "acp", "glm", "cancelled", None, None, 0.00014, 120
    ),
    "question withdrawn": Worker(
        "w-ztafs", "acp", "glm", "completed", "claimed", None, 0.00028, 240
    ),
    "another agent": Worker("w-aazyj", "agent", "actor", "completed", "claimed", None, None, 0),
    "told its costs": Worker("w-qk8vs", "agent", "actor", "completed", "claimed", None, 0.25, 15),
    "died": Worker("w-4mx3x", "agent", "actor", "failed", None, "worker_crashed", None, 0),
    "own agent": Worker(
        "w-3namm", "agent", "glm", "completed", "claimed", None, 0.00028, 240, ("note.txt",)
    ),
}
CLOSED = ("by cli", "closed")


def lacks(kept: object, again: object) -> bool:
    """Whether something that was kept is not there again. More may be there."""
    if isinstance(kept, dict) and isinstance(again, dict):
        theirs, ours = msgspec.convert(kept, dict[str, Any]), msgspec.convert(again, dict[str, Any])
        return any(key not in ours or lacks(theirs[key], ours[key]) for key in theirs)
    if isinstance(kept, list) and isinstance(again, list):
        rows, others = msgspec.convert(kept, list[Any]), msgspec.convert(again, list[Any])
        return len(rows) != len(others) or any(map(lacks, rows, others))
    return kept != again
