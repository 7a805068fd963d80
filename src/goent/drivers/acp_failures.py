"""What does an ACP agent's refusal mean to the caller, as far as any agent says it alike?

A call that goes through the gateway fails in the gateway's words, which say the kind of failure.
"""

import re

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

AUTH_REQUIRED = -32000

_BY_KIND: dict[str, type[WorkerError]] = {
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
_BY_WORDS: tuple[tuple[re.Pattern[str], type[WorkerError]], ...] = (
    (re.compile(r"model not found", re.IGNORECASE), UnknownModel),
    (re.compile(r"timed? ?out", re.IGNORECASE), ProviderTimeout),
    (re.compile(r"connect|socket|network|fetch failed", re.IGNORECASE), ProviderDown),
    (re.compile(r"without a finish reason"), ProviderDown),
)
_GATEWAY = re.compile(r"go-ent: (?P<kind>\w+): (?P<text>.*)", re.DOTALL)


def is_gateways(message: str) -> bool:
    return _GATEWAY.match(message) is not None


def gateways(message: str) -> WorkerError | None:
    """The failure that the gateway told, if it is one of a kind that is known here."""
    told = _GATEWAY.match(message)
    return of_kind(told["kind"], told["text"]) if told else None


def of_kind(kind: str, text: str) -> WorkerError | None:
    """A failure by the name that go-ent gives its kind."""
    error = _BY_KIND.get(kind)
    return error(text) if error else None


def by_words(message: str) -> type[WorkerError]:
    """All that is left where nothing but the message tells."""
    found = (kind for words, kind in _BY_WORDS if words.search(message))
    return next(found, WorkerError)
