"""A user of version 0.1 upgrades: daemon and commands tell of the old state what version 0.1 told."""

import json
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from agent_wire import an_agent, words
from recorded_script import CONFIG, SCRIPT
from recorded_state import Answers
from version_0_1 import LEFT, RECORDED, SESSION, TIDY, WORKERS, lacks
from world import World, a_world, told

from goent.evals.eval_results import read_rows

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

ACTOR = Path(__file__).parent.parent / "drivers" / "agent_actor.py"
# What was told is compared by these; the others are for people, and their words may change.
OF_A_LINE = ("worker_id", "state", "provider", "model", "method", "tokens", "cost_usd")
OF_A_STATUS = (
    *("state", "turn", "provider", "model", "method", "cwd", "permission", "usage"),
    *("cost_usd", "cost_source", "started_at"),
)
OF_A_RESULT = (
    *("worker_id", "state", "evidence", "text", "files", "commands", "verify", "usage"),
    *("cost_usd", "models_used", "failovers", "branch", "workspace"),
)
OF_A_TASK = (
    *("id", "state", "evidence", "attempts", "provider", "model", "worker_id", "files"),
    *("added", "removed", "tokens", "cost_usd"),
)
OF_A_LESSON = (
    "provider",
    "type",
    "complexity",
    "claimed",
    "verified",
    "refuted",
    "failed",
    "graded",
)


def some(told_of: Mapping[str, Any], fields: Sequence[str]) -> dict[str, Any]:
    return {field: told_of[field] for field in fields}


def kind_of(told_of: Mapping[str, Any]) -> str | None:
    return told_of["failure"] and told_of["failure"]["kind"]


@asynccontextmanager
async def an_upgraded_world(folder: Path) -> AsyncGenerator[tuple[World, Answers]]:
    """The home of somebody who had version 0.1, and what that told them."""
    (folder / "kept").mkdir()
    config = CONFIG.format(python=sys.executable, actor=ACTOR, kept=folder / "kept")
    async with a_world(folder, SCRIPT, config=config) as world:
        yield world, RECORDED.place(world)


Upgraded = tuple[World, Answers]


@pytest.fixture(scope="module")
async def upgraded(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Upgraded]:
    """For looking only."""
    async with an_upgraded_world(tmp_path_factory.mktemp("v01")) as placed:
        yield placed


async def asked(world: World, *args: str) -> Any:
    ended = await world.go_ent(*args, "--json")
    assert ended.exit in (0, 1), ended
    return json.loads(ended.out)


async def test_ps_lists_the_workers_as_they_were(upgraded: Upgraded) -> None:
    world, then = upgraded
    listed = await asked(world, "ps", "--all")
    assert listed["total"] == then["ps"]["total"] == 41
    lines = {line["worker_id"]: line for line in listed["workers"]}
    for line in then["ps"]["workers"]:
        assert some(lines[line["worker_id"]], OF_A_LINE) == some(line, OF_A_LINE)
        if line["method"] != "api":  # which has no session that another go-ent could go on with
            assert lines[line["worker_id"]]["open"] == line["open"]
    for worker in WORKERS.values():
        line = lines[worker.id]
        assert (line["state"], line["method"]) == (worker.state, worker.method)
        assert (line["cost_usd"], line["tokens"]) == (worker.cost_usd, worker.tokens)


async def test_status_and_result_are_as_they_were(upgraded: Upgraded) -> None:
    world, then = upgraded
    async with world.client() as lead:
        for worker in then["results"]:
            asks = {"worker_id": worker}
            came = told(await lead.call_tool("worker_result", asks))
            assert some(came, OF_A_RESULT) == some(then["results"][worker], OF_A_RESULT)
            assert kind_of(came) == kind_of(then["results"][worker])
            status = told(await lead.call_tool("worker_status", asks))
            assert some(status, OF_A_STATUS) == some(then["status"][worker], OF_A_STATUS)


@pytest.mark.parametrize("name", ["verified", "refuted", "moved", "rejected", "by cli", "died"])
async def test_the_result_command_tells_what_it_told(upgraded: Upgraded, name: str) -> None:
    world, then = upgraded
    worker = WORKERS[name]
    ended = await world.go_ent("result", worker.id, "--json")
    came = json.loads(ended.out)
    assert some(came, OF_A_RESULT) == some(then["results"][worker.id], OF_A_RESULT)
    assert (came["evidence"], kind_of(came)) == (worker.evidence, worker.failure)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("two turns", ["write: hello.txt", "Written.", "Still here.", "grep -q hi hello.txt"]),
        ("rejected", ["bash: echo ran > ran.txt"]),
        ("another agent", ["hello", "[y]"]),
        ("by serve", ["glm-4 sums up."]),
    ],
)
async def test_output_is_what_was_said(upgraded: Upgraded, name: str, said: list[str]) -> None:
    world, then = upgraded
    ended = await world.go_ent("output", WORKERS[name].id)
    assert ended.exit == 0
    for text in said:
        assert text in ended.out and text in then["output"][WORKERS[name].id]


@pytest.mark.parametrize("by", ["provider", "model", "worker"])
async def test_costs_are_what_they_were(upgraded: Upgraded, by: str) -> None:
    world, then = upgraded
    costs = await asked(world, "costs", "--by", by)
    assert not lacks(then["costs"][by]["rows"], costs["rows"])
    assert (costs["known_usd"], costs["total_usd"]) == (2.37635, None)


async def test_swarms_are_told_as_they_were(upgraded: Upgraded) -> None:
    world, then = upgraded
    for swarm in (TIDY, LEFT):
        status = await asked(world, "swarm", "status", swarm)
        came = await asked(world, "swarm", "result", swarm)
        before = then["swarms"][swarm]
        for now, earlier in ((status, before["status"]), (came, before["result"])):
            assert now["state"] == earlier["state"]
            lines = [some(task, OF_A_TASK) for task in now["tasks"]]
            assert lines == [some(task, OF_A_TASK) for task in earlier["tasks"]]
        assert came["totals"] == before["result"]["totals"]
        assert came["plan"]["order"] == before["result"]["plan"]["order"]
    listed = await asked(world, "swarm", "list")
    assert {line["swarm_id"] for line in listed["swarms"]} == {TIDY, LEFT}


async def test_the_work_of_a_swarm_is_still_judged_and_merged(upgraded: Upgraded) -> None:
    world, then = upgraded
    came = await asked(world, "swarm", "result", TIDY)
    fields = ("kind", "path", "tasks", "hunks")
    conflicts = [some(conflict, fields) for conflict in came["conflicts"]]
    before = then["swarms"][TIDY]["result"]["conflicts"]
    assert conflicts == [some(conflict, fields) for conflict in before]
    assert [conflict["kind"] for conflict in conflicts] == ["file_overlap", "hunk_conflict"]
    merge = await asked(world, "swarm", "merge", TIDY, "--dry-run")
    assert len(merge["merged"]) == 5
    assert [left["task"] for left in merge["left"]] == ["loud"]


async def test_what_was_learned_is_known(upgraded: Upgraded) -> None:
    world, then = upgraded
    learned = await asked(world, "routes", "learned")
    now = [some(line, OF_A_LESSON) for line in learned["classes"]]
    before = [some(line, OF_A_LESSON) for line in then["learned"]["classes"]]
    assert sorted(now, key=repr) == sorted(before, key=repr)


async def test_the_runs_of_an_evaluation_are_reported_and_compared(upgraded: Upgraded) -> None:
    world, then = upgraded
    listed = await asked(world, "eval", "list")
    assert {Path(run["path"]).name for run in listed["runs"]} == {"first", "second"}
    report = await asked(world, "eval", "report", ".goent/evals/first")
    assert not lacks(then["report"], report)
    assert some(report["totals"], ("trials", "passed", "failed", "errors")) == {
        "trials": 12,
        "passed": 8,
        "failed": 4,
        "errors": 0,
    }
    out = ".goent/evals/first"
    targets = ("--targets", "opencode", "fixed")
    compared = await asked(world, "eval", "compare", out, *targets)
    (now,), (before,) = compared["after"], then["compared"]["after"]
    assert not lacks(before["comparison"], now["comparison"])
    assert now["comparison"]["conclusion"] == "no difference"
    two = await asked(world, "eval", "compare", out, ".goent/evals/second")
    assert two["after"][0]["comparison"]["ties"] == 6


# Going on


async def test_an_evaluation_is_graded_again(tmp_path: Path) -> None:
    async with an_upgraded_world(tmp_path) as (world, _):
        ended = await world.go_ent(
            "eval", "grade", ".goent/evals/first", "--out", "again", "--json", seconds=120
        )
        assert ended.exit == 3, ended  # where the script of a grader would have to look is gone
        kept = read_rows(world.project / ".goent/evals/first/index.jsonl").rows
        again = read_rows(world.project / "again" / "index.jsonl").rows
    says = [(row.target, row.trial, row.score) for row in kept if row.test_id == "says"]
    assert sorted(says) == sorted(
        (row.target, row.trial, row.score) for row in again if row.test_id == "says"
    )


async def test_a_session_of_the_agent_is_loaded_and_goes_on(tmp_path: Path) -> None:
    async with (
        an_upgraded_world(tmp_path) as (world, _),
        an_agent(world, "--model", "moonshot/glm-4") as wire,
    ):
        listed = await wire.ask("session/list", cwd=str(world.project))
        assert [(each["sessionId"], each["title"]) for each in listed["sessions"]] == [
            (SESSION, "Mend part in app.py.")
        ]
        await wire.ask("session/load", sessionId=SESSION, cwd=str(world.project), mcpServers=[])
        said = [update["content"] for update in wire.updates("user_message_chunk")]
        assert [each["type"] for each in said] == [
            "text",
            "resource_link",
            "resource",
            "image",
            "text",
        ]
        assert [each["text"] for each in said if each["type"] == "text"] == [
            "Mend part in app.py.",
            "try the shell",
        ]
        answers = [update["content"]["text"] for update in wire.updates("agent_message_chunk")]
        assert "Mended." in answers and "I may not." in answers
        calls = [update["title"] for update in wire.updates("tool_call")]
        assert len(calls) == 6, calls
        assert wire.updates("plan")[-1]["entries"][0]["content"] == "mend part"
        ended = await wire.prompt(SESSION, words("what did you note"))
        assert ended["stopReason"] == "end_turn"
        request = world.models.calls[-1].request
        assert request and "part was mended in app.py." in str(request.messages)


async def test_a_worker_that_was_handed_over_goes_on_in_its_session(tmp_path: Path) -> None:
    async with an_upgraded_world(tmp_path) as (world, _), world.client() as lead:
        worker = WORKERS["own agent"].id
        prompt = {"worker_id": worker, "prompt": "what did you note", "wait_s": 60}
        again = told(await lead.call_tool("worker_prompt", prompt))
        assert (again["turn"], again["state"]) == (2, "completed")
        assert again["result"]["text"] == "A note."
        assert again["result"]["cost_usd"] == pytest.approx(0.00028 + 0.00014)
        request = world.models.calls[-1].request
        assert request and "keep a note" in str(request.messages)


async def test_workers_of_a_daemon_that_was_killed_have_failed_and_go_on(tmp_path: Path) -> None:
    async with an_upgraded_world(tmp_path) as (upgraded, then):
        names = then["killed"]["names"]
        killed = World(
            home=upgraded.home,
            project=upgraded.project.parent / "killed",
            models=upgraded.models,
            env=upgraded.env,
        )
        try:
            listed = await asked(killed, "ps")
            states = {line["worker_id"]: line["state"] for line in listed["workers"]}
            assert states == dict.fromkeys((names["working"], names["asking"]), "failed")
            working = await asked(killed, "result", names["working"])
            assert kind_of(working) == "daemon_died"
            assert working["cost_usd"] is None, "its call was never settled"
            prompt = ("--json", names["working"], "what did you note")
            ended = await killed.go_ent("prompt", *prompt)
            assert json.loads(ended.out)["text"] == "A note.", ended
            costs = await asked(killed, "costs")
            (row,) = costs["rows"]
            assert (row["calls"], row["unknown_calls"]) == (3, 1)
        finally:
            await killed.end()
