"""Workers with a folder of their own, by the real OpenCode and the real git."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest
from real_git import Repository, a_repository
from world import World, a_world, kill, told

from goent.testing.script import Script, call, case, openai, say

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]

UP = "/".join([".."] * 9)  # from a worker's folder to the world's
SCRIPT = Script(
    providers={
        "moonshot": openai(
            case(
                "write and run",
                call("write", filePath="{cwd}/written.txt", content="by the tool\n"),
                call("bash", command="echo by the shell > shell.txt; git add -A", description="x"),
                say("Both."),
            ),
            case(
                "reach out",
                call("write", filePath=f"{{cwd}}/{UP}/project/src/app.py", content="x\n"),
                say("Reached."),
            ),
            case("copy", call("write", filePath="{cwd}/new.txt", content="new\n"), say("Copied.")),
            case(
                "half",
                call("write", filePath="{cwd}/half.txt", content="half\n"),
                call("bash", command="touch reached; sleep 300", description="x"),
                say("Never."),
            ),
            models=("glm-4",),
            key="sk-moonshot-real-key",
        )
    }
)


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[World]:
    async with a_world(tmp_path_factory.mktemp("isolation"), SCRIPT) as world:
        repository = a_repository(world.project, files={"src/app.py": "one\n"})
        repository.write("dirty.txt", "not committed\n")
        (world.project.parent / "plain").mkdir()
        (world.project.parent / "plain/there.txt").write_text("there\n")
        yield world


@pytest.fixture
def repository(world: World) -> Repository:
    return Repository(world.project)


async def test_edits_and_shell_stay_in_the_worktree_and_are_told(
    world: World, repository: Repository
) -> None:
    before = repository.state()
    async with world.client() as lead:
        task = {"task": "write and run", "isolation": "worktree", "permissions": "auto"}
        spawned = told(await lead.call_tool("worker_spawn", {**task, "wait_s": 90}))
        result = spawned["result"]
        assert result["state"] == "completed", result
        assert {file["path"] for file in result["files"]} == {"written.txt", "shell.txt"}
        assert spawned["cwd"] == result["workspace"]
        branch = f"go-ent/solo/{spawned['worker_id']}"
        assert result["branch"] == branch
        assert repository.git("show", f"{branch}:shell.txt") == "by the shell"
        assert repository.git("diff", "--name-only", "main", branch).split() == [
            *("shell.txt", "written.txt")
        ]
        refs = repository.git("for-each-ref", "--format=%(refname)").split()
        assert refs == [f"refs/heads/{branch}", "refs/heads/main"]
        assert repository.state() == before
        await lead.call_tool("worker_cancel", {"worker_id": spawned["worker_id"], "close": True})
    kept = await world.go_ent("gc")
    assert "unmerged" in kept.out
    repository.git("merge", "-q", branch)
    assert f"removed {spawned['worker_id']} (merged" in (await world.go_ent("gc")).out
    assert not Path(spawned["cwd"]).exists()
    assert repository.git("branch", "--list", "go-ent/*") == ""


async def test_what_is_outside_the_worktree_is_asked_for(world: World) -> None:
    async with world.client() as lead:
        task = {"task": "reach out", "isolation": "worktree", "permissions": "auto"}
        spawned = told(await lead.call_tool("worker_spawn", {**task, "wait_s": 90}))
        worker = {"worker_id": spawned["worker_id"]}
        assert spawned["state"] == "waiting", spawned
        asked = told(await lead.call_tool("worker_status", worker))["permission"]
        assert asked["tool"] == "external_directory"
        await lead.call_tool("worker_cancel", {**worker, "close": True})


async def test_a_folder_without_git_is_copied(world: World) -> None:
    plain = world.project.parent / "plain"
    ended = await world.go_ent(
        *("run", "copy", "--isolation", "copy", "--cwd", str(plain)), seconds=120
    )
    assert ended.exit == 0, ended.err
    assert "new.txt" in ended.out
    assert [path.name for path in plain.iterdir()] == ["there.txt"]


async def test_what_a_worker_of_a_killed_go_ent_made_is_on_its_branch(
    world: World, repository: Repository
) -> None:
    spawned = await world.go_ent(
        *("run", "half", "--isolation", "worktree", "--permissions", "auto", "--detach")
    )
    worker = spawned.out.strip()
    cwd = json.loads((await world.go_ent("status", worker, "--json")).out)["cwd"]
    with anyio.fail_after(60):
        while not await anyio.Path(cwd, "reached").exists():  # noqa: ASYNC110 (of its shell)
            await anyio.sleep(0.05)
    daemon = await world.daemon()
    assert daemon
    kill(daemon.pid)
    result = await world.go_ent("result", worker, "--json")
    assert "daemon_died" in result.out
    assert repository.git("show", f"go-ent/solo/{worker}:half.txt") == "half"
