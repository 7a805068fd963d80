"""A repository whose own git configuration would run programs, and go-ent's git in it."""

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from real_git import Repository, a_repository, orders_for
from sandboxed import eval_commands

from goent.domain.errors import RequestError
from goent.domain.workspace import WorkPiece, Workspace
from goent.evals.suites import EvalCase, WorkspaceSpec
from goent.evals.workspaces.attempt_workspaces import open_workspaces
from goent.git.git_command import Git
from goent.git.git_merger import GitMerging
from goent.git.git_workspaces import GitWorkspaces
from goent.git.repository_config import repository_acts

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

HOOKS = (
    *("post-checkout", "post-merge", "post-index-change", "pre-commit", "post-commit"),
    *("reference-transaction", "pre-merge-commit", "commit-msg", "prepare-commit-msg"),
)
SHIFTED = "first\nsecond\nthird\nfourth\nfifth\n"


@dataclass
class Trap:
    """A log to which every program of the repository writes its name."""

    log: Path

    def command(self, name: str, rest: str = "cat") -> str:
        return f"echo {name} >>{shlex.quote(str(self.log))}; {rest}"

    def script(self, path: Path, name: str, rest: str = "exit 0") -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{self.command(name, rest)}\n")
        path.chmod(0o755)
        return path

    @property
    def sprung(self) -> set[str]:
        return set(self.log.read_text().split()) if self.log.exists() else set()


@pytest.fixture
def trap(tmp_path: Path) -> Trap:
    return Trap(tmp_path / "sprung")


def traps(trap: Trap, top: Path) -> Mapping[str, str]:
    return {
        "core.fsmonitor": str(trap.script(top.parent / "fsmonitor", "fsmonitor")),
        "core.hooksPath": str(top.parent / "hooks"),
        "filter.evil.clean": trap.command("clean"),
        "filter.evil.smudge": trap.command("smudge"),
        "merge.evil.driver": trap.command("merge", "exit 1"),
        "merge.default": "evil",
        "diff.evil.command": trap.command("diff"),
        "diff.evil.textconv": trap.command("textconv"),
        "diff.external": trap.command("external"),
        "core.pager": trap.command("pager"),
        "core.editor": trap.command("editor"),
        "core.sshCommand": trap.command("ssh"),
        "core.askPass": trap.command("askpass"),
        "credential.helper": "!" + trap.command("credential"),
        "gpg.program": trap.command("gpg"),
        "commit.gpgSign": "true",
        "core.alternateRefsCommand": trap.command("alternates"),
        "uploadpack.packObjectsHook": trap.command("pack"),
        "branch.main.mergeOptions": "--verify-signatures",
    }


def booby_trapped(trap: Trap, top: Path) -> Repository:
    repository = a_repository(
        top, files={"a.txt": SHIFTED, ".gitattributes": "* filter=evil diff=evil merge=evil\n"}
    )
    for name in HOOKS:
        trap.script(top / ".git/hooks" / name, f"hook:{name}")
        trap.script(top.parent / "hooks" / name, f"path:{name}")
    for key, value in traps(trap, top).items():
        repository.git("config", key, value)
    (top / "a.txt").write_text(SHIFTED.replace("first", "mine"))
    return repository


async def work_in(repository: Repository, root: Path) -> None:
    """All that go-ent does with git around a worker and a swarm."""
    spaces = GitWorkspaces(root / "state", environ=lambda: repository.environ)
    order = orders_for(repository.top)
    _, base = await spaces.head(repository.top)
    pieces: list[WorkPiece] = []
    made: list[Workspace] = []
    for number, task in enumerate(("one", "two")):
        space = await spaces.prepare(order(f"w-{task}"))
        made.append(space)
        path = Path(space.path)
        lines = (path / "a.txt").read_text().splitlines()
        lines[1 + number * 2] = task
        (path / "a.txt").write_text("\n".join(lines) + "\n")
        work = await spaces.commit_work(space, task)
        pieces.append(WorkPiece(task=task, commit=work.commit))
    await spaces.head(repository.top, uncommitted=True)
    await spaces.uncommitted(repository.top)
    await look_at(repository, spaces)
    copied = await spaces.prepare(order("w-copy", kind="copy"))
    await spaces.commit_work(copied, "copied")
    await spaces.list_kept()

    merging = GitMerging(Git(repository.top, repository.environ), root / "merging")
    where = str(repository.top / ".git")
    await merging.conflicts(where, base, pieces)
    merge = await merging.merge(where, base, pieces, "merged")
    async with merging.scratch(where, merge.commit):
        pass
    await merging.publish(where, "go-ent/merged", merge.commit)
    (repository.top / "a.txt").write_text(SHIFTED)
    await merging.apply(where, repository.top, merge.commit)
    for space in made:
        await spaces.release(space)


async def look_at(repository: Repository, spaces: GitWorkspaces) -> None:
    """As before and after a turn in the checkout itself."""
    seen = await spaces.observe(repository.top, repository.top)
    before = (repository.top / "a.txt").read_text()
    (repository.top / "a.txt").write_text(before + "seen\n")
    (repository.top / "b.txt").write_text("new\n")
    changes = await seen.changes()
    assert [Path(change.path).name for change in changes.files] == ["a.txt", "b.txt"]
    await seen.close()
    (repository.top / "b.txt").unlink()
    (repository.top / "a.txt").write_text(before)


async def test_nothing_of_a_repositorys_configuration_runs(tmp_path: Path, trap: Trap) -> None:
    repository = booby_trapped(trap, tmp_path / "repo")
    await work_in(repository, tmp_path)
    assert trap.sprung == set()
    assert "one" in (repository.top / "a.txt").read_text()
    assert "two" in (repository.top / "a.txt").read_text()


async def test_a_trusted_repository_has_its_filters_and_merge_drivers(
    tmp_path: Path, trap: Trap
) -> None:
    repository = booby_trapped(trap, tmp_path / "repo")
    asked: set[Path] = set()

    def trusted(where: Path) -> bool:
        asked.add(where)
        return where == repository.top / ".git"

    spaces = GitWorkspaces(tmp_path / "state", environ=lambda: repository.environ, trusted=trusted)
    space = await spaces.prepare(orders_for(repository.top)("w-one"))
    (Path(space.path) / "a.txt").write_text("other\n")
    await spaces.commit_work(space, "kept")
    assert {"clean", "smudge"} <= trap.sprung
    assert not {name for name in trap.sprung if name.startswith(("hook", "path", "fsmon"))}
    assert repository.top / ".git" in asked, "a worktree is its repository's"


async def test_a_configuration_of_one_checkout_and_an_included_one_run_nothing(
    tmp_path: Path, trap: Trap
) -> None:
    repository = a_repository(tmp_path / "repo", files={".gitattributes": "* filter=evil\n"})
    repository.git("config", "extensions.worktreeConfig", "true")
    repository.git("config", "--worktree", "filter.evil.smudge", trap.command("worktree"))
    repository.git("config", "--worktree", "filter.evil.clean", trap.command("worktree"))
    (repository.top / ".git/more").write_text(
        f'[filter "evil"]\n\tprocess = {trap.command("included").replace(";", " &&")}\n'
    )
    repository.git("config", "include.path", "more")
    spaces = GitWorkspaces(tmp_path / "state", environ=lambda: repository.environ)
    space = await spaces.prepare(orders_for(repository.top)("w-one"))
    (Path(space.path) / "new.txt").write_text("new\n")
    await spaces.commit_work(space, "kept")
    assert trap.sprung == set()


async def test_a_filter_that_the_repository_requires_fails_and_is_not_passed_over(
    tmp_path: Path, trap: Trap
) -> None:
    """Else what a filter was to encrypt would be committed as it is."""
    repository = a_repository(tmp_path / "repo", files={".gitattributes": "*.key filter=evil\n"})
    repository.git("config", "filter.evil.clean", trap.command("clean"))
    repository.git("config", "filter.evil.required", "true")
    spaces = GitWorkspaces(tmp_path / "state", environ=lambda: repository.environ)
    space = await spaces.prepare(orders_for(repository.top)("w-one"))
    (Path(space.path) / "a.key").write_text("secret\n")
    with pytest.raises(RequestError, match=r"filter 'evil' failed.*untrusted.*trust it, or define"):
        await spaces.commit_work(space, "kept")
    assert trap.sprung == set()


async def test_the_users_own_filter_stays_whatever_the_repository_says_of_it(
    tmp_path: Path, trap: Trap
) -> None:
    repository = a_repository(
        tmp_path / "repo", files={".gitattributes": "*.big filter=big\n", "a.big": "small\n"}
    )
    home = tmp_path / "home"
    home.mkdir()
    upper, lower = "tr a-z A-Z", "tr A-Z a-z"
    (home / ".gitconfig").write_text(
        f'[filter "big"]\n\tsmudge = {upper}\n\tclean = {lower}\n\trequired = true\n'
    )
    repository.git("config", "filter.big.smudge", trap.command("smudge"))
    repository.git("config", "filter.big.clean", trap.command("clean"))
    environ = {**repository.environ, "HOME": str(home)}
    spaces = GitWorkspaces(tmp_path / "state", environ=lambda: environ)
    space = await spaces.prepare(orders_for(repository.top)("w-one"))
    assert (Path(space.path) / "a.big").read_text() == "SMALL\n"
    (Path(space.path) / "a.big").write_text("CHANGED\n")
    work = await spaces.commit_work(space, "kept")
    assert repository.git("show", f"{work.commit}:a.big") == "changed"
    assert trap.sprung == set()


async def test_a_submodules_configuration_runs_nothing(tmp_path: Path, trap: Trap) -> None:
    inner = a_repository(tmp_path / "inner", files={".gitattributes": "* filter=evil\n"})
    repository = a_repository(tmp_path / "repo")
    add = ("submodule", "--quiet", "add", str(inner.top), "sub")
    repository.git("-c", "protocol.file.allow=always", *add)
    repository.commit("with a submodule")
    sub = repository.top / "sub"
    for key in ("clean", "smudge"):
        repository.git("config", f"filter.evil.{key}", trap.command(key), cwd=sub)
    (sub / "README.md").write_text("changed\n")
    spaces = GitWorkspaces(tmp_path / "state", environ=lambda: repository.environ)
    await spaces.head(repository.top, uncommitted=True)
    await spaces.uncommitted(repository.top)
    space = await spaces.prepare(orders_for(repository.top)("w-one"))
    (Path(space.path) / "sub/README.md").write_text("of the worker\n")
    work = await spaces.commit_work(space, "kept")
    assert [change.path for change in work.files] == ["sub", "sub/README.md"]
    assert trap.sprung == set()


async def test_a_repository_that_an_agent_made_runs_nothing_in_an_evaluation(
    tmp_path: Path, trap: Trap
) -> None:
    """Where the commit has a submodule, git would look into it."""
    inner = a_repository(tmp_path / "inner")
    origin = a_repository(tmp_path / "origin")
    add = ("submodule", "--quiet", "add", str(inner.top), "sub")
    origin.git("-c", "protocol.file.allow=always", *add)
    origin.commit("with a submodule")
    case = EvalCase(
        suite="s",
        id="one",
        form="v4",
        input=(),
        workspace=WorkspaceSpec(repository=str(origin.top)),
    )
    async with (
        open_workspaces(eval_commands(origin.environ, root=tmp_path / "root")) as spaces,
        spaces.space(case, target="t", trial=1, number=1) as space,
    ):
        made = Repository(space.path / "sub")
        origin.git("clone", "--quiet", inner.top, made.top)
        made.git("config", "filter.evil.clean", trap.command("clean"))
        (made.top / ".git/info/attributes").write_text("* filter=evil\n")
        (made.top / "README.md").write_text("HELLO\n")  # as long as before: git has to read it
        (space.path / "new.txt").write_text("new\n")
        told = await space.changes()
    assert "new.txt" in told
    assert trap.sprung == set()


async def test_a_missing_object_is_fetched_by_no_command_of_the_repository(
    tmp_path: Path, trap: Trap
) -> None:
    repository = a_repository(tmp_path / "repo", files={"a.txt": "gone\n"})
    blob = repository.git("rev-parse", "HEAD:a.txt")
    (repository.top / ".git/objects" / blob[:2] / blob[2:]).unlink()
    for key, value in {
        "core.repositoryFormatVersion": "1",
        "extensions.partialClone": "origin",
        "remote.origin.promisor": "true",
        "remote.origin.url": f"ext::{trap.script(tmp_path / 'ext', 'ext')}",
        "protocol.ext.allow": "always",
        "protocol.allow": "always",
    }.items():
        repository.git("config", key, value)
    spaces = GitWorkspaces(tmp_path / "state", environ=lambda: repository.environ)
    with pytest.raises(RequestError):
        await spaces.prepare(orders_for(repository.top)("w-one"))
    repository.git("config", "remote.origin.url", str(repository.top))
    repository.git("config", "remote.origin.uploadpack", str(tmp_path / "ext"))
    with pytest.raises(RequestError):
        await spaces.prepare(orders_for(repository.top)("w-two"))
    repository.git("config", "remote.origin.url", "ssh://nowhere.invalid/x")
    repository.git("config", "core.sshCommand", str(tmp_path / "ext"))
    with pytest.raises(RequestError):
        await spaces.prepare(orders_for(repository.top)("w-three"))
    assert trap.sprung == set()


async def test_files_elsewhere_are_not_taken_for_the_repositorys(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "mine.txt").write_text("private\n")
    repository = a_repository(tmp_path / "repo")
    repository.git("config", "core.worktree", str(home))
    git = Git(repository.top, repository.environ)
    with pytest.raises(RequestError, match=r"core\.worktree.*--unset core\.worktree"):
        await git.run_checked("reset", "--hard")
    assert [each.name for each in home.iterdir()] == ["mine.txt"]


async def test_a_condition_that_may_change_is_refused(tmp_path: Path) -> None:
    repository = a_repository(tmp_path / "repo")
    repository.git("config", "includeIf.onbranch:go-ent/**.path", "more")
    git = Git(repository.top, repository.environ)
    with pytest.raises(RequestError, match=r"includeif\.onbranch.*~/\.gitconfig"):
        await git.run_checked("status")
    await Git(repository.top, repository.environ, trusted=lambda _: True).run_checked("status")


async def test_a_configuration_that_is_a_pipe_is_refused(tmp_path: Path) -> None:
    repository = a_repository(tmp_path / "repo")
    (repository.top / ".git/config").unlink()
    os.mkfifo(repository.top / ".git/config")
    with pytest.raises(RequestError, match="is a pipe, not a regular file"):
        await Git(repository.top, repository.environ).run_checked("status")


async def test_git_is_asked_for_the_configuration_once_and_only_if_it_says_something(
    tmp_path: Path, trap: Trap
) -> None:
    repository = a_repository(tmp_path / "repo", files={"a.txt": SHIFTED})
    calls = tmp_path / "calls"
    counting = tmp_path / "git"
    counting.write_text(f'#!/bin/sh\necho "$*" >>{calls}\nexec git "$@"\n')
    counting.chmod(0o755)

    async def listings(worker: str) -> int:
        calls.write_text("")
        spaces = GitWorkspaces(
            tmp_path / "state", environ=lambda: repository.environ, git=str(counting)
        )
        space = await spaces.prepare(orders_for(repository.top)(worker))
        (Path(space.path) / "a.txt").write_text("changed\n")
        await spaces.commit_work(space, "kept")
        return sum("--show-scope" in line for line in calls.read_text().splitlines())

    assert await listings("w-plain") == 0
    repository.git("config", "filter.evil.clean", trap.command("clean"))
    assert await listings("w-evil") == 1
    assert trap.sprung == set()


async def test_a_git_in_the_work_directory_is_not_run(tmp_path: Path, trap: Trap) -> None:
    repository = a_repository(tmp_path / "repo")
    trap.script(repository.top / "git", "git")
    for path in (".", "", "bin"):
        trap.script(repository.top / "bin/git", "git")
        environ = {**repository.environ, "PATH": f"{path}:{repository.environ['PATH']}"}
        assert (await Git(repository.top, environ).run_checked("version")).text.startswith(
            "git version"
        )
    assert trap.sprung == set()


def test_what_a_line_goes_on_with_is_shown_to_whom_is_asked(tmp_path: Path) -> None:
    """Else a person would say yes to a backslash."""
    (tmp_path / "config").write_text("[core]\n\tfsmonitor = \\\n  evil --now\n\tbare = false\n")
    (found,) = repository_acts(tmp_path)
    assert "evil --now" in found.says
