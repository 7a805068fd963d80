"""How are rates, scores, money and time said on the page?"""

from goent.evals.reports.statistics import Interval
from goent.evals.reports.summary import Estimate, Spent
from goent.evals.reports.words import SECOND_MS


def percent(share: float) -> str:
    """100 % is said only of all, and 0 % only of none."""
    rounded = f"{share:.0%}"
    if rounded in {"100%", "0%"} and 0 < share < 1:
        return f"{share:.1%}" if f"{share:.1%}" not in {"100.0%", "0.0%"} else f"{share:.2%}"
    return rounded


def score(value: float) -> str:
    return f"{value:.2f}"


def interval(found: Interval | None, *, rate: bool) -> str:
    if found is None:
        return "no spread, no interval"
    say = percent if rate else score
    return f"{say(found.low)} to {say(found.high)}"


def estimate(found: Estimate | None, *, rate: bool) -> str:
    if found is None:
        return "none"
    return percent(found.value) if rate else score(found.value)


def money(usd: float) -> str:
    return f"${usd:,.2f}" if usd >= 1 else f"${usd:.4f}" if usd else "$0"


def price(usd: float) -> str:
    """As short as it can be said, for the foot of a plot."""
    return f"${usd:g}"


def spent(found: Spent, trials: int) -> str:
    """A total only where every part is known."""
    if found.total_usd is not None:
        return money(found.total_usd)
    return (
        "unknown"
        if found.unknown == trials or not found.known_usd
        else f"at least {money(found.known_usd)}"
    )


def tick(milliseconds: float) -> str:
    """As short as it can be said, for the foot of a plot."""
    if milliseconds < SECOND_MS:
        return f"{milliseconds:.0f} ms" if milliseconds else "0"
    return f"{milliseconds / SECOND_MS:g} s"


def count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def cut(words: str, limit: int) -> str:
    return words if len(words) <= limit else words[: limit - 1] + "…"
