"""Real OpenCode in the project itself: what its shell commands change is told, and where two of them meet."""

from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest
from mcp import Client
from real_git import Repository
from world import COLD, World, a_world, told

from goent.testing.script import Script, call, case, openai, say

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

SHELL = (
    "sed -i s/one/1/ sed.txt && rm rm.txt && mv mv.txt moved.txt && "
    "git checkout --quiet -- dirty.txt && echo new > new.txt && chmod +x mode.sh"
)
FILES = ("sed.txt", "rm.txt", "mv.txt", "dirty.txt", "mode.sh", "both.txt", "apart.txt")
TEXT = "one\ntwo\nthree\nfour\nfive\n"
SCRIPT = Script(
    providers={
        "moonshot": openai(
            case("by shell", call("bash", command=SHELL, description="s"), say("Done.")),
            case(
                "first of two",
                call("bash", command="sed -i s/one/1/ both.txt", description="b"),
                say("Done.").having(gate="first"),
            ),
            case(
                "second of two",
                call("read", filePath="{cwd}/both.txt").having(gate="second"),
                call("edit", filePath="{cwd}/both.txt", oldString="five", newString="5"),
                say("Done."),
            ),
            case(
                "rewrite it",
                call("read", filePath="{cwd}/apart.txt"),
                call("edit", filePath="{cwd}/apart.txt", oldString="two", newString="2"),
                say("Done.").having(gate="rewritten"),
            ),
            case(
                "write over it",
                call("bash", command="sed -i s/2/TWO/ apart.txt", description="w").having(
                    gate="over"
                ),
                say("Done."),
            ),
            models=("glm-4",),
            key="sk-moonshot-real-key",
        )
    }
)


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[World]:
    async with a_world(tmp_path_factory.mktemp("shared"), SCRIPT, config=COLD) as world:
        Repository(world.project).git("init", "--quiet", "-b", "main")
        yield world


@pytest.fixture
def project(world: World) -> Repository:
    """As it is committed, but for one file."""
    repository = Repository(world.project)
    for name in FILES:
        repository.write(name, TEXT).chmod(0o644)
    for name in ("moved.txt", "new.txt"):
        (repository.top / name).unlink(missing_ok=True)
    repository.commit()
    repository.write("dirty.txt", "dirty\n")
    return repository


async def spawn(lead: Client, task: str, **more: object) -> dict[str, Any]:
    return told(await lead.call_tool("worker_spawn", {"task": task, "permissions": "auto", **more}))


async def result(lead: Client, worker: str) -> dict[str, Any]:
    await lead.call_tool("worker_wait", {"worker_ids": [worker], "timeout_s": 120})
    return told(await lead.call_tool("worker_result", {"worker_id": worker}))


async def has_run(lead: Client, worker: str, tool: str) -> None:
    """Return when go-ent has heard of the end of such a call."""

    async def output() -> str:
        asked = {"worker_id": worker, "filter": "tools"}
        return told(await lead.call_tool("worker_output", asked))["text"]

    with anyio.fail_after(120):
        while f"● {tool}" not in await output():  # noqa: ASYNC110 (another process knows)
            await anyio.sleep(0.05)


@pytest.mark.parametrize("method", ["acp", "cli"])
async def test_what_a_shell_command_changed_is_among_the_files(
    world: World, project: Repository, method: str
):
    async with world.client() as lead:
        spawned = await spawn(lead, "by shell", method=method, wait_s=120)
    found = spawned["result"]
    assert (found["state"], found["evidence"]) == ("completed", "claimed"), found
    assert {each["path"]: (each["added"], each["removed"]) for each in found["files"]} == {
        "sed.txt": (1, 1),
        "rm.txt": (0, 5),
        "mv.txt": (0, 5),
        "moved.txt": (5, 0),
        "dirty.txt": (None, None),
        "new.txt": (1, 0),
        "mode.sh": (0, 0),
    }
    assert (found["also_changed"], found["overlaps"]) == ([], [])
    assert project.git("status", "--porcelain", "dirty.txt") == ""


@pytest.mark.spec("P31")
async def test_two_workers_that_meet_in_a_file_are_told_so_both(world: World, project: Repository):
    """The same file, and lines that one wrote and the other replaced, are told apart."""
    pairs = (
        ("first of two", "bash", "second", "second of two", "both.txt", "file_overlap"),
        ("rewrite it", "edit", "over", "write over it", "apart.txt", "hunk_conflict"),
    )
    async with world.client() as lead:
        for one_task, tool, gate, other_task, path, kind in pairs:
            one = (await spawn(lead, one_task))["worker_id"]
            other = (await spawn(lead, other_task))["worker_id"]
            await has_run(lead, one, tool)
            world.models.open_gate(gate)
            late = await result(lead, other)
            world.models.open_gate("first" if tool == "bash" else "rewritten")
            early = await result(lead, one)
            for told_of, met in ((late, one), (early, other)):
                assert told_of["overlaps"] == [{"worker_id": met, "path": path, "kind": kind}]
                assert path in [file["path"] for file in told_of["files"]]
            listed = told(await lead.call_tool("worker_list", {}))["workers"]
            assert {each["worker_id"]: each["overlaps"] for each in listed[:2]} == {
                one: [other],
                other: [one],
            }
            for worker, met in ((one, other), (other, one)):
                shown = await world.go_ent("output", worker)
                assert f"{met} changed {path}, too" in shown.out
            shown = await world.go_ent("ps")
            assert f"! {one} and {other} changed the same files at the same time" in shown.out
            lost = ": one overwrote lines of the other" if kind == "hunk_conflict" else ""
            shown = await world.go_ent("result", one)
            assert f"{path}  with {other}{lost}" in shown.out
    assert (project.top / "apart.txt").read_text() == TEXT.replace("two", "TWO")
    assert (project.top / "both.txt").read_text() == TEXT.replace("one", "1").replace("five", "5")
