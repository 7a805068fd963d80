"""Workers with a folder of their own: real git, a scripted driver that edits."""

import shutil
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from real_git import Repository, a_repository
from scripted_project import OpenProject, Project, assert_grammar, result, spawn, wait

from goent.domain.errors import RateLimited, RequestError
from goent.domain.events import Noticed, TurnEnded, Verified, WorkKept
from goent.domain.replies import SpawnReply
from goent.domain.requests import SpawnRequest
from goent.domain.types import FileChange
from goent.testing.driver import Pause, ScriptedDriver, ScriptedMove, say
from goent.workers.task_intake import SwarmMembership

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("repository")]


class Editing(ScriptedDriver):
    """Its workers do something in their folder, and then what the script says."""

    def __init__(self, edit: Callable[[Path], object], *moves: ScriptedMove) -> None:
        super().__init__(lambda _: (edit(self.opened[-1].cwd), *(moves or (say("done"),)))[1:])


def write_new(cwd: Path) -> None:
    (cwd / "new.txt").write_text("new\n")


NEW = (FileChange(path="new.txt", added=1, removed=0),)


@pytest.fixture
def repository(open_project: OpenProject, tmp_path: Path) -> Repository:
    del open_project  # it makes the folder
    return a_repository(tmp_path / "project", files={"src/app.py": "one\n"})


async def test_a_worker_edits_in_its_worktree_and_the_checkout_stays(
    open_project: OpenProject, repository: Repository
) -> None:
    before = repository.state()
    async with open_project(Editing(write_new)) as project:
        worker = await spawn(project, isolation="worktree", verify=["test -f new.txt"])
        await wait(project, worker)
        told = await result(project, worker)
        assert (told.evidence, told.files) == ("verified", NEW)
        assert told.branch == f"go-ent/solo/{worker}"
        assert any(f"on branch {told.branch}" in note for note in told.notes)
        assert repository.git("show", f"{told.branch}:new.txt") == "new"
        kinds = [type(event) for event in await project.events(worker)]
        assert kinds.index(WorkKept) < kinds.index(Verified) < kinds.index(TurnEnded)
    assert repository.state() == before


async def test_the_reply_names_the_workers_own_folder(open_project: OpenProject) -> None:
    driver = ScriptedDriver(lambda _: [say("done")])
    async with open_project(driver) as project:
        task = {"task": "look", "isolation": "worktree", "cwd": "src", "files": ["app.py"]}
        spawned = await project.ask("worker_spawn", **task, wait_s=30)
        assert isinstance(spawned, SpawnReply)
        assert spawned.cwd.endswith(f"/worktrees/solo/{spawned.worker_id}/src")
        assert driver.opened[0].cwd == Path(spawned.cwd)
        assert project.feed.view(spawned.worker_id).spawned.files == (f"{spawned.cwd}/app.py",)
        allowed = [rule for rule in driver.opened[0].rules if rule.action == "allow"]
        assert [(rule.tool, rule.pattern) for rule in allowed] == [("edit", "src/*")]


async def test_a_worker_that_changed_nothing_leaves_nothing(
    open_project: OpenProject, repository: Repository
) -> None:
    async with open_project(ScriptedDriver(lambda _: [say("done")])) as project:
        worker = await spawn(project, isolation="worktree")
        await wait(project, worker)
        await project.ask("worker_cancel", worker_id=worker, close=True)
        assert (await result(project, worker)).notes == ("it changed no files",)
    assert await project.workspaces.list_kept() == []
    assert repository.git("branch", "--list", "go-ent/*") == ""


async def test_unmerged_work_stays_when_the_worker_closes(
    open_project: OpenProject, repository: Repository
) -> None:
    async with open_project(Editing(write_new)) as project:
        worker = await spawn(project, isolation="worktree")
        await wait(project, worker)
    (kept,) = await project.workspaces.list_kept()
    assert (kept.worker, kept.state) == (worker, "unmerged")
    assert kept.bytes > 0
    repository.git("merge", "-q", kept.branch)
    async with open_project(ScriptedDriver(lambda _: [])) as project:
        await nothing_kept(project)
    assert repository.git("branch", "--list", "go-ent/*") == ""


async def sound_end(project: Project, worker: str) -> None:
    await project.ask("worker_cancel", worker_id=worker, close=True)
    assert_grammar(await project.events(worker))


async def nothing_kept(project: Project) -> None:
    """What go-ent clears away by itself at its start."""
    with anyio.fail_after(20):
        while await project.workspaces.list_kept():  # noqa: ASYNC110 (nobody waits for it but us)
            await anyio.sleep(0.05)


async def test_what_a_failed_turn_made_is_kept(
    open_project: OpenProject, repository: Repository
) -> None:
    async with open_project(Editing(write_new, RateLimited("later"))) as project:
        worker = await spawn(project, isolation="worktree")
        await wait(project, worker)
        told = await result(project, worker)
        assert (told.state, told.files) == ("failed", NEW)
        await sound_end(project, worker)
    assert repository.git("show", f"go-ent/solo/{worker}:new.txt") == "new"


@pytest.mark.parametrize("how", ["cancelled", "timeout"])
async def test_what_a_stopped_turn_made_is_kept(open_project: OpenProject, how: str) -> None:
    pause = Pause()
    async with open_project(Editing(write_new, pause)) as project:
        limit = 0.5 if how == "timeout" else 60
        worker = await spawn(project, isolation="worktree", timeout_s=limit)
        await pause.reached.wait()
        if how == "cancelled":
            await project.ask("worker_cancel", worker_id=worker)
        await wait(project, worker)
        assert (await result(project, worker)).files == NEW


async def test_a_folder_removed_under_a_worker_is_its_failure_and_nobody_elses(
    open_project: OpenProject, repository: Repository
) -> None:
    def remove_the_first(cwd: Path) -> None:
        if len(driver.opened) == 1:
            shutil.rmtree(cwd)
        else:
            write_new(cwd)

    driver = Editing(remove_the_first)
    async with open_project(driver) as project:
        lost = await spawn(project, isolation="worktree")
        await wait(project, lost)
        fine = await spawn(project, isolation="worktree")
        await wait(project, fine)
        told = await result(project, lost)
        assert told.failure and told.failure.kind == "workspace_lost"
        assert "was removed" in told.failure.message
        assert (await result(project, fine)).files == NEW
        await sound_end(project, lost)
    assert [space.worker for space in await project.workspaces.list_kept()] == [fine]
    assert lost not in repository.git("worktree", "list")


async def test_a_folder_removed_under_a_turn_that_fails_is_told(open_project: OpenProject) -> None:
    async with open_project(Editing(shutil.rmtree, RateLimited("later"))) as project:
        worker = await spawn(project, isolation="worktree")
        await wait(project, worker)
        told = await result(project, worker)
        assert told.failure and told.failure.kind == "rate_limited"
        events = await project.events(worker)
        assert any(isinstance(event, Noticed) and "was removed" in event.text for event in events)


async def test_work_that_cannot_be_kept_is_told_and_the_turn_is_as_it_was(
    open_project: OpenProject, repository: Repository
) -> None:
    def write_and_lock(cwd: Path) -> None:
        write_new(cwd)
        objects = repository.top / ".git/objects"
        shutil.rmtree(objects)
        objects.write_text("no folder")

    async with open_project(Editing(write_and_lock)) as project:
        worker = await spawn(project, isolation="worktree")
        await wait(project, worker)
        assert (await result(project, worker)).state == "completed"
        events = await project.events(worker)
        told = [event.text for event in events if isinstance(event, Noticed)]
        assert "not on its branch, only in" in told[0]
        workspace = project.feed.view(worker).spawned.workspace
        assert workspace and (Path(workspace.path) / "new.txt").exists()
        await sound_end(project, worker)


async def test_a_second_turn_adds_to_the_work(open_project: OpenProject) -> None:
    def append(cwd: Path) -> None:
        with (cwd / "new.txt").open("a") as file:
            file.write("new\n")

    async with open_project(Editing(append)) as project:
        worker = await spawn(project, isolation="worktree")
        await wait(project, worker)
        await project.ask("worker_prompt", worker_id=worker, prompt="more", wait_s=30)
        told = await result(project, worker)
        assert told.files == (FileChange(path="new.txt", added=2, removed=0),)


async def test_a_spawn_that_is_refused_leaves_no_folder(
    open_project: OpenProject, repository: Repository
) -> None:
    async with open_project(ScriptedDriver(lambda _: [])) as project:
        request = SpawnRequest(task="look", isolation="worktree", carry=("missing",))
        with pytest.raises(RequestError, match="'missing' does not exist"):
            await project.orchestrator.spawn(request, repository.top)
        assert project.feed.views == {}
        assert await project.workspaces.list_kept() == []
        assert repository.git("branch", "--list", "go-ent/*") == ""


async def test_a_worker_has_what_was_named_for_it(
    open_project: OpenProject, repository: Repository
) -> None:
    repository.write(".gitignore", ".env\n")
    repository.write(".env", "COLOUR=green\n")
    driver = ScriptedDriver(lambda _: [say("done")])
    async with open_project(driver) as project:
        worker = await spawn(project, isolation="worktree", uncommitted=True, carry=[".env"])
        await wait(project, worker)
        own = driver.opened[0].cwd
        assert (own / ".env").read_text() == "COLOUR=green\n"
        assert (own / ".gitignore").exists(), "uncommitted as it is"
        assert (await result(project, worker)).files == ()
        with pytest.raises(RequestError, match="need a folder of its own"):
            await spawn(project, uncommitted=True)


async def test_a_swarm_says_where_its_worker_starts(
    open_project: OpenProject, repository: Repository
) -> None:
    first = repository.git("rev-parse", "HEAD")
    repository.write("later.txt")
    repository.commit()
    async with open_project(Editing(write_new)) as project:
        request = SpawnRequest(task="look", isolation="worktree")
        within = SwarmMembership(worker="w-abcde", group="s-1", start=first)
        worker, spawned, _ = await project.orchestrator.spawn(request, repository.top, within)
        await wait(project, worker)
        assert spawned.workspace and spawned.workspace.base == first
        assert repository.git("rev-parse", "go-ent/s-1/w-abcde^") == first


async def test_a_worker_of_a_killed_go_ent_has_its_work_kept(
    open_project: OpenProject, repository: Repository
) -> None:
    pause = Pause()
    async with open_project(Editing(write_new, pause)) as project:
        worker = await spawn(project, isolation="worktree")
        await pause.reached.wait()
        await project.feed.commit()
        life = project.orchestrator.living_workers[worker]
        life._services.feed.append = _nothing  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue] (a kill cannot be had otherwise in one process)
        repository.git("update-ref", "-d", f"refs/heads/go-ent/solo/{worker}")
    async with open_project(ScriptedDriver(lambda _: [])) as project:
        told = await result(project, worker)
        assert told.failure and told.failure.kind == "daemon_died"
        assert told.files == NEW
        await sound_end(project, worker)
        assert repository.git("show", f"go-ent/solo/{worker}:new.txt") == "new"


async def _nothing(*_: object) -> None: ...


async def test_the_settings_can_give_all_workers_a_folder_of_their_own(
    open_project: OpenProject,
) -> None:
    driver = ScriptedDriver(lambda _: [say("done")])
    async with open_project(driver, isolation="copy") as project:
        own, shared = await spawn(project), await spawn(project, isolation="shared")
        await wait(project, own, shared)
        folders = {spec.id: spec.cwd for spec in driver.opened}
        assert folders[own].parent.parent.name == "copies"
        assert folders[shared] == project.folder
        assert project.feed.view(own).spawned.permissions == "edit"
