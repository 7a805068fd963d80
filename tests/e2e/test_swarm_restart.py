"""A swarm whose daemon is killed, at one point or another, ends as if nothing had been."""

import json
from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest
from real_git import Repository, a_repository
from world import World, a_world, kill

from goent.testing.script import Script, call, case, openai, say

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]


def writes(path: str, content: str, prompt: str):
    return case(
        prompt,
        call("write", filePath=f"{{cwd}}/{path}", content=content).having(delay=0.3),
        say("Done.").having(delay=0.3),
    )


SCRIPT = Script(
    providers={
        "moonshot": openai(
            writes("a.txt", "a\n", "write file a"),
            writes("b.txt", "b\n", "write file b"),
            case(
                "join them",
                call("bash", command="cat a.txt b.txt > ab.txt", description="join"),
                say("Done."),
            ),
            key="sk-moonshot-real-key",
        )
    }
)
TASKS: dict[str, Any] = {
    "permissions": "auto",
    "verify": ["test -f a.txt -o -f b.txt"],
    "tasks": [
        {"id": "a", "prompt": "write file a"},
        {"id": "b", "prompt": "write file b"},
        {"id": "ab", "prompt": "join them", "after": ["a", "b"], "verify": ["test -s ab.txt"]},
    ],
}


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[World]:
    async with a_world(tmp_path_factory.mktemp("restart"), SCRIPT) as world:
        a_repository(world.project)
        yield world


async def struck(world: World, calls: int) -> None:
    """Kill the daemon as soon as the models were asked so often in all."""
    before = await world.daemon()
    assert before
    await world.models.called(calls, timeout=90)
    kill(before.pid)


@pytest.mark.spec("P29", "P32")
@pytest.mark.parametrize("calls", [0, 2, 5], ids=lambda n: f"after {n} model calls")
async def test_a_swarm_whose_daemon_is_killed_ends_the_same(world: World, calls: int) -> None:
    file = world.project / ".goent" / "tasks.yaml"
    file.write_text(json.dumps({**TASKS, "swarm": f"killed-{calls}"}))
    begun = len(world.models.calls)
    started = await world.go_ent("swarm", str(file), "--detach", "--json")
    assert started.exit == 0, started
    swarm = json.loads(started.out)["swarm_id"]
    await struck(world, begun + calls)
    with anyio.fail_after(150):
        ended = await world.go_ent("swarm", "wait", swarm, "--json", seconds=150)
    status = json.loads(ended.out)
    assert (ended.exit, status["state"]) == (0, "completed"), status
    merged = json.loads((await world.go_ent("swarm", "merge", swarm, "--json")).out)
    assert (sorted(merged["merged"]), merged["evidence"]) == (["a", "ab", "b"], "verified")
    repository = Repository(world.project)
    names = repository.git("ls-tree", "--name-only", merged["branch"]).split()
    assert {"a.txt", "b.txt", "ab.txt"} <= set(names)
    assert repository.git("show", f"{merged['branch']}:ab.txt") == "a\nb"
    everyone = json.loads((await world.go_ent("ps", "--json")).out)["workers"]
    assert all(worker["state"] in ("completed", "failed", "cancelled") for worker in everyone)
