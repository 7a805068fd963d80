"""What does a task that is over teach about the next one like it?"""

from contextlib import suppress

from goent.core.feed import Feed
from goent.core.views import FIRST, WorkerView, evidence
from goent.domain.errors import EnvironmentTrouble
from goent.domain.forecasts import History, Sample, place_of
from goent.domain.types import ENDED


class Lessons:
    """Kept in the history, for forecasts and routes of all projects."""

    def __init__(self, feed: Feed, history: History) -> None:
        self._feed = feed
        self._history = history

    async def learn(self, worker: str) -> None:
        """A turn of the worker's is over."""
        with suppress(EnvironmentTrouble):  # a full disk: then the view is as it is
            await self._feed.commit()
        if sample := lesson(self._feed.view(worker)):
            await self._history.add(sample)


def lesson(view: WorkerView) -> Sample | None:
    """None for a worker whose task nobody classified, and for its later turns."""
    spawned = view.spawned
    if view.turn != FIRST or view.state not in ENDED:
        return None
    if spawned.task_type is None or spawned.complexity is None:
        return None
    return Sample(
        at=view.updated_at,
        provider=spawned.provider,
        backend=spawned.backend,
        model=spawned.model,
        method=spawned.method,
        type=spawned.task_type,
        complexity=spawned.complexity,
        size=spawned.size or 0.0,
        cost_usd=view.cost_usd,
        usage=view.usage,
        seconds=round(view.updated_at - view.started_at, 3),
        state=view.state,
        evidence=None if view.moved_to else evidence(view),
        failure=view.failure.kind if view.failure and not view.moved_to else None,
        place=place_of(view.id, view.started_at),
    )
