"""What is asked and told about what outcomes have taught? The words of `go-ent routes learned`."""

from goent.domain.requests import Request
from goent.domain.tasks import Complexity, TaskType
from goent.domain.types import Value


class LearnedRequest(Request, frozen=True, kw_only=True):
    """What is known of providers by their outcomes."""


class LearnedLine(Value, frozen=True, kw_only=True):
    """A provider at a class of tasks: its outcomes, and how likely the next one is good.

    `failed`: it did not get through, or did nothing. `enough`: so many of the type that they may
    change an order. `cost_usd` and `seconds` are of half of its outcomes there. `graded` of the verified
    and refuted ones were judged by evaluations.
    """

    type: TaskType
    complexity: Complexity
    provider: str
    verified: int
    refuted: int
    claimed: int
    failed: int
    chance: float
    low: float
    high: float
    enough: bool
    cost_usd: float | None
    seconds: float | None
    graded: int = 0


class Instead(Value, frozen=True, kw_only=True):
    """So many tasks that would have gone to another provider."""

    type: TaskType
    complexity: Complexity
    chosen: str
    instead: str
    tasks: int


class Lookback(Value, frozen=True, kw_only=True):
    """Tasks that are over, had outcomes alone chosen, with what was known before each began.

    Chances are means of what is known now; costs are sums over the `priced` tasks.
    """

    tasks: int
    agreed: int
    chosen_chance: float | None
    learned_chance: float | None
    priced: int
    chosen_usd: float | None
    learned_usd: float | None
    instead: tuple[Instead, ...]


class Learned(Value, frozen=True, kw_only=True):
    """All that outcomes have taught. `left_out` tasks tell nothing of a worker, or are too old."""

    learning: bool
    outcomes: int
    left_out: int
    classes: tuple[LearnedLine, ...]
    lookback: Lookback
    notes: tuple[str, ...]
