"""What does an evaluation need of the daemon? To ask for things by name, and to hear what a worker does."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeVar

from goent.domain.errors import GoentError
from goent.domain.events import Envelope
from goent.domain.types import Value

R = TypeVar("R", bound=Value)


class DaemonRefused(GoentError):
    """It does not do what it was asked; `kind` is the name of its error."""

    def __init__(self, message: str, kind: str = "") -> None:
        super().__init__(message)
        self.kind = kind


class DaemonGone(GoentError):
    """It cannot be reached, or has ended in the middle of it."""


class Daemon(Protocol):
    """One conversation with the daemon. Any number of things can be asked at once."""

    async def ask(self, operation: str, request: Value, reply: type[R]) -> R:
        """Raises `DaemonRefused` or `DaemonGone`."""
        ...

    def events(self, worker: str) -> AbstractAsyncContextManager[AsyncIterator[Envelope]]:
        """All that happens to one worker, from its beginning on. Raises `DaemonGone`."""
        ...


OpenDaemon = Callable[[], AbstractAsyncContextManager[Daemon]]
