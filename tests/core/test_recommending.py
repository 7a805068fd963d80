"""What is told before, at and after the handing over of a task; only the driver is scripted."""

from decimal import Decimal

import anyio
import pytest
from scripted_project import OpenProject, Project

from goent.domain.errors import RequestError
from goent.domain.events import TextDelta, ToolCall, UsageReported, WorkerSpawned
from goent.domain.replies import ExplainReply, RecommendReply, RuleList, SpawnReply
from goent.domain.settings import BudgetSettings
from goent.domain.types import Usage
from goent.testing.driver import ScriptedDriver

pytestmark = pytest.mark.anyio

TASK = "Refactor the parser so that errors are values"


@pytest.mark.spec("P28")
async def test_a_recommendation_has_reasons_costs_and_alternatives(
    open_project: OpenProject,
) -> None:
    async with open_project(ScriptedDriver(lambda _: [])) as project:
        told = await project.ask("provider_recommend", task=TASK)
        assert isinstance(told, RecommendReply)
        assert (told.provider, told.model, told.method) == ("glm", "glm-4", "acp")
        assert "the configured default; the task is refactor" in told.rationale
        assert told.features.type == "refactor" and told.features.signs
        assert told.estimate.cost_usd and 0 < told.estimate.cost_usd[0] < told.estimate.cost_usd[1]
        assert told.estimate.source == "estimate" and told.estimate.seconds
        (other,) = told.alternatives
        assert other.provider == "deepseek/deepseek-coder"
        assert project.feed.views == {}, "nothing was begun"


async def test_more_to_read_costs_more_and_a_small_budget_is_told_of(
    open_project: OpenProject,
) -> None:
    async with open_project(ScriptedDriver(lambda _: [])) as project:
        little = await project.ask("provider_recommend", task=TASK)
        much = await project.ask("provider_recommend", task=TASK, context_tokens=90_000)
        poor = await project.ask("provider_recommend", task=TASK, budget_usd=0.0001)
        assert isinstance(much, RecommendReply) and isinstance(little, RecommendReply)
        assert much.estimate.cost_usd and little.estimate.cost_usd
        assert much.estimate.cost_usd > little.estimate.cost_usd
        assert much.features.context_tokens == 90_000
        assert isinstance(poor, RecommendReply) and poor.provider == "glm"
        assert "glm may cost up to $" in poor.warnings[-1]
        with pytest.raises(RequestError, match="the task is empty"):
            await project.ask("provider_recommend", task=" ")
        with pytest.raises(RequestError, match=r"gone\.py"):
            await project.ask("provider_recommend", task=TASK, files=["gone.py"])


async def test_what_is_left_of_a_hard_day_is_a_budget_too(open_project: OpenProject) -> None:
    budget = BudgetSettings(per_day=Decimal("0.0001"), hard=True)
    async with open_project(ScriptedDriver(lambda _: []), budget=budget) as project:
        explain = project.operations.cli_table["routes_explain"]
        told = await explain.call({"task": TASK}, project.caller)
        assert isinstance(told, ExplainReply)
        assert "above the budget of $0.0001" in str(told.candidates[0])


async def test_an_explanation_holds_every_step_and_candidate(open_project: OpenProject) -> None:
    async with open_project(ScriptedDriver(lambda _: [])) as project:
        operation = project.operations.cli_table["routes_explain"]
        told = await operation.call({"task": TASK}, project.caller)
        assert isinstance(told, ExplainReply)
        (step,) = told.steps
        assert (step.name, step.decided) == ("default_provider", True)
        assert [c.provider for c in told.candidates] == ["glm", "deepseek/deepseek-coder"]
        rules = await project.operations.cli_table["routes_list"].call({}, project.caller)
        assert rules == RuleList(rules=(), defaults={}, default_provider="glm", warnings=())


@pytest.mark.spec("P28")
async def test_tasks_that_are_over_teach_what_the_next_one_costs(
    open_project: OpenProject,
) -> None:
    async with open_project(ScriptedDriver(_billed)) as project:
        for _ in range(5):
            spawned = await project.ask("worker_spawn", task=TASK, wait_s=10)
            assert isinstance(spawned, SpawnReply) and spawned.result
            assert spawned.estimate.source == "estimate" and spawned.estimate.cost_usd
            (first, *_) = await project.events(spawned.worker_id)
            assert isinstance(first, WorkerSpawned) and first.task_type == "refactor"
        with anyio.fail_after(10):
            while (told := await _recommended(project)).estimate.source != "history":  # noqa: ASYNC110 (lessons are written beside the workers)
                await anyio.sleep(0.01)
        assert told.estimate.samples == 5
        assert told.estimate.cost_usd == (0.25, 0.25)


async def _recommended(project: Project) -> RecommendReply:
    told = await project.ask("provider_recommend", task=TASK)
    assert isinstance(told, RecommendReply)
    return told


def _billed(_: object) -> list[TextDelta | ToolCall | UsageReported]:
    return [
        ToolCall(id="1", tool="edit", status="completed"),
        TextDelta(text="Done."),
        UsageReported(
            provider="glm",
            model="glm-4",
            usage=Usage(input=1000, output=100),
            cost_usd=Decimal("0.25"),
            source="opencode",
        ),
    ]
