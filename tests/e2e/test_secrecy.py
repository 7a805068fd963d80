"""A provider's key is known to go-ent and to the provider, and to nobody and nothing else."""

from pathlib import Path

import pytest
from found import files_below, holding, spoken_by
from world import a_world, told

from goent.testing import Fault, Script, case, openai, say

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]

KEY = "sk-moonshot-5e0c81d7aa39"
METHODS = ("api", "acp", "cli")
FAILURES = {
    "refuse": Fault(status=401, message=f"no account for {KEY}"),
    "storm": Fault(status=429, message=f"{KEY} asks too often", retry_after=0),
    "break": Fault(kind="error", message=f"{KEY} was cut off", after=2),
}
SCRIPT = Script(
    providers={
        "moonshot": openai(
            case("look", say("Seen.").having(gate="look")),
            *(
                case(name, say("one two three four").having(chunk=4, fault=fault))
                for name, fault in FAILURES.items()
            ),
            key=KEY,
        )
    }
)


@pytest.mark.spec("P34")
@pytest.mark.parametrize("method", METHODS)
async def test_a_key_is_in_no_process_no_file_and_no_answer(tmp_path: Path, method: str) -> None:
    config, environ = "opencode: {profile: hermetic, warm: false}\n", {"GOENT_LOG": "DEBUG"}
    async with (
        a_world(tmp_path, SCRIPT, config=config, environ=environ) as world,
        world.client() as lead,
    ):
        how = {"method": method, "permissions": "auto", "provider": "moonshot", "wait_s": 0}
        spawned = await lead.call_tool("worker_spawn", {"task": "look", **how})
        seen = [told(spawned)["worker_id"]]
        await world.models.at_gate("look", timeout=120)
        spoken = spoken_by(world.processes())
        assert (bool(spoken), holding(KEY, spoken)) == (method != "api", [])
        world.models.open_gate("look")
        for task in FAILURES:
            spawned = await lead.call_tool("worker_spawn", {"task": task, **how})
            seen.append(told(spawned)["worker_id"])
        for worker, state in zip(seen, ("completed", *["failed"] * len(FAILURES)), strict=True):
            await lead.call_tool("worker_wait", {"worker_ids": [worker], "timeout_s": 100})
            result = await lead.call_tool("worker_result", {"worker_id": worker})
            assert told(result)["state"] == state, result
            assert KEY not in str(result)
        assert {call.key for call in world.models.calls} == {KEY}, "it is used, all the same"
        assert KEY not in (await world.go_ent("costs", "--json")).out
        _assert_unwritten(tmp_path)
    _assert_unwritten(tmp_path)


def _assert_unwritten(folder: Path) -> None:
    """In no file: journal, ledger, logs, generated configurations, OpenCode's own."""
    files = files_below(folder)
    names = {path.name for path in files}
    assert {"journal.db", "ledger.db"} <= names and [name for name in names if ".log" in name]
    assert holding(KEY, files) == []
