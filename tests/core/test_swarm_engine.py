"""Swarms with scripted workers and real git: what is asked, and what comes of it."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest
from real_git import Repository
from scripted_project import OpenProject
from swarm_stage import THREE, Acting, ended, line, over, task, write

from goent.domain.errors import RateLimited, RequestError
from goent.domain.ports import WorkerSpec
from goent.domain.settings import LimitSettings
from goent.domain.swarm_messages import SwarmStatus
from goent.testing.driver import Pause, ScriptedMove, question, say

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]


@pytest.mark.usefixtures("repository")
async def test_the_first_verified_one_wins_a_race_and_the_rest_is_cancelled(
    open_project: OpenProject,
) -> None:
    pause = Pause()

    def act(prompt: str, spec: WorkerSpec) -> Sequence[ScriptedMove]:
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
    def act(prompt: str, spec: WorkerSpec) -> Sequence[ScriptedMove]:
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


@pytest.mark.spec("P32")
@pytest.mark.usefixtures("repository")
async def test_a_failed_task_goes_elsewhere_by_one_call_and_opens_what_it_blocked(
    open_project: OpenProject,
) -> None:
    def act(prompt: str, spec: WorkerSpec) -> Sequence[ScriptedMove]:
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

    def act(prompt: str, spec: WorkerSpec) -> Sequence[ScriptedMove]:
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
    def act(prompt: str, spec: WorkerSpec) -> Sequence[ScriptedMove]:
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
    async with open_project(Acting(), limits=LimitSettings(verify_s=1.0)) as project:
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


@pytest.mark.usefixtures("repository")
async def test_what_only_reads_shares_the_folder(open_project: OpenProject) -> None:
    driver = Acting(lambda _, __: [say("I looked.")])
    async with open_project(driver) as project:
        await over(project, task("a", "explain app.txt", permissions="readonly"))
        assert driver.opened[0].cwd == project.folder


async def test_what_is_not_committed_is_left_out_and_told_or_goes_along(
    open_project: OpenProject, repository: Repository
) -> None:
    repository.write("new.txt", "new\n")
    repository.write("app.txt", "changed\n")
    repository.write(".goent/config.yaml", "learning: off\n")
    before = repository.state()
    seen: list[bool] = []

    def act(prompt: str, spec: WorkerSpec) -> Sequence[ScriptedMove]:
        seen.append((spec.cwd / "new.txt").exists())
        return write(prompt, spec)

    async with open_project(Acting(act)) as project:
        told = await over(project, task("a", "a.txt: a"))
        assert "do not see 2 files that are changed or new" in told.notes[0]
        along = await over(project, task("a", "a.txt: a"), uncommitted=True)
        assert along.notes == ()
        assert line(along, "a").files == 1, "theirs is not its work"
    assert seen == [False, True]
    assert repository.state() == before


async def test_the_checkout_may_change_meanwhile(
    open_project: OpenProject, repository: Repository
) -> None:
    pause = Pause()

    def act(prompt: str, spec: WorkerSpec) -> Sequence[ScriptedMove]:
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
    def act(prompt: str, spec: WorkerSpec) -> Sequence[ScriptedMove]:
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
