"""Forecasts a task's cost and time from similar earlier tasks, otherwise from its size.

With few tasks of exactly its kind, wider kinds are used: any method, then any type, then any task of
the model. A task is several model calls, each of which reads the conversation before it again.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Final, TypeVar

from goent.domain.task_profile import Classification, Complexity, Forecast, TaskSample
from goent.domain.types import Method, Price, Provider, Usage

MIN_SAMPLES: Final = 5  # tasks of a kind
MIN_MODEL_SAMPLES: Final = 20  # tasks of any kind
MEDIAN: Final = 0.5
HIGH_QUANTILE: Final = 0.9

# Model calls: the median, and the 90th percentile.
CALLS_BY_COMPLEXITY: Final[Mapping[Complexity, tuple[int, int]]] = {
    "trivial": (3, 6),
    "simple": (5, 10),
    "medium": (10, 22),
    "complex": (18, 40),
    "high": (30, 70),
}
OPENING_TOKENS: Final = 11_000  # tokens of OpenCode's own instructions and tools
READ_TOKENS: Final = 1_200  # tokens of a tool call's result
TALK_TOKENS: Final = 250  # tokens that a call writes besides code
LINE_TOKENS: Final = 12  # tokens of a changed line
ANSWER_TOKENS: Final = 900  # tokens of an answer in words
TOKENS_PER_SECOND: Final = 50
CALL_S: Final = 2.5  # until the first token, and for the tools
START_S: Final[Mapping[Method, float]] = {"cli": 5.0, "serve": 1.0, "acp": 1.0}

SampleKind = tuple[str | None, ...]
T = TypeVar("T")


class PastTasks:
    """Costs and times of earlier tasks, by kind."""

    def __init__(self, samples: Iterable[TaskSample] = ()) -> None:
        costs: defaultdict[SampleKind, list[Decimal]] = defaultdict(list)
        seconds: defaultdict[SampleKind, list[float]] = defaultdict(list)
        for sample in samples:
            if sample.state != "completed" or sample.evidence == "refuted":
                continue  # it did not do the work
            for kind in _kinds(sample):
                seconds[kind].append(sample.seconds)
                if sample.cost_usd is not None:
                    costs[kind].append(sample.cost_usd)
        self._costs = {kind: sorted(values) for kind, values in costs.items()}
        self._seconds = {kind: sorted(values) for kind, values in seconds.items()}

    def forecast(self, task: Classification, provider: Provider, method: Method) -> Forecast | None:
        """None if too few earlier tasks are similar."""
        for kind, least in _wider_kinds(task, provider, method):
            costs = self._costs.get(kind, ())
            if len(costs) >= least:
                usual = quantile(costs, MEDIAN)
                return Forecast(
                    p50_usd=usual,
                    p90_usd=quantile(costs, HIGH_QUANTILE),
                    seconds=quantile(self._seconds[kind], MEDIAN),
                    source="history",
                    samples=len(costs),
                    sure_usd=usual,
                )
        return None


def forecast_task(
    task: Classification,
    provider: Provider,
    method: Method,
    *,
    price: Price | None,
    past: PastTasks,
) -> Forecast:
    known = past.forecast(task, provider, method)
    return known or estimate_task(task, method, price)


def estimate_task(task: Classification, method: Method, price: Price | None) -> Forecast:
    """A forecast from the size alone; without a price, without a cost."""
    usual, much = likely_usages(task, method)
    spoken = usual.output / TOKENS_PER_SECOND
    seconds = START_S.get(method, 0.0) + spoken + CALL_S * _calls(task, method)[0]
    return Forecast(
        p50_usd=price.cost(usual) if price else None,
        p90_usd=price.cost(much) if price else None,
        seconds=round(seconds, 1),
        source="estimate",
        sure_usd=price.cost(Usage(input=task.context_tokens)) if price else None,
    )


def likely_usages(task: Classification, method: Method) -> tuple[Usage, Usage]:
    """The tokens of such a task: the median, and the 90th percentile."""
    usual, much = _calls(task, method)
    if method == "api":
        said = ANSWER_TOKENS + round(task.size) * LINE_TOKENS
        asked = task.context_tokens
        return Usage(input=asked, output=said), Usage(input=asked, output=3 * said)
    lines = round(task.size) * LINE_TOKENS
    return _usage_of_calls(task, usual, lines), _usage_of_calls(task, much, 3 * lines)


def _usage_of_calls(task: Classification, calls: int, written: int) -> Usage:
    first = OPENING_TOKENS + task.context_tokens
    grown = calls * (READ_TOKENS + TALK_TOKENS)
    return Usage(
        input=first + calls * READ_TOKENS,
        output=calls * TALK_TOKENS + written,
        cache_read=(calls - 1) * (first + grown // 2),
    )


def _calls(task: Classification, method: Method) -> tuple[int, int]:
    return (1, 1) if method == "api" else CALLS_BY_COMPLEXITY[task.complexity]


def quantile(ordered: Sequence[T], share: float) -> T:
    """The smallest value that at least this share of the values does not exceed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def _kinds(sample: TaskSample) -> Iterable[SampleKind]:
    model = (sample.backend, sample.model)
    yield (*model, sample.method, sample.type, sample.complexity)
    yield (*model, sample.type, sample.complexity)
    yield (*model, sample.complexity)
    yield model


def _wider_kinds(
    task: Classification, provider: Provider, method: Method
) -> Iterable[tuple[SampleKind, int]]:
    model = (provider.backend, provider.model)
    yield (*model, method, task.type, task.complexity), MIN_SAMPLES
    yield (*model, task.type, task.complexity), MIN_SAMPLES
    yield (*model, task.complexity), MIN_SAMPLES
    yield model, MIN_MODEL_SAMPLES
