"""Reads errors and rate limits as vendors report them, and writes errors in their shape.

An error's words count more than its status: for an empty account, vendors answer 400 or 429.
"""

import math
import re
from collections.abc import Iterable, Mapping
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

MAX_ERROR_TEXT = 500  # characters of a provider's message that are kept

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
    """An error's message, and the words by which programs recognize it."""

    message: str
    kind: str = ""
    code: str = ""


_DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_decode_error = msgspec.json.Decoder(_ErrorBody).decode
_decode_error_list = msgspec.json.Decoder(tuple[_ErrorBody]).decode  # Google's way


def read_error(body: bytes) -> ErrorDetails:
    """The provider's error, or the beginning of whatever it sent instead."""
    answer = _decode_any(body)
    detail = answer.error if isinstance(answer.error, _ErrorDetail) else _ErrorDetail()
    message = answer.error if isinstance(answer.error, str) else detail.message
    message = message or answer.message or answer.detail
    if not message:  # cut first: the body may be megabytes long
        message = body[: 4 * MAX_ERROR_TEXT].decode(errors="replace")
    code = answer.code if detail.code is None else detail.code
    return ErrorDetails(
        message=message.strip()[:MAX_ERROR_TEXT],
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
    """The body of an error answer in the vendor's shape."""
    kind = _ERROR_TYPES.get(status, "api_error")
    if dialect == "anthropic":
        return msgspec.json.encode({"type": "error", "error": {"type": kind, "message": message}})
    error = {"message": message, "type": kind, "param": None, "code": code}
    return msgspec.json.encode({"error": error})


def error_event(dialect: Dialect, message: str) -> bytes:
    """An error as an event in the middle of a stream."""
    name = b"event: error\n" if dialect == "anthropic" else b""
    return name + b"data: " + error_body(dialect, 500, message) + b"\n\n"


MAX_RESET_S = 30 * 24 * 3600.0  # a longer time is not a reset

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_UNITS["d"] = 24 * 3600.0
_DURATION_PART = r"(\d+(?:\.\d*)?)(ns|us|µs|ms|s|m|h|d)"
_DURATION = re.compile(rf"(?:{_DURATION_PART})+")
_FIRST_EPOCH = 1e9  # smaller numbers are seconds to wait; larger ones seconds since 1970
_FIRST_EPOCH_MS = 1e11  # and these are milliseconds

# The headers for what is left of a limit and when it resets, by vendor.
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
    """What is left of the rate limits, as far as the headers say.

    `resets_in_s`: until none is exhausted any more, or if none is, until all have reset.
    """

    requests_left: int | None = None
    tokens_left: int | None = None
    resets_in_s: float | None = None
    retry_after_s: float | None = None

    @property
    def is_exhausted(self) -> bool:
        return 0 in (self.requests_left, self.tokens_left)


_Window = tuple[int | None, float | None]  # what is left, and the seconds until it resets


def read_rate_limits(headers: Iterable[tuple[bytes, bytes]], *, now: float) -> RateLimitState:
    """`now` is in seconds since 1970."""
    values = {
        name.decode("latin-1").lower(): value.decode("latin-1").strip() for name, value in headers
    }
    requests = _windows(values, _REQUEST_HEADERS, now)
    tokens = _windows(values, _TOKEN_HEADERS, now)
    windows = [*requests, *tokens]
    exhausted = [window for window in windows if window[0] == 0]
    resets = (reset for _, reset in exhausted or windows if reset is not None)
    return RateLimitState(
        requests_left=_least_left(requests),
        tokens_left=_least_left(tokens),
        resets_in_s=max(resets, default=None),
        retry_after_s=_retry_after(values, now),
    )


def _windows(
    values: Mapping[str, str], names: Iterable[tuple[str, str]], now: float
) -> list[_Window]:
    return [
        (_count(values.get(left, "")), _seconds_until(values.get(reset), now))
        for left, reset in names
        if left in values or reset in values
    ]


def _least_left(windows: Iterable[_Window]) -> int | None:
    return min((left for left, _ in windows if left is not None), default=None)


def _count(value: str) -> int | None:
    number = _number(value)
    return None if number is None else max(0, int(number))


def _retry_after(values: Mapping[str, str], now: float) -> float | None:
    milliseconds = _number(values.get("retry-after-ms", ""))
    if milliseconds is not None:
        return _bounded(milliseconds / 1000)
    return _seconds_until(values.get("retry-after"), now)


def _seconds_until(value: str | None, now: float) -> float | None:
    """Seconds from now, for a number of seconds, a duration, seconds since 1970 or a date."""
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
            # Without a zone, vendors mean UTC.
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return None


def _http_date(value: str) -> datetime:
    return datetime.strptime(value, "%a, %d %b %Y %H:%M:%S GMT").replace(tzinfo=UTC)


def _bounded(seconds: float) -> float | None:
    return max(0.0, seconds) if seconds <= MAX_RESET_S else None


def error_piece(data: bytes) -> ErrorPiece:
    """A vendor's error event."""
    details = read_error(data)
    return ErrorPiece(message=details.message, kind=details.kind or details.code)


def malformed_piece(data: bytes, error: Exception) -> ErrorPiece:
    excerpt = data[:MAX_ERROR_TEXT].decode(errors="replace")
    message = f"not an answer of this dialect ({error}): {excerpt!r}"
    return ErrorPiece(message=message, kind="malformed")


def with_stop(chunks: tuple[AnswerChunk, ...], body: bytes) -> tuple[AnswerChunk, ...]:
    """The chunks of a complete answer with a stop reason; an empty answer is malformed."""
    if any(isinstance(chunk, StopPiece | ErrorPiece) for chunk in chunks):
        return chunks
    if all(isinstance(chunk, UsagePiece) for chunk in chunks):
        return *chunks, malformed_piece(body, ValueError("it is empty"))
    calls = any(isinstance(chunk, ToolPiece) for chunk in chunks)
    return *chunks, StopPiece(reason="tool_calls" if calls else "end")


_HTML_PAGE = re.compile(rb"\s*<(?:!doctype|html|\?xml|head|body)", re.IGNORECASE)

# Codes and types with one meaning, whatever the status.
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
# Where only the message says what is wrong.
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
    AuthRefused: "check the backend's key; go-ent retries after a minute, or immediately after "
    "`go-ent providers reset {backend}`",
    OutOfCredit: "top up the account, or choose another provider",
    UnknownModel: "choose a model that the provider offers",
    ContextOverflow: "start a new worker with less context, or choose a model with a larger window",
}
_FIRST_SERVER_ERROR = 500
_NOT_FOUND = 404
_TOO_MANY_REQUESTS = 429
_BASE_URL_REMEDY = "check the backend's base_url"


def failure_from_answer(
    backend: str, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes, *, now: float
) -> WorkerError:
    """The error that an answer with this status stands for; `now` as for `read_rate_limits`."""
    is_page = bool(_HTML_PAGE.match(body))
    details = ErrorDetails(message="an HTML page") if is_page else read_error(body)
    kind = _failure_kind(details, status)
    wrong_address = kind is ProviderRefused and (is_page or status == _NOT_FOUND)
    remedy = _BASE_URL_REMEDY if wrong_address else _REMEDIES.get(kind)
    message = f"backend {backend!r} answered {status}: {details.message or 'nothing'}"
    if remedy:
        message += f" ({remedy.format(backend=backend)})"
    if issubclass(kind, ProviderUnavailable):
        return kind(message, retry_after_s=_pause_asked(read_rate_limits(headers, now=now)))
    return kind(message)


def failure_in_stream(backend: str, broken: ErrorPiece) -> WorkerError:
    """The error for an `ErrorPiece` in place of an answer or its rest."""
    details = ErrorDetails(message=broken.message, kind=broken.kind)
    kind = _failure_kind(details, _FIRST_SERVER_ERROR)
    return kind(f"backend {backend!r} broke off its answer: {broken.message}")


def _failure_kind(details: ErrorDetails, status: int) -> type[WorkerError]:
    for word in (details.code, details.kind):
        if word in _FAILURES_BY_WORD and not _is_vague(word, status):
            return _FAILURES_BY_WORD[word]
    return (
        _failure_kind_of_text(details.message, status)
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
    """Whether some vendors use the word for any error, so that the status says more."""
    return word in {"api_error", "server_error"} and (
        status == _NOT_FOUND or status in _FAILURES_BY_STATUS
    )


def _pause_asked(limits: RateLimitState) -> float | None:
    if limits.retry_after_s is not None:
        return limits.retry_after_s
    return limits.resets_in_s if limits.is_exhausted else None
