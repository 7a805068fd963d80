import os
import stat
from pathlib import Path

import anyio
import pytest
from real_git import OrderFor, Repository

from goent.domain.errors import RequestError, WorkspaceLost
from goent.domain.types import FileChange
from goent.git.git_workspaces import GitWorkspaces

pytestmark = pytest.mark.anyio


async def test_a_worktree_is_outside_the_repository_and_private(
    repository: Repository, spaces: GitWorkspaces, order: OrderFor
):
    before = repository.state()
    space = await spaces.prepare(order())
    assert space.branch == "go-ent/solo/w-abcde"
    assert space.base == repository.git("rev-parse", "HEAD")
    assert (Path(space.path) / "src/app.py").read_text() == "one\ntwo\n"
    assert not Path(space.path).is_relative_to(repository.top)
    assert stat.S_IMODE(Path(space.path).parent.stat().st_mode) == 0o700
    assert repository.state() == before


async def test_work_is_kept_on_the_branch_and_the_checkout_stays_as_it_was(
    repository: Repository, spaces: GitWorkspaces, order: OrderFor
):
    before = repository.state()
    space = await spaces.prepare(order())
    top = Path(space.path)
    (top / "src/app.py").write_text("one\n2\nthree\n")
    (top / "new.txt").write_text("new\n")
    work = await spaces.commit_work(space, "what was done")
    assert set(work.files) == {
        FileChange(path="src/app.py", added=2, removed=1),
        FileChange(path="new.txt", added=1, removed=0),
    }
    assert repository.git("rev-parse", space.branch) == work.commit
    assert repository.git("log", "--format=%an %s", "-1", space.branch) == "go-ent what was done"
    assert repository.git("show", f"{space.branch}:new.txt") == "new"
    assert repository.state() == before


async def test_to_the_worker_what_was_kept_is_committed(
    repository: Repository, spaces: GitWorkspaces, order: OrderFor
):
    space = await spaces.prepare(order())
    (Path(space.path) / "new.txt").write_text("new\n")
    await spaces.commit_work(space, "kept")
    assert repository.git("status", "--porcelain", cwd=Path(space.path)) == ""


async def test_nothing_new_makes_no_commit(spaces: GitWorkspaces, order: OrderFor):
    space = await spaces.prepare(order())
    work = await spaces.commit_work(space, "nothing")
    assert (work.commit, work.files) == (space.base, ())


async def test_keeping_again_goes_on_from_what_was_kept(
    repository: Repository, spaces: GitWorkspaces, order: OrderFor
):
    space = await spaces.prepare(order())
    new = Path(space.path) / "new.txt"
    new.write_text("1\n")
    first = await spaces.commit_work(space, "first")
    assert await spaces.commit_work(space, "again") == first
    new.write_text("1\n2\n")
    second = await spaces.commit_work(space, "second")
    assert repository.git("rev-parse", f"{second.commit}^") == first.commit
    assert second.files == (FileChange(path="new.txt", added=2, removed=0),)


async def test_a_rename_a_binary_and_a_mode_are_told(spaces: GitWorkspaces, order: OrderFor):
    space = await spaces.prepare(order())
    top = Path(space.path)
    (top / "src/app.py").rename(top / "src/main.py")
    (top / "picture").write_bytes(bytes(range(256)))
    (top / "README.md").chmod(0o755)
    work = await spaces.commit_work(space, "all sorts")
    assert set(work.files) == {
        FileChange(path="src/app.py => src/main.py", added=0, removed=0),
        FileChange(path="picture", added=None, removed=None),
        FileChange(path="README.md", added=0, removed=0),
    }


NAMES = (b"with space", b"quo\"te'", b"new\nline", b"caf\xe9", b"--option", b"tab\t", "é".encode())


async def test_any_file_name_is_kept_and_told_as_text(
    repository: Repository, spaces: GitWorkspaces, order: OrderFor
):
    repository.write(b"old \xff\n.txt", "one\n")
    repository.commit()
    space = await spaces.prepare(order())
    top = os.fsencode(space.path)
    for name in NAMES:
        Path(os.fsdecode(top + b"/" + name)).write_text("x\n")
    Path(os.fsdecode(top + b"/old \xff\n.txt")).unlink()
    work = await spaces.commit_work(space, "names")
    listed = repository.git("ls-tree", "-z", "--name-only", space.branch)
    assert set(NAMES) <= set(os.fsencode(listed).split(b"\0"))
    told = {change.path for change in work.files}
    assert {"caf\\xe9", "new\nline", "quo\"te'", "with space", "é"} <= told
    assert any(path.startswith("old \\xff\n.txt") for path in told)
    for path in told:
        path.encode()  # no surrogate that JSON could not carry


async def test_a_worker_may_commit_by_itself(
    repository: Repository, spaces: GitWorkspaces, order: OrderFor
):
    space = await spaces.prepare(order())
    top = Path(space.path)
    (top / "own.txt").write_text("own\n")
    repository.git("add", "own.txt", cwd=top)
    repository.git("commit", "-q", "-m", "its own", cwd=top)
    own = repository.git("rev-parse", "HEAD", cwd=top)
    (top / "rest.txt").write_text("rest\n")
    work = await spaces.commit_work(space, "the rest")
    assert {change.path for change in work.files} == {"own.txt", "rest.txt"}
    assert repository.git("rev-parse", f"{space.branch}^") == own


@pytest.mark.parametrize(
    "commands",
    [
        ["switch -q -c elsewhere"],
        ["switch -q --detach", "commit -q -am detached"],
        ["add .", "commit -q -m one", "reset -q --hard HEAD~1", "checkout -q HEAD@{1} -- ."],
        ["add .", "reset -q --soft HEAD"],
        ["switch -q -c elsewhere", "branch -q -D go-ent/solo/w-abcde"],
        ["switch -q -f --orphan lost", "checkout -q main -- ."],
        ["rm -q -r --cached ."],
    ],
)
async def test_the_state_of_the_files_counts_whatever_git_was_told(
    repository: Repository, spaces: GitWorkspaces, order: OrderFor, commands: list[str]
):
    space = await spaces.prepare(order())
    top = Path(space.path)
    (top / "README.md").write_text("changed\n")
    for command in commands:
        repository.git(*command.split(), cwd=top)
    (top / "README.md").write_text("changed\n")
    (top / "new.txt").write_text("new\n")
    work = await spaces.commit_work(space, "as it is")
    assert work.commit == repository.git("rev-parse", space.branch)
    assert {change.path for change in work.files} == {"README.md", "new.txt"}
    assert repository.git("merge-base", space.branch, "main") == space.base
    assert await spaces.release(space) is False


async def test_a_worker_that_goes_back_in_history_is_compared_with_its_base(
    repository: Repository, spaces: GitWorkspaces, order: OrderFor
):
    repository.write("second.txt")
    repository.commit("the second")
    space = await spaces.prepare(order())
    repository.git("reset", "-q", "--hard", "HEAD~1", cwd=Path(space.path))
    work = await spaces.commit_work(space, "went back")
    assert work.files == (FileChange(path="second.txt", added=0, removed=1),)
    assert repository.git("rev-parse", f"{work.commit}^") == space.base


@pytest.mark.parametrize("damage", ["no .git", "other .git", "index", "no index"])
async def test_a_damaged_worktree_is_kept_all_the_same(
    repository: Repository, spaces: GitWorkspaces, order: OrderFor, damage: str
):
    space = await spaces.prepare(order())
    top = Path(space.path)
    git_dir = Path(repository.git("rev-parse", "--absolute-git-dir", cwd=top))
    (top / "new.txt").write_text("new\n")
    if "index" in damage:
        (git_dir / "index").unlink()
    else:
        (top / ".git").unlink()
    if damage == "index":
        (git_dir / "index").write_bytes(b"no index at all")
    if damage == "other .git":
        repository.git("init", "-q", cwd=top)
    work = await spaces.commit_work(space, "kept")
    assert work.files == (FileChange(path="new.txt", added=1, removed=0),)
    assert await spaces.release(space) is False
    assert (top / "new.txt").exists()


async def test_what_git_ignores_is_no_work(
    repository: Repository, spaces: GitWorkspaces, order: OrderFor
):
    repository.write(".gitignore", "*.log\n")
    repository.commit()
    space = await spaces.prepare(order())
    (Path(space.path) / "big.log").write_text("noise\n")
    assert (await spaces.commit_work(space, "nothing")).files == ()
    assert await spaces.release(space) is True


async def test_a_file_that_cannot_be_read_is_told_and_the_rest_is_kept(
    repository: Repository, spaces: GitWorkspaces, order: OrderFor
):
    space = await spaces.prepare(order())
    repository.git("init", "-q", "inner", cwd=Path(space.path))  # no commit: git cannot add it
    (Path(space.path) / "new.txt").write_text("new\n")
    work = await spaces.commit_work(space, "most of it")
    assert [change.path for change in work.files] == ["new.txt"]
    assert "inner" in work.warnings[0]


async def test_a_repository_inside_is_told_and_never_deleted(
    repository: Repository, spaces: GitWorkspaces, order: OrderFor
):
    space = await spaces.prepare(order())
    inner = Path(space.path) / "inner"
    repository.git("init", "-q", "inner", cwd=Path(space.path))
    (inner / "file").write_text("text\n")
    repository.git("add", "file", cwd=inner)
    repository.git("commit", "-q", "-m", "inner", cwd=inner)
    work = await spaces.commit_work(space, "with a repository")
    assert "'inner'" in work.warnings[0]
    repository.git("merge", "-q", "-m", "merged", space.branch)
    assert await spaces.release(space) is False
    assert (inner / "file").exists()


async def test_a_subfolder_is_the_same_subfolder(
    repository: Repository, spaces: GitWorkspaces, order: OrderFor
):
    space = await spaces.prepare(order(cwd=repository.top / "src"))
    assert space.cwd == f"{space.path}/src"
    assert space.origin == str(repository.top)
    (repository.top / "untracked").mkdir()
    other = await spaces.prepare(order("w-other", cwd=repository.top / "untracked"))
    assert Path(other.cwd).is_dir()


async def test_a_start_is_a_commit_of_the_repository(
    repository: Repository, spaces: GitWorkspaces, order: OrderFor
):
    first = repository.git("rev-parse", "HEAD")
    repository.write("second.txt")
    repository.commit()
    space = await spaces.prepare(order(start=first))
    assert space.base == first
    assert not (Path(space.path) / "second.txt").exists()
    with pytest.raises(RequestError, match="no commit 'dead'"):
        await spaces.prepare(order("w-other", start="dead"))


async def test_a_worktree_removed_by_hand_is_told_and_cleared(
    repository: Repository, spaces: GitWorkspaces, order: OrderFor
):
    space, other = await spaces.prepare(order()), await spaces.prepare(order("w-other"))
    (Path(other.path) / "new.txt").write_text("new\n")
    await anyio.Path(space.path).rename(f"{space.path}-elsewhere")
    with pytest.raises(WorkspaceLost, match="was removed"):
        await spaces.commit_work(space, "nothing left")
    assert (await spaces.commit_work(other, "unharmed")).files
    assert await spaces.release(space) is True
    assert "w-abcde" not in repository.git("worktree", "list")
    assert repository.git("branch", "--list", space.branch) == ""


async def test_many_at_once_do_not_get_in_each_others_way(
    repository: Repository, spaces: GitWorkspaces, order: OrderFor, tmp_path: Path
):
    others = GitWorkspaces(tmp_path / "other", environ=lambda: repository.environ)
    async with anyio.create_task_group() as group:
        for number in range(12):
            group.start_soon(spaces.prepare, order(f"w-{number}"))
            group.start_soon(others.prepare, order(f"w-{number}", group="other"))
    assert repository.git("worktree", "list").count("\n") == 24
    assert len(await spaces.list_kept()) == 12


async def test_a_lock_of_somebody_else_is_waited_for(
    repository: Repository, spaces: GitWorkspaces, order: OrderFor
):
    lock = repository.write(".git/refs/heads/go-ent/solo/w-abcde.lock", "")

    async def let_go() -> None:
        await anyio.sleep(0.2)
        lock.unlink()

    async with anyio.create_task_group() as group:
        group.start_soon(let_go)
        await spaces.prepare(order())
    assert [space.worker for space in await spaces.list_kept()] == ["w-abcde"]


async def test_a_branch_that_is_there_already_is_left_alone(
    repository: Repository, spaces: GitWorkspaces, order: OrderFor
):
    repository.git("branch", "go-ent/solo/w-abcde")
    with pytest.raises(RequestError, match="already exists"):
        await spaces.prepare(order())
    assert repository.git("branch", "--list", "go-ent/solo/w-abcde")
    assert await spaces.list_kept() == []


@pytest.mark.parametrize("name", ["../up", "a b", "", ".hidden", "x.lock", "a..b", "-x"])
async def test_a_name_that_git_would_not_take_is_refused(
    spaces: GitWorkspaces, order: OrderFor, name: str
):
    with pytest.raises(RequestError, match="branch's name"):
        await spaces.prepare(order(name))


async def test_what_is_left_of_a_repository_that_is_gone_can_be_removed(
    repository: Repository, spaces: GitWorkspaces, order: OrderFor
):
    space = await spaces.prepare(order())
    (Path(space.path) / "new.txt").write_text("new\n")
    repository.top.rename(repository.top.with_name("elsewhere"))
    assert await spaces.release(space) is False
    (kept,) = await spaces.list_kept()
    assert kept.state == "broken"
    await spaces.remove(kept.worker)
    assert not Path(space.path).exists()


async def test_an_edit_of_the_same_size_in_the_same_moment_is_seen(
    repository: Repository, spaces: GitWorkspaces, order: OrderFor
):
    space = await spaces.prepare(order())
    readme = Path(space.path) / "README.md"
    for text in ("hallo\n", "hullo\n", "hillo\n"):
        readme.write_text(text)
        # git compares seconds, and so does not trust an index about files of its own second.
        await anyio.sleep(1.1)
        work = await spaces.commit_work(space, "as big as before")
        assert repository.git("show", f"{work.commit}:README.md") == text.strip()
