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

from goent.testing import Script, anthropic, call, case, say

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
    assert any("permissions of its own" in warning for warning in spawned["warnings"])
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
    assert any("permissions of its own" in warning for warning in spawned["warnings"])


@pytest.mark.parametrize("deed", DEEDS)
async def test_under_auto_it_does_its_work(world: World, deed: str) -> None:
    async with world.client() as lead:
        spawned = await spawn(lead, deed, "auto")
    assert (spawned["state"], spawned["warnings"]) == ("completed", [])
    assert files(world) == LEFT[deed]
