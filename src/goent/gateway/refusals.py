"""How is a failure told to a worker's program so that it does the right thing: once, and plainly?

OpenCode calls again at 408, 409, 429 and 5xx, for a minute and a half and without a word, and where
a message holds such a number or a word of that kind. What could be tried again go-ent has tried, so
none of these leaves the gateway, and the message is a calm one. It begins with the kind of the
failure: no status reaches the driver on the other side.
"""

from typing import NamedTuple

from goent.domain.errors import (
    AuthRefused,
    BudgetSpent,
    ContextOverflow,
    UnknownModel,
    WorkerError,
)
from goent.llm.calm import calm

GAVE_UP = 424
_STATUS: dict[type[WorkerError], int] = {
    ContextOverflow: 400,
    AuthRefused: 401,
    BudgetSpent: 402,
    UnknownModel: 404,
}


class Refusal(NamedTuple):
    """What the program is answered."""

    status: int
    message: str
    code: str | None = None  # the word by which OpenCode knows that it has to shorten its talk


def refusal(error: WorkerError) -> Refusal:
    status = _STATUS.get(type(error), GAVE_UP if error.retryable else 400)
    message = f"go-ent: {error.kind}: {error}"
    if isinstance(error, ContextOverflow):  # here OpenCode is to understand the words
        return Refusal(status, message, "context_length_exceeded")
    return Refusal(status, calm(message))
