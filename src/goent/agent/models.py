"""Which models can the agent think with, and how is one asked?"""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol

from goent.domain.events import BudgetWarned, FailedOver, Noticed, UsageReported
from goent.domain.types import Provider, Value
from goent.llm.talk import Chunk, ModelRequest

Heard = UsageReported | FailedOver | BudgetWarned | Noticed
Take = Callable[[Sequence[Chunk]], Awaitable[None]]
Hear = Callable[[Heard], Awaitable[None]]

AUTO = "auto"


class ModelChoice(Value, frozen=True, kw_only=True):
    """A model that can be chosen; `group` is its backend."""

    id: str
    name: str
    description: str = ""
    group: str = ""


class Chosen(Value, frozen=True, kw_only=True):
    """The model to think with, who may stand in for it, and why this one."""

    provider: Provider
    fallbacks: tuple[Provider, ...] = ()
    reason: str = "asked for"


class Models(Protocol):
    """The way to all models. Which of them are there may change at any time."""

    def choices(self) -> tuple[ModelChoice, ...]: ...

    def find(self, name: str) -> Chosen:
        """By a name, a tier or `backend/model`. Raises `RequestError` with what there is."""
        ...

    async def choose(self, task: str, cwd: Path) -> Chosen:
        """For a task."""
        ...

    async def stream(
        self, session: str, chosen: Chosen, request: ModelRequest, take: Take, hear: Hear
    ) -> None:
        """One answer in chunks. Raises a `WorkerError` when nobody could give or finish it."""
        ...
