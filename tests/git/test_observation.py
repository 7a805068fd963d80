"""What changed in a folder between two moments, by the real git, and without one."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from real_git import Repository, a_repository

from goent.domain.workspace import ObservedChange, ObservedChanges
from goent.git.folder_observation import CLOCK_LAG, MAX_REPORTED, changed_at
from goent.git.git_workspaces import GitWorkspaces

pytestmark = pytest.mark.anyio

FILES = {"src/app.py": "one\ntwo\n", "src/other.py": "other\n", ".gitignore": "build/\n*.log\n"}


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return a_repository(tmp_path / "repo", files=FILES)


async def between(
    spaces: GitWorkspaces, top: Path, happens: Callable[[], object], *, cwd: Path | None = None
) -> ObservedChanges:
    """What is told to have changed, with paths from the top."""
    observation = await spaces.observe(cwd or top, top)
    happens()
    try:
        return await observation.changes()
    finally:
        await observation.close()


def lines(changes: ObservedChanges, top: Path) -> dict[str, tuple[int | None, int | None]]:
    assert not changes.unseen
    return {os.path.relpath(each.path, top): (each.added, each.removed) for each in changes.files}


async def lines_after(
    spaces: GitWorkspaces, repository: Repository, happens: Callable[[], object]
) -> dict[str, tuple[int | None, int | None]]:
    return lines(await between(spaces, repository.top, happens), repository.top)


async def test_nothing_is_told_where_nothing_changed(spaces: GitWorkspaces, repository: Repository):
    repository.write("dirty.txt")
    repository.write("src/app.py", "dirty\n")
    before = repository.state()
    assert await lines_after(spaces, repository, lambda: None) == {}
    assert repository.state() == before


async def test_files_of_a_clean_checkout_are_told_with_their_lines(
    spaces: GitWorkspaces, repository: Repository
):
    def work():
        repository.write("src/app.py", "one\n2\n3\n")
        (repository.top / "src/other.py").unlink()
        repository.write("new/file.txt", "a\nb")
        repository.write("new/data.bin", b"\0\1")
        (repository.top / "link").symlink_to("README.md")

    assert await lines_after(spaces, repository, work) == {
        "src/app.py": (2, 1),
        "src/other.py": (0, 1),
        "new/file.txt": (2, 0),
        "new/data.bin": (None, 0),
        "link": (None, 0),
    }


async def test_what_was_dirty_before_is_told_only_if_it_changed_again(
    spaces: GitWorkspaces, repository: Repository
):
    for name in ("src/app.py", "untracked.txt", "gone.txt", "README.md", "same.txt"):
        repository.write(name, "dirty\n")

    def work():
        repository.write("src/app.py", "dirtier\n")
        repository.write("untracked.txt", "more\n")
        (repository.top / "gone.txt").unlink()
        repository.write("same.txt", "dirty\n")

    found = await lines_after(spaces, repository, work)
    assert found == dict.fromkeys(("src/app.py", "untracked.txt", "gone.txt"), (None, None))


async def test_a_dirty_file_that_git_restored_is_told(
    spaces: GitWorkspaces, repository: Repository
):
    repository.write("src/app.py", "dirty\n")
    restore = await lines_after(
        spaces, repository, lambda: repository.git("checkout", "--", "src/app.py")
    )
    assert list(restore) == ["src/app.py"]


async def test_a_file_that_was_only_written_again_has_not_changed(
    spaces: GitWorkspaces, repository: Repository
):
    def work():
        repository.write("src/app.py", "something else\n")
        repository.write("src/app.py", FILES["src/app.py"])
        os.utime(repository.top / "README.md", (1, 1))

    assert await lines_after(spaces, repository, work) == {}


async def test_a_moved_file_and_a_moved_folder_are_gone_and_new(
    spaces: GitWorkspaces, repository: Repository
):
    found = await lines_after(
        spaces, repository, lambda: (repository.top / "src").rename(repository.top / "lib")
    )
    assert found == {
        "src/app.py": (0, 2),
        "src/other.py": (0, 1),
        "lib/app.py": (2, 0),
        "lib/other.py": (1, 0),
    }


async def test_a_mode_is_a_change(spaces: GitWorkspaces, repository: Repository):
    app = repository.top / "src/app.py"
    assert await lines_after(spaces, repository, lambda: app.chmod(0o755)) == {"src/app.py": (0, 0)}


@pytest.mark.parametrize("branch", [False, True])
async def test_a_commit_hides_nothing(
    spaces: GitWorkspaces, repository: Repository, *, branch: bool
):
    def work():
        if branch:
            repository.git("checkout", "--quiet", "-b", "elsewhere")
        repository.write("src/app.py", "one\n")
        repository.write("new.txt")
        repository.commit()

    assert await lines_after(spaces, repository, work) == {
        "src/app.py": (0, 1),
        "new.txt": (1, 0),
    }


async def test_a_staged_file_and_a_stash_are_told_by_what_is_in_the_folder(
    spaces: GitWorkspaces, repository: Repository
):
    repository.write("src/app.py", "to be stashed\n")

    def work():
        repository.git("stash")
        repository.write("src/other.py", "staged\n")
        repository.git("add", "--all")

    assert list(await lines_after(spaces, repository, work)) == ["src/app.py", "src/other.py"]


async def test_what_git_ignores_is_not_seen(spaces: GitWorkspaces, repository: Repository):
    repository.write("build/old.o")

    def work():
        repository.write("build/new.o")
        repository.write("run.log")
        repository.write(".goent/evals/run/index.jsonl")
        repository.write("src/__pycache__/app.cpython-311.pyc")  # git was not told to ignore them
        repository.write("node_modules/left/index.js")

    assert await lines_after(spaces, repository, work) == {}


def test_what_was_there_before_has_no_time_of_its_own(repository: Repository):
    """So a file that is only no longer ignored is not taken for a new one."""
    path = os.fsencode(repository.top / "src/app.py")
    found = os.lstat(path)
    state = (found.st_mode, 0, 0, found.st_ctime_ns, 0)
    assert changed_at(path, state, found.st_ctime) == (found.st_ctime_ns / 1e9, True)
    assert changed_at(path, state, found.st_ctime + 100) == (None, False)
    assert changed_at(path, None, (repository.top / "src").stat().st_mtime)[1] is False


async def test_what_is_no_longer_ignored_is_not_new(spaces: GitWorkspaces, repository: Repository):
    """It lies in a folder that changed, too; only its own time tells that it did not."""
    old = repository.write("build/old.o")
    while time.time() - CLOCK_LAG <= old.stat().st_ctime:  # noqa: ASYNC110 (a clock announces nothing)
        await anyio.sleep(0.01)

    def work():
        repository.write(".gitignore", "*.log\n")
        repository.write("build/new.o")

    assert set(await lines_after(spaces, repository, work)) == {".gitignore", "build/new.o"}


async def test_a_file_without_a_newer_time_than_its_folders_was_moved_there(
    spaces: GitWorkspaces, repository: Repository, tmp_path: Path
):
    away = tmp_path / "away"
    away.mkdir()
    (away / "moved.txt").write_text("moved\n")
    while time.time() - CLOCK_LAG <= (away / "moved.txt").stat().st_ctime:  # noqa: ASYNC110 (the same)
        await anyio.sleep(0.01)
    found = await between(spaces, repository.top, lambda: away.rename(repository.top / "here"))
    (moved,) = found.files
    assert (Path(moved.path).name, moved.exact) == ("moved.txt", False)


async def test_the_time_of_a_change_is_the_files_own_or_that_of_its_folder(
    spaces: GitWorkspaces, repository: Repository
):
    def work():
        repository.write("src/app.py", "changed\n")
        (repository.top / "src/other.py").unlink()

    changes = await between(spaces, repository.top, work)
    told = {Path(each.path).name: each for each in changes.files}
    app, other = told["app.py"], told["other.py"]
    assert app.exact and app.at == (repository.top / "src/app.py").stat().st_ctime_ns / 1e9
    assert not other.exact and other.at == (repository.top / "src").stat().st_mtime_ns / 1e9


async def test_a_subfolder_is_seen_with_all_of_its_project(
    spaces: GitWorkspaces, repository: Repository
):
    changes = await between(
        spaces,
        repository.top,
        lambda: repository.write("README.md", "changed\n"),
        cwd=repository.top / "src",
    )
    assert list(lines(changes, repository.top)) == ["README.md"]


async def test_nothing_outside_the_project_is_looked_at(
    spaces: GitWorkspaces, repository: Repository
):
    """The project may be a folder of a larger checkout."""
    project = repository.top / "src"

    def work():
        repository.write("README.md", "changed\n")
        repository.write("src/app.py", "changed\n")
        repository.write("src/new.py")

    found = lines(await between(spaces, project, work), project)
    assert found == {"app.py": (1, 2), "new.py": (1, 0)}


async def test_repositories_inside_are_looked_into(
    spaces: GitWorkspaces, repository: Repository, tmp_path: Path
):
    module = a_repository(tmp_path / "module", files={"lib.py": "lib\n"})
    add = ("-c", "protocol.file.allow=always", "submodule", "--quiet", "add")
    repository.git(*add, module.top, "vendor/module")
    repository.commit("a submodule")
    nested = a_repository(repository.top / "nested", files={"in.py": "in\n"})

    def work():
        repository.write("vendor/module/lib.py", "changed\n")
        nested.write("in.py", "changed\n")
        nested.write("fresh.py")
        a_repository(repository.top / "made", files={"x.py": "x\n"})

    found = await lines_after(spaces, repository, work)
    assert found == {
        "vendor/module/lib.py": (1, 1),
        "nested/in.py": (1, 1),
        "nested/fresh.py": (1, 0),
        "made": (None, None),
    }


async def test_a_linked_checkout_is_one(
    spaces: GitWorkspaces, repository: Repository, tmp_path: Path
):
    linked = tmp_path / "linked"
    repository.git("worktree", "add", "--quiet", linked)

    def work():
        (linked / "README.md").write_text("changed\n")
        repository.write("README.md", "not here\n")

    assert lines(await between(spaces, linked, work), linked) == {"README.md": (1, 1)}


async def test_a_repository_without_a_commit_has_untracked_files(
    spaces: GitWorkspaces, tmp_path: Path
):
    fresh = Repository(tmp_path / "fresh")
    fresh.top.mkdir()
    fresh.git("init", "--quiet")
    fresh.write("a.txt")
    fresh.write("b.txt")
    found = await lines_after(spaces, fresh, lambda: fresh.write("a.txt", "changed\n"))
    assert found == {"a.txt": (None, None)}


async def test_names_may_be_anything(spaces: GitWorkspaces, repository: Repository):
    names = (b"caf\xe9.txt", b"two\nlines.txt", b":(top)x", b"a b.txt", b"*.txt")
    for name in names:
        repository.write(name)
    repository.commit()

    def work():
        for name in names:
            repository.write(name, "changed\n")

    found = await lines_after(spaces, repository, work)
    assert found == dict.fromkeys(
        ("caf\\xe9.txt", "two\nlines.txt", ":(top)x", "a b.txt", "*.txt"), (1, 1)
    )


async def test_the_users_index_and_refs_are_untouched_whatever_is_in_it(
    spaces: GitWorkspaces, repository: Repository
):
    repository.git("config", "core.splitIndex", "true")
    repository.git("update-index", "--split-index", "--untracked-cache")
    for name in FILES:  # the index knows other times
        os.utime(repository.top / name, (1, 1))
    repository.write("staged.txt")
    repository.git("add", "staged.txt")
    before = repository.state()
    objects = sorted((repository.top / ".git").rglob("*"))
    found = await lines_after(spaces, repository, lambda: repository.write("src/app.py", "1\n"))
    repository.write("src/app.py", FILES["src/app.py"])
    assert list(found) == ["src/app.py"]
    assert repository.state() == before
    assert sorted((repository.top / ".git").rglob("*")) == objects


async def test_a_file_that_cannot_be_read_is_seen_all_the_same(
    spaces: GitWorkspaces, repository: Repository
):
    repository.write("src/secret.txt").chmod(0)
    os.mkfifo(repository.top / "src/pipe")

    def work():
        (repository.top / "src/secret.txt").unlink()
        repository.write("src/app.py", "changed\n").chmod(0)

    found = await lines_after(spaces, repository, work)
    (repository.top / "src/app.py").chmod(0o644)
    assert {"src/secret.txt", "src/app.py"} == found.keys()


@pytest.mark.ordinary_user
async def test_a_folder_that_is_not_ours_to_read_is_passed_over(tmp_path: Path):
    plain = tmp_path / "plain"
    for top in (plain, a_repository(tmp_path / "checkout").top):
        (top / "closed").mkdir(parents=True)
        (top / "closed").chmod(0)
        spaces = GitWorkspaces(tmp_path / "state", environ=lambda: Repository(plain).environ)
        changes = await between(spaces, top, (top / "new.txt").touch)
        (top / "closed").chmod(0o700)
        assert lines(changes, top) == {"new.txt": (0, 0)}


async def test_a_damaged_index_is_told_and_not_guessed_about(
    spaces: GitWorkspaces, repository: Repository
):
    (repository.top / ".git/index").write_bytes(b"not an index")
    changes = await between(spaces, repository.top, lambda: repository.write("new.txt"))
    assert not changes.files
    assert "index" in changes.unseen and str(repository.top) in changes.unseen


async def test_a_private_index_that_is_removed_meanwhile_is_told(
    spaces: GitWorkspaces, repository: Repository, tmp_path: Path
):
    def remove():
        (index,) = (tmp_path / "state").glob("observed-*/index-0")
        index.unlink()

    changes = await between(spaces, repository.top, remove)
    assert not changes.files and "the copy of its index is gone" in changes.unseen


async def test_a_repository_that_is_removed_meanwhile_is_told(
    spaces: GitWorkspaces, repository: Repository
):
    changes = await between(
        spaces, repository.top, lambda: (repository.top / ".git").rename(repository.top / "x")
    )
    assert not changes.files and str(repository.top) in changes.unseen


async def test_a_folder_without_git_is_walked(spaces: GitWorkspaces, tmp_path: Path):
    top = tmp_path / "plain"
    (top / "deep").mkdir(parents=True)
    (top / "node_modules").mkdir()
    for name in ("a.txt", "deep/b.txt", "gone.txt", "node_modules/x.js"):
        (top / name).write_text("a\n")

    def work():
        (top / "deep/b.txt").write_text("b\nb\n")
        (top / "gone.txt").unlink()
        (top / "new.txt").write_text("1\n2\n")
        (top / "node_modules/x.js").write_text("b\nb\n")

    assert lines(await between(spaces, top, work), top) == {
        "deep/b.txt": (None, None),
        "gone.txt": (None, None),
        "new.txt": (2, 0),
    }


async def test_a_repository_in_a_folder_without_git_is_asked(spaces: GitWorkspaces, tmp_path: Path):
    inner = a_repository(tmp_path / "all" / "inner", files=FILES)

    def work():
        inner.write("src/app.py", "changed\n")
        inner.write("build/x.o")

    found = lines(await between(spaces, tmp_path / "all", work, cwd=inner.top), tmp_path / "all")
    assert found == {"inner/src/app.py": (1, 2)}


async def test_what_is_told_is_bounded_and_the_rest_counted(
    spaces: GitWorkspaces, repository: Repository
):
    def work():
        for number in range(MAX_REPORTED + 7):
            repository.write(f"many/{number}.txt", "")

    changes = await between(spaces, repository.top, work)
    assert (len(changes.files), changes.more) == (MAX_REPORTED, 7)
    assert isinstance(changes.files[0], ObservedChange)


async def test_no_private_index_stays(
    spaces: GitWorkspaces, repository: Repository, tmp_path: Path
):
    await between(spaces, repository.top, lambda: None)
    left = tmp_path / "state" / "observed-1-0-killed"
    left.mkdir()
    (left / "index-0").write_text("")
    await spaces.remove_finished()
    assert list((tmp_path / "state").iterdir()) == []


async def test_a_repository_inside_that_would_run_programs_does_not(
    spaces: GitWorkspaces, repository: Repository, tmp_path: Path
):
    nested = a_repository(repository.top / "nested", files={".gitattributes": "* filter=evil\n"})
    for key, command in (
        ("filter.evil.clean", f"echo clean >>{tmp_path}/sprung; cat"),
        ("core.fsmonitor", f"echo fsmonitor >>{tmp_path}/sprung"),
        ("diff.external", f"echo diff >>{tmp_path}/sprung"),
    ):
        nested.git("config", key, command)
    found = await lines_after(spaces, repository, lambda: nested.write("README.md", "changed\n"))
    assert found == {"nested/README.md": (1, 1)}
    assert not (tmp_path / "sprung").exists()
