"""Which files that other programs obey changed between two looks."""

from pathlib import Path

import pytest
from real_git import Repository

from goent.core.guarded_files import MOST_FILES, Prints, changes, fingerprints


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


def changed(project: Repository, before: Prints, cwd: Path | None = None) -> dict[str, str]:
    cwd = cwd or project.top
    return {each.path: each.reason for each in changes(before, fingerprints(cwd), cwd)}


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
    found = changes(before, fingerprints(own, project.top), own)
    assert [each.path for each in found] == [
        str(project.top / ".git/hooks/post-commit"),
        str(project.top / ".goent/config.yaml"),
    ]
    assert all(each.reason for each in found)


def test_a_huge_folder_is_not_read_to_its_end(project: Repository) -> None:
    folder = project.top / ".vscode"
    folder.mkdir()
    for number in range(MOST_FILES + 10):
        (folder / f"{number}").touch()
    assert len(fingerprints(project.top)) == MOST_FILES
