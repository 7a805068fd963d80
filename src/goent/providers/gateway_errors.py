"""Words gateway failures so that OpenCode does not retry, and parses them on the other side.

OpenCode retries silently for minutes at the statuses 408, 409, 429 and 5xx, and also, whatever the
status, if an error has such a number (even inside a port) or a word like `rate limit` or `overloaded`
in it. Other words make it compact its session with another call. go-ent has already retried all that
could be retried, so none of these statuses leaves the gateway, and the words are split by an
invisible character.

The message begins with the kind of the failure, because the status does not reach go-ent's driver.
"""

import re
from typing import NamedTuple

from goent.domain import errors

JOINER = "\N{WORD JOINER}"
# Every phrase that OpenCode 1.18 looks for has one of these, or a number of three digits.
_RETRY_WORDS = re.compile(
    r"rate|too|overload|unavailable|exhaust|error|terminat|fetch|upstream|connect|socket|reset|addr"
    r"|enotfound|econn|time|your|again|capacity|exceed|max|length|context",
    re.IGNORECASE,
)
_THREE_DIGITS = re.compile(r"\d\d(?=\d)")


def mask_retry_words(text: str) -> str:
    """The text with invisible characters in the words that make OpenCode retry."""
    return _THREE_DIGITS.sub(rf"\g<0>{JOINER}", _RETRY_WORDS.sub(_mask, text))


def unmask_retry_words(text: str) -> str:
    return text.replace(JOINER, "")


def _mask(found: re.Match[str]) -> str:
    return found[0][0] + JOINER + found[0][1:]


GAVE_UP_STATUS = 424
_STATUS_BY_ERROR: dict[type[errors.WorkerError], int] = {
    errors.ContextOverflow: 400,
    errors.AuthRefused: 401,
    errors.BudgetSpent: 402,
    errors.UnknownModel: 404,
}


class GatewayRefusal(NamedTuple):
    """The gateway's answer to a program."""

    status: int
    message: str
    code: str | None = None  # by which OpenCode knows that it has to compact its session


def gateway_refusal(error: errors.WorkerError) -> GatewayRefusal:
    status = _STATUS_BY_ERROR.get(type(error), GAVE_UP_STATUS if error.retryable else 400)
    message = f"go-ent: {error.kind}: {error}"
    if isinstance(error, errors.ContextOverflow):  # here OpenCode must understand the words
        return GatewayRefusal(status, message, "context_length_exceeded")
    return GatewayRefusal(status, mask_retry_words(message))


ERRORS_BY_KIND: dict[str, type[errors.WorkerError]] = {
    error.kind: error
    for error in (
        errors.AuthRefused,
        errors.BudgetSpent,
        errors.ContextOverflow,
        errors.ModelRefused,
        errors.OutOfCredit,
        errors.Overloaded,
        errors.ProviderDown,
        errors.ProviderRefused,
        errors.ProviderTimeout,
        errors.ProviderUnavailable,
        errors.RateLimited,
        errors.UnknownModel,
    )
}
_GATEWAY_MESSAGE = re.compile(r"go-ent: (?P<kind>\w+): (?P<text>.*)", re.DOTALL)


def is_gateway_message(message: str) -> bool:
    return _GATEWAY_MESSAGE.search(message) is not None


def gateway_failure(message: str) -> errors.WorkerError | None:
    """The failure that a message of the gateway stands for, if it is one of a known kind."""
    found = _GATEWAY_MESSAGE.search(unmask_retry_words(message))
    return failure_of_kind(found["kind"], found["text"]) if found else None


def failure_of_kind(kind: str, text: str) -> errors.WorkerError | None:
    """The failure of that kind, if it is known."""
    error = ERRORS_BY_KIND.get(kind)
    return error(text) if error else None
