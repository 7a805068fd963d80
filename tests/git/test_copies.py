import os
import socket
import stat
from pathlib import Path

import anyio
import pytest
from real_git import HOME, OrderFor, Repository, orders_for

from goent.domain.errors import RequestError
from goent.domain.types import FileChange
from goent.git.git_workspaces import GitWorkspaces

pytestmark = pytest.mark.anyio


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One that no git knows."""
    folder = tmp_path / "plain"
    (folder / "src").mkdir(parents=True)
    (folder / "src/app.py").write_text("one\ntwo\n")
    (folder / "tool").write_text("#!/bin/sh\n")
    (folder / "tool").chmod(0o755)
    (folder / "link").symlink_to("src/app.py")
    return folder


@pytest.fixture
def spaces(tmp_path: Path) -> GitWorkspaces:
    environ = {"PATH": os.environ["PATH"], **HOME}
    return GitWorkspaces(tmp_path / "state", environ=lambda: environ)


@pytest.fixture
def order(folder: Path) -> OrderFor:
    return orders_for(folder)


async def test_a_copy_has_the_files_and_the_folder_stays_as_it_was(
    spaces: GitWorkspaces, order: OrderFor, folder: Path
) -> None:
    space = await spaces.prepare(order(kind="copy", cwd=folder))
    top = Path(space.path)
    assert (top / "src/app.py").read_text() == "one\ntwo\n"
    assert stat.S_IMODE((top / "tool").stat().st_mode) == 0o755
    assert (top / "link").readlink() == Path("src/app.py")
    assert stat.S_IMODE(top.parent.stat().st_mode) == 0o700
    (top / "src/app.py").write_text("one\n")
    (top / "new.txt").write_text("new\n")
    work = await spaces.commit_work(space, "work")
    assert set(work.files) == {
        FileChange(path="src/app.py", added=0, removed=1),
        FileChange(path="new.txt", added=1, removed=0),
    }
    assert sorted(path.name for path in folder.iterdir()) == ["link", "src", "tool"]
    assert (folder / "src/app.py").read_text() == "one\ntwo\n"


async def test_copies_of_one_folder_begin_with_one_commit(
    spaces: GitWorkspaces, order: OrderFor
) -> None:
    one = await spaces.prepare(order("w-1", kind="copy"))
    await anyio.sleep(1.1)  # another second, another date
    other = await spaces.prepare(order("w-2", kind="copy"))
    assert (one.repository, one.base) == (other.repository, other.base)


async def test_a_copy_can_start_from_anothers_work(spaces: GitWorkspaces, order: OrderFor) -> None:
    first = await spaces.prepare(order("w-1", kind="copy"))
    (Path(first.path) / "new.txt").write_text("new\n")
    (Path(first.path) / "tool").unlink()
    work = await spaces.commit_work(first, "first")
    second = await spaces.prepare(order("w-2", kind="copy", start=work.commit))
    assert second.base == work.commit
    assert (Path(second.path) / "new.txt").exists()
    assert not (Path(second.path) / "tool").exists()
    assert (await spaces.commit_work(second, "second")).files == ()
    with pytest.raises(RequestError, match="no commit 'dead'"):
        await spaces.prepare(order("w-3", kind="copy", start="dead"))


async def test_what_is_no_file_is_not_copied(
    spaces: GitWorkspaces, order: OrderFor, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        monkeypatch.chdir(folder)  # a socket's path may not be long
        listener.bind("socket")
        space = await spaces.prepare(order(kind="copy"))
    assert sorted(path.name for path in Path(space.path).iterdir()) == [
        *(".git", "link", "src", "tool")
    ]


async def test_copies_go_when_clean_and_take_their_repository_along(
    spaces: GitWorkspaces, order: OrderFor
) -> None:
    one = await spaces.prepare(order("w-1", kind="copy"))
    other = await spaces.prepare(order("w-2", kind="copy"))
    (Path(other.path) / "new.txt").write_text("new\n")
    assert await spaces.release(one) is True
    assert Path(one.repository).exists()
    assert await spaces.release(other) is False
    gone = await spaces.remove("w-2")
    assert (gone.state, Path(gone.path).exists()) == ("unmerged", False)
    assert not Path(one.repository).exists()


async def test_what_is_carried_is_in_the_copy_and_in_no_commit(
    spaces: GitWorkspaces, order: OrderFor, folder: Path
) -> None:
    (folder / ".env").write_text("KEY=1\n")
    space = await spaces.prepare(order(kind="copy", carry=(".env",)))
    (Path(space.path) / ".env").write_text("KEY=2\n")
    assert (await spaces.commit_work(space, "nothing")).files == ()


async def test_a_checkout_can_be_copied_too_whole_and_without_its_repository(
    spaces: GitWorkspaces, order: OrderFor, repository: Repository
) -> None:
    repository.write(".gitignore", "built/\n")
    repository.commit()
    repository.write("built/app", "made\n")
    repository.write("README.md", "not committed\n")
    before = repository.state()
    space = await spaces.prepare(order(kind="copy", cwd=repository.top / "src"))
    top = Path(space.path)
    assert (top / "built/app").read_text() == "made\n"
    assert (top / "README.md").read_text() == "not committed\n"
    assert space.cwd == str(top / "src")
    (top / "src/new.py").write_text("new\n")
    assert [change.path for change in (await spaces.commit_work(space, "work")).files] == [
        "src/new.py"
    ]
    assert repository.state() == before
    assert repository.git("branch", "--list", "go-ent/*") == ""


async def test_a_folder_around_go_ents_own_state_is_refused(
    spaces: GitWorkspaces, order: OrderFor, tmp_path: Path
) -> None:
    (tmp_path / "state").mkdir()
    with pytest.raises(RequestError, match="it contains go-ent's own state"):
        await spaces.prepare(order(kind="copy", cwd=tmp_path))


async def test_where_there_is_no_git_a_copy_is_what_fits(
    spaces: GitWorkspaces, folder: Path, repository: Repository
) -> None:
    assert await spaces.default_kind(folder) == "copy"
    assert await spaces.default_kind(repository.top / "src") == "worktree"
