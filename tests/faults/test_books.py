"""A model call that is cut by a kill is in the books: as one of which nobody knows the cost."""

import json
from pathlib import Path

import pytest
from world import COLD, a_world, kill

from goent.testing.script import Script, case, fail, openai

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

SILENT = case("wait for me", fail("hang", after=1).having(say="I begin, and fall silent."))
SCRIPT = Script(providers={"moonshot": openai(SILENT, key="sk-moonshot-real-key")})


@pytest.mark.spec("P25", "P33", "P34")
async def test_a_call_under_way_when_the_daemon_is_killed_is_in_the_costs(tmp_path: Path) -> None:
    async with a_world(tmp_path, SCRIPT, config=COLD) as world:
        started = await world.go_ent("run", "--detach", "--json", "wait for me")
        worker = json.loads(started.out)["worker_id"]
        await world.models.wait_for(lambda call: call.pieces > 0, timeout=90)
        before = await world.daemon()
        assert before
        kill(before.pid)
        costs = json.loads((await world.go_ent("costs", "--json")).out)
        assert [(row["calls"], row["unknown_calls"]) for row in costs["rows"]] == [(1, 1)]
        assert costs["total_usd"] is None, "never as if it had cost nothing"
        result = json.loads((await world.go_ent("result", worker, "--json")).out)
        assert result["failure"]["kind"] == "daemon_died"
        assert "the cost of 1 of 1 model calls is unknown" in result["notes"][0]
