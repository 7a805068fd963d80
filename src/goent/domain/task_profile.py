"""The classification of tasks, forecasts of their cost, and the history of earlier tasks."""

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Final, Literal, Protocol, get_args

from goent.domain.types import Evidence, Method, Usage, Value, WorkerState

TaskType = Literal[
    "implement", "fix", "refactor", "documentation", "test", "format", "analyze", "review"
]
Complexity = Literal["trivial", "simple", "medium", "complex", "high"]

TASK_TYPES: Final[tuple[TaskType, ...]] = get_args(TaskType)
COMPLEXITIES: Final[tuple[Complexity, ...]] = get_args(Complexity)  # from the least to the most


class TaskText(Value, frozen=True, kw_only=True):
    """The input of a classification: the text, and what the caller added.

    `type` is the caller's choice and is obeyed; `files` are those the caller named.
    """

    text: str
    type: TaskType | None = None
    files: tuple[str, ...] = ()


class TaskContext(Value, frozen=True, kw_only=True):
    """What the task asks to read: files, folders and globs, counted on disk.

    `complete` is False if a limit ended the count: then the numbers are minimums.
    """

    files: int = 0
    tokens: int = 0
    complete: bool = True


class TaskFeature(Value, frozen=True, kw_only=True):
    """A feature of a task; a positive weight is evidence for its `type`, or for a larger `size`."""

    name: str
    of: Literal["type", "size"]
    weight: float


class Classification(Value, frozen=True, kw_only=True):
    """The classification of a task before any work on it, and the features that decided it.

    `confidence` is the probability of the type (0 to 1), `size` the expected number of changed lines, `files`
    that of files, `named` how many of them the task names or counts, and `context_tokens` what has to be read,
    including the prompt.
    """

    type: TaskType
    confidence: float
    complexity: Complexity
    files: int
    size: float
    context_tokens: int
    features: tuple[TaskFeature, ...] = ()
    named: int = 0


class Classifier(Protocol):
    """Classifies tasks."""

    async def classify(self, task: TaskText, cwd: Path) -> Classification:
        """Classify by the text, and by what it asks to read, counted on disk within a time limit."""
        ...


class Forecast(Value, frozen=True, kw_only=True):
    """The expected cost and time: median `p50` and 90th percentile `p90`; None without a known price.

    It is based on `history` (`samples` earlier tasks in the ledger), or is an `estimate` from the size of the
    task and the provider's price. `sure_usd` is the certain part of `p50`: all of it from history, else the
    price of reading what was counted.
    """

    p50_usd: Decimal | None
    p90_usd: Decimal | None
    seconds: float | None = None
    source: Literal["history", "estimate"]
    samples: int = 0
    sure_usd: Decimal | None = None


def history_place(worker: str, began: float) -> str:
    """A worker's key in the history: ids are unique per project, the history covers all projects."""
    return f"{worker}@{began:.3f}"


class TaskSample(Value, frozen=True, kw_only=True):
    """A finished task: its classification, provider and cost. `cost_usd` is None if unknown.

    `evidence` and `failure` (its kind) are None for a task of several providers, and in old records. `place`
    identifies the task, so that it counts once; `graded`: an evaluation judged it, not a verify command.
    """

    at: float
    provider: str
    backend: str
    model: str
    method: Method
    type: TaskType
    complexity: Complexity
    size: float
    cost_usd: Decimal | None
    usage: Usage
    seconds: float
    state: WorkerState
    evidence: Evidence | None = None
    failure: str | None = None
    place: str = ""
    graded: bool = False


class TaskGrade(Value, frozen=True, kw_only=True):
    """The verdict of an evaluation's graders on the task at that place; see `TaskSample`."""

    place: str
    state: WorkerState
    evidence: Evidence
    failure: str | None


class TaskHistory(Protocol):
    """Earlier tasks of this user, in all projects."""

    async def add(self, sample: TaskSample) -> None:
        """Record a finished task. If the disk refuses, only the record is lost."""
        ...

    async def grade(self, sample: TaskSample) -> None:
        """Record a graded task; it replaces the sample at its place."""
        ...

    async def regrade(self, judged: TaskGrade) -> None:
        """Replace the grade of a task at its place; an unknown task is ignored."""
        ...

    async def recent(self) -> Sequence[TaskSample]:
        """The newest tasks; the same object as before if nothing has changed."""
        ...
