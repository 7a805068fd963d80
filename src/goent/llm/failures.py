"""What does a provider's no mean? Status, headers and body of its answer become one of our errors.

The words count more than the status: vendors answer 400 to an empty account, and 429 too.
"""

import re
from collections.abc import Iterable

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
from goent.llm.errors import ErrorWords, error_words
from goent.llm.limits import LimitsTold, read_limits
from goent.llm.talk import Broken

_PAGE = re.compile(rb"\s*<(?:!doctype|html|\?xml|head|body)", re.IGNORECASE)

# Codes and types that mean one thing, whatever the status.
_BY_WORD: dict[str, type[WorkerError]] = {
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
_TOO_LONG = re.compile(
    r"prompt is too long|context (?:length|window|limit|size)|too many (?:input )?tokens"
    r"|maximum (?:context|prompt|input) length|prompt exceeds|exceeds? .{0,40}context"
    r"|input length should be|reduce the length",
    re.IGNORECASE,
)
_NO_CREDIT = re.compile(
    r"credit balance|insufficient (?:balance|credits?|funds)|exceeded your current quota"
    r"|out of credits?|requires more credits|account .{0,40}(?:suspended|overdue)",
    re.IGNORECASE,
)
_NO_MODEL = re.compile(
    r"model\b.{0,80}(?:not exist|not found|not available)|unknown model|no such model"
    r"|invalid model|not a valid model|^model: ",
    re.IGNORECASE,
)
_BUSY = re.compile(r"overloaded|at capacity|server is busy", re.IGNORECASE)
_BY_STATUS: dict[int, type[WorkerError]] = {
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
_TOO_MANY = 429
_WRONG_PLACE = "check the backend's base_url"


def failure(
    backend: str, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes, *, now: float
) -> WorkerError:
    """The error that an answer with this status stands for; `now` as for `read_limits`."""
    is_page = bool(_PAGE.match(body))
    words = ErrorWords(message="a page of HTML") if is_page else error_words(body)
    kind = _kind(words, status)
    misled = kind is ProviderRefused and (is_page or status == _NOT_FOUND)
    remedy = _WRONG_PLACE if misled else _REMEDIES.get(kind)
    said = f"backend {backend!r} answered {status}: {words.message or 'nothing'}"
    message = f"{said} ({remedy.format(backend=backend)})" if remedy else said
    if issubclass(kind, ProviderUnavailable):
        return kind(message, retry_after_s=_patience(read_limits(headers, now=now)))
    return kind(message)


def broken_off(backend: str, broken: Broken) -> WorkerError:
    """The error for a `Broken` in the place of an answer or of its rest."""
    kind = _kind(ErrorWords(message=broken.message, kind=broken.kind), _FIRST_SERVER_ERROR)
    return kind(f"backend {backend!r} broke off its answer: {broken.message}")


def _kind(words: ErrorWords, status: int) -> type[WorkerError]:
    for word in (words.code, words.kind):
        if word in _BY_WORD and not _is_vague(word, status):
            return _BY_WORD[word]
    return (
        _kind_of_message(words.message, status)
        or _BY_STATUS.get(status)
        or (ProviderDown if status >= _FIRST_SERVER_ERROR else ProviderRefused)
    )


def _kind_of_message(message: str, status: int) -> type[WorkerError] | None:
    if status != _TOO_MANY and _TOO_LONG.search(message):
        return ContextOverflow
    if _NO_CREDIT.search(message):
        return OutOfCredit
    if status < _FIRST_SERVER_ERROR and _NO_MODEL.search(message):
        return UnknownModel
    return Overloaded if _BUSY.search(message) else None


def _is_vague(word: str, status: int) -> bool:
    """Words that some vendors say of everything: there the status knows better."""
    return word in {"api_error", "server_error"} and (status == _NOT_FOUND or status in _BY_STATUS)


def _patience(limits: LimitsTold) -> float | None:
    if limits.retry_after_s is not None:
        return limits.retry_after_s
    return limits.resets_in_s if limits.used_up else None
