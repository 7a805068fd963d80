"""What a caller who waits is told on the way: how each worker stands, and its latest words."""

from collections.abc import Awaitable, Callable, Iterable

import anyio

from goent.core.views import WorkerView, latest_words, status
from goent.domain.replies import Status

HEARTBEAT = 5.0  # seconds between two reports where nothing happens
WORDS_S = 2.0  # seconds between two reports where only words were added

OnProgress = Callable[[Status, str], Awaitable[None]]


class ProgressReports:
    """The reports to one caller. `views` are what it knows already."""

    def __init__(self, views: Iterable[WorkerView] = ()) -> None:
        self._told: dict[str, tuple[WorkerView, float]] = {}
        for view in views:
            self._note(view)

    async def tell(self, views: Iterable[WorkerView], on_progress: OnProgress) -> None:
        """Report the workers of whom there is something new to tell, or nothing was told for long."""
        for view in views:
            if view.id not in self._told:
                self._note(view)
            elif self._is_due(view):
                self._note(view)
                await on_progress(status(view), latest_words(view))

    def _note(self, view: WorkerView) -> None:
        self._told[view.id] = view, anyio.current_time()

    def _is_due(self, view: WorkerView) -> bool:
        told, at = self._told[view.id]
        if (told.step, told.state, told.plan) != (view.step, view.state, view.plan):
            return True
        wait = WORDS_S if told.words != view.words else HEARTBEAT
        return anyio.current_time() - at >= wait
