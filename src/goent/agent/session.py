"""One conversation with the agent."""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Literal

from goent.agent.content import Given
from goent.agent.events import AnyAgentEvent, StopReason
from goent.domain.types import Usage, Value

Mode = Literal["ask", "accept-edits", "plan"]


class ModelChoice(Value, frozen=True, kw_only=True):
    """A model that can be chosen; `group` is its backend."""

    id: str
    name: str
    description: str = ""
    group: str = ""


class Options(Value, frozen=True, kw_only=True):
    """What can be set for a session, and what it is now. `auto` lets the task decide the model."""

    mode: Mode
    model: str
    models: tuple[ModelChoice, ...]


class TurnEnd(Value, frozen=True, kw_only=True):
    """How a turn ended, and what it took; `text` is all that the agent said in it."""

    stop_reason: StopReason
    text: str
    usage: Usage
    cost_usd: Decimal | None


class AgentSession:
    """Works for one client; a prompt at a time."""

    id: str
    cwd: Path

    @property
    def options(self) -> Options:
        raise NotImplementedError

    @property
    def busy(self) -> bool:
        """A turn is under way."""
        raise NotImplementedError

    async def prompt(self, given: Sequence[Given]) -> TurnEnd:
        """Take a turn; all its events have been told when this returns.

        Raises `SessionBusy` during a turn, and a `WorkerError` if the turn fails.
        """
        raise NotImplementedError

    def cancel(self) -> None:
        """End the running turn, if there is one: its `prompt` returns "cancelled"."""
        raise NotImplementedError

    async def set_mode(self, mode: str) -> None:
        """Raises `RequestError` for a mode that there is not."""
        raise NotImplementedError

    async def set_model(self, model: str) -> None:
        """Raises `RequestError` for a model that there is not."""
        raise NotImplementedError

    def history(self) -> Iterator[AnyAgentEvent]:
        """All that happened, for a client that loads the session."""
        raise NotImplementedError

    async def greet(self) -> None:
        """Tell what a client shows before the first prompt: usage and title, if there are any."""
        raise NotImplementedError
