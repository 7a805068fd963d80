"""What is a task, for whoever must not be kept waiting by the disk? The port `Classifier`."""

from functools import partial
from pathlib import Path

from anyio import to_thread

from goent.domain.tasks import Classification, TaskText


class TaskClassifier:
    """Counts, and reads the weights, in a thread; nothing is loaded before the first task."""

    async def classify(self, task: TaskText, cwd: Path) -> Classification:
        return await to_thread.run_sync(partial(_classified, task, cwd))


def _classified(task: TaskText, cwd: Path) -> Classification:
    from goent.tasks.classify import classify  # noqa: PLC0415 (see above)
    from goent.tasks.context import count_context  # noqa: PLC0415 (the same)
    from goent.tasks.weights import load_weights  # noqa: PLC0415 (the same)

    return classify(task, weights=load_weights(), context=count_context(task, cwd))
