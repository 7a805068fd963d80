"""A worker on the real OpenCode whose provider or process fails where the gateway cannot help."""

import json
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from world import World, a_world, told

from goent.domain.events import FailedOver, Noticed, TurnEnded, UsageReported
from goent.testing.script import Fault, Script, Step, call, case, openai, say
from goent.workers.worker_failover import CONTINUE_PROMPT

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240), pytest.mark.spec("P37")]

GOES_ON = "another model that continues it"
WRITE = call("write", filePath="{cwd}/direct.txt", content="written once\n")
EMPTY = Step(fault=Fault(status=402, message="Insufficient balance"))
SCRIPT = Script(
    providers={
        # Without a key: OpenCode calls it by itself, and the gateway sees nothing of it.
        "local": openai(case("direct", WRITE, EMPTY), case("stay here", EMPTY), models=("small",)),
        "moonshot": openai(
            case("started again", say("never").having(gate="twice")),
            case("crash", say("never").having(gate="once")),
            models=("glm-4",),
            key="sk-moonshot-real-key",
        ),
        "deepseek": openai(
            case(GOES_ON, say("Went on with {model}.")),
            models=("deepseek-coder",),
            key="sk-deepseek-real-key",
        ),
    }
)
PROVIDERS = """
providers:
  mine: {provider: local, model: small, local: false, fallbacks: [spare]}
  glm: {provider: moonshot, model: glm-4, fallbacks: [spare]}
  spare: {provider: deepseek, model: deepseek-coder}
"""


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[World]:
    config = "opencode: {profile: hermetic, standby: never}\ndefault_provider: mine\n"
    async with a_world(tmp_path_factory.mktemp("rescue"), SCRIPT, config=config) as world:
        (world.project / ".goent" / "providers.yaml").write_text(PROVIDERS)
        world.trust()
        theirs = world.home / ".config" / "opencode" / "opencode.json"
        written = json.loads(theirs.read_text())
        del written["provider"]["local"]["options"]["apiKey"]
        theirs.write_text(json.dumps(written))
        yield world


async def spawn(lead: Client, task: str, **more: object) -> str:
    asked = {"task": task, "permissions": "auto", **more}
    return told(await lead.call_tool("worker_spawn", asked))["worker_id"]


async def finished(lead: Client, worker: str) -> dict[str, Any]:
    asked = {"worker_ids": [worker], "timeout_s": 180}
    await lead.call_tool("worker_wait", asked)
    return told(await lead.call_tool("worker_result", {"worker_id": worker}))


@pytest.mark.spec("P27", "P36")
async def test_a_direct_provider_that_fails_is_replaced_in_the_same_session(world: World) -> None:
    async with world.client() as lead:
        result = await finished(lead, await spawn(lead, "direct: write it"))
        listed = told(await lead.call_tool("provider_list", {}))["providers"]
        healthy = told(await lead.call_tool("provider_list", {"healthy_only": True}))["providers"]
    assert result["state"] == "completed", result["failure"]
    assert result["text"] == "Went on with deepseek-coder."
    (moved,) = result["failovers"]
    assert (moved["from_provider"], moved["to_provider"]) == ("mine", "spare")
    assert "Insufficient balance" in moved["reason"]
    assert (world.project / "direct.txt").read_text() == "written once\n"
    assert [f["path"].rpartition("/")[2] for f in result["files"]] == ["direct.txt"]
    (taken_over,) = [c for c in world.models.calls if c.provider == "deepseek"]
    assert taken_over.request
    roles = [m.role for m in taken_over.request.messages]
    assert roles == ["user", "assistant", "tool", "user"], "what was done is in the conversation"
    events = [envelope.event for envelope in await world.journal(result["worker_id"])]
    assert len([e for e in events if isinstance(e, FailedOver)]) == 1
    assert len([e for e in events if isinstance(e, TurnEnded)]) == 1
    assert any("same session" in e.text for e in events if isinstance(e, Noticed))
    sources = {(e.provider, e.source) for e in events if isinstance(e, UsageReported)}
    assert sources == {("mine", "opencode"), ("spare", "gateway")}
    mine = next(p for p in listed if p["name"] == "mine")
    assert (mine["health"], mine["cooldown_until"] is not None) == ("no_credit", True)
    assert "Insufficient balance" in mine["health_reason"]
    names = {p["name"] for p in healthy}
    assert names >= {"glm", "spare"} and "mine" not in names
    await mended(world)


async def mended(world: World) -> None:
    """A person sees what is wrong, sets it right and says so."""
    shown = (await world.go_ent("providers")).out
    assert "no_credit," in shown and "left" in shown and "Insufficient balance" in shown
    diagnosis = (await world.go_ent("doctor")).out
    assert "! provider mine" in diagnosis and "out of credit until" in diagnosis
    assert "forgot: mine" in (await world.go_ent("providers", "reset", "mine")).out
    assert "Insufficient balance" not in (await world.go_ent("providers")).out


async def test_a_pinned_one_stays_and_names_who_would_be_next(world: World) -> None:
    async with world.client() as lead:
        result = await finished(lead, await spawn(lead, "stay here", provider="mine"))
    assert (result["state"], result["failovers"]) == ("failed", [])
    failure = result["failure"]
    assert (failure["kind"], failure["retry_with"]) == ("out_of_credit", "spare")


def opencodes(world: World) -> list[int]:
    found: list[int] = []
    for pid in world.processes():
        with suppress(OSError):
            if b"acp" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                found.append(pid)
    return found


async def test_two_crashes_in_one_turn_move_the_worker(world: World) -> None:
    async with world.client() as lead:
        worker = await spawn(lead, "crash it", provider="glm", allow_fallback=True)
        for gate in ("once", "twice"):
            await world.models.at_gate(gate, timeout=120)
            for pid in opencodes(world):
                os.kill(pid, signal.SIGKILL)
        with anyio.fail_after(180):
            result = await finished(lead, worker)
    assert (result["state"], result["text"]) == ("completed", "Went on with deepseek-coder.")
    (moved,) = result["failovers"]
    assert (moved["from_provider"], moved["to_provider"]) == ("glm", "spare")
    assert "two processes were lost" in moved["reason"]
    last = world.models.calls[-1].request
    assert last
    said = [m.text for m in last.messages if m.role == "user"]
    assert [text for text in said if "crash it" in text] == said[:1], "it was asked once"
    assert CONTINUE_PROMPT in said[-1]
