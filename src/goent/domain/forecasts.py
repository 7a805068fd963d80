"""What will a task cost and take? A range, for nobody knows before it is done."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Literal, Protocol

from goent.domain.tasks import Complexity, TaskType
from goent.domain.types import Evidence, Method, State, Usage, Value


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


def place_of(worker: str, began: float) -> str:
    """A worker's place in the history: ids are a project's own, the history is of all projects."""
    return f"{worker}@{began:.3f}"


class Sample(Value, frozen=True, kw_only=True):
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
    state: State
    evidence: Evidence | None = None
    failure: str | None = None
    place: str = ""
    graded: bool = False


class Judged(Value, frozen=True, kw_only=True):
    """What the graders of an evaluation say of the task at that place; see `Sample`."""

    place: str
    state: State
    evidence: Evidence
    failure: str | None


class History(Protocol):
    """What earlier tasks of this user took, in all projects."""

    async def add(self, sample: Sample) -> None:
        """A task is over. A disk that refuses costs the lesson, never the task."""
        ...

    async def judge(self, sample: Sample) -> None:
        """A task was graded: at its place that counts, and nothing is counted twice."""
        ...

    async def correct(self, judged: Judged) -> None:
        """A task was graded again: at its place that counts. One that is not known stays so."""
        ...

    async def recent(self) -> Sequence[Sample]:
        """The newest ones; the same object as before if there are no others."""
        ...
