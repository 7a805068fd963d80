"""Which files that other programs obey changed between two looks."""

import os
from pathlib import Path

import pytest
from real_git import Repository

from goent.workers import folder_changes
from goent.workers.folder_changes import Fingerprints, fingerprints, guarded_file_changes


@pytest.fixture
def project(tmp_path: Path) -> Repository:
    repository = Repository(tmp_path / "project")
    repository.top.mkdir()
    repository.git("init", "--quiet", "-b", "main")
    repository.write("src/app.py")
    repository.write("opencode.json", "{}")
    repository.write(".goent/config.yaml", "opencode: {}\n")
    repository.commit()
    return repository


def changed(project: Repository, before: Fingerprints, cwd: Path | None = None) -> dict[str, str]:
    cwd = cwd or project.top
    return {each.path: each.reason for each in guarded_file_changes(before, fingerprints(cwd), cwd)}


@pytest.mark.parametrize(
    ("name", "who"),
    [
        (".git/hooks/pre-commit", "git"),
        (".git/config", "git"),
        (".git/info/attributes", "git"),
        (".mcp.json", "MCP clients"),
        ("opencode.json", "OpenCode"),
        (".opencode/plugin/x.js", "OpenCode"),
        (".goent/config.yaml", "go-ent"),
        (".claude/settings.json", "Claude Code"),
        (".github/workflows/ci.yml", "GitHub Actions"),
        (".envrc", "direnv"),
    ],
)
def test_a_guarded_file_that_was_written_is_named_with_who_obeys_it(
    project: Repository, name: str, who: str
) -> None:
    before = fingerprints(project.top)
    project.write(name, "other\n")
    assert list(changed(project, before)) == [name]
    assert f"make {who} run" in changed(project, before)[name]


def test_one_that_went_or_may_be_run_now_is_named(project: Repository) -> None:
    hook = project.write(".git/hooks/pre-commit")
    before = fingerprints(project.top)
    (project.top / "opencode.json").unlink()
    hook.chmod(0o755)
    assert list(changed(project, before)) == [".git/hooks/pre-commit", "opencode.json"]


def test_ordinary_work_and_gits_own_writing_are_not(project: Repository) -> None:
    before = fingerprints(project.top)
    project.write("src/app.py", "new\n")
    project.commit("work")
    project.git("branch", "other")
    project.git("worktree", "add", "-q", "../elsewhere", "other")
    project.git("gc", "-q")
    (project.top / "opencode.json").touch()
    assert changed(project, before) == {}


def test_a_worker_below_the_top_is_seen_at_the_top_too(project: Repository) -> None:
    below = project.top / "src"
    before = fingerprints(below)
    project.write(".mcp.json")
    project.write("src/.envrc")
    assert list(changed(project, before, below)) == [str(project.top / ".mcp.json"), ".envrc"]


def test_a_worktree_is_seen_with_the_repository_behind_it(project: Repository) -> None:
    project.git("worktree", "add", "-q", "-b", "own", "../own")
    own = project.top.parent / "own"
    before = fingerprints(own, project.top)
    project.write(".git/hooks/post-commit")
    project.write(".goent/config.yaml", "agents: {}\n")
    found = guarded_file_changes(before, fingerprints(own, project.top), own)
    assert [each.path for each in found] == [
        str(project.top / ".git/hooks/post-commit"),
        str(project.top / ".goent/config.yaml"),
    ]
    assert all(each.reason for each in found)


def test_a_huge_folder_is_not_read_to_its_end(
    project: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_changes, "MAX_FILES", 20)
    few = len(fingerprints(project.top))
    for number in range(30):
        project.write(f".vscode/{number}")
    assert len(fingerprints(project.top)) == few + 20


def test_many_files_in_one_place_hide_no_other(project: Repository) -> None:
    for number in range(folder_changes.MAX_READ + 10):
        project.write(f".claude/{number:05}")
    before = fingerprints(project.top)
    project.write(f".claude/{folder_changes.MAX_READ + 5:05}", "other\n")
    project.write(".git/hooks/pre-commit")
    project.write(".goent/config.yaml", "agents: {}\n")
    assert list(changed(project, before)) == [
        f".claude/{folder_changes.MAX_READ + 5:05}",
        ".git/hooks/pre-commit",
        ".goent/config.yaml",
    ]


def test_what_a_guarded_link_leads_to_is_guarded(project: Repository) -> None:
    project.write("tools/env.sh")
    project.write("tools/claude/settings.json")
    (project.top / ".envrc").symlink_to("tools/env.sh")
    (project.top / ".claude").symlink_to("tools/claude")
    before = fingerprints(project.top)
    assert changed(project, before) == {}
    project.write("tools/env.sh", "other\n")
    project.write("tools/claude/settings.json", "other\n")
    assert list(changed(project, before)) == [".claude/settings.json", ".envrc"]


def test_where_git_goes_on_and_its_submodules_are_seen(project: Repository) -> None:
    project.write(".git/modules/library/config", "[core]\n")
    before = fingerprints(project.top)
    project.write(".git/modules/library/hooks/post-checkout", "#!/bin/sh\n")
    project.write(".git/modules/library/config", "[core]\n\tfsmonitor = ./evil\n")
    project.write(".git/commondir", "../elsewhere\n")
    assert list(changed(project, before)) == [
        ".git/commondir",
        ".git/modules/library/config",
        ".git/modules/library/hooks/post-checkout",
    ]


def test_a_git_that_is_a_pipe_does_not_stop_the_look(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".git")
    assert list(fingerprints(tmp_path)) == [tmp_path / ".git"]
