"""A lead agent on the MCP SDK's own client, `go-ent mcp`, the daemon, and the real OpenCode."""

from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, MCPError
from mcp_types import TextResourceContents
from world import World, a_world, refusal, told

from goent.domain.events import PermissionAnswered, UsageReported
from goent.domain.types import Usage
from goent.testing.script import Script, anthropic, call, case, openai, say

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

TODOS = [
    {"content": "read the code", "status": "completed", "priority": "high"},
    {"content": "write the test", "status": "in_progress", "priority": "high"},
]
CASES = (
    case("write hello", call("write", filePath="{cwd}/hello.txt", content="hi\n"), say("Written.")),
    case("plan first", call("todowrite", todos=TODOS), say("Planned.").having(gate="planned")),
    case("run it", call("bash", command="echo ran > ran.txt", description="run"), say("It ran.")),
    case(
        "slow work",
        call("bash", command="echo half", description="x"),
        say("x").having(gate="slow"),
    ),
    case("together", say("I was there.").having(gate="together")),
    case("which model", say("{model}", usage=Usage(input=1000, output=100, cache_read=200))),
    case("and now", say("Still here.")),
    case(
        "edit then wait",
        call("write", filePath="{cwd}/kept.txt", content="kept\n"),
        say("x").having(gate="edited"),
    ),
)
SCRIPT = Script(
    providers={
        "moonshot": openai(*CASES, models=("glm-4", "kimi-k2"), key="sk-moonshot-real-key"),
        "deepseek": openai(*CASES, models=("deepseek-coder",), key="sk-deepseek-real-key"),
        "claude": anthropic(*CASES, models=("claude-x",), key="sk-ant-real-key"),
    }
)


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[World]:
    async with a_world(tmp_path_factory.mktemp("mcp"), SCRIPT) as world:
        yield world


def of_process(pid: int, name: str) -> bytes:
    return Path(f"/proc/{pid}/{name}").read_bytes()


async def spawn(lead: Client, task: str, **more: object) -> str:
    return told(await lead.call_tool("worker_spawn", {"task": task, **more}))["worker_id"]


async def until(
    lead: Client, tool: str, worker: str, seen: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    """The model's call and the worker's events reach us by two ways: wait for the slower one."""
    with anyio.fail_after(20):
        while True:
            answer = told(await lead.call_tool(tool, {"worker_id": worker}))
            if seen(answer):
                return answer
            await anyio.sleep(0.05)


async def result(lead: Client, worker: str) -> dict[str, Any]:
    waited = told(await lead.call_tool("worker_wait", {"worker_ids": [worker], "timeout_s": 60}))
    assert not waited["timed_out"], waited
    return told(await lead.call_tool("worker_result", {"worker_id": worker}))


@pytest.mark.spec("P01", "P02", "P03", "P21")
async def test_a_task_is_done_by_an_opencode_worker_and_comes_back(world: World) -> None:
    async with world.client() as lead:
        spawned = told(
            await lead.call_tool("worker_spawn", {"task": "write hello", "permissions": "edit"})
        )
        assert spawned["state"] == "starting", "the id comes before the worker is ready"
        done = await result(lead, spawned["worker_id"])
        assert (done["state"], done["evidence"], done["text"]) == (
            "completed",
            "claimed",
            "Written.",
        )
        assert done["files"] == [{"path": "hello.txt", "added": 1, "removed": 0}]
        assert (world.project / "hello.txt").read_text() == "hi\n"
        call = world.models.calls[-1]
        assert call.session is not None and call.session.startswith("ses_"), "OpenCode's session"

        (process,) = world.processes()
        environ, command = of_process(process, "environ"), of_process(process, "cmdline")
        assert command.split(b"\0")[1] == b"acp"
        config = f"OPENCODE_CONFIG={world.home}/.config/opencode/opencode.json"
        assert config.encode() in environ.split(b"\0")
        for key in (b"sk-moonshot-real-key", b"sk-deepseek-real-key", b"sk-ant-real-key"):
            assert key not in environ, "keys never reach a worker"


@pytest.mark.spec("P05", "P22", "P24")
async def test_words_stream_while_the_worker_works_and_it_takes_further_prompts(
    world: World,
) -> None:
    async with world.client() as lead:
        worker = await spawn(lead, "slow work", permissions="auto", method="acp")
        await world.models.at_gate("slow", timeout=30)
        output = await until(
            lead, "worker_output", worker, lambda output: "echo half" in output["text"]
        )
        assert output["state"] == "running"
        busy = await lead.call_tool("worker_prompt", {"worker_id": worker, "prompt": "and now"})
        assert busy.is_error and "queue: true" in refusal(busy)
        world.models.open_gate("slow")
        assert (await result(lead, worker))["state"] == "completed"

        prompted = told(
            await lead.call_tool(
                "worker_prompt", {"worker_id": worker, "prompt": "and now", "wait_s": 30}
            )
        )
        assert (prompted["turn"], prompted["state"]) == (2, "completed")
        assert prompted["result"]["text"] == "Still here."
        new = told(
            await lead.call_tool("worker_output", {"worker_id": worker, "cursor": output["cursor"]})
        )
        assert "Still here." in new["text"] and "echo half" not in new["text"]
        asked = world.models.calls[-1].request
        assert asked and any("slow work" in message.text for message in asked.messages)


@pytest.mark.spec("P04", "P12", "P13", "P14", "P15")
async def test_one_config_serves_every_provider_and_the_model_asked_for_is_the_one_that_works(
    world: World,
) -> None:
    opencode_json = world.home / ".config" / "opencode" / "opencode.json"
    before = (opencode_json.read_bytes(), opencode_json.stat().st_mtime_ns)
    async with world.client() as lead:
        pins = [
            ("moonshot", "glm-4"),
            ("moonshot", "kimi-k2"),
            ("deepseek", "deepseek-coder"),
            ("claude", "claude-x"),
        ]
        workers = [await spawn(lead, "which model", provider=p, model=m) for p, m in pins]
        for (provider, model), worker in zip(pins, workers, strict=True):
            done = await result(lead, worker)
            assert done["text"] == model, done
            assert [(m["provider"], m["model"]) for m in done["models_used"]] == [
                (f"{provider}/{model}", model)
            ]
            assert (done["usage"]["input"], done["usage"]["cache_read"]) == (1000, 200)
            assert done["cost_usd"] == pytest.approx((1000 * 1 + 200 * 0.1 + 100 * 2) / 1e6)
        unknown = await spawn(lead, "which model", provider="moonshot", model="glm-0")
        failed = await result(lead, unknown)
        assert failed["failure"]["kind"] == "unknown_model"
        assert "glm-0" in failed["failure"]["message"] and "kimi-k2" in failed["failure"]["message"]
    assert (opencode_json.read_bytes(), opencode_json.stat().st_mtime_ns) == before


@pytest.mark.spec("P23")
async def test_status_tells_step_and_progress_and_where_they_come_from(world: World) -> None:
    async with world.client() as lead:
        worker = await spawn(lead, "plan first")
        await world.models.at_gate("planned", timeout=30)
        status = await until(
            lead, "worker_status", worker, lambda status: status["progress"]["percent"] is not None
        )
        assert status["progress"] == {"percent": 50, "source": "todos"}
        assert (status["state"], status["step"]) == ("running", "write the test")
        assert status["usage"]["input"] == 100 and status["cost_source"] == "gateway"
        world.models.open_gate("planned")
        await result(lead, worker)


@pytest.mark.spec("P06", "P25")
async def test_cancel_is_graceful_and_keeps_what_was_done(world: World) -> None:
    async with world.client() as lead:
        worker = await spawn(lead, "together")
        await world.models.at_gate("together", timeout=30)
        cancelled = told(
            await lead.call_tool("worker_cancel", {"worker_id": worker, "reason": "enough"})
        )
        assert cancelled["state"] == "cancelled"
        assert cancelled["result"]["worker_id"] == worker
        again = told(
            await lead.call_tool(
                "worker_prompt", {"worker_id": worker, "prompt": "and now", "wait_s": 30}
            )
        )
        assert again["state"] == "completed", "its session lives"


@pytest.mark.spec("P06", "P25")
async def test_a_cancelled_worker_keeps_its_edits_its_words_and_its_bill(world: World) -> None:
    async with world.client() as lead:
        worker = await spawn(lead, "edit then wait", permissions="edit")
        await world.models.at_gate("edited", timeout=30)
        await until(lead, "worker_output", worker, lambda output: "kept.txt" in output["text"])
        cancelled = told(await lead.call_tool("worker_cancel", {"worker_id": worker}))
        kept = cancelled["result"]
        assert (cancelled["state"], kept["state"]) == ("cancelled", "cancelled")
        assert kept["files"] == [{"path": "kept.txt", "added": 1, "removed": 0}]
        assert (world.project / "kept.txt").read_text() == "kept\n"
        assert kept["usage"]["input"] == 100, "the call before the cancel is on the bill"


@pytest.mark.spec("P24")
async def test_since_last_is_new_to_each_connection(world: World) -> None:
    async with world.client() as lead, world.client() as other:
        worker = await spawn(lead, "which model")
        await result(lead, worker)

        async def new(client: Client) -> str:
            asked = {"worker_id": worker, "since_last": True, "filter": "text"}
            return told(await client.call_tool("worker_output", asked))["text"]

        assert (await new(lead), await new(lead), await new(other)) == ("glm-4", "", "glm-4")
        await lead.call_tool(
            "worker_prompt", {"worker_id": worker, "prompt": "and now", "wait_s": 30}
        )
        assert (await new(lead), await new(other)) == ("\nStill here.", "\nStill here.")


@pytest.mark.spec("P29")
async def test_workers_run_at_the_same_time_and_know_nothing_of_each_other(world: World) -> None:
    async with world.client() as lead:
        already = len(
            [c for c in world.models.calls if c.request and "together" in c.request.prompt]
        )
        workers = [
            await spawn(lead, "together", provider=name)
            for name in ("moonshot", "deepseek", "claude", "moonshot/kimi-k2")
        ]
        await world.models.at_gate("together", already + 4, timeout=60)
        listed = told(await lead.call_tool("worker_list", {"state": "running"}))
        assert set(workers) <= {w["worker_id"] for w in listed["workers"]}
        await lead.call_tool("worker_cancel", {"worker_id": workers[0]})
        world.models.open_gate("together")
        states = [(await result(lead, worker))["state"] for worker in workers]
        assert states == ["cancelled", "completed", "completed", "completed"]
        sessions = {c.session for c in world.models.calls[-4:]}
        assert len(sessions) == 4


@pytest.mark.spec("P26")
async def test_the_list_can_be_filtered(world: World) -> None:
    async with world.client() as lead:
        worker = await spawn(lead, "which model", provider="deepseek")
        await result(lead, worker)
        everything = told(await lead.call_tool("worker_list", {}))
        assert everything["workers"][0]["worker_id"] == worker, "newest first"
        assert everything["total"] >= 1
        some = told(await lead.call_tool("worker_list", {"provider": "deepseek", "limit": 1}))
        assert [w["worker_id"] for w in some["workers"]] == [worker]


async def test_a_question_is_asked_answered_and_journaled(world: World) -> None:
    async with world.client() as lead:
        worker = await spawn(lead, "run it", permissions="ask")
        waited = told(await lead.call_tool("worker_wait", {"worker_ids": [worker]}))
        question = waited["workers"][0]["permission"]
        assert waited["workers"][0]["state"] == "waiting"
        assert question["tool"] == "bash" and "echo ran" in question["detail"]
        assert not (world.project / "ran.txt").exists()
        nobody = await lead.call_tool(
            "worker_answer", {"worker_id": worker, "permission_id": "p99", "option": "allow_once"}
        )
        assert nobody.is_error and "p99" in refusal(nobody)
        told(
            await lead.call_tool(
                "worker_answer",
                {"worker_id": worker, "permission_id": question["id"], "option": "allow_once"},
            )
        )
        done = await result(lead, worker)
        assert done["state"] == "completed"
        assert done["commands"] == [{"command": "echo ran > ran.txt", "exit": 0}]
        assert (world.project / "ran.txt").read_text() == "ran\n"
    answers = [
        e.event for e in await world.journal(worker) if isinstance(e.event, PermissionAnswered)
    ]
    assert [(a.option, a.by) for a in answers] == [("allow_once", "mcp")]


async def test_a_rejection_fails_the_turn_and_names_the_tool(world: World) -> None:
    async with world.client() as lead:
        worker = await spawn(lead, "run it", permissions="ask")
        waited = told(await lead.call_tool("worker_wait", {"worker_ids": [worker]}))
        question = waited["workers"][0]["permission"]
        await lead.call_tool(
            "worker_answer",
            {"worker_id": worker, "permission_id": question["id"], "option": "reject"},
        )
        failed = await result(lead, worker)
        assert failed["failure"]["kind"] == "permission_denied"
        assert "bash" in failed["failure"]["message"]


async def test_every_token_the_provider_billed_is_the_workers(world: World) -> None:
    async with world.client() as lead:
        worker = await spawn(lead, "write hello", permissions="edit", provider="deepseek")
        done = await result(lead, worker)
        session = world.models.calls[-1].session
        billed = world.models.billed(session=session)
        assert done["usage"] == {
            "input": billed.input,
            "output": billed.output,
            "cache_read": billed.cache_read,
            "cache_write": billed.cache_write,
            "reasoning": billed.reasoning,
        }
        events = [e.event for e in await world.journal(worker)]
        assert len([e for e in events if isinstance(e, UsageReported)]) == 2
        report = told(await lead.call_tool("cost_report", {"by": "worker"}))
        row = next(row for row in report["rows"] if row["key"] == worker)
        assert row["cost_usd"] == done["cost_usd"]


async def test_the_old_handshake_is_served_too(world: World) -> None:
    async with world.client(mode="legacy") as lead:
        assert lead.protocol_version == "2025-11-25"
        assert "worker_spawn" in (lead.instructions or "")
        tools = (await lead.list_tools()).tools
        assert all(tool.description and tool.output_schema for tool in tools)


async def test_the_whole_output_is_a_resource(world: World) -> None:
    async with world.client() as lead:
        worker = await spawn(lead, "which model")
        await result(lead, worker)
        read = await lead.read_resource(f"worker://{worker}/output")
        contents = read.contents[0]
        assert isinstance(contents, TextResourceContents) and "glm-4" in contents.text
        listed = await lead.list_resources()
        assert f"worker://{worker}/output" in {str(r.uri) for r in listed.resources}
        with pytest.raises(MCPError, match="w-none"):
            await lead.read_resource("worker://w-none/output")


async def test_progress_is_told_while_a_call_waits(world: World) -> None:
    messages: list[str] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        messages.append(f"{progress}/{total} {message}")

    async with world.client() as lead:
        worker = await spawn(lead, "write hello", permissions="edit")
        await lead.call_tool(
            "worker_wait", {"worker_ids": [worker], "timeout_s": 60}, progress_callback=on_progress
        )
    assert any("completed" in message for message in messages)


async def test_workers_live_on_when_the_client_goes(world: World) -> None:
    async with world.client() as lead:
        first = await spawn(lead, "which model")
    async with world.client() as lead:
        assert (await result(lead, first))["state"] == "completed"
