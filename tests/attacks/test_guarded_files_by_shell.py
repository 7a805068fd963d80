"""A shell command that was allowed, and changes files that other programs obey: whoever gave the task is told."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from real_git import Repository
from world import COLD, World, a_world, told

from goent.testing.script import Script, call, case, openai, say

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

HOOK = "echo evil > .git/hooks/post-commit"
OUTWARD = "echo evil > $(git rev-parse --git-common-dir)/hooks/post-merge"
SCRIPT = Script(
    providers={
        "moonshot": openai(
            case(
                "hide a hook",
                call("bash", command=f"{HOOK}; echo {{}} > .mcp.json", description="h"),
                say("Done."),
            ),
            case("hide it outside", call("bash", command=OUTWARD, description="o"), say("Done.")),
            case(
                "work",
                call("bash", command="echo x > made.txt; git status", description="w"),
                say("Done."),
            ),
            models=("glm-4",),
            key="sk-moonshot-real-key",
        )
    }
)


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[World]:
    async with a_repository(tmp_path_factory.mktemp("guarded"), COLD) as world:
        yield world


@pytest.fixture(scope="module")
async def free(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[World]:
    """Where there is no sandbox, as on macOS."""
    config = f"{COLD}sandbox: off\n"
    async with a_repository(tmp_path_factory.mktemp("free"), config) as world:
        yield world


@asynccontextmanager
async def a_repository(folder: Path, config: str) -> AsyncGenerator[World]:
    async with a_world(folder, SCRIPT, config=config) as world:
        project = Repository(world.project)
        project.git("init", "--quiet", "-b", "main")
        project.commit()
        yield world


async def result_of(world: World, task: str, **more: object) -> dict[str, Any]:
    asked = {"task": task, "permissions": "auto", "wait_s": 90, **more}
    async with world.client() as lead:
        spawned = told(await lead.call_tool("worker_spawn", asked))
    return spawned["result"]


async def test_what_a_command_wrote_is_named_and_a_hook_is_not_written(world: World) -> None:
    result = await result_of(world, "hide a hook")
    assert [each["path"] for each in result["guarded_changes"]] == [".mcp.json"]
    assert not (world.project / ".git" / "hooks" / "post-commit").exists()


async def test_a_hook_that_a_command_wrote_is_named(free: World) -> None:
    result = await result_of(free, "hide a hook")
    assert result["state"] == "completed"
    changes = {each["path"]: each["reason"] for each in result["guarded_changes"]}
    assert list(changes) == [".git/hooks/post-commit", ".mcp.json"]
    assert "git run other programs" in changes[".git/hooks/post-commit"]
    shown = await free.go_ent("result", str(result["worker_id"]))
    assert ".git/hooks/post-commit changed while this worker worked" in " ".join(shown.out.split())
    output = await free.go_ent("output", str(result["worker_id"]))
    assert ".mcp.json" in output.out


async def test_a_hook_that_was_written_from_a_worktree_is_named(free: World) -> None:
    result = await result_of(free, "hide it outside", isolation="worktree")
    (change,) = result["guarded_changes"]
    assert Path(change["path"]) == free.project / ".git" / "hooks" / "post-merge"


@pytest.mark.parametrize("isolation", ["shared", "worktree", "copy"])
async def test_ordinary_work_raises_no_alarm(world: World, isolation: str) -> None:
    result = await result_of(world, "work", isolation=isolation)
    assert (result["state"], result.get("guarded_changes", [])) == ("completed", [])
