"""Formats money, tokens, times, paths and the states of workers, tasks and swarms for people."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from goent.domain.swarm_messages import TaskState
from goent.domain.task_profile import TASK_CLAUSE, TaskType
from goent.domain.types import Evidence, Usage, Value
from goent.domain.verification import outcome_mark, outcome_words

THOUSAND = 1000
KIBI = 1024
MINUTE = 60
HOUR = 3600
DAY = 86400
BAR_CELLS = 10


def money(usd: float | None) -> str:
    if usd is None:
        return "unknown price"
    return f"${usd:.4f}" if usd < 1 else f"${usd:,.2f}"


def token_count(usage: Usage) -> str:
    return f"{short_number(usage.total)} tokens" if usage.total else ""


def short_number(number: int) -> str:
    if number < 10 * THOUSAND:
        return f"{number:,}"
    if number < THOUSAND * THOUSAND:
        return f"{number / THOUSAND:.0f}k"
    return f"{number / THOUSAND / THOUSAND:.1f}M"


def byte_size(count: int) -> str:
    figure, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB"):
        if figure < KIBI:
            break
        figure, unit = figure / KIBI, larger
    return f"{figure:.0f} {unit}" if unit == "B" or figure >= BAR_CELLS else f"{figure:.1f} {unit}"


def call_count(number: int) -> str:
    return "1 call" if number == 1 else f"{number} calls"


def expected_change(kind: TaskType, size: float, files: int) -> str:
    """How much a task will probably change: `about 40 lines in 2 files`."""
    if kind in ("analyze", "review"):
        return "nothing to change"
    return f"about {size:,.0f} line{'s' * (round(size) != 1)} in {files} file{'s' * (files != 1)}"


def route_reason(reason: str, *, verbose: bool) -> str:
    """Why a provider was chosen; `verbose`: also what the task was taken for, unless it is a guess."""
    why, clause, task = reason.partition(TASK_CLAUSE)
    return reason if verbose and clause and not task.startswith("probably ") else why


def token_words(count: int) -> str:
    return f"{count:,} token{'s' * (count != 1)}"


def duration(seconds: float) -> str:
    whole = int(seconds)
    if whole < MINUTE:
        return f"{whole}s"
    if whole < HOUR:
        return f"{whole // MINUTE}m{whole % MINUTE:02}s"
    if whole < DAY:
        return f"{whole // HOUR}h{whole % HOUR // MINUTE:02}m"
    return f"{whole // DAY}d{whole % DAY // HOUR}h"


def age(timestamp: str) -> str:
    """How long ago a timestamp of the API was."""
    then = datetime.fromisoformat(timestamp)
    return duration(max(0.0, (datetime.now(UTC) - then).total_seconds()))


def progress_bar(percent: int) -> str:
    full = round(percent / 100 * BAR_CELLS)
    return f"{'█' * full}{'░' * (BAR_CELLS - full)} {percent}%"


def lines_changed(added: int | None, removed: int | None) -> str:
    if added is None or removed is None:
        return "changed"
    return f"+{added} -{removed}"


def relative_path(path: str, base: str | Path) -> str:
    """The path relative to the base, if it lies below it."""
    here = Path(base)
    return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else path


STATE_MARKS: Final[Mapping[TaskState, str]] = {
    "pending": "·",
    "blocked": "-",
    "starting": "○",
    "running": "●",
    "waiting": "?",
}
STATE_STYLES: Final[Mapping[TaskState, str]] = {
    "pending": "dim",
    "blocked": "red",
    "starting": "cyan",
    "running": "cyan",
    "waiting": "bold yellow",
    "failed": "red",
    "cancelled": "yellow",
}


class Badge(Value, frozen=True, kw_only=True):
    """A mark, its words, and the colour of both."""

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
    """Only verified work is green; failed or refuted work is red; a claim has no colour."""
    return Badge(
        mark=outcome_mark(state, evidence) or STATE_MARKS[state],
        words=outcome_words(state, evidence),
        style=_badge_style(state, evidence),
    )


def _badge_style(state: TaskState, evidence: Evidence | None) -> str:
    if evidence == "refuted":
        return "red"
    if state == "completed":
        return "green" if evidence == "verified" else ""
    return STATE_STYLES[state]
