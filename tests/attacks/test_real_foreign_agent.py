"""What a real foreign agent, kimi-code, does under go-ent's permissions.

Its model is scripted and its only address is loopback. In a git checkout its own default mode asks
before commands and not before edits, and its subagents tell nobody of their tool calls.
"""

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from world import World, a_world, told

from goent.testing.script import Script, anthropic, call, case, say

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

PEERS = Path(__file__).parent.parent / "npm" / "peers" / "node_modules"
COMMAND = [
    str(PEERS / ".bin" / "node"),
    str(PEERS / "@moonshot-ai" / "kimi-code" / "dist" / "main.mjs"),
    "acp",
]
KEY = "sk-claude-real-key"
DONE = say("Done.")
DEEDS = {
    "write it": call("Write", path="made.txt", content="x\n"),
    "edit it": call("Edit", path="old.txt", old_string="old", new_string="new"),
    "run it": call("Bash", command="touch made.txt"),
}
LEFT = {
    "write it": {"made.txt": "x\n", "old.txt": "old\n"},
    "edit it": {"old.txt": "new\n"},
    "run it": {"made.txt": "", "old.txt": "old\n"},
}
UNTOUCHED = {"old.txt": "old\n"}
SCRIPT = Script(
    providers={
        "claude": anthropic(
            *(
                case(
                    f"let another {deed}",
                    call("Agent", prompt=f"{deed}, as I said", description="x"),
                    DONE,
                )
                for deed in DEEDS
            ),
            *(case(deed, step, DONE) for deed, step in DEEDS.items()),
            case("run two", DEEDS["run it"], call("Bash", command="touch more.txt"), DONE),
            models=("scripted",),
            key=KEY,
        )
    }
)
KIMI_CONFIG = """\
default_model = "scripted"
telemetry = false

[providers.scripted]
type = "anthropic"
base_url = "{url}/claude"
api_key = "{key}"

[models.scripted]
provider = "scripted"
model = "scripted"
max_context_size = 128000
"""
QUIET = {"KIMI_CODE_NO_AUTO_UPDATE": "1", "KIMI_DISABLE_TELEMETRY": "1"}


@pytest.fixture(scope="module")
async def checkout(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[World]:
    config = f"opencode: {{warm: false}}\nagents: {{kimi: {{command: {json.dumps(COMMAND)}}}}}\n"
    folder = tmp_path_factory.mktemp("kimi")
    async with a_world(folder, SCRIPT, config=config, environ=QUIET) as world:
        settings = world.home / ".kimi-code" / "config.toml"
        settings.parent.mkdir()
        settings.write_text(KIMI_CONFIG.format(url=world.models.url, key=KEY))
        (world.project / ".git").mkdir()
        (world.project / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
        yield world


@pytest.fixture
def world(checkout: World) -> World:
    for path in checkout.project.glob("*.txt"):
        path.unlink()
    (checkout.project / "old.txt").write_text("old\n")
    return checkout


def files(world: World) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(world.project.glob("*.txt"))}


async def spawn(lead: Client, task: str, permissions: str) -> dict[str, Any]:
    asked = {"task": task, "provider": "kimi", "permissions": permissions, "wait_s": 60}
    return told(await lead.call_tool("worker_spawn", asked))


async def output(lead: Client, spawned: dict[str, Any]) -> str:
    asked = {"worker_id": spawned["worker_id"], "filter": "all"}
    return str(told(await lead.call_tool("worker_output", asked))["text"])


async def question_of(lead: Client, spawned: dict[str, Any]) -> dict[str, Any]:
    assert spawned["state"] == "waiting", spawned
    waited = told(await lead.call_tool("worker_wait", {"worker_ids": [spawned["worker_id"]]}))
    return waited["workers"][0]["permission"]


async def answer_to(
    lead: Client, spawned: dict[str, Any], question: dict[str, Any], option: str
) -> dict[str, Any]:
    """The worker, when it has ended its turn or asks again."""
    worker = spawned["worker_id"]
    answer = {"worker_id": worker, "permission_id": question["id"], "option": option}
    told(await lead.call_tool("worker_answer", answer))
    waited = told(await lead.call_tool("worker_wait", {"worker_ids": [worker]}))
    return waited["workers"][0]


def failure(spawned: dict[str, Any]) -> tuple[str, str]:
    failed = spawned["result"]["failure"]
    return failed["kind"], failed["message"]


@pytest.mark.parametrize("deed", DEEDS)
async def test_under_readonly_it_works_in_its_plan_mode_and_changes_nothing(
    world: World, deed: str
) -> None:
    async with world.client() as lead:
        spawned = await spawn(lead, deed, "readonly")
        assert "kimi works in its mode 'plan'" in await output(lead, spawned)
    assert spawned["state"] == "completed", "its model goes on without"
    assert any("kimi has its own permissions" in warning for warning in spawned["warnings"])
    assert files(world) == UNTOUCHED


@pytest.mark.parametrize("deed", ["write it", "edit it"])
async def test_under_readonly_what_its_subagent_changed_fails_the_turn(
    world: World, deed: str
) -> None:
    """Its plan mode does not hold for its subagents."""
    async with world.client() as lead:
        spawned = await spawn(lead, f"let another {deed}", "readonly")
    kind, message = failure(spawned)
    assert kind == "permission_bypassed"
    assert repr("old.txt" if deed == "edit it" else "made.txt") in message


@pytest.mark.parametrize("deed", ["write it", "edit it"])
async def test_under_ask_an_edit_that_it_did_not_ask_about_fails_the_turn(
    world: World, deed: str
) -> None:
    async with world.client() as lead:
        spawned = await spawn(lead, deed, "ask")
        assert "kimi works in its mode 'default'" in await output(lead, spawned)
    kind, message = failure(spawned)
    assert kind == "permission_bypassed" and "did not ask: edit" in message
    assert any("kimi has its own permissions" in warning for warning in spawned["warnings"])


@pytest.mark.parametrize("deed", ["write it", "edit it"])
async def test_under_ask_what_its_subagent_changed_fails_the_turn(world: World, deed: str) -> None:
    """It tells of no call of a subagent's: the files do."""
    async with world.client() as lead:
        spawned = await spawn(lead, f"let another {deed}", "ask")
    kind, message = failure(spawned)
    assert kind == "permission_bypassed" and "only after asking" in message
    assert repr("old.txt" if deed == "edit it" else "made.txt") in message


async def test_under_readonly_a_command_of_its_subagent_is_refused(world: World) -> None:
    async with world.client() as lead:
        spawned = await spawn(lead, "let another run it", "readonly")
        assert "refused by a rule: bash Bash" in await output(lead, spawned)
    assert spawned["state"] == "completed" and files(world) == UNTOUCHED


@pytest.mark.parametrize("answer", ["allow_once", "reject"])
async def test_under_ask_a_command_is_asked_and_shown(world: World, answer: str) -> None:
    async with world.client() as lead:
        spawned = await spawn(lead, "run it", "ask")
        question = await question_of(lead, spawned)
        assert (question["tool"], question["detail"]) == ("bash", "touch made.txt")
        assert files(world) == UNTOUCHED
        ended = await answer_to(lead, spawned, question, answer)
    assert ended["state"] == "completed", ended
    assert files(world) == (LEFT["run it"] if answer == "allow_once" else UNTOUCHED)


async def test_an_always_for_one_command_covers_no_other(world: World) -> None:
    """kimi-code calls each of them `Bash` when it asks."""
    async with world.client() as lead:
        spawned = await spawn(lead, "run two", "ask")
        first = await question_of(lead, spawned)
        told_next = await answer_to(lead, spawned, first, "allow_always")
        assert told_next["permission"]["detail"] == "touch more.txt"
        await answer_to(lead, spawned, told_next["permission"], "reject")
    assert files(world) == LEFT["run it"]


@pytest.mark.parametrize("answer", ["allow_once", "reject"])
async def test_under_ask_a_command_of_its_subagent_is_asked_and_shown(
    world: World, answer: str
) -> None:
    async with world.client() as lead:
        spawned = await spawn(lead, "let another run it", "ask")
        question = await question_of(lead, spawned)
        assert question["tool"] == "bash" and "touch made.txt" in question["detail"]
        assert files(world) == UNTOUCHED
        ended = await answer_to(lead, spawned, question, answer)
        assert ended["state"] == "completed", ended
        shown = await output(lead, spawned)
    allowed = answer == "allow_once"
    assert files(world) == (LEFT["run it"] if allowed else UNTOUCHED)
    assert ("by kimi or by a command that was allowed: 'made.txt'" in shown) == allowed


@pytest.mark.parametrize("deed", DEEDS)
async def test_under_auto_it_does_its_work(world: World, deed: str) -> None:
    async with world.client() as lead:
        spawned = await spawn(lead, deed, "auto")
    assert (spawned["state"], spawned["warnings"]) == ("completed", [])
    assert files(world) == LEFT[deed]
