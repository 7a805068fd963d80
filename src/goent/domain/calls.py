"""What is said of a model call: before it goes out, and when it is over."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from goent.domain.types import Usage, Value


class Calibrations(Protocol):
    """How each model's own count of tokens differs from our estimate."""

    def corrected(self, backend: str, model: str, estimated: int) -> int:
        """The estimate, set right by what earlier calls told; as it is while there are too few."""
        ...

    async def learn(self, backend: str, model: str, *, estimated: int, actual: int) -> None:
        """A call came back: `actual` is its whole prompt, cached tokens included."""
        ...


class CallBegun(Value, frozen=True, kw_only=True):
    """One model call that is about to leave the gateway."""

    id: str
    worker: str
    backend: str
    model: str


class CallSize(Value, frozen=True, kw_only=True):
    """How many tokens a call is likely to take; reasoning is output."""

    input: int
    output: int


Sizing = Callable[[], Awaitable[CallSize]]


class Hindrance(Value, frozen=True, kw_only=True):
    """Why a call cannot go out yet, and in how many seconds to ask again."""

    reason: str
    wait_s: float


class CallMade(Value, frozen=True, kw_only=True):
    """One model call that is over.

    `usage` is None if the provider told none; `whole` says that it is the last word: a stream that
    was cut may have told a part. `owed` is False if the provider cannot bill the call: it refused it, or never got it.
    """

    id: str
    worker: str
    session: str
    backend: str
    model: str
    status: int
    usage: Usage | None
    owed: bool
    seconds: float
    whole: bool = True
    error: str = ""


class Moved(Value, frozen=True, kw_only=True):
    """A worker's model calls go to another provider from here on."""

    worker: str
    from_provider: str
    to_provider: str
    reason: str


class CallWitness(Protocol):
    """Who is told what becomes of model calls."""

    async def begun(self, call: CallBegun, size: Sizing) -> Hindrance | None:
        """The call may go out, unless something hinders it now. `size` costs time to find out.

        Raises `BudgetSpent` if it may not go out at all.
        """
        ...

    async def metered(self, call: CallMade) -> None: ...

    async def moved(self, move: Moved) -> None: ...

    async def noticed(self, worker: str, text: str) -> None:
        """Something that the worker's program does not see and its owner should."""
        ...
