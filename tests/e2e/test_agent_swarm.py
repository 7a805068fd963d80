"""Several workers on go-ent's own agent at once: one task each, joined, and retried where one failed."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from real_git import a_repository
from swarm_lead import SwarmLead
from world import a_world

from goent.domain.types import Usage
from goent.testing.script import Script, call, case, openai, say

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]

APP = "def greet(name):\n    return 'Hello ' + name\n"
SPENT = Usage(input=500, output=50)


def write(path: str, content: str):
    return call("Write", file_path=f"{{cwd}}/{path}", content=content).having(usage=SPENT)


def greet(word: str):
    step = call("Edit", file_path="{cwd}/app.py", old_string="'Hello '", new_string=f"'{word} '")
    return step.having(usage=SPENT, gate="together")


READ = call("Read", file_path="{cwd}/app.py").having(usage=SPENT)
DONE = say("Done.", usage=SPENT)
SCRIPT = Script(
    providers={
        "moonshot": openai(
            case("greet politely", READ, greet("Dear"), DONE),
            case("greet loudly", READ, greet("HELLO"), DONE),
            case("write the notes", write("NOTES.md", "# N\n").having(gate="together"), DONE),
            case("count to three", write("count.txt", "1 2\n"), DONE),
            models=("glm-4",),
            key="sk-moonshot-real-key",
        ),
        "deepseek": openai(
            case("count to three", write("count.txt", "1 2 3\n"), DONE),
            models=("deepseek-coder",),
            key="sk-deepseek-real-key",
        ),
    }
)
PRICES = """\
providers:
  glm: {provider: moonshot, model: glm-4, price: {input: 1, output: 10}}
  deepseek: {provider: deepseek, model: deepseek-coder, price: {input: 1, output: 10}}
"""
PER_CALL = (500 * 1 + 50 * 10) / 1_000_000
CONFIG = "opencode: {profile: hermetic, warm: false}\n"
BY_AGENT = {"method": "agent", "provider": "glm"}
TASKS: list[dict[str, Any]] = [
    {"id": "polite", "prompt": "greet politely", **BY_AGENT},
    {"id": "loud", "prompt": "greet loudly", **BY_AGENT},
    {"id": "notes", "prompt": "write the notes", **BY_AGENT},
    {
        "id": "count",
        "prompt": "count to three",
        "verify": ["grep -q 3 count.txt"],
        **BY_AGENT,
    },
]


@pytest.fixture(scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[SwarmLead]:
    folder = tmp_path_factory.mktemp("agents")
    async with a_world(folder, SCRIPT, config=CONFIG) as world:
        (world.project / ".goent" / "providers.yaml").write_text(PRICES)
        world.trust()
        repository = a_repository(world.project, files={"app.py": APP})
        async with world.client() as lead:
            yield SwarmLead(world, repository, lead)


@pytest.fixture(scope="module")
async def finished(stage: SwarmLead) -> dict[str, Any]:
    """The swarm after its first round, and everything that was told of it."""
    before = stage.repository.state()
    spawned = await stage.ask("swarm_spawn", swarm="agents", tasks=TASKS, concurrency=4)
    await stage.world.models.at_gate("together", 3, timeout=60)  # at one time
    stage.world.models.open_gate("together")
    status = await stage.until_over(spawned["swarm_id"])
    result = await stage.ask("swarm_result", swarm_id=status["swarm_id"])
    return {"result": result, "before": before, "id": status["swarm_id"]}


def line(told: dict[str, Any], task: str) -> dict[str, Any]:
    (found,) = [line for line in told["tasks"] if line["id"] == task]
    return found


@pytest.mark.spec("A22")
async def test_each_agent_has_its_task_and_all_results_come_together(
    stage: SwarmLead, finished: dict[str, Any]
) -> None:
    result = finished["result"]
    states = {line["id"]: line["state"] for line in result["tasks"]}
    assert states == {
        "polite": "completed",
        "loud": "completed",
        "notes": "completed",
        "count": "failed",
    }
    workers = [line["worker_id"] for line in result["tasks"]]
    statuses = [await stage.ask("worker_status", worker_id=worker) for worker in workers]
    assert {status["method"] for status in statuses} == {"agent"}
    assert len({status["cwd"] for status in statuses}) == len(TASKS), "each in its own folder"
    assert stage.repository.state() == finished["before"], "the checkout is as it was"


@pytest.mark.spec("A23")
async def test_conflicts_between_agents_are_found(finished: dict[str, Any]) -> None:
    conflicts = finished["result"]["conflicts"]
    (true,) = [c for c in conflicts if c["kind"] == "hunk_conflict"]
    assert (true["path"], sorted(true["tasks"])) == ("app.py", ["loud", "polite"])


@pytest.mark.spec("A21")
async def test_each_agents_cost_is_counted_and_summed(
    stage: SwarmLead, finished: dict[str, Any]
) -> None:
    result = finished["result"]
    costs = {line["id"]: line["cost_usd"] for line in result["tasks"]}
    assert costs == {
        "polite": pytest.approx(3 * PER_CALL),
        "loud": pytest.approx(3 * PER_CALL),
        "notes": pytest.approx(2 * PER_CALL),
        "count": pytest.approx(2 * PER_CALL),
    }
    assert result["cost_usd"] == pytest.approx(10 * PER_CALL)
    assert result["totals"]["glm"]["usage"]["input"] == stage.world.models.billed("moonshot").input


@pytest.mark.spec("A24")
async def test_a_failure_keeps_its_work_and_is_retried(
    stage: SwarmLead, finished: dict[str, Any]
) -> None:
    failed = line(finished["result"], "count")
    assert (failed["evidence"], failed["failure"]["kind"]) == ("refuted", "verify_failed")
    assert failed["files"] == 1, "what it did is kept"
    retry = {"tasks": ["count"], "provider": "deepseek", "method": "agent"}
    await stage.ask("swarm_retry", swarm_id=finished["id"], **retry)
    status = await stage.until_over(finished["id"])
    again = line(status, "count")
    assert (status["state"], again["evidence"], again["attempts"]) == ("completed", "verified", 2)
    assert again["provider"] == "deepseek"


@pytest.mark.spec("A22")
async def test_the_work_of_agents_is_merged(stage: SwarmLead, finished: dict[str, Any]) -> None:
    merged = await stage.ask("swarm_merge", swarm_id=finished["id"], verify=[])
    assert len(merged["merged"]) == 3
    (left,) = merged["left"]
    assert left["task"] in ("polite", "loud")
