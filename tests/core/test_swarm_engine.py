"""Swarms with scripted workers and real git: what is asked, and what comes of it."""

import shutil
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from real_git import Repository, a_repository
from scripted_project import CODER, GLM, OpenProject, Project

from goent.domain.errors import RateLimited, RequestError
from goent.domain.events import ToolCall
from goent.domain.ports import WorkerSpec
from goent.domain.settings import Limits
from goent.domain.swarms import SwarmMerged, SwarmResult, SwarmStatus, TaskLine
from goent.domain.types import FileChange
from goent.testing.driver import Move, Pause, ScriptedDriver, ScriptedSession, question, say

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

KIMI = type(GLM)(name="kimi", backend="moonshot", model="kimi-k2", price=GLM.price)
THREE = (GLM, KIMI, CODER)
Act = Callable[[str, WorkerSpec], Sequence[Move]]


class Acting(ScriptedDriver):
    """Each worker acts by its own prompt, in its own folder, as its own provider."""

    def __init__(self, act: Act | None = None) -> None:
        super().__init__(lambda _: ())
        self._act = act or write

    @asynccontextmanager
    async def open(self, spec: WorkerSpec) -> AsyncGenerator[ScriptedSession]:
        self.opened.append(spec)
        try:
            yield ScriptedSession(self, spec, lambda prompt: self._act(prompt.text, spec))
        finally:
            self.closed.append(spec.id)


def write(prompt: str, spec: WorkerSpec) -> Sequence[Move]:
    """`NAME: TEXT` writes a file; what is after a second colon is appended from another."""
    name, _, text = prompt.partition(": ")
    (spec.cwd / name).write_text(text + "\n")
    return tool(name)


def tool(name: str) -> Sequence[Move]:
    change = FileChange(path=name, added=1, removed=0)
    return [ToolCall(id="t1", tool="write", status="completed", changes=(change,)), say("done")]


def task(name: str, prompt: str, **more: object) -> dict[str, Any]:
    return {"id": name, "prompt": prompt, **more}


@pytest.fixture
def repository(open_project: OpenProject, tmp_path: Path) -> Repository:
    del open_project  # it makes the folder
    return a_repository(tmp_path / "project", files={"app.txt": "one\ntwo\nthree\n"})


async def over(project: Project, *tasks: dict[str, Any], **more: object) -> SwarmResult:
    """Hand over the tasks, wait for the end, and have the whole result."""
    begun = await project.ask("swarm_spawn", tasks=tasks, **more)
    assert isinstance(begun, SwarmStatus)
    return await ended(project, begun.swarm_id)


async def ended(project: Project, swarm: str) -> SwarmResult:
    status = await project.ask("swarm_wait", swarm_id=swarm, timeout_s=60)
    assert isinstance(status, SwarmStatus)
    assert status.done == status.total, status
    result = await project.ask("swarm_result", swarm_id=swarm, whole=True)
    assert isinstance(result, SwarmResult)
    return result


async def merge(project: Project, swarm: str, **more: object) -> SwarmMerged:
    merged = await project.ask("swarm_merge", swarm_id=swarm, **more)
    assert isinstance(merged, SwarmMerged)
    return merged


def line(result: SwarmResult | SwarmStatus, name: str) -> TaskLine:
    return next(each for each in result.tasks if each.id == name)


async def test_a_dependent_task_starts_from_the_merged_work_of_all_before_it(
    open_project: OpenProject, repository: Repository
) -> None:
    seen: dict[str, bool] = {}

    def act(prompt: str, spec: WorkerSpec) -> Sequence[Move]:
        if prompt == "look":
            seen.update({name: (spec.cwd / name).exists() for name in ("a.txt", "b.txt", "c.txt")})
            return write("c.txt: c", spec)
        return write(prompt, spec)

    before = repository.state()
    async with open_project(Acting(act)) as project:
        result = await over(
            project,
            task("a", "a.txt: a"),
            task("b", "b.txt: b"),
            task("c", "look", after=["a", "b"], files=["a.txt"]),
        )
        assert result.state == "completed"
        assert seen == {"a.txt": True, "b.txt": True, "c.txt": False}
        assert line(result, "c").files == 1, "only its own work"
        merged = await merge(project, result.swarm_id)
        assert set(merged.merged) == {"a", "b", "c"}
        names = repository.git("ls-tree", "--name-only", str(merged.branch)).split()
        assert {"a.txt", "b.txt", "c.txt"} <= set(names)
    assert repository.state() == before


@pytest.mark.usefixtures("repository")
async def test_what_cannot_be_merged_cannot_be_started_from(open_project: OpenProject) -> None:
    async with open_project(Acting()) as project:
        result = await over(
            project,
            task("a", "app.txt: a"),
            task("b", "app.txt: b"),
            task("c", "c.txt: c", after=["a", "b"]),
        )
        failure = line(result, "c").failure
        assert failure
        assert failure.kind == "merge_conflict"
        assert "'app.txt'" in failure.message
        assert line(result, "a").state == line(result, "b").state == "completed"


@pytest.mark.usefixtures("repository")
async def test_the_first_verified_one_wins_a_race_and_the_rest_is_cancelled(
    open_project: OpenProject,
) -> None:
    pause = Pause()

    def act(prompt: str, spec: WorkerSpec) -> Sequence[Move]:
        return [pause] if spec.provider.name == "glm" else write(prompt, spec)

    driver = Acting(act)
    async with open_project(driver, providers=THREE) as project:
        raced = task("r", "new.txt: x", race=["glm", "kimi"], verify=["test -f new.txt"])
        result = await over(project, raced)
        won = line(result, "r")
        assert (won.state, won.provider, won.evidence) == ("completed", "kimi", "verified")
        loser = next(spec.id for spec in driver.opened if spec.provider.name == "glm")
        await project.closed(loser)
        assert project.feed.view(loser).state == "cancelled"


@pytest.mark.usefixtures("repository")
async def test_a_staged_race_spends_on_the_strong_one_only_if_it_must(
    open_project: OpenProject,
) -> None:
    def act(prompt: str, spec: WorkerSpec) -> Sequence[Move]:
        right = prompt if spec.provider.name == "kimi" or "easy" in prompt else "new.txt: wrong"
        return write(right, spec)

    driver = Acting(act)
    async with open_project(driver, providers=THREE) as project:
        how = {"race": ["glm", "kimi"], "staged": True}
        result = await over(
            project,
            task("hard", "new.txt: right", **how, verify=["grep -q right new.txt"]),
            task("easy", "easy.txt: right", **how, verify=["grep -q right easy.txt"]),
        )
        assert (line(result, "hard").provider, line(result, "hard").attempts) == ("kimi", 2)
        assert (line(result, "easy").provider, line(result, "easy").attempts) == ("glm", 1)


@pytest.mark.spec("P31")
async def test_what_merges_cleanly_but_fails_together_is_set_aside(
    open_project: OpenProject, repository: Repository
) -> None:
    """Each adds a file, and only one of them may be there."""
    async with open_project(Acting()) as project:
        result = await over(
            project,
            task("a", "a.one: a"),
            task("b", "b.one: b"),
            task("c", "c.txt: c"),
            verify=["test $(ls *.one 2>/dev/null | wc -l) -le 1"],
        )
        assert result.state == "completed"
        assert {each.evidence for each in result.tasks} == {"verified"}
        assert not result.conflicts
        merged = await merge(project, result.swarm_id)
        (alarm,) = merged.conflicts
        assert alarm.kind == "semantic"
        assert set(alarm.tasks) & {"a", "b"} == {"a", "b"}
        assert len(merged.merged) == 2
        assert "c" in merged.merged
        assert merged.evidence == "verified"
        (left,) = merged.left
        assert left.task in ("a", "b")
        names = repository.git("ls-tree", "--name-only", str(merged.branch)).split()
        assert len([name for name in names if name.endswith(".one")]) == 1


@pytest.mark.usefixtures("repository")
async def test_a_command_that_fails_before_any_work_blames_nobody(
    open_project: OpenProject,
) -> None:
    async with open_project(Acting()) as project:
        result = await over(project, task("a", "a.txt: a"), task("b", "b.txt: b"))
        merged = await merge(project, result.swarm_id, verify=["false"])
        assert (merged.evidence, merged.conflicts) == ("refuted", ())
        assert "fail already" in merged.notes[0]
        with pytest.raises(RequestError, match="nothing was applied"):
            await merge(project, result.swarm_id, verify=["false"], apply=True)


async def test_merging_clears_away_what_is_merged_and_keeps_the_rest(
    open_project: OpenProject, repository: Repository
) -> None:
    async with open_project(Acting()) as project:
        result = await over(
            project, task("a", "app.txt: a"), task("b", "app.txt: b"), task("c", "c.txt: c")
        )
        assert len(await project.workspaces.kept()) == 3
        merged = await merge(project, result.swarm_id)
        (left,) = merged.left
        (kept,) = await project.workspaces.kept()
        assert kept.worker == line(result, left.task).worker_id
        again = await merge(project, result.swarm_id)
        assert again.merged == merged.merged, "what is merged can be merged again"
    assert repository.git("branch", "--list", "go-ent/*").split()


async def test_applying_moves_the_users_branch_only_if_nothing_is_uncommitted(
    open_project: OpenProject, repository: Repository
) -> None:
    async with open_project(Acting()) as project:
        result = await over(project, task("a", "a.txt: a"))
        repository.write("app.txt", "mine\n")
        with pytest.raises(RequestError, match="uncommitted"):
            await merge(project, result.swarm_id, apply=True)
        assert not (project.folder / "a.txt").exists()
        repository.git("checkout", "--", "app.txt")
        merged = await merge(project, result.swarm_id, apply=True)
        assert merged.applied == "main"
        assert (project.folder / "a.txt").read_text() == "a\n"


@pytest.mark.spec("P32")
@pytest.mark.usefixtures("repository")
async def test_a_failed_task_goes_elsewhere_by_one_call_and_opens_what_it_blocked(
    open_project: OpenProject,
) -> None:
    def act(prompt: str, spec: WorkerSpec) -> Sequence[Move]:
        if spec.provider.name == "glm" and prompt.startswith("a.txt"):
            return [RateLimited("enough for today")]
        return write(prompt, spec)

    async with open_project(Acting(act), providers=THREE) as project:
        result = await over(project, task("a", "a.txt: a"), task("b", "b.txt: b", after=["a"]))
        assert (line(result, "a").state, line(result, "b").state) == ("failed", "blocked")
        again = await project.ask("swarm_retry", swarm_id=result.swarm_id, elsewhere=True)
        assert isinstance(again, SwarmStatus)
        result = await ended(project, result.swarm_id)
        assert result.state == "completed", result
        assert line(result, "a").provider != "glm"
        with pytest.raises(RequestError, match="nothing to retry"):
            await project.ask("swarm_retry", swarm_id=result.swarm_id)


@pytest.mark.usefixtures("repository")
async def test_cancelling_stops_what_runs_and_begins_nothing_more(
    open_project: OpenProject,
) -> None:
    pause = Pause()

    def act(prompt: str, spec: WorkerSpec) -> Sequence[Move]:
        return [*write(prompt, spec)[:1], pause]

    async with open_project(Acting(act)) as project:
        tasks = [task("a", "a.txt: a"), task("b", "b.txt: b", after=["a"])]
        begun = await project.ask("swarm_spawn", tasks=tasks)
        assert isinstance(begun, SwarmStatus)
        await pause.reached.wait()
        status = await project.ask("swarm_cancel", swarm_id=begun.swarm_id, reason="enough")
        assert isinstance(status, SwarmStatus)
        assert status.state == "cancelled"
        assert [each.state for each in status.tasks] == ["cancelled", "cancelled"]
        assert line(status, "a").files == 1, "what it had done is kept"


@pytest.mark.usefixtures("repository")
async def test_a_folder_removed_by_hand_fails_its_task_and_nobody_elses(
    open_project: OpenProject,
) -> None:
    def act(prompt: str, spec: WorkerSpec) -> Sequence[Move]:
        moves = write(prompt, spec)
        if prompt.startswith("gone"):
            shutil.rmtree(spec.cwd)
        return moves

    async with open_project(Acting(act)) as project:
        result = await over(project, task("a", "gone.txt: a"), task("b", "b.txt: b"))
        failure = line(result, "a").failure
        assert failure
        assert failure.kind == "workspace_lost"
        assert line(result, "b").state == "completed"


@pytest.mark.usefixtures("repository")
async def test_a_verify_command_that_hangs_refutes_its_task_and_nobody_elses(
    open_project: OpenProject,
) -> None:
    async with open_project(Acting(), limits=Limits(verify_s=1.0)) as project:
        result = await over(
            project, task("a", "a.txt: a", verify=["sleep 60"]), task("b", "b.txt: b")
        )
        assert (line(result, "a").state, line(result, "a").evidence) == ("failed", "refuted")
        assert line(result, "b").state == "completed"


async def test_a_repository_without_a_commit_is_refused_with_the_remedy(
    open_project: OpenProject, tmp_path: Path
) -> None:
    Repository(tmp_path / "project").git("init", "-q")
    async with open_project(Acting()) as project:
        with pytest.raises(RequestError, match="first commit"):
            await project.ask("swarm_spawn", tasks=[task("a", "a.txt: a")])
        result = await over(project, task("a", "a.txt: a"), uncommitted=True)
        assert result.state == "completed"


async def test_without_git_each_has_a_copy_and_conflicts_are_found_the_same(
    open_project: OpenProject, tmp_path: Path
) -> None:
    (tmp_path / "project" / "app.txt").write_text("one\n")
    async with open_project(Acting()) as project:
        result = await over(
            project, task("a", "app.txt: a"), task("b", "app.txt: b"), task("c", "c.txt: c")
        )
        assert result.state == "completed", result
        assert {c.kind for c in result.conflicts} == {"hunk_conflict", "file_overlap"}
        merged = await merge(project, result.swarm_id)
        assert len(merged.merged) == 2
        assert [path.name for path in project.folder.iterdir()] == ["app.txt"]
        assert (project.folder / "app.txt").read_text() == "one\n"


@pytest.mark.spec("P31")
@pytest.mark.usefixtures("repository")
async def test_in_a_shared_folder_the_edits_tell_who_met_in_one_file(
    open_project: OpenProject,
) -> None:
    async with open_project(Acting()) as project:
        result = await over(
            project,
            task("a", "app.txt: a"),
            task("b", "app.txt: b"),
            task("c", "c.txt: c"),
            isolation="shared",
        )
        (overlap,) = result.conflicts
        assert (overlap.kind, overlap.path, overlap.tasks) == (
            "file_overlap",
            "app.txt",
            ("a", "b"),
        )
        assert line(result, "c").added == 1
        with pytest.raises(RequestError, match="shared folder"):
            await merge(project, result.swarm_id)


@pytest.mark.usefixtures("repository")
async def test_what_only_reads_shares_the_folder(open_project: OpenProject) -> None:
    driver = Acting(lambda _, __: [say("I looked.")])
    async with open_project(driver) as project:
        await over(project, task("a", "explain app.txt", permissions="readonly"))
        assert driver.opened[0].cwd == project.folder


async def test_the_checkout_may_change_meanwhile(
    open_project: OpenProject, repository: Repository
) -> None:
    pause = Pause()

    def act(prompt: str, spec: WorkerSpec) -> Sequence[Move]:
        return [pause, *write(prompt, spec)] if prompt.startswith("a") else write(prompt, spec)

    driver = Acting(act)
    async with open_project(driver) as project:
        tasks = [task("a", "a.txt: a"), task("b", "b.txt: b")]
        begun = await project.ask("swarm_spawn", tasks=tasks, concurrency=1)
        assert isinstance(begun, SwarmStatus)
        await pause.reached.wait()
        repository.write("later.txt", "later\n")
        repository.commit("Meanwhile")
        pause.go_on.set()
        result = await ended(project, begun.swarm_id)
        assert not (driver.opened[1].cwd / "later.txt").exists()
        assert result.plan.order == ("a", "b")


@pytest.mark.usefixtures("repository")
async def test_a_budget_for_all_holds_for_each(open_project: OpenProject) -> None:
    async with open_project(Acting(), keys={"moonshot": "sk-1"}) as project:
        result = await over(project, task("a", "a.txt: a", provider="glm"), budget_usd=0.000001)
        failure = line(result, "a").failure
        assert failure
        assert failure.kind == "budget_exceeded"
        assert "group" in failure.message or "swarm" in failure.message


@pytest.mark.usefixtures("repository")
async def test_waiting_returns_when_a_worker_asks(open_project: OpenProject) -> None:
    def act(prompt: str, spec: WorkerSpec) -> Sequence[Move]:
        return [question("p1"), *write(prompt, spec)]

    async with open_project(Acting(act)) as project:
        begun = await project.ask("swarm_spawn", tasks=[task("a", "a.txt: a")], wait_s=30)
        assert isinstance(begun, SwarmStatus)
        with anyio.fail_after(30):
            while begun.state == "running":
                begun = await project.ask("swarm_wait", swarm_id=begun.swarm_id, timeout_s=5)
                assert isinstance(begun, SwarmStatus)
        assert (begun.state, line(begun, "a").permission) == ("waiting", "p1")
        answer = {"worker_id": line(begun, "a").worker_id, "permission_id": "p1"}
        await project.ask("worker_answer", **answer, option="allow_once")
        assert (await ended(project, begun.swarm_id)).state == "completed"
