"""What a task is, what it is likely to cost, and what earlier tasks took."""

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
    """All that a classification looks at: the words, and what the caller said beside them.

    `type` is the caller's own word for it and is obeyed; `files` are those it named.
    """

    text: str
    type: TaskType | None = None
    files: tuple[str, ...] = ()


class TaskContext(Value, frozen=True, kw_only=True):
    """What the task asks to be read: files, folders and globs, counted on disk.

    `complete` is False where a limit ended the count: then there is at least so much.
    """

    files: int = 0
    tokens: int = 0
    complete: bool = True


class TaskFeature(Value, frozen=True, kw_only=True):
    """Something in a task that spoke for its `type` (above 0) or its `size` (above 0: bigger)."""

    name: str
    of: Literal["type", "size"]
    weight: float


MIN_CONFIDENCE: Final = 0.6  # of the type, to rest on it alone
TASK_CLAUSE: Final = "; the task is "  # in a route's reason, before the task's features


class Classification(Value, frozen=True, kw_only=True):
    """What a task is, before anybody has worked on it, and which features decided so.

    `confidence` is how likely the type is (0 to 1), `size` the lines that will probably change,
    `files` how many files, `named` how many the task itself names or counts, and `context_tokens`
    what has to be read, prompt included.
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
    """Who says what a task is."""

    async def classify(self, task: TaskText, cwd: Path) -> Classification:
        """By its words, and by what it asks to be read, counted on disk within a time limit."""
        ...


class Forecast(Value, frozen=True, kw_only=True):
    """Half of such tasks stay below `p50`, nine in ten below `p90`; None where no price is known.

    `source` says what it rests on: `history` are earlier tasks in the ledger, `samples` of them;
    `estimate` is the size of the task, at the provider's price. `sure_usd` is as much of `p50` as is no
    guess: all of it from history, else the price of reading what was counted.
    """

    p50_usd: Decimal | None
    p90_usd: Decimal | None
    seconds: float | None = None
    source: Literal["history", "estimate"]
    samples: int = 0
    sure_usd: Decimal | None = None


def history_place(worker: str, began: float) -> str:
    """A worker's place in the history: ids are a project's own, the history is of all projects."""
    return f"{worker}@{began:.3f}"


class TaskSample(Value, frozen=True, kw_only=True):
    """A task that is over: what it was, who had it, and what it took. `cost_usd` None: not known.

    `evidence` and the kind of its `failure` are None for a task that several providers worked on,
    and for one that is older than they are. `place` says which task it was, so that it counts once;
    `graded`: an evaluation has judged it, not a verify command.
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
    """What the graders of an evaluation say of the task at that place; see `TaskSample`."""

    place: str
    state: WorkerState
    evidence: Evidence
    failure: str | None


class TaskHistory(Protocol):
    """What earlier tasks of this user took, in all projects."""

    async def add(self, sample: TaskSample) -> None:
        """A task is over. A disk that refuses costs the lesson, never the task."""
        ...

    async def grade(self, sample: TaskSample) -> None:
        """A task was graded: at its place that counts, and nothing is counted twice."""
        ...

    async def regrade(self, judged: TaskGrade) -> None:
        """A task was graded again: at its place that counts. One that is not known stays so."""
        ...

    async def recent(self) -> Sequence[TaskSample]:
        """The newest ones; the same object as before if there are no others."""
        ...
