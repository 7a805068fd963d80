"""OpenCode is started for tasks that need it, and not for a client that merely connects."""

from pathlib import Path

import anyio
import pytest
from world import World, a_world, told

from goent.testing.script import Script, case, openai, say

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

SCRIPT = Script(
    providers={"moonshot": openai(case(None, say("Hello.")), key="sk-moonshot-real-key")}
)


async def opencode_runs(world: World) -> None:
    with anyio.fail_after(60):
        while not world.processes():  # noqa: ASYNC110 (a process announces nothing)
            await anyio.sleep(0.05)


@pytest.mark.spec("P10")
async def test_only_what_is_likely_to_be_needed_is_started(tmp_path: Path) -> None:
    async with a_world(tmp_path, SCRIPT) as world:
        async with world.client() as lead:
            await lead.list_tools()
            by_api = {"task": "hello", "method": "api", "wait_s": 60}
            spawned = told(await lead.call_tool("worker_spawn", by_api))
            assert spawned["result"]["state"] == "completed"
            await lead.call_tool("worker_wait", {"worker_ids": [spawned["worker_id"]]})
            await lead.call_tool("worker_list", {})
            assert world.processes() == [], "who uses the API alone has no OpenCode"

            by_acp = {"task": "hello", "method": "acp", "wait_s": 60}
            spawned = told(await lead.call_tool("worker_spawn", by_acp))
            assert spawned["result"]["state"] == "completed"
        assert (await world.go_ent("daemon", "stop", "--force")).exit == 0
        assert world.processes() == []

        await world.go_ent("ps")
        assert world.processes() == [], "a look from a terminal starts none"
        async with world.client() as lead:
            await lead.list_tools()
            await opencode_runs(world)
        assert (await world.go_ent("daemon", "stop", "--force")).exit == 0


async def test_a_clients_first_look_at_workers_starts_it(tmp_path: Path) -> None:
    async with a_world(tmp_path, SCRIPT) as world, world.client() as lead:
        await lead.call_tool("provider_list", {})
        assert world.processes() == []
        await lead.call_tool("worker_list", {})
        await opencode_runs(world)
