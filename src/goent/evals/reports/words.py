"""How is said, in every report, how many there were of something, and how long it took?"""

SECOND_MS = 1000
MINUTE_MS = 60_000
TENTHS = 10


def numbered(count: int, what: str) -> str:
    """So many of it: `1 case`, `2 cases`."""
    return f"{count:,} {what}{'s' * (count != 1)}"


def times(count: int) -> str:
    """How often the same was found; nothing if it was once."""
    return f" \N{MULTIPLICATION SIGN}{count:,}" if count > 1 else ""


def answered(count: int, by: str, in_place_of: str) -> str:
    """Who has answered in place of a target."""
    verb = "was" if count == 1 else "were"
    return f"{numbered(count, 'trial')} {verb} answered by {by} in place of {in_place_of}"


def left_out(gone: int) -> str:
    """What is said of rows whose trials the run no longer has."""
    verb, which = ("is", "a case or trial") if gone == 1 else ("are", "cases or trials")
    return f"{numbered(gone, 'row')} {verb} of {which} that the suites no longer have: left out"


def took(milliseconds: float | None) -> str:
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
