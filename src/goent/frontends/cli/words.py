"""How are money, tokens, time and paths said to a person?"""

from datetime import UTC, datetime
from pathlib import Path

from goent.domain.tasks import TaskType
from goent.domain.types import Usage

THOUSAND = 1000
KIBI = 1024
MINUTE = 60
HOUR = 3600
DAY = 86400
BAR = 10


def money(usd: float | None) -> str:
    if usd is None:
        return "unknown price"
    return f"${usd:.4f}" if usd < 1 else f"${usd:,.2f}"


def tokens(usage: Usage) -> str:
    return f"{count(usage.total)} tokens" if usage.total else ""


def count(number: int) -> str:
    if number < 10 * THOUSAND:
        return f"{number:,}"
    if number < THOUSAND * THOUSAND:
        return f"{number / THOUSAND:.0f}k"
    return f"{number / THOUSAND / THOUSAND:.1f}M"


def size(count: int) -> str:
    """Of so many bytes."""
    figure, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB"):
        if figure < KIBI:
            break
        figure, unit = figure / KIBI, larger
    return f"{figure:.0f} {unit}" if unit == "B" or figure >= BAR else f"{figure:.1f} {unit}"


def calls(number: int) -> str:
    return "1 call" if number == 1 else f"{number} calls"


def extent(kind: TaskType, size: float, files: int) -> str:
    """How much a task will probably change: `about 40 lines in 2 files`."""
    if kind in ("analyze", "review"):
        return "nothing to change"
    return f"about {size:,.0f} line{'s' * (round(size) != 1)} in {files} file{'s' * (files != 1)}"


def duration(seconds: float) -> str:
    whole = int(seconds)
    if whole < MINUTE:
        return f"{whole}s"
    if whole < HOUR:
        return f"{whole // MINUTE}m{whole % MINUTE:02}s"
    if whole < DAY:
        return f"{whole // HOUR}h{whole % HOUR // MINUTE:02}m"
    return f"{whole // DAY}d{whole % DAY // HOUR}h"


def ago(timestamp: str) -> str:
    """How long ago; the timestamp is the API's."""
    then = datetime.fromisoformat(timestamp)
    return duration(max(0.0, (datetime.now(UTC) - then).total_seconds()))


def bar(percent: int) -> str:
    return f"{gauge(percent)} {percent}%"


def gauge(percent: int) -> str:
    full = round(percent / 100 * BAR)
    return "█" * full + "░" * (BAR - full)


def lines_changed(added: int | None, removed: int | None) -> str:
    if added is None or removed is None:
        return "changed"
    return f"+{added} -{removed}"


def near(path: str, base: str | Path) -> str:
    """The path as seen from there, if it lies below."""
    here = Path(base)
    return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else path
