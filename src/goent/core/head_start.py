"""Has OpenCode started before it is asked for, where a task that needs it is likely.

It takes hundreds of megabytes, so a client that only connects, or that works by other methods, starts
none. A task that is routed to it starts it anyhow.
"""

from collections.abc import Callable

from goent.core.feed import Feed
from goent.domain.requests import SpawnRequest
from goent.domain.types import Method, Value

LAST = 3  # of the project's tasks: how they went is how the next one will probably go
NEEDS_IT: Method = "acp"


class HeadStart:
    """`begin` starts it, unless it runs."""

    def __init__(self, feed: Feed, begin: Callable[[], object]) -> None:
        self._feed = feed
        self._begin = begin
        self._begun = False

    def client_came(self) -> None:
        if NEEDS_IT in self._recent():
            self._start()

    def asked(self, operation: str, request: Value) -> None:
        """A client's first look at workers. A new task is routed first, which may lead elsewhere."""
        if not operation.startswith("worker_") or isinstance(request, SpawnRequest):
            return
        recent = self._recent()
        if not recent or NEEDS_IT in recent:
            self._start()

    def _recent(self) -> list[Method]:
        return [view.spawned.method for view in list(self._feed.views.values())[-LAST:]]

    def _start(self) -> None:
        if not self._begun:
            self._begun = True
            self._begin()
