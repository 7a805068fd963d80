"""What kind of task is it, and how big? The values that routing, costs and advice rest on."""

from pathlib import Path
from typing import Final, Literal, Protocol, get_args

from goent.domain.types import Value

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


class Context(Value, frozen=True, kw_only=True):
    """What the task asks to be read: files, folders and globs, counted on disk.

    `complete` is False where a limit ended the count: then there is at least so much.
    """

    files: int = 0
    tokens: int = 0
    complete: bool = True


class Feature(Value, frozen=True, kw_only=True):
    """Something in a task that spoke for its `type` (above 0) or its `size` (above 0: bigger)."""

    name: str
    of: Literal["type", "size"]
    weight: float


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
    features: tuple[Feature, ...] = ()
    named: int = 0


class Classifier(Protocol):
    """Who says what a task is."""

    async def classify(self, task: TaskText, cwd: Path) -> Classification:
        """By its words, and by what it asks to be read, counted on disk within a time limit."""
        ...
