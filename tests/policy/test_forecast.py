"""What a task will cost: from tasks like it, else from its size."""

from decimal import Decimal

import pytest
from msgspec.structs import replace
from routing_ground import GLM, KIMI, a_task

from goent.domain.task_profile import COMPLEXITIES, Complexity, TaskSample, TaskType
from goent.domain.types import Method, Usage, WorkerState
from goent.routing.forecast import PastTasks, estimate_task, forecast_task, quantile


def a_sample(
    cost: str | None,
    *,
    method: Method = "acp",
    kind: TaskType = "implement",
    complexity: Complexity = "medium",
    state: WorkerState = "completed",
) -> TaskSample:
    return TaskSample(
        at=0.0,
        provider="any name",
        backend=GLM.backend,
        model=GLM.model,
        method=method,
        type=kind,
        complexity=complexity,
        size=10.0,
        cost_usd=None if cost is None else Decimal(cost),
        usage=Usage(),
        seconds=30.0,
        state=state,
    )


def told(*samples: TaskSample):
    return forecast_task(
        a_task("implement", "medium"), GLM, "acp", price=GLM.price, past=PastTasks(samples)
    )


@pytest.mark.spec("P28")
def test_half_and_nine_in_ten_of_the_tasks_like_it_stayed_below() -> None:
    said = told(*(a_sample(f"0.{n:02}") for n in range(1, 11)))
    assert (said.p50_usd, said.p90_usd) == (Decimal("0.05"), Decimal("0.09"))
    assert (said.source, said.samples, said.seconds) == ("history", 10, 30.0)


def test_with_few_tasks_like_it_coarser_kinds_are_asked() -> None:
    four = [a_sample("1")] * 4
    assert told(*four).source == "estimate"
    assert told(*four, a_sample("2", method="cli")).samples == 5
    assert told(*four, a_sample("2", kind="fix")).samples == 5
    assert told(*four, a_sample("2", complexity="high")).source == "estimate"
    assert told(*[a_sample("2", complexity="high")] * 20).samples == 20


def test_what_failed_or_had_no_price_teaches_no_cost() -> None:
    assert told(*[a_sample("1", state="failed")] * 9).source == "estimate"
    assert told(*[a_sample(None)] * 9).source == "estimate"
    idle = replace(a_sample("0"), evidence="refuted")
    assert told(*[idle] * 9).source == "estimate"


def test_other_models_teach_nothing() -> None:
    past = PastTasks([a_sample("1")] * 9)
    assert forecast_task(a_task(), KIMI, "acp", price=KIMI.price, past=past).source == "estimate"


def test_an_estimate_is_a_range_that_grows_with_the_task_and_needs_a_price() -> None:
    said = [estimate_task(a_task("fix", each), "acp", GLM.price) for each in COMPLEXITIES]
    assert all(each.p50_usd and each.p90_usd and each.p50_usd < each.p90_usd for each in said)
    assert said == sorted(said, key=lambda each: each.p50_usd or 0)
    unknown = estimate_task(a_task(), "acp", None)
    assert (unknown.p50_usd, unknown.p90_usd) == (None, None) and unknown.seconds
    read = estimate_task(a_task(tokens=90_000), "acp", GLM.price)
    assert read.p50_usd and said[2].p50_usd and read.p50_usd > 2 * said[2].p50_usd
    one_call = estimate_task(a_task(), "api", GLM.price)
    assert one_call.p90_usd and said[0].p50_usd and one_call.p90_usd < said[0].p50_usd * 2


@pytest.mark.parametrize(("share", "value"), [(0.0, 1), (0.5, 2), (0.9, 3), (1.0, 3)])
def test_a_quantile_is_one_of_the_values(share: float, value: int) -> None:
    assert quantile([1, 2, 3], share) == value
