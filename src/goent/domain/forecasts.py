"""What will a task cost and take? A range, for nobody knows before it is done."""

from decimal import Decimal
from typing import Literal

from goent.domain.tasks import Complexity, TaskType
from goent.domain.types import Evidence, Method, State, Usage, Value


class Forecast(Value, frozen=True, kw_only=True):
    """Half of such tasks stay below `p50`, nine in ten below `p90`; None where no price is known.

    `source` says what it rests on: `history` are earlier tasks in the ledger, `samples` of them;
    `estimate` is the size of the task, at the provider's price.
    """

    p50_usd: Decimal | None
    p90_usd: Decimal | None
    seconds: float | None = None
    source: Literal["history", "estimate"]
    samples: int = 0


class Sample(Value, frozen=True, kw_only=True):
    """A task that is over: what it was, who had it, and what it took. `cost_usd` None: not known.

    `evidence` and the kind of its `failure` are None for a task that several providers worked on,
    and for one that is older than they are.
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
