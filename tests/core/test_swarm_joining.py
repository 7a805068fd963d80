"""The work of several becomes one: real git, scripted workers."""

from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest
from real_git import Repository
from scripted_project import OpenProject
from swarm_stage import Acting, line, merge, over, task, write

from goent.domain.errors import RequestError
from goent.domain.ports import WorkerSpec
from goent.testing.driver import ScriptedMove

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]


async def test_a_dependent_task_starts_from_the_merged_work_of_all_before_it(
    open_project: OpenProject, repository: Repository
) -> None:
    seen: dict[str, bool] = {}

    def act(prompt: str, spec: WorkerSpec) -> Sequence[ScriptedMove]:
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
async def test_a_tasks_own_command_is_asked_only_where_its_work_is(
    open_project: OpenProject,
) -> None:
    async with open_project(Acting()) as project:
        result = await over(
            project,
            task("a", "a.txt: a", verify=["test -f a.txt"]),
            task("b", "b.txt: b", verify=["test -f b.txt", "test ! -f c.txt"]),
            task("c", "c.txt: c"),
            task("d", "d.txt: d", verify=["false"]),
        )
        assert line(result, "d").state == "failed"
        merged = await merge(project, result.swarm_id)
        assert merged.evidence == "verified", "what failed by itself has no say"
        assert len(merged.merged) == 2
        assert "a" in merged.merged
        assert merged.conflicts[0].kind == "semantic"
        assert set(merged.conflicts[0].tasks) >= {"b", "c"}


@pytest.mark.usefixtures("repository")
async def test_what_started_from_a_culprit_goes_with_it(open_project: OpenProject) -> None:
    async with open_project(Acting()) as project:
        result = await over(
            project,
            task("a", "a.one: a"),
            task("b", "b.txt: b"),
            task("c", "c.txt: c", after=["a"]),
            task("d", "d.one: d", after=["b"]),
            verify=["test $(ls *.one 2>/dev/null | wc -l) -le 1"],
        )
        merged = await merge(project, result.swarm_id)
        assert merged.evidence == "verified"
        left = {each.task for each in merged.left}
        assert left in ({"a", "c"}, {"d"})
        assert set(merged.merged) == {"a", "b", "c", "d"} - left


@pytest.mark.usefixtures("repository")
async def test_a_command_that_fails_before_any_work_blames_nobody(
    open_project: OpenProject,
) -> None:
    async with open_project(Acting()) as project:
        result = await over(project, task("a", "a.txt: a"), task("b", "b.txt: b"))
        merged = await merge(project, result.swarm_id, verify=["false"])
        assert (merged.evidence, merged.conflicts) == ("refuted", ())
        assert "already fail" in merged.notes[0]
        with pytest.raises(RequestError, match="nothing was applied"):
            await merge(project, result.swarm_id, verify=["false"], apply=True)


async def test_merging_clears_away_what_is_merged_and_keeps_the_rest(
    open_project: OpenProject, repository: Repository
) -> None:
    async with open_project(Acting()) as project:
        result = await over(
            project, task("a", "app.txt: a"), task("b", "app.txt: b"), task("c", "c.txt: c")
        )
        assert len(await project.workspaces.list_kept()) == 3
        merged = await merge(project, result.swarm_id)
        (left,) = merged.left
        with anyio.fail_after(30):
            while len(kept := await project.workspaces.list_kept()) > 1:  # noqa: ASYNC110 (they go one by one)
                await anyio.sleep(0.05)
        assert kept[0].worker == line(result, left.task).worker_id
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
        assert "archive go-ent/" in merged.notes[-1]
        with pytest.raises(RequestError, match="nothing was applied"):
            await merge(project, result.swarm_id, apply=True)
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
