"""A lead hands over several tasks at once: on three providers, in folders of their own, merged."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from real_git import a_repository
from swarm_lead import SwarmLead
from world import a_world, refusal

from goent.billing.token_estimate import estimate_tokens
from goent.domain.types import Usage
from goent.testing.script import Script, anthropic, call, case, openai, say

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]

APP = (
    "def greet(name):\n    return 'Hello ' + name\n\n\ndef part(name):\n    return 'Bye ' + name\n"
)
SPENT = Usage(input=500, output=50)


def write(path: str, content: str):
    return call("write", filePath=f"{{cwd}}/{path}", content=content).having(usage=SPENT)


def edit(old: str, new: str):
    step = call("edit", filePath="{cwd}/app.py", oldString=old, newString=new)
    return step.having(usage=SPENT)


READ = call("read", filePath="{cwd}/app.py")
DONE = say("Done.", usage=SPENT)
SCRIPT = Script(
    providers={
        "moonshot": openai(
            case("greet politely", READ, edit("'Hello '", "'Dear '"), DONE),
            case("say goodbye", READ, edit("'Bye '", "'Farewell '"), DONE),
            case("count to three", write("count.txt", "1 2\n"), DONE),
            models=("glm-4",),
            key="sk-moonshot-real-key",
        ),
        "deepseek": openai(
            case("greet loudly", READ, edit("'Hello '", "'HELLO '"), DONE),
            case("count to three", write("count.txt", "1 2 3\n"), DONE),
            models=("deepseek-coder",),
            key="sk-deepseek-real-key",
        ),
        "claude": anthropic(
            case("write the notes", write("NOTES.md", "# Notes\n"), DONE),
            case("sign the notes", call("bash", command="cat NOTES.md >> signed.md"), DONE),
            models=("claude-haiku",),
            key="sk-claude-real-key",
        ),
    }
)
TASKS: list[dict[str, Any]] = [
    {"id": "polite", "prompt": "greet politely", "provider": "moonshot"},
    {"id": "loud", "prompt": "greet loudly", "provider": "deepseek"},
    {"id": "bye", "prompt": "say goodbye", "provider": "moonshot"},
    {"id": "notes", "prompt": "write the notes", "provider": "claude"},
    {
        "id": "sign",
        "prompt": "sign the notes",
        "provider": "claude",
        "after": ["notes"],
        "permissions": "auto",
        "verify": ["grep -q Notes signed.md"],
    },
    {
        "id": "count",
        "prompt": "count to three",
        "provider": "moonshot",
        "verify": ["grep -q 3 count.txt"],
    },
]


@pytest.fixture(scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[SwarmLead]:
    folder = tmp_path_factory.mktemp("swarm")
    async with a_world(folder, SCRIPT) as world, world.client() as lead:
        repository = a_repository(world.project, files={"app.py": APP})
        yield SwarmLead(world, repository, lead)


@pytest.fixture(scope="module")
async def finished(stage: SwarmLead) -> dict[str, Any]:
    """The swarm after its first round, and everything that was told of it."""
    before = stage.repository.state()
    spawned = await stage.ask("swarm_spawn", swarm="tidy", tasks=TASKS, concurrency=6)
    status = await stage.until_over(spawned["swarm_id"])
    result = await stage.ask("swarm_result", swarm_id=status["swarm_id"])
    return {"status": status, "result": result, "before": before, "id": status["swarm_id"]}


def line(told: dict[str, Any], task: str) -> dict[str, Any]:
    (found,) = [line for line in told["tasks"] if line["id"] == task]
    return found


@pytest.mark.spec("P29", "P30")
async def test_tasks_run_at_once_on_different_providers(
    stage: SwarmLead, finished: dict[str, Any]
) -> None:
    result = finished["result"]
    states = {line["id"]: line["state"] for line in result["tasks"]}
    assert states == {
        **dict.fromkeys(("polite", "loud", "bye", "notes", "sign"), "completed"),
        "count": "failed",
    }
    assert {line["provider"].partition("/")[0] for line in result["tasks"]} == {
        "moonshot",
        "deepseek",
        "claude",
    }
    workers = [line["worker_id"] for line in result["tasks"]]
    folders = {
        told["cwd"] for w in workers for told in [await stage.ask("worker_status", worker_id=w)]
    }
    assert len(folders) == len(TASKS), "each in a folder of its own"
    assert all(stage.world.project not in Path(folder).parents for folder in folders)


@pytest.mark.spec("P29")
async def test_the_users_checkout_is_as_it_was(stage: SwarmLead, finished: dict[str, Any]) -> None:
    assert stage.repository.state() == finished["before"]


@pytest.mark.spec("P31")
async def test_overlaps_and_true_conflicts_are_told_apart(finished: dict[str, Any]) -> None:
    conflicts = finished["result"]["conflicts"]
    (true,) = [c for c in conflicts if c["kind"] == "hunk_conflict"]
    assert (true["path"], sorted(true["tasks"])) == ("app.py", ["loud", "polite"])
    assert "Dear" in true["hunks"][0]
    assert "HELLO" in true["hunks"][0]
    (overlap,) = [c for c in conflicts if c["kind"] == "file_overlap"]
    assert sorted(overlap["tasks"]) == ["bye", "loud", "polite"]


@pytest.mark.spec("P31")
async def test_the_summary_fits_into_a_models_context(finished: dict[str, Any]) -> None:
    assert estimate_tokens(msgspec.json.encode(finished["result"]).decode()) < 1500


@pytest.mark.spec("P34")
async def test_the_totals_are_what_the_providers_counted(
    stage: SwarmLead, finished: dict[str, Any]
) -> None:
    totals = finished["result"]["totals"]
    for name in ("moonshot", "deepseek", "claude"):
        billed = stage.world.models.billed(name)
        (own,) = [total for provider, total in totals.items() if provider.startswith(name)]
        assert own["usage"]["input"] == billed.input
        assert own["usage"]["output"] == billed.output
    spent = sum(total["cost_usd"] for total in totals.values())
    assert finished["result"]["cost_usd"] == pytest.approx(spent)


@pytest.mark.spec("P32")
async def test_a_failure_is_told_and_retried_elsewhere_by_one_call(
    stage: SwarmLead, finished: dict[str, Any]
) -> None:
    failed = line(finished["result"], "count")
    assert (failed["evidence"], failed["failure"]["kind"]) == ("refuted", "verify_failed")
    assert failed["files"] == 1, "what it did is kept"
    await stage.ask("swarm_retry", swarm_id=finished["id"], tasks=["count"], provider="deepseek")
    status = await stage.until_over(finished["id"])
    assert status["state"] == "completed"
    again = line(status, "count")
    assert (again["evidence"], again["attempts"]) == ("verified", 2)
    assert again["provider"].startswith("deepseek")


@pytest.mark.spec("P31")
async def test_what_goes_together_is_merged_and_checked_on_a_branch_of_its_own(
    stage: SwarmLead, finished: dict[str, Any]
) -> None:
    merged = await stage.ask("swarm_merge", swarm_id=finished["id"])
    assert len(merged["merged"]) == 5
    (left,) = [each for each in merged["left"] if each["task"] in ("polite", "loud")]
    assert "app.py" in left["instructions"]
    assert merged["evidence"] == "verified"
    branch = merged["branch"]
    assert branch == "go-ent/tidy/merged"
    shown = stage.repository.git("show", f"{branch}:app.py")
    assert "Farewell" in shown
    assert ("Dear" in shown) != ("HELLO" in shown)
    assert stage.repository.git("show", f"{branch}:count.txt") == "1 2 3"
    assert stage.repository.git("show", f"{branch}:signed.md") == "# Notes"
    assert stage.repository.state() == finished["before"]


@pytest.mark.parametrize(
    ("tasks", "told"),
    [
        (
            [
                {"id": "a", "prompt": "x", "after": ["b"]},
                {"id": "b", "prompt": "x", "after": ["a"]},
            ],
            "in a cycle: ",
        ),
        ([{"id": "a", "prompt": "x"}, {"id": "a", "prompt": "y"}], "2 tasks have the id 'a'"),
        (
            [{"id": "a", "prompt": "x", "provider": "nobody"}],
            "provider 'nobody', which is not configured",
        ),
        ([{"id": f"t{n}", "prompt": "x"} for n in range(101)], "101 tasks are more than 100"),
        ([{"id": "a", "prompt": "x", "after": ["c"]}], "after 'c', which does not exist"),
        ([], "tasks"),
    ],
    ids=["a circle", "an id twice", "an unknown provider", "too many", "an unknown task", "none"],
)
async def test_a_list_that_cannot_be_done_is_refused_whole(
    stage: SwarmLead, tasks: list[dict[str, object]], told: str
) -> None:
    result = await stage.lead.call_tool("swarm_spawn", {"tasks": tasks})
    assert result.is_error
    assert told in refusal(result)
