"""Each attempt has a directory of its own, and what changed in it is told."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from real_git import Repository, a_repository
from sandboxed import eval_commands

from goent.evals.eval_ports import TargetError
from goent.evals.suites import EvalCase, Hook, InputMessage, WorkspaceSpec
from goent.evals.workspaces import workspace_changes
from goent.evals.workspaces.attempt_workspaces import (
    AttemptWorkspace,
    AttemptWorkspaces,
    open_workspaces,
)

pytestmark = pytest.mark.anyio

ENVIRON = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}


def a_case(workspace: WorkspaceSpec | None = None, *, name: str = "one") -> EvalCase:
    said = (InputMessage(role="user", text="do it"),)
    return EvalCase(id=name, suite="s", form="v4", input=said, workspace=workspace)


@asynccontextmanager
async def a_space(
    spaces: AttemptWorkspaces, case: EvalCase, *, target: str = "t"
) -> AsyncGenerator[AttemptWorkspace]:
    async with spaces.space(case, target=target, trial=1, number=0) as space:
        assert isinstance(space, AttemptWorkspace)
        yield space


@pytest.fixture
def template(tmp_path: Path) -> Path:
    """A folder with everything that a copy could get wrong."""
    top = tmp_path / "template"
    (top / "sub").mkdir(parents=True)
    (top / ".git").mkdir()
    (top / ".git" / "HEAD").write_text("ref: refs/heads/secret\n")
    (top / "a.txt").write_text("one\ntwo\n")
    (top / "gone.txt").write_text("gone\n")
    (top / "run.sh").write_text("#!/bin/sh\n")
    (top / "run.sh").chmod(0o755)
    (top / "sub" / "data.bin").write_bytes(b"\0\1\2")
    (top / "outside").symlink_to(tmp_path / "elsewhere.txt")
    (tmp_path / "elsewhere.txt").write_text("not ours\n")
    os.mkfifo(top / "pipe")
    return top


@pytest.mark.spec("E02")
async def test_nothing_leaks_between_attempts(tmp_path: Path, template: Path) -> None:
    case = a_case(WorkspaceSpec(template=template), name="../../\0 odd\nname " + "x" * 300)
    async with open_workspaces(eval_commands(ENVIRON, root=tmp_path / "root")) as spaces:
        async with a_space(spaces, case) as first, a_space(spaces, case) as second:
            (first.path / "a.txt").write_text("changed\n")
            (first.path / "new.txt").write_text("new\n")
            assert (second.path / "a.txt").read_text() == "one\ntwo\n"
            assert not (second.path / "new.txt").exists()
            assert "+changed" in await first.changes()
            assert await second.changes() == ""
        async with a_space(spaces, case) as third:
            assert (third.path / "a.txt").read_text() == "one\ntwo\n"
            assert third.path not in {first.path, second.path}
    assert (template / "a.txt").read_text() == "one\ntwo\n"


async def test_a_copy_keeps_modes_and_links_and_leaves_git_and_pipes_out(
    tmp_path: Path, template: Path
) -> None:
    case = a_case(WorkspaceSpec(template=template))
    async with (
        open_workspaces(eval_commands(ENVIRON, root=tmp_path / "root")) as spaces,
        a_space(spaces, case) as space,
    ):
        assert (space.path / "run.sh").stat().st_mode & 0o777 == 0o755
        assert (space.path / "outside").is_symlink()
        assert not (space.path / "pipe").exists()
        assert "secret" not in (space.path / ".git" / "HEAD").read_text()
        assert (tmp_path / "root").stat().st_mode & 0o077 == 0


async def test_the_diff_tells_what_is_new_changed_gone_and_binary(
    tmp_path: Path, template: Path
) -> None:
    case = a_case(WorkspaceSpec(template=template))
    async with (
        open_workspaces(eval_commands(ENVIRON, root=tmp_path / "root")) as spaces,
        a_space(spaces, case) as space,
    ):
        (space.path / "a.txt").write_text("one\nthree\n")
        (space.path / "gone.txt").unlink()
        (space.path / "ü new.txt").write_text("fresh\n")
        (space.path / "sub" / "data.bin").write_bytes(b"\0\3")
        (space.path / "run.sh").chmod(0o644)
        (space.path / "loud").mkdir()
        (space.path / "loud" / "secret").write_text("x")
        (space.path / "loud" / "secret").chmod(0)
        told = await space.changes()
    for expected in (
        "-two\n+three\n",
        "deleted file mode 100644",
        "+++ b/ü new.txt",
        "+fresh",
        "Binary files a/sub/data.bin and b/sub/data.bin differ",
        "old mode 100755",
    ):
        assert expected in told, told


async def test_an_agent_that_plays_with_git_changes_nothing_about_the_diff(
    tmp_path: Path, template: Path
) -> None:
    case = a_case(WorkspaceSpec(template=template))
    async with open_workspaces(eval_commands(ENVIRON, root=tmp_path / "root")) as spaces:
        async with a_space(spaces, case) as space:
            agent = Repository(space.path)
            assert agent.git("status", "--porcelain") == ""
            (space.path / "a.txt").write_text("mine\n")
            agent.commit("all of it")
            agent.git("config", "core.fsmonitor", "false; touch pwned")
            assert "+mine" in await space.changes()
        async with a_space(spaces, case) as space:
            await anyio.run_process(["rm", "-rf", ".git"], cwd=space.path)
            (space.path / "a.txt").write_text("mine\n")
            assert "+mine" in await space.changes()


async def test_files_of_repositories_inside_are_told(tmp_path: Path, template: Path) -> None:
    a_repository(template / "before", files={"old.txt": "old\n"})
    (template / "before" / ".git").rename(template / "before" / "not-git")
    case = a_case(WorkspaceSpec(template=template))
    async with (
        open_workspaces(eval_commands(ENVIRON, root=tmp_path / "root")) as spaces,
        a_space(spaces, case) as space,
    ):
        a_repository(space.path / "inner", files={"in.txt": "inside\n"})
        unborn = space.path / "inner" / "unborn"
        unborn.mkdir()
        Repository(unborn).git("init", "--quiet")
        (unborn / "deep.txt").write_text("deep\n")
        (space.path / "before" / "not-git").rename(space.path / "before" / ".git")
        (space.path / "before" / "old.txt").write_text("changed\n")
        for _ in range(2):
            told = await space.changes()
            for expected in ("b/inner/in.txt", "b/inner/unborn/deep.txt", "-old\n+changed"):
                assert expected in told, told
            assert "Subproject" not in told and ".goent" not in told


async def test_the_users_git_has_no_say(tmp_path: Path, template: Path) -> None:
    home = tmp_path / "home"
    (home / ".config" / "git").mkdir(parents=True)
    (home / ".config" / "git" / "ignore").write_text("*.txt\n")
    (home / ".gitconfig").write_text(
        "[core]\n\tautocrlf = true\n[commit]\n\tgpgSign = true\n[diff]\n\tnoprefix = true\n"
    )
    environ = {**ENVIRON, "HOME": str(home), "GIT_AUTHOR_NAME": "Somebody"}
    case = a_case(WorkspaceSpec(template=template))
    async with (
        open_workspaces(eval_commands(environ, root=tmp_path / "root")) as spaces,
        a_space(spaces, case) as space,
    ):
        (space.path / "b.txt").write_text("b\n")
        assert "+++ b/b.txt" in await space.changes()
        assert Repository(space.path).git("log", "--format=%an") == "go-ent"


async def test_a_diff_has_an_end(
    tmp_path: Path, template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workspace_changes, "LARGEST_DIFF", 2000)
    case = a_case(WorkspaceSpec(template=template))
    async with (
        open_workspaces(eval_commands(ENVIRON, root=tmp_path / "root")) as spaces,
        a_space(spaces, case) as space,
    ):
        (space.path / "big.txt").write_text("line\n" * 10_000)
        (space.path / "huge.txt").write_text("x" * 3_000_000)
        told = await space.changes()
        assert len(told) < 2100 and told.endswith(" bytes]\n")
        (space.path / "big.txt").unlink()
        assert "Binary files /dev/null and b/huge.txt differ" in await space.changes()


async def test_a_clone_has_its_history_and_no_way_back(tmp_path: Path) -> None:
    origin = a_repository(tmp_path / "origin", files={"f.txt": "old\n"})
    old = origin.git("rev-parse", "HEAD")
    origin.write("f.txt", "new\n")
    new = origin.commit("second")
    before = origin.state()
    async with open_workspaces(eval_commands(ENVIRON, root=tmp_path / "root")) as spaces:
        spec = WorkspaceSpec(repository=str(origin.top))
        async with a_space(spaces, a_case(spec)) as space:
            agent = Repository(space.path)
            assert agent.git("rev-parse", "HEAD") == new
            assert (agent.git("status", "--porcelain"), agent.git("remote")) == ("", "")
            agent.write("f.txt", "mine\n")
            agent.commit("mine")
            assert "-new\n+mine" in await space.changes()
        spec = WorkspaceSpec(repository=f"file://{origin.top}", ref=old)
        for _ in range(2):
            async with a_space(spaces, a_case(spec)) as space:
                assert (space.path / "f.txt").read_text() == "old\n"
                assert await space.changes() == ""
    assert origin.state() == before


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (WorkspaceSpec(repository="/nowhere/at/all"), "/nowhere/at/all"),
        (WorkspaceSpec(repository="REPO", ref="no-such-branch"), "no commit 'no-such-branch'"),
        (WorkspaceSpec(repository="REPO", ref="a\0b"), "null byte"),
        (WorkspaceSpec(repository="file://x\0y"), "null byte"),
        (WorkspaceSpec(before_each=Hook(command=("a\0b",))), "null byte"),
        (WorkspaceSpec(template=Path("/nowhere")), "/nowhere"),
        (WorkspaceSpec(template=Path("/")), "it contains go-ent's own state"),
    ],
)
async def test_what_is_not_there_fails_the_attempt(
    tmp_path: Path, spec: WorkspaceSpec, words: str
) -> None:
    if spec.repository == "REPO":
        top = a_repository(tmp_path / "repo", files={"f": "x"}).top
        spec = WorkspaceSpec(repository=str(top), ref=spec.ref)
    async with open_workspaces(eval_commands(ENVIRON, root=tmp_path / "root")) as spaces:
        for _ in range(2):
            with pytest.raises(TargetError, match=words) as failed:
                async with a_space(spaces, a_case(spec)):
                    pytest.fail("there is no such workspace")
            assert failed.value.kind == "setup_failed"
        async with a_space(spaces, a_case()) as other:
            assert other.path.is_dir()


async def test_without_a_workspace_there_is_an_empty_directory(tmp_path: Path) -> None:
    async with (
        open_workspaces(eval_commands(ENVIRON, root=tmp_path / "root")) as spaces,
        a_space(spaces, a_case()) as space,
    ):
        assert not any(space.path.iterdir())
        assert await space.changes() == ""
        (space.path / "made.txt").write_text("made\n")
        assert "+++ b/made.txt" in await space.changes()


async def test_who_looks_at_no_directory_gets_none(tmp_path: Path) -> None:
    root = tmp_path / "root"
    async with (
        open_workspaces(eval_commands(ENVIRON, root=root), idle={"mock"}) as spaces,
        spaces.space(a_case(), target="mock", trial=1, number=0) as space,
    ):
        assert await space.changes() == ""
        space.mark_passed()
        assert not space.path.exists()
    assert not root.exists()


async def test_a_place_that_cannot_be_written_fails_attempts_one_by_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    async with open_workspaces(
        eval_commands(ENVIRON, root=tmp_path / "file" / "root"), idle={"mock"}
    ) as spaces:
        with pytest.raises(TargetError, match="XDG_STATE_HOME moves it"):
            async with a_space(spaces, a_case()):
                pytest.fail("there is no room")
        async with spaces.space(a_case(), target="mock", trial=1, number=0) as space:
            space.mark_passed()
