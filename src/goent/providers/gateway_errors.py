"""Words gateway failures so that OpenCode does not retry, and recognizes them on the other side.

OpenCode takes numbers (`503`, also inside a port) and words (`rate limit`, `overloaded`) anywhere in
an error for a fault that passes, whatever the status, and calls again for minutes; other words make
it shorten its talk, by another call. So these are cut by a character that nobody sees.

OpenCode calls again at 408, 409, 429 and 5xx, for a minute and a half and without a word, and where
a message holds such a number or a word of that kind. What could be tried again go-ent has tried, so
none of these leaves the gateway, and the message is a calm one. It begins with the kind of the
failure: no status reaches the driver on the other side.

The gateway says the kind of the failure in its message, because often nothing else gets through.
"""

import re
from typing import NamedTuple

from goent.domain.errors import (
    AuthRefused,
    BudgetSpent,
    ContextOverflow,
    ModelRefused,
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

JOINER = "\N{WORD JOINER}"
# One of them, or a number of three digits, is in every phrase that OpenCode 1.18 looks for.
_RETRY_WORDS = re.compile(
    r"rate|too|overload|unavailable|exhaust|error|terminat|fetch|upstream|connect|socket|reset|addr"
    r"|enotfound|econn|time|your|again|capacity|exceed|max|length|context",
    re.IGNORECASE,
)
_THREE_DIGITS = re.compile(r"\d\d(?=\d)")


def mask_retry_words(words: str) -> str:
    """The same to the eye, but not to a search for reasons."""
    return _THREE_DIGITS.sub(rf"\g<0>{JOINER}", _RETRY_WORDS.sub(_mask, words))


def unmask_retry_words(words: str) -> str:
    """As they were before."""
    return words.replace(JOINER, "")


def _mask(found: re.Match[str]) -> str:
    return found[0][0] + JOINER + found[0][1:]


GAVE_UP_STATUS = 424
_STATUS_BY_ERROR: dict[type[WorkerError], int] = {
    ContextOverflow: 400,
    AuthRefused: 401,
    BudgetSpent: 402,
    UnknownModel: 404,
}


class GatewayRefusal(NamedTuple):
    """What the program is answered."""

    status: int
    message: str
    code: str | None = None  # the word by which OpenCode knows that it has to shorten its talk


def gateway_refusal(error: WorkerError) -> GatewayRefusal:
    status = _STATUS_BY_ERROR.get(type(error), GAVE_UP_STATUS if error.retryable else 400)
    message = f"go-ent: {error.kind}: {error}"
    if isinstance(error, ContextOverflow):  # here OpenCode is to understand the words
        return GatewayRefusal(status, message, "context_length_exceeded")
    return GatewayRefusal(status, mask_retry_words(message))


ERRORS_BY_KIND: dict[str, type[WorkerError]] = {
    error.kind: error
    for error in (
        AuthRefused,
        BudgetSpent,
        ContextOverflow,
        ModelRefused,
        OutOfCredit,
        Overloaded,
        ProviderDown,
        ProviderRefused,
        ProviderTimeout,
        ProviderUnavailable,
        RateLimited,
        UnknownModel,
    )
}
_GATEWAY_MESSAGE = re.compile(r"go-ent: (?P<kind>\w+): (?P<text>.*)", re.DOTALL)


def is_gateway_message(message: str) -> bool:
    return _GATEWAY_MESSAGE.search(message) is not None


def gateway_failure(message: str) -> WorkerError | None:
    """The failure that a refusal of the gateway's tells, if it is of a kind that is known here."""
    told = _GATEWAY_MESSAGE.search(unmask_retry_words(message))
    return failure_of_kind(told["kind"], told["text"]) if told else None


def failure_of_kind(kind: str, text: str) -> WorkerError | None:
    """A failure by the name that go-ent gives its kind."""
    error = ERRORS_BY_KIND.get(kind)
    return error(text) if error else None
