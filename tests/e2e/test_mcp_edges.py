"""The edges of the same way: wrong answers, wrong input, and what a worker may not do."""

import shutil
from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest
from hardening import ASKS_AGAIN_SOON, another_installation
from mcp import Client
from world import World, a_world, refusal, told

from goent.domain.events import TurnEnded, WorkerClosed
from goent.providers.call_plan import RetrySettings
from goent.testing.script import Script, call, case, fail, openai, say

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

EACH = 1 + RetrySettings().retries
SCRIPT = Script(
    providers={
        "moonshot": openai(
            case(
                "write hello", call("write", filePath="{cwd}/hello.txt", content="hi\n"), say("Ok.")
            ),
            case(
                "edit above",
                call("write", filePath="{cwd}/../above.txt", content="x\n"),
                say("Ok."),
            ),
            case("a page", fail("garbage")),
            case("a wrong label", fail("mislabeled")),
            case("no finish", fail("eof", after=2).having(say="one two three four five six")),
            case("which model", say("{model}")),
            case("swallow", say("Swallowed.")),
            key="sk-moonshot-real-key",
        )
    }
)


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[World]:
    async with a_world(tmp_path_factory.mktemp("edges"), SCRIPT) as world:
        # One model does everything wrong here, and is asked all the same.
        providers = world.project / ".goent" / "providers.yaml"
        providers.write_text("health: {max_retries: 100}\n")
        with another_installation(world, ASKS_AGAIN_SOON):
            yield world


async def spawn(lead: Client, task: str, **more: object) -> str:
    return told(await lead.call_tool("worker_spawn", {"task": task, **more}))["worker_id"]


async def result(lead: Client, worker: str) -> dict[str, Any]:
    waited = told(await lead.call_tool("worker_wait", {"worker_ids": [worker], "timeout_s": 60}))
    assert not waited["timed_out"], waited
    return told(await lead.call_tool("worker_result", {"worker_id": worker}))


async def test_an_answer_that_is_no_stream_fails_the_turn_after_a_few_calls(world: World) -> None:
    async with world.client() as lead:
        prompts = ("a page", "a wrong label", "no finish")
        workers = [await spawn(lead, prompt) for prompt in prompts]
        for prompt, worker in zip(prompts, workers, strict=True):
            failed = await result(lead, worker)
            assert failed["state"] == "failed" and failed["failure"]["message"]
            made = [call for call in world.models.calls if call.case == prompt]
            assert len(made) == EACH, "go-ent tries again, and OpenCode must not, without limit"


async def test_a_subfolder_of_a_checkout_is_all_that_a_worker_may_edit_unasked(
    world: World,
) -> None:
    await anyio.run_process(["git", "init", "-q"], cwd=world.project)
    below = world.project / "below"
    below.mkdir()
    async with world.client() as lead:
        worker = await spawn(lead, "edit above", permissions="edit", cwd=str(below))
        waited = told(await lead.call_tool("worker_wait", {"worker_ids": [worker]}))
        assert waited["workers"][0]["state"] == "waiting", "outside its directory it has to ask"
        await lead.call_tool("worker_cancel", {"worker_id": worker, "close": True})
        inside = await spawn(lead, "write hello", permissions="edit", cwd=str(below))
        assert (await result(lead, inside))["state"] == "completed", "inside it has not"
    assert not (world.project / "above.txt").exists()
    shutil.rmtree(world.project / ".git")


@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        ("worker_spawn", {"task": " "}, "the task is empty"),
        (
            "worker_spawn",
            {"task": "x", "cwd": "/nowhere/at/all"},
            "'/nowhere/at/all' does not exist",
        ),
        ("worker_spawn", {"task": "x", "cwd": "hello.txt"}, "is not a directory"),
        ("worker_spawn", {"task": "x", "provider": "nope"}, "unknown provider 'nope'"),
        (
            "worker_spawn",
            {"task": "x", "prvider": "y"},
            "prvider: unknown argument; did you mean 'provider'?",
        ),
        ("worker_status", {"worker_id": "w-none1"}, "no worker 'w-none1'"),
        ("worker_prompt", {"worker_id": "w-none1", "prompt": "x"}, "no worker 'w-none1'"),
        ("worker_wait", {"worker_ids": []}, "worker_ids: must have at least 1 entry, not 0"),
        (
            "worker_wait",
            {"worker_ids": ["w-none1"], "timeout_s": 1000},
            "timeout_s: must be at most 240, not 1000",
        ),
        ("no_such_tool", {}, "unknown tool 'no_such_tool'"),
    ],
)
async def test_bad_input_gets_an_error_that_names_the_value(
    world: World, tool: str, arguments: dict[str, object], message: str
) -> None:
    (world.project / "hello.txt").touch()
    async with world.client() as lead:
        refused = await lead.call_tool(tool, arguments)
        assert refused.is_error and message in refusal(refused), refusal(refused)


@pytest.mark.spec("P08")
@pytest.mark.parametrize("start", ["/init", "-rf"])
async def test_a_prompt_of_five_megabytes_reaches_a_model_by_api(world: World, start: str) -> None:
    prompt = f"{start} swallow {'é' * 2_500_000}"
    async with world.client() as lead:
        swallowed = await result(lead, await spawn(lead, prompt, method="api"))
        assert (swallowed["state"], swallowed["text"]) == ("completed", "Swallowed.")
        asked = world.models.calls[-1].request
        assert asked and asked.prompt == prompt


async def test_the_projects_instructions_reach_the_worker(world: World) -> None:
    (world.project / "AGENTS.md").write_text("Say please, always.\n")
    async with world.client() as lead:
        await result(lead, await spawn(lead, "which model", method="acp"))
        asked = world.models.calls[-1].request
        assert asked and any("Say please, always." in message.text for message in asked.messages)
    (world.project / "AGENTS.md").unlink()


async def test_a_closed_worker_says_so(world: World) -> None:
    async with world.client() as lead:
        worker = await spawn(lead, "which model")
        await result(lead, worker)
        await lead.call_tool("worker_cancel", {"worker_id": worker, "close": True})
        refused = await lead.call_tool("worker_prompt", {"worker_id": worker, "prompt": "more"})
        assert refused.is_error and "closed" in refusal(refused)
        events = [e.event for e in await world.journal(worker)]
        assert isinstance(events[-1], WorkerClosed)
        assert len([e for e in events if isinstance(e, TurnEnded)]) == 1
