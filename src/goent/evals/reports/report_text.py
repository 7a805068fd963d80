"""Formats counts, rates, scores, costs and durations for all reports."""

from goent.evals.reports.run_summary import CostSummary, IntervalEstimate
from goent.evals.reports.statistics import Interval

SECOND_MS = 1000
MINUTE_MS = 60_000
TENTHS = 10


def pluralize(count: int, what: str) -> str:
    """So many of it: `1 case`, `2 cases`."""
    return f"{count:,} {what}{'s' * (count != 1)}"


def repeat_mark(count: int) -> str:
    """How often the same was found; nothing if it was once."""
    return f" \N{MULTIPLICATION SIGN}{count:,}" if count > 1 else ""


def answered_by_text(count: int, by: str, in_place_of: str) -> str:
    """Who has answered in place of a target."""
    verb = "was" if count == 1 else "were"
    return f"{pluralize(count, 'trial')} {verb} answered by {by} in place of {in_place_of}"


def left_out_text(gone: int) -> str:
    """What is said of rows whose trials the run no longer has."""
    verb, which = ("is", "a case or trial") if gone == 1 else ("are", "cases or trials")
    return f"{pluralize(gone, 'row')} {verb} of {which} that the suites no longer have: left out"


def duration_text(milliseconds: float | None) -> str:
    """A duration with as many figures as tell something."""
    if milliseconds is None:
        return "unknown"
    if milliseconds < SECOND_MS:
        return f"{milliseconds:.0f} ms"
    seconds = milliseconds / SECOND_MS
    if milliseconds < MINUTE_MS:
        return f"{seconds:.1f} s" if seconds < TENTHS else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s"


def percent_text(share: float) -> str:
    """100 % is said only of all, and 0 % only of none."""
    rounded = f"{share:.0%}"
    if rounded in {"100%", "0%"} and 0 < share < 1:
        return f"{share:.1%}" if f"{share:.1%}" not in {"100.0%", "0.0%"} else f"{share:.2%}"
    return rounded


def score_text(value: float) -> str:
    return f"{value:.2f}"


def interval_text(found: Interval | None, *, rate: bool) -> str:
    if found is None:
        return "no spread, no interval"
    say = percent_text if rate else score_text
    return f"{say(found.low)} to {say(found.high)}"


def estimate_text(found: IntervalEstimate | None, *, rate: bool) -> str:
    if found is None:
        return "none"
    return percent_text(found.value) if rate else score_text(found.value)


def money_text(usd: float) -> str:
    return f"${usd:,.2f}" if usd >= 1 else f"${usd:.4f}" if usd else "$0"


def price_tick(usd: float) -> str:
    """As short as it can be said, for the foot of a plot."""
    return f"${usd:g}"


def spent_text(found: CostSummary, trials: int) -> str:
    """A total only where every part is known."""
    if found.total_usd is not None:
        return money_text(found.total_usd)
    return (
        "unknown"
        if found.unknown == trials or not found.known_usd
        else f"at least {money_text(found.known_usd)}"
    )


def duration_tick(milliseconds: float) -> str:
    """As short as it can be said, for the foot of a plot."""
    if milliseconds < SECOND_MS:
        return f"{milliseconds:.0f} ms" if milliseconds else "0"
    return f"{milliseconds / SECOND_MS:g} s"


def count_text(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def truncate(words: str, limit: int) -> str:
    return words if len(words) <= limit else words[: limit - 1] + "…"
