"""What does a task that is over teach about the next one like it?"""

from goent.core.views import WorkerView
from goent.domain.forecasts import Sample
from goent.domain.types import ENDED

FIRST = 1  # the turn that was classified; what a later prompt asks is another task


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
    )
