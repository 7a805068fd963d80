"""How does a worker of ours call models through the gateway of the daemon that it works for?

The gateway holds the keys, fails over, counts and keeps the budgets; here nothing of that is done
again: one target, one try, and its refusals read back as what they are.
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
from goent.domain.health import Condition
from goent.domain.types import Provider
from goent.llm import calm
from goent.upstream.tries import Patience

ONCE = Patience(again=0)
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


class AlwaysWell:
    """The port `Healths`: who is well is for the gateway to know."""

    def condition(self, provider: Provider) -> Condition:
        return Condition()

    def under_way(self, provider: Provider) -> int:
        return 0

    async def admits(self, provider: Provider, *, force: bool = False) -> bool:
        return True

    async def served(
        self, provider: Provider, *, began: float, used_up_for_s: float | None = None
    ) -> None:
        pass

    async def failed(self, provider: Provider, error: WorkerError, *, began: float) -> None:
        pass

    async def released(self, provider: Provider) -> None:
        pass

    async def forget(self, provider: Provider) -> bool:
        return False
