"""What does a provider say about its rate limits? Headers of both vendors, good answer or not."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime

from goent.domain.types import Value

LONGEST_S = 30 * 24 * 3600.0  # beyond it somebody means something else

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_UNITS["d"] = 24 * 3600.0
_PART = r"(\d+(?:\.\d*)?)(ns|us|µs|ms|s|m|h|d)"
_DURATION = re.compile(rf"(?:{_PART})+")
_FIRST_EPOCH = 1e9  # smaller numbers are seconds to wait; larger ones a time, in seconds
_FIRST_EPOCH_MS = 1e11  # or in milliseconds

# The windows that vendors name, with the names of what is left in them and when it is full again.
_REQUESTS = (
    ("anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset"),
    ("x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
    ("x-ratelimit-remaining", "x-ratelimit-reset"),
)
_TOKENS = (
    ("anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-reset"),
    ("anthropic-ratelimit-input-tokens-remaining", "anthropic-ratelimit-input-tokens-reset"),
    ("anthropic-ratelimit-output-tokens-remaining", "anthropic-ratelimit-output-tokens-reset"),
    ("x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
)


class LimitsTold(Value, frozen=True, kw_only=True):
    """What is left, as far as it was told.

    `resets_in_s`: until nothing is used up any more; or, as nothing is, until all is full again.
    """

    requests_left: int | None = None
    tokens_left: int | None = None
    resets_in_s: float | None = None
    retry_after_s: float | None = None

    @property
    def used_up(self) -> bool:
        return 0 in (self.requests_left, self.tokens_left)


class _Window(Value, frozen=True, kw_only=True):
    left: int | None
    resets_in_s: float | None


def read_limits(headers: Iterable[tuple[bytes, bytes]], *, now: float) -> LimitsTold:
    """`now` is the time of day in seconds since 1970."""
    told = {
        name.decode("latin-1").lower(): value.decode("latin-1").strip() for name, value in headers
    }
    requests = tuple(_windows(told, _REQUESTS, now))
    tokens = tuple(_windows(told, _TOKENS, now))
    windows = (*requests, *tokens)
    empty = [window for window in windows if window.left == 0]
    resets = [w.resets_in_s for w in empty or windows if w.resets_in_s is not None]
    return LimitsTold(
        requests_left=_least(requests),
        tokens_left=_least(tokens),
        resets_in_s=max(resets, default=None),
        retry_after_s=_retry_after(told, now),
    )


def _windows(
    told: Mapping[str, str], names: Iterable[tuple[str, str]], now: float
) -> Iterator[_Window]:
    for left, reset in names:
        if left in told or reset in told:
            yield _Window(left=_count(told.get(left, "")), resets_in_s=_wait(told.get(reset), now))


def _least(windows: Iterable[_Window]) -> int | None:
    return min((w.left for w in windows if w.left is not None), default=None)


def _count(value: str) -> int | None:
    number = _number(value)
    return None if number is None else max(0, int(number))


def _retry_after(told: Mapping[str, str], now: float) -> float | None:
    milliseconds = _number(told.get("retry-after-ms", ""))
    if milliseconds is not None:
        return _bounded(milliseconds / 1000)
    return _wait(told.get("retry-after"), now)


def _wait(value: str | None, now: float) -> float | None:
    """Seconds from now: told as such, as a duration, as a number since 1970 or as a date."""
    if not value:
        return None
    number = _number(value)
    if number is not None:
        if number >= _FIRST_EPOCH_MS:
            number = number / 1000 - now
        elif number >= _FIRST_EPOCH:
            number -= now
        return _bounded(number)
    if _DURATION.fullmatch(value):
        parts = re.findall(_PART, value)
        return _bounded(sum(float(amount) * _UNITS[unit] for amount, unit in parts))
    moment = _moment(value)
    return None if moment is None else _bounded(moment - now)


def _number(value: str) -> float | None:
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _moment(value: str) -> float | None:
    for parse in (datetime.fromisoformat, _http_date):
        with suppress(ValueError, OverflowError):
            moment = parse(value)
            # Vendors mean UTC where they name no zone.
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return None


def _http_date(value: str) -> datetime:
    return datetime.strptime(value, "%a, %d %b %Y %H:%M:%S GMT").replace(tzinfo=UTC)


def _bounded(seconds: float) -> float | None:
    return max(0.0, seconds) if seconds <= LONGEST_S else None
