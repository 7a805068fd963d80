"""For whom are model calls made? The daemon's workers, or the agent's own sessions."""

from typing import Protocol

from goent.domain.events import AnyEvent, WorkerSpawned
from goent.domain.types import Provider


class Payers(Protocol):
    """Who is told what calls cost."""

    def spawned(self, worker: str) -> WorkerSpawned | None:
        """What was agreed when it began; None if it is not known."""
        ...

    async def append(self, worker: str, event: AnyEvent) -> object: ...


class Serving(Protocol):
    """Who makes calls now, and with whom."""

    def at_work(self, worker: str) -> bool: ...

    def provider(self, worker: str, backend: str, model: str) -> Provider: ...
