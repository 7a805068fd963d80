"""Badges: how the state of a worker, a task or a swarm looks, with what its outcome rests on."""

from collections.abc import Mapping
from typing import Final

from goent.domain.swarms import TaskState
from goent.domain.types import Evidence, Value
from goent.domain.verification import outcome_mark, outcome_words

MARKS: Final[Mapping[TaskState, str]] = {
    "pending": "·",
    "blocked": "-",
    "starting": "○",
    "running": "●",
    "waiting": "?",
}
STYLES: Final[Mapping[TaskState, str]] = {
    "pending": "dim",
    "blocked": "red",
    "starting": "cyan",
    "running": "cyan",
    "waiting": "bold yellow",
    "failed": "red",
    "cancelled": "yellow",
}


class Badge(Value, frozen=True, kw_only=True):
    """A mark, the words beside it, and the colour of both."""

    mark: str
    words: str
    style: str

    @property
    def text(self) -> str:
        return f"{self.mark} {self.words}"

    @property
    def title_style(self) -> str:
        return f"bold {self.style}".strip()


def badge(state: TaskState, evidence: Evidence | None) -> Badge:
    """Green is verified work alone, red is failed or refuted work; a claim has no colour."""
    return Badge(
        mark=outcome_mark(state, evidence) or MARKS[state],
        words=outcome_words(state, evidence),
        style=_style(state, evidence),
    )


def _style(state: TaskState, evidence: Evidence | None) -> str:
    if evidence == "refuted":
        return "red"
    if state == "completed":
        return "green" if evidence == "verified" else ""
    return STYLES[state]
