"""What comes back about providers: who there is, who would get a task and why, what was spent on whom.

Public names, as in `replies`.
"""

from typing import Literal

from goent.domain.budgets import Scope
from goent.domain.replies import Estimate
from goent.domain.tasks import Complexity, TaskType
from goent.domain.types import Method, Usage, Value

Health = Literal[
    "ready", "direct", "no_key", "unknown", "failing", "limited", "down", "refused", "no_credit"
]


class PriceView(Value, frozen=True, kw_only=True):
    """USD per million tokens."""

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None


class ProviderView(Value, frozen=True, kw_only=True):
    """A provider, and whether it can be used now.

    `in_use` counts workers at work on it, `calls` its model calls under way, in this project.
    `cost_estimate` is in USD, for a task of usual size.
    """

    name: str
    backend: str
    model: str
    method: Method
    capabilities: tuple[str, ...]
    context_limit: int | None
    price: PriceView | None
    cost_estimate: float | None
    health: Health
    health_reason: str
    cooldown_until: str | None
    in_use: int
    calls: int
    limits: dict[str, int]
    default: bool


class ProviderList(Value, frozen=True, kw_only=True):
    """All providers that the configuration gives; `warnings` are about its files."""

    providers: tuple[ProviderView, ...]
    warnings: tuple[str, ...] = ()


class TaskView(Value, frozen=True, kw_only=True):
    """What a task was taken for, and the signs that said so."""

    type: TaskType
    confidence: float
    complexity: Complexity
    files: int
    size: float
    context_tokens: int
    signs: tuple[str, ...] = ()


class Option(Value, frozen=True, kw_only=True):
    """Another way that a task could go."""

    provider: str
    model: str
    method: Method
    estimate: Estimate


class Recommended(Value, frozen=True, kw_only=True):
    """Who should get a task, and whether it should be handed over at all."""

    provider: str
    model: str
    method: Method
    rationale: str
    features: TaskView
    estimate: Estimate
    alternatives: tuple[Option, ...]
    advice: tuple[str, ...]
    warnings: tuple[str, ...]


class StepView(Value, frozen=True, kw_only=True):
    """A pin, a rule, a default, a part of the policy or what was learned, and what it said to a task."""

    source: Literal["pin", "rule", "default", "policy", "learning"]
    name: str
    decided: bool
    why: str


class CandidateView(Value, frozen=True, kw_only=True):
    """A provider, what speaks against it now, and what it would take."""

    provider: str
    obstacle: str
    estimate: Estimate


class Explained(Value, frozen=True, kw_only=True):
    """Where a task would go, and all that led there. Without a provider, `reason` is the refusal."""

    provider: str | None
    model: str | None
    method: Method | None
    reason: str
    fallbacks: tuple[str, ...]
    features: TaskView
    estimate: Estimate
    steps: tuple[StepView, ...]
    candidates: tuple[CandidateView, ...]
    warnings: tuple[str, ...]


class RuleView(Value, frozen=True, kw_only=True):
    """A rule of `routing.yaml`, in words."""

    name: str
    conditions: str
    provider: str | None
    model: str | None
    method: Method | None


class RuleList(Value, frozen=True, kw_only=True):
    """The rules in the order in which they are asked, and what comes after them."""

    rules: tuple[RuleView, ...]
    defaults: dict[str, str]
    default_provider: str | None
    warnings: tuple[str, ...]


class Forgotten(Value, frozen=True, kw_only=True):
    """The providers whose condition was forgotten: they are asked as if nothing had been."""

    providers: tuple[str, ...]


class CostLine(Value, frozen=True, kw_only=True):
    """One line of a cost report."""

    key: str
    calls: int
    usage: Usage
    cost_usd: float | None
    known_usd: float
    unknown_calls: int


class BudgetLine(Value, frozen=True, kw_only=True):
    """A limit and how it stands. `unknown_calls` had no known price, and are in no sum."""

    scope: Scope
    key: str
    limit_usd: float
    spent_usd: float
    held_usd: float
    left_usd: float
    hard: bool
    unknown_calls: int


class Costs(Value, frozen=True, kw_only=True):
    """A cost report with its total, and how the budgets of the day and the project stand."""

    by: str
    rows: tuple[CostLine, ...]
    total_usd: float | None
    known_usd: float
    unknown_calls: int
    budgets: tuple[BudgetLine, ...] = ()
