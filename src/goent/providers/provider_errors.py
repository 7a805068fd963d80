"""Reads errors and rate limits as vendors report them, and writes errors in their shape.

The words count more than the status: vendors answer 400 to an empty account, and 429 too.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime

import msgspec
from msgspec import Struct

from goent.domain.errors import (
    AuthRefused,
    ContextOverflow,
    OutOfCredit,
    Overloaded,
    ProviderDown,
    ProviderRefused,
    ProviderTimeout,
    ProviderUnavailable,
    RateLimited,
    UnknownModel,
    WorkerError,
)
from goent.domain.types import Dialect, Value
from goent.providers.model_messages import AnswerChunk, ErrorPiece, StopPiece, ToolPiece, UsagePiece

MAX_ERROR_TEXT = 500  # characters of a provider's message that are worth keeping

_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    504: "timeout_error",
}


class _ErrorDetail(Struct):
    message: str | None = None
    type: str | None = None
    code: str | int | None = None


class _ErrorBody(Struct):
    error: _ErrorDetail | str | None = None
    message: str | None = None
    detail: str | None = None
    code: str | int | None = None


class ErrorDetails(Value, frozen=True, kw_only=True):
    """What an error says for people, and the words by which programs know it."""

    message: str
    kind: str = ""
    code: str = ""


_DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_decode_error = msgspec.json.Decoder(_ErrorBody).decode
_decode_error_list = msgspec.json.Decoder(tuple[_ErrorBody]).decode  # Google's way


def read_error(body: bytes) -> ErrorDetails:
    """The provider's own words, or the beginning of whatever it sent instead."""
    told = _decode_any(body)
    detail = told.error if isinstance(told.error, _ErrorDetail) else _ErrorDetail()
    said = told.error if isinstance(told.error, str) else detail.message
    # Cut before it is decoded: a page of megabytes is not worth it.
    text = (
        said or told.message or told.detail or body[: 4 * MAX_ERROR_TEXT].decode(errors="replace")
    )
    code = told.code if detail.code is None else detail.code
    return ErrorDetails(
        message=text.strip()[:MAX_ERROR_TEXT],
        kind=detail.type or "",
        code="" if code is None else str(code),
    )


def _decode_any(body: bytes) -> _ErrorBody:
    with suppress(*_DECODE_ERRORS):
        return _decode_error(body)
    with suppress(*_DECODE_ERRORS):
        return _decode_error_list(body)[0]
    return _ErrorBody()


def error_body(dialect: Dialect, status: int, message: str, code: str | None = None) -> bytes:
    """An answer's body that says so in the vendor's shape."""
    kind = _ERROR_TYPES.get(status, "api_error")
    if dialect == "anthropic":
        return msgspec.json.encode({"type": "error", "error": {"type": kind, "message": message}})
    error = {"message": message, "type": kind, "param": None, "code": code}
    return msgspec.json.encode({"error": error})


def error_event(dialect: Dialect, message: str) -> bytes:
    """The same in the middle of a stream."""
    name = b"event: error\n" if dialect == "anthropic" else b""
    return name + b"data: " + error_body(dialect, 500, message) + b"\n\n"


MAX_RESET_S = 30 * 24 * 3600.0  # beyond it somebody means something else

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_UNITS["d"] = 24 * 3600.0
_DURATION_PART = r"(\d+(?:\.\d*)?)(ns|us|µs|ms|s|m|h|d)"
_DURATION = re.compile(rf"(?:{_DURATION_PART})+")
_FIRST_EPOCH = 1e9  # smaller numbers are seconds to wait; larger ones a time, in seconds
_FIRST_EPOCH_MS = 1e11  # or in milliseconds

# The windows that vendors name, with the names of what is left in them and when it is full again.
_REQUEST_HEADERS = (
    ("anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset"),
    ("x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
    ("x-ratelimit-remaining", "x-ratelimit-reset"),
)
_TOKEN_HEADERS = (
    ("anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-reset"),
    ("anthropic-ratelimit-input-tokens-remaining", "anthropic-ratelimit-input-tokens-reset"),
    ("anthropic-ratelimit-output-tokens-remaining", "anthropic-ratelimit-output-tokens-reset"),
    ("x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
)


class RateLimitState(Value, frozen=True, kw_only=True):
    """What is left, as far as it was told.

    `resets_in_s`: until nothing is used up any more; or, as nothing is, until all is full again.
    """

    requests_left: int | None = None
    tokens_left: int | None = None
    resets_in_s: float | None = None
    retry_after_s: float | None = None

    @property
    def is_exhausted(self) -> bool:
        return 0 in (self.requests_left, self.tokens_left)


class _LimitWindow(Value, frozen=True, kw_only=True):
    left: int | None
    resets_in_s: float | None


def read_rate_limits(headers: Iterable[tuple[bytes, bytes]], *, now: float) -> RateLimitState:
    """`now` is the time of day in seconds since 1970."""
    told = {
        name.decode("latin-1").lower(): value.decode("latin-1").strip() for name, value in headers
    }
    requests = tuple(_windows(told, _REQUEST_HEADERS, now))
    tokens = tuple(_windows(told, _TOKEN_HEADERS, now))
    windows = (*requests, *tokens)
    empty = [window for window in windows if window.left == 0]
    resets = [w.resets_in_s for w in empty or windows if w.resets_in_s is not None]
    return RateLimitState(
        requests_left=_least_left(requests),
        tokens_left=_least_left(tokens),
        resets_in_s=max(resets, default=None),
        retry_after_s=_retry_after(told, now),
    )


def _windows(
    told: Mapping[str, str], names: Iterable[tuple[str, str]], now: float
) -> Iterator[_LimitWindow]:
    for left, reset in names:
        if left in told or reset in told:
            yield _LimitWindow(
                left=_count(told.get(left, "")), resets_in_s=_seconds_until(told.get(reset), now)
            )


def _least_left(windows: Iterable[_LimitWindow]) -> int | None:
    return min((w.left for w in windows if w.left is not None), default=None)


def _count(value: str) -> int | None:
    number = _number(value)
    return None if number is None else max(0, int(number))


def _retry_after(told: Mapping[str, str], now: float) -> float | None:
    milliseconds = _number(told.get("retry-after-ms", ""))
    if milliseconds is not None:
        return _bounded(milliseconds / 1000)
    return _seconds_until(told.get("retry-after"), now)


def _seconds_until(value: str | None, now: float) -> float | None:
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
        parts = re.findall(_DURATION_PART, value)
        return _bounded(sum(float(amount) * _UNITS[unit] for amount, unit in parts))
    moment = _timestamp(value)
    return None if moment is None else _bounded(moment - now)


def _number(value: str) -> float | None:
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _timestamp(value: str) -> float | None:
    for parse in (datetime.fromisoformat, _http_date):
        with suppress(ValueError, OverflowError):
            moment = parse(value)
            # Vendors mean UTC where they name no zone.
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return None


def _http_date(value: str) -> datetime:
    return datetime.strptime(value, "%a, %d %b %Y %H:%M:%S GMT").replace(tzinfo=UTC)


def _bounded(seconds: float) -> float | None:
    return max(0.0, seconds) if seconds <= MAX_RESET_S else None


def error_piece(data: bytes) -> ErrorPiece:
    """An error as its vendor put it."""
    words = read_error(data)
    return ErrorPiece(message=words.message, kind=words.kind or words.code)


def malformed_piece(data: bytes, error: Exception) -> ErrorPiece:
    shown = data[:MAX_ERROR_TEXT].decode(errors="replace")
    return ErrorPiece(message=f"no answer of this dialect ({error}): {shown!r}", kind="malformed")


def with_stop(chunks: tuple[AnswerChunk, ...], body: bytes) -> tuple[AnswerChunk, ...]:
    """A plain answer is whole, so it has an end; if it says nothing at all, it is none."""
    if any(isinstance(chunk, StopPiece | ErrorPiece) for chunk in chunks):
        return chunks
    if all(isinstance(chunk, UsagePiece) for chunk in chunks):
        return *chunks, malformed_piece(body, ValueError("there is nothing in it"))
    calls = any(isinstance(chunk, ToolPiece) for chunk in chunks)
    return *chunks, StopPiece(reason="tool_calls" if calls else "end")


_HTML_PAGE = re.compile(rb"\s*<(?:!doctype|html|\?xml|head|body)", re.IGNORECASE)

# Codes and types that mean one thing, whatever the status.
_FAILURES_BY_WORD: dict[str, type[WorkerError]] = {
    "context_length_exceeded": ContextOverflow,
    "request_too_large": ContextOverflow,
    "string_above_max_length": ContextOverflow,
    "1261": ContextOverflow,  # Z.AI's numbers
    "insufficient_quota": OutOfCredit,
    "billing_error": OutOfCredit,
    "billing_hard_limit_reached": OutOfCredit,
    "exceeded_current_quota_error": OutOfCredit,  # Moonshot
    "1113": OutOfCredit,
    "authentication_error": AuthRefused,
    "invalid_api_key": AuthRefused,
    "permission_error": AuthRefused,
    "invalid_authentication_error": AuthRefused,  # Moonshot
    "model_not_found": UnknownModel,
    "1211": UnknownModel,
    "overloaded_error": Overloaded,
    "overloaded": Overloaded,
    "engine_overloaded_error": Overloaded,  # Moonshot
    "insufficient_system_resource": Overloaded,  # DeepSeek
    "1305": Overloaded,
    "rate_limit_error": RateLimited,
    "rate_limit_exceeded": RateLimited,
    "rate_limit_reached_error": RateLimited,  # Moonshot
    "timeout_error": ProviderTimeout,
    "server_error": ProviderDown,
    "api_error": ProviderDown,
    "network_error": ProviderDown,
}
# What only the message tells.
_OVERFLOW_TEXT = re.compile(
    r"prompt is too long|context (?:length|window|limit|size)|too many (?:input )?tokens"
    r"|maximum (?:context|prompt|input) length|prompt exceeds|exceeds? .{0,40}context"
    r"|input length should be|reduce the length",
    re.IGNORECASE,
)
_NO_CREDIT_TEXT = re.compile(
    r"credit balance|insufficient (?:balance|credits?|funds)|exceeded your current quota"
    r"|out of credits?|requires more credits|account .{0,40}(?:suspended|overdue)",
    re.IGNORECASE,
)
_NO_MODEL_TEXT = re.compile(
    r"model\b.{0,80}(?:not exist|not found|not available)|unknown model|no such model"
    r"|invalid model|not a valid model|^model: ",
    re.IGNORECASE,
)
_OVERLOAD_TEXT = re.compile(r"overloaded|at capacity|server is busy", re.IGNORECASE)
_FAILURES_BY_STATUS: dict[int, type[WorkerError]] = {
    401: AuthRefused,
    402: OutOfCredit,
    403: AuthRefused,
    408: ProviderTimeout,
    413: ContextOverflow,
    429: RateLimited,
    503: Overloaded,
    504: ProviderTimeout,
    524: ProviderTimeout,  # Cloudflare's
    529: Overloaded,
}
_REMEDIES: dict[type[WorkerError], str] = {
    AuthRefused: "check the backend's key; it is tried again after a minute, or immediately after "
    "`go-ent providers reset {backend}`",
    OutOfCredit: "top up the account, or choose another provider",
    UnknownModel: "choose a model that the provider offers",
    ContextOverflow: "start anew with less, or choose a model with a larger window",
}
_FIRST_SERVER_ERROR = 500
_NOT_FOUND = 404
_TOO_MANY_REQUESTS = 429
_BASE_URL_REMEDY = "check the backend's base_url"


def failure_from_answer(
    backend: str, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes, *, now: float
) -> WorkerError:
    """The error that an answer with this status stands for; `now` as for `read_limits`."""
    is_page = bool(_HTML_PAGE.match(body))
    words = ErrorDetails(message="a page of HTML") if is_page else read_error(body)
    kind = _failure_kind(words, status)
    misled = kind is ProviderRefused and (is_page or status == _NOT_FOUND)
    remedy = _BASE_URL_REMEDY if misled else _REMEDIES.get(kind)
    said = f"backend {backend!r} answered {status}: {words.message or 'nothing'}"
    message = f"{said} ({remedy.format(backend=backend)})" if remedy else said
    if issubclass(kind, ProviderUnavailable):
        return kind(message, retry_after_s=_pause_asked(read_rate_limits(headers, now=now)))
    return kind(message)


def failure_in_stream(backend: str, broken: ErrorPiece) -> WorkerError:
    """The error for a `ErrorPiece` in the place of an answer or of its rest."""
    kind = _failure_kind(
        ErrorDetails(message=broken.message, kind=broken.kind), _FIRST_SERVER_ERROR
    )
    return kind(f"backend {backend!r} broke off its answer: {broken.message}")


def _failure_kind(words: ErrorDetails, status: int) -> type[WorkerError]:
    for word in (words.code, words.kind):
        if word in _FAILURES_BY_WORD and not _is_vague(word, status):
            return _FAILURES_BY_WORD[word]
    return (
        _failure_kind_of_text(words.message, status)
        or _FAILURES_BY_STATUS.get(status)
        or (ProviderDown if status >= _FIRST_SERVER_ERROR else ProviderRefused)
    )


def _failure_kind_of_text(message: str, status: int) -> type[WorkerError] | None:
    if status != _TOO_MANY_REQUESTS and _OVERFLOW_TEXT.search(message):
        return ContextOverflow
    if _NO_CREDIT_TEXT.search(message):
        return OutOfCredit
    if status < _FIRST_SERVER_ERROR and _NO_MODEL_TEXT.search(message):
        return UnknownModel
    return Overloaded if _OVERLOAD_TEXT.search(message) else None


def _is_vague(word: str, status: int) -> bool:
    """Words that some vendors say of everything: there the status knows better."""
    return word in {"api_error", "server_error"} and (
        status == _NOT_FOUND or status in _FAILURES_BY_STATUS
    )


def _pause_asked(limits: RateLimitState) -> float | None:
    if limits.retry_after_s is not None:
        return limits.retry_after_s
    return limits.resets_in_s if limits.is_exhausted else None
