"""A key that a provider refused may be mended a moment later: the next prompt asks again."""

from pathlib import Path

import pytest
from world import COLD, a_world, told

from goent.testing.script import Fault, Script, case, openai, say

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

REFUSED = Fault(kind="status", status=401, message="bad key", times=1)
SCRIPT = Script(
    providers={
        "moonshot": openai(
            case(None, say("Hello.").having(fault=REFUSED)),
            models=("glm-4",),
            key="sk-moonshot-real-key",
        )
    }
)


@pytest.mark.parametrize("method", ["api", "acp"])
async def test_the_next_prompt_asks_again(tmp_path: Path, method: str) -> None:
    async with a_world(tmp_path, SCRIPT, config=COLD) as world, world.client() as lead:
        task = {"task": "hello", "method": method, "model": "moonshot/glm-4", "wait_s": 60}
        spawned = told(await lead.call_tool("worker_spawn", task))
        failure = spawned["result"]["failure"]
        assert failure["kind"] == "auth_refused" and "answered 401" in failure["message"]
        assert "go-ent providers reset moonshot" in failure["message"]
        again = {"worker_id": spawned["worker_id"], "prompt": "hello", "wait_s": 60}
        prompted = told(await lead.call_tool("worker_prompt", again))
        assert prompted["result"]["text"] == "Hello."
        listed = told(await lead.call_tool("provider_list", {}))
        health = {each["name"]: each["health"] for each in listed["providers"]}
        assert health["moonshot/glm-4"] == "ready"


ALWAYS = Fault(kind="status", status=401, message="bad key", times=9)
REFUSING = Script(
    providers={
        "moonshot": openai(
            case(None, say("Hello.").having(fault=ALWAYS)),
            models=("glm-4",),
            key="sk-moonshot-real-key",
        )
    }
)


async def test_a_key_that_stays_refused_is_asked_at_most_once_a_minute(tmp_path: Path) -> None:
    async with a_world(tmp_path, REFUSING, config=COLD) as world, world.client() as lead:
        task = {"task": "hello", "method": "api", "model": "moonshot/glm-4", "wait_s": 60}
        spawned = told(await lead.call_tool("worker_spawn", task))
        again = {"worker_id": spawned["worker_id"], "prompt": "hello", "wait_s": 60}
        results = [told(await lead.call_tool("worker_prompt", again))["result"] for _ in range(3)]
        assert {each["failure"]["kind"] for each in results} == {"auth_refused"}
        assert "go-ent providers reset moonshot" in results[2]["failure"]["message"]
        assert len(world.models.calls) == 2, "the first call, and one more: a key may be mended"
