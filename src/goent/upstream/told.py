"""Which failure is it that the gateway told a worker's program?

The gateway says the kind of the failure in its message, because often nothing else gets through.
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
from goent.llm import calm

BY_KIND: dict[str, type[WorkerError]] = {
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
_TOLD = re.compile(r"go-ent: (?P<kind>\w+): (?P<text>.*)", re.DOTALL)


def is_gateways(message: str) -> bool:
    return _TOLD.search(message) is not None


def told_by_gateway(message: str) -> WorkerError | None:
    """The failure that a refusal of the gateway's tells, if it is of a kind that is known here."""
    told = _TOLD.search(calm.plain(message))
    return of_kind(told["kind"], told["text"]) if told else None


def of_kind(kind: str, text: str) -> WorkerError | None:
    """A failure by the name that go-ent gives its kind."""
    error = BY_KIND.get(kind)
    return error(text) if error else None
