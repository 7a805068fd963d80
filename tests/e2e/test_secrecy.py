"""A provider's key is known to go-ent and to the provider, and to nobody and nothing else."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from found import files_below, holding, spoken_by
from hardening import ASKS_AGAIN_SOON, another_installation
from world import World, a_world, told

from goent.testing.script import Fault, Script, case, openai, say

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]

KEY = "sk-moonshot-5e0c81d7aa39"
METHODS = ("api", "cli", "acp")  # in this order, each has no process but its own to look into
FAILURES = {
    "refuse": Fault(status=401, message=f"no account for {KEY}"),
    "storm": Fault(status=429, message=f"{KEY} asks too often", retry_after=0),
    "break": Fault(kind="error", message=f"{KEY} was cut off", after=2),
}
SCRIPT = Script(
    providers={
        "moonshot": openai(
            *(case(f"look by {method}", say("Seen.").having(gate=method)) for method in METHODS),
            *(
                case(name, say("one two three four").having(chunk=4, fault=fault))
                for name, fault in FAILURES.items()
            ),
            # A model of its own for each failure: what it does tells nothing of the others.
            models=("glm-4", *(f"{task}-{method}" for task in FAILURES for method in METHODS)),
            key=KEY,
        )
    }
)


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[World]:
    folder = tmp_path_factory.mktemp("secrecy")
    config, environ = "opencode: {profile: hermetic, warm: false}\n", {"GOENT_LOG": "DEBUG"}
    async with a_world(folder, SCRIPT, config=config, environ=environ) as world:
        with another_installation(world, ASKS_AGAIN_SOON):
            yield world
    _assert_unwritten(folder)


@pytest.mark.spec("P34")
@pytest.mark.parametrize("method", METHODS)
async def test_a_key_is_in_no_process_no_file_and_no_answer(world: World, method: str) -> None:
    async with world.client() as lead:
        how = {"method": method, "permissions": "auto", "provider": "moonshot", "wait_s": 0}
        spawned = await lead.call_tool("worker_spawn", {"task": f"look by {method}", **how})
        seen = [told(spawned)["worker_id"]]
        await world.models.at_gate(method, timeout=120)
        spoken = spoken_by(world.processes())
        assert (bool(spoken), holding(KEY, spoken)) == (method != "api", [])
        world.models.open_gate(method)
        for task in FAILURES:
            asked = {"task": task, "model": f"{task}-{method}", **how}
            seen.append(told(await lead.call_tool("worker_spawn", asked))["worker_id"])
        for worker, state in zip(seen, ("completed", *["failed"] * len(FAILURES)), strict=True):
            await lead.call_tool("worker_wait", {"worker_ids": [worker], "timeout_s": 100})
            result = await lead.call_tool("worker_result", {"worker_id": worker})
            assert told(result)["state"] == state, result
            assert KEY not in str(result)
    assert {call.key for call in world.models.calls} == {KEY}, "it is used, all the same"
    assert KEY not in (await world.go_ent("costs", "--json")).out
    _assert_unwritten(world.home.parent)


def _assert_unwritten(folder: Path) -> None:
    """In no file: journal, ledger, logs, generated configurations, OpenCode's own."""
    files = files_below(folder)
    names = {path.name for path in files}
    assert {"journal.db", "ledger.db"} <= names and [name for name in names if ".log" in name]
    assert holding(KEY, files) == []
