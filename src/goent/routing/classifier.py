"""What is a task, for whoever must not be kept waiting by the disk? The port `Classifier`."""

from functools import partial
from pathlib import Path

from anyio import to_thread

from goent.domain.tasks import Classification, TaskText
from goent.routing.classify import classify
from goent.routing.context import count_context
from goent.routing.weights import load_weights


class TaskClassifier:
    """Counts and reads weights in a thread."""

    async def classify(self, task: TaskText, cwd: Path) -> Classification:
        return await to_thread.run_sync(partial(_classified, task, cwd))


def _classified(task: TaskText, cwd: Path) -> Classification:
    return classify(task, weights=load_weights(), context=count_context(task, cwd))
