import shutil
from pathlib import Path

import pytest
from real_git import OrderFor, Repository, a_repository

from goent.domain.types import FileChange
from goent.git.git_workspaces import GitWorkspaces

pytestmark = pytest.mark.anyio
LOCAL = ("-c", "protocol.file.allow=always")


@pytest.fixture
def library(tmp_path: Path) -> Repository:
    return a_repository(tmp_path / "library", files={"lib.py": "lib\n"})


@pytest.fixture
def repository(tmp_path: Path, repository: Repository, library: Repository) -> Repository:
    """With a submodule that has one, too; where they came from is gone."""
    middle = a_repository(tmp_path / "middle")
    middle.git(*LOCAL, "submodule", "--quiet", "add", library.top, "deep")
    middle.commit()
    repository.git(*LOCAL, "submodule", "--quiet", "add", middle.top, "vendor/middle")
    repository.git(*LOCAL, "submodule", "--quiet", "update", "--init", "--recursive")
    repository.commit()
    shutil.rmtree(middle.top)
    shutil.rmtree(library.top)
    return repository


async def test_submodules_are_there_without_any_server(
    repository: Repository, spaces: GitWorkspaces, order: OrderFor
) -> None:
    before = repository.state()
    space = await spaces.prepare(order())
    assert (Path(space.path) / "vendor/middle/deep/lib.py").read_text() == "lib\n"
    assert space.warnings == ()
    assert (await spaces.commit_work(space, "nothing")).files == ()
    assert repository.state() == before
    assert await spaces.release(space) is True
    inside = repository.top / "vendor/middle"
    assert repository.git("branch", "--list", "go-ent/*", cwd=inside) == ""
    assert repository.git("worktree", "list", cwd=inside).count("\n") == 0


async def test_work_in_submodules_is_kept_and_never_deleted_unmerged(
    repository: Repository, spaces: GitWorkspaces, order: OrderFor
) -> None:
    space = await spaces.prepare(order())
    (Path(space.path) / "vendor/middle/deep/lib.py").write_text("lib\nmore\n")
    assert await spaces.release(space) is False
    work = await spaces.commit_work(space, "inside")
    told = {change.path for change in work.files}
    assert told == {"vendor/middle", "vendor/middle/deep", "vendor/middle/deep/lib.py"}
    assert FileChange(path="vendor/middle/deep/lib.py", added=1, removed=0) in work.files
    deep = repository.top / "vendor/middle/deep"
    assert repository.git("show", f"{space.branch}:lib.py", cwd=deep) == "lib\nmore"
    repository.git("merge", "-q", space.branch)
    assert await spaces.release(space) is False
    repository.git("submodule", "--quiet", "update", "--no-fetch", "--recursive")
    assert (deep / "lib.py").read_text() == "lib\nmore\n"
    assert await spaces.release(space) is True


async def test_a_submodule_that_the_user_does_not_have_is_empty_as_there(
    repository: Repository, spaces: GitWorkspaces, order: OrderFor
) -> None:
    repository.git("submodule", "--quiet", "deinit", "--force", "vendor/middle")
    space = await spaces.prepare(order())
    assert list((Path(space.path) / "vendor/middle").iterdir()) == []
    assert space.warnings == ()
    assert (await spaces.commit_work(space, "nothing")).files == ()


async def test_a_commit_of_a_submodule_that_is_not_there_is_told(
    repository: Repository, spaces: GitWorkspaces, order: OrderFor
) -> None:
    unknown = f"160000,{'ab' * 20},vendor/middle"
    repository.git("update-index", "--cacheinfo", unknown)
    repository.git("commit", "-q", "-m", "from somewhere else")
    space = await spaces.prepare(order())
    assert "'vendor/middle' stays empty" in space.warnings[0]
    assert (await spaces.commit_work(space, "nothing")).files == ()
    assert await spaces.release(space) is True


async def test_a_submodule_can_be_removed_by_the_worker(
    repository: Repository, spaces: GitWorkspaces, order: OrderFor
) -> None:
    space = await spaces.prepare(order(cwd=repository.top / "vendor"))
    shutil.rmtree(Path(space.path) / "vendor")
    work = await spaces.commit_work(space, "without it")
    assert [change.path for change in work.files] == ["vendor/middle"]
