import os
import stat
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace
from real_git import OrderFor, Repository, a_repository

from goent.domain.errors import EnvironmentTrouble, GoentError, RequestError
from goent.domain.types import FileChange
from goent.domain.workspace import WorkspaceKind
from goent.git import workspace_records
from goent.git.git_command import Git, GitFailed
from goent.git.git_workspaces import GitWorkspaces

pytestmark = pytest.mark.anyio


def dirty(repository: Repository) -> None:
    """Staged, not staged, removed and untracked; ignored too."""
    repository.write(".gitignore", "*.log\n")
    repository.write("gone.txt")
    repository.commit()
    repository.write("staged.txt", "staged\n")
    repository.git("add", "staged.txt")
    repository.write("src/app.py", "changed\n")
    repository.write("untracked.txt", "untracked\n")
    repository.write("noise.log", "noise\n")
    (repository.top / "gone.txt").unlink()


async def test_uncommitted_changes_go_along_if_asked_and_nothing_of_the_users_is_touched(
    repository: Repository, spaces: GitWorkspaces, order: OrderFor
) -> None:
    repository.write("kept.txt")
    repository.commit()
    repository.write("kept.txt", "stashed\n")
    repository.git("stash")
    dirty(repository)
    before = repository.state(), repository.git("stash", "list")
    space = await spaces.prepare(order(uncommitted=True))
    top = Path(space.path)
    assert (top / "staged.txt").read_text() == "staged\n"
    assert (top / "src/app.py").read_text() == "changed\n"
    assert (top / "untracked.txt").read_text() == "untracked\n"
    assert not (top / "gone.txt").exists()
    assert not (top / "noise.log").exists()
    assert repository.git("rev-parse", f"{space.base}^") == repository.git("rev-parse", "HEAD")
    assert (await spaces.commit_work(space, "nothing")).files == ()
    assert (repository.state(), repository.git("stash", "list")) == before


async def test_uncommitted_changes_stay_out_if_nobody_asks(
    repository: Repository, spaces: GitWorkspaces, order: OrderFor
) -> None:
    dirty(repository)
    space = await spaces.prepare(order())
    assert (Path(space.path) / "src/app.py").read_text() == "one\ntwo\n"
    assert (Path(space.path) / "gone.txt").exists()


async def test_all_of_a_swarm_start_from_one_commit(
    repository: Repository, spaces: GitWorkspaces, order: OrderFor
) -> None:
    clean = await spaces.head(repository.top)
    assert clean == (str(repository.top / ".git"), repository.git("rev-parse", "HEAD"))
    assert await spaces.head(repository.top / "src", uncommitted=True) == clean
    dirty(repository)
    _, base = await spaces.head(repository.top / "src", uncommitted=True)
    repository.write("src/app.py", "changed again\n")
    space = await spaces.prepare(order(start=base, uncommitted=True))
    assert (Path(space.path) / "src/app.py").read_text() == "changed\n"


async def test_a_repository_with_no_commit_is_refused_with_what_to_do(
    tmp_path: Path, repository: Repository, spaces: GitWorkspaces, order: OrderFor
) -> None:
    empty = Repository(tmp_path / "empty")
    empty.top.mkdir()
    empty.git("init", "-q", "-b", "main")
    empty.write("first.txt")
    for refused in (
        spaces.head(empty.top),
        spaces.prepare(order(cwd=empty.top)),
    ):
        with pytest.raises(RequestError, match=r"has no commit yet.*make a first commit"):
            await refused
    space = await spaces.prepare(order(cwd=empty.top, uncommitted=True))
    assert (Path(space.path) / "first.txt").exists()
    assert empty.git("branch", "--list", "main") == ""
    del repository


async def test_a_bare_repository_gives_worktrees_of_its_head(
    tmp_path: Path, repository: Repository, spaces: GitWorkspaces, order: OrderFor
) -> None:
    bare = tmp_path / "bare.git"
    repository.git("clone", "-q", "--bare", repository.top, bare)
    space = await spaces.prepare(order(cwd=bare))
    assert (Path(space.cwd) / "src/app.py").exists()
    (Path(space.path) / "new.txt").write_text("new\n")
    assert (await spaces.commit_work(space, "work")).files
    with pytest.raises(RequestError, match=r"bare repository.*leave `uncommitted` out"):
        await spaces.prepare(order("w-2", cwd=bare, uncommitted=True))
    with pytest.raises(RequestError, match="has no untracked files"):
        await spaces.prepare(order("w-2", cwd=bare, carry=("config",)))
    with pytest.raises(RequestError, match="inside a git directory"):
        await spaces.prepare(order("w-2", cwd=bare / "refs"))
    with pytest.raises(RequestError, match="inside a git directory"):
        await spaces.prepare(order("w-2", cwd=repository.top / ".git"))
    with pytest.raises(RequestError, match=r"bare repository.*use isolation 'worktree'"):
        await spaces.prepare(order("w-2", cwd=bare, kind="copy"))


async def test_a_shallow_repository_works(
    tmp_path: Path, repository: Repository, spaces: GitWorkspaces, order: OrderFor
) -> None:
    repository.write("second.txt")
    repository.commit()
    shallow = tmp_path / "shallow"
    repository.git("clone", "-q", "--depth=1", f"file://{repository.top}", shallow)
    space = await spaces.prepare(order(cwd=shallow))
    (Path(space.path) / "new.txt").write_text("new\n")
    work = await spaces.commit_work(space, "work")
    assert work.files == (FileChange(path="new.txt", added=1, removed=0),)


@pytest.mark.parametrize("cone", ["--cone", "--no-cone"])
async def test_a_sparse_checkout_gives_sparse_worktrees(
    repository: Repository, spaces: GitWorkspaces, order: OrderFor, cone: str
) -> None:
    repository.write("docs/page.md")
    repository.commit()
    repository.git("sparse-checkout", "set", cone, "src" if cone == "--cone" else "/src/")
    before = repository.state()
    space = await spaces.prepare(order())
    top = Path(space.path)
    assert (top / "src/app.py").exists()
    assert not (top / "docs").exists()
    assert (await spaces.commit_work(space, "nothing")).files == ()
    (top / "docs").mkdir()
    (top / "docs/new.md").write_text("new\n")
    work = await spaces.commit_work(space, "outside of what is checked out")
    assert work.files == (FileChange(path="docs/new.md", added=1, removed=0),)
    repository.write("src/app.py", "changed\n")
    other = await spaces.prepare(order("w-2", uncommitted=True))
    assert (Path(other.path) / "src/app.py").read_text() == "changed\n"
    assert repository.git("diff", "--name-only", "HEAD", other.base) == "src/app.py"
    repository.write("src/app.py", "one\ntwo\n")
    assert repository.state() == before


async def test_a_worktree_of_the_users_own_is_a_place_to_start_from(
    tmp_path: Path, repository: Repository, spaces: GitWorkspaces, order: OrderFor
) -> None:
    own = tmp_path / "own"
    repository.git("worktree", "add", "-q", "-b", "feature", own)
    (own / "new.txt").write_text("new\n")
    repository.git("add", ".", cwd=own)
    repository.git("commit", "-q", "-m", "feature", cwd=own)
    space = await spaces.prepare(order(cwd=own))
    assert (Path(space.path) / "new.txt").exists()
    assert space.repository == str(repository.top / ".git")


async def test_a_folder_with_an_odd_name_can_have_worktrees(
    tmp_path: Path, spaces: GitWorkspaces, order: OrderFor
) -> None:
    odd = a_repository(tmp_path / 'it\'s a "folder"\nwith é', files={"a b/c": "x\n"})
    space = await spaces.prepare(order(cwd=odd.top / "a b"))
    assert (space.origin, space.cwd) == (str(odd.top), f"{space.path}/a b")
    (Path(space.cwd) / "c").write_text("y\n")
    assert [change.path for change in (await spaces.commit_work(space, "work")).files] == ["a b/c"]


async def test_a_folder_whose_name_is_no_text_is_refused(
    tmp_path: Path, spaces: GitWorkspaces, order: OrderFor
) -> None:
    odd = a_repository(Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")))
    with pytest.raises(RequestError, match="is not UTF-8"):
        await spaces.prepare(order(cwd=odd.top))


async def test_what_is_carried_is_copied_and_never_committed(
    repository: Repository, spaces: GitWorkspaces, order: OrderFor
) -> None:
    repository.write(".gitignore", "*.secret\n")
    repository.commit()
    repository.write(".env", "KEY=1\n").chmod(0o600)
    repository.write("a.secret", "s\n")
    repository.write("settings/one", "1\n")
    carry = (".env", "a.secret", "settings", "README.md")
    space = await spaces.prepare(order(carry=carry, uncommitted=True))
    top = Path(space.path)
    assert stat.S_IMODE((top / ".env").stat().st_mode) == 0o600
    assert (top / "settings/one").read_text() == "1\n"
    (top / ".env").write_text("KEY=2\n")
    (top / "settings/two").write_text("2\n")
    repository.git("add", "--all", "--force", cwd=top)
    repository.git("commit", "-q", "-m", "all of it", cwd=top)
    (top / "README.md").write_text("changed\n")
    work = await spaces.commit_work(space, "work")
    assert [change.path for change in work.files] == ["README.md"]
    assert (repository.top / ".env").read_text() == "KEY=1\n"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("missing", "does not exist"),
        ("x" * 5000, "does not exist"),
        ("../outside", "is not a path from the top"),
        ("/etc/passwd", "is not a path from the top"),
        (".git/config", "is not a path from the top"),
        ("", "is not a path from the top"),
        ("way-out/secret", "leads out"),
    ],
)
async def test_what_cannot_be_carried_is_refused(
    repository: Repository, spaces: GitWorkspaces, order: OrderFor, name: str, words: str
) -> None:
    (repository.top.parent / "outside").mkdir()
    (repository.top.parent / "outside/secret").write_text("s\n")
    (repository.top / "way-out").symlink_to("../outside")
    with pytest.raises(RequestError, match=words):
        await spaces.prepare(order(carry=(name,)))
    assert await spaces.list_kept() == []


Stand_in = Callable[[str], GitWorkspaces]


@pytest.fixture
def with_git(tmp_path: Path, repository: Repository) -> Stand_in:
    """A git that first runs a line of shell."""

    def with_git_(line: str) -> GitWorkspaces:
        program = tmp_path / "bin" / "git"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\n{line}\nexec "$REAL" "$@"\n')
        program.chmod(0o755)
        real = repository.environ["PATH"]
        environ = {**repository.environ, "PATH": f"{program.parent}:{real}", "REAL": "/usr/bin/git"}
        return GitWorkspaces(tmp_path / "state", environ=lambda: environ)

    return with_git_


async def test_a_git_that_is_too_old_is_named(with_git: Stand_in, order: OrderFor) -> None:
    spaces = with_git("echo git version 2.30.2; exit")
    with pytest.raises(EnvironmentTrouble, match=r"2\.38 or newer is needed.*2\.30\.2"):
        await spaces.prepare(order())
    with pytest.raises(EnvironmentTrouble, match=r"2\.38 or newer"):
        await spaces.check(order().cwd, "copy")


async def test_a_git_that_is_missing_is_named(tmp_path: Path, order: OrderFor) -> None:
    spaces = GitWorkspaces(tmp_path / "state", environ=lambda: {"PATH": str(tmp_path)})
    for kind in ("worktree", "copy"):
        with pytest.raises(EnvironmentTrouble, match=r"git 2\.38 or newer is needed.*'git'"):
            await spaces.prepare(order(kind=kind))


FULL = "echo 'error: unable to write file: No space left on device' >&2; exit 128"


@pytest.mark.parametrize("when", ["worktree add", "reset", "halfway"])
async def test_a_full_disk_is_told_and_leaves_nothing(
    with_git: Stand_in, order: OrderFor, repository: Repository, when: str
) -> None:
    step = "reset" if when == "halfway" else when
    half = "echo half > half; " if when == "halfway" else ""
    spaces = with_git(f'case "$*" in *" {step} "*) {half}{FULL};; esac')
    with pytest.raises(EnvironmentTrouble, match=r"No space left.*go-ent gc"):
        await spaces.prepare(order())
    assert await spaces.list_kept() == []
    assert repository.git("branch", "--list", "go-ent/*") == ""
    assert repository.git("worktree", "list").count("\n") == 0
    assert not (spaces_root := repository.top.parent / "state/worktrees/solo").exists(), spaces_root


async def test_a_full_disk_while_keeping_is_told_and_the_files_stay(
    with_git: Stand_in, order: OrderFor, tmp_path: Path
) -> None:
    full = tmp_path / "full"
    spaces = with_git(f'[ -e {full} ] && case "$*" in *" add "*) {FULL};; esac')
    space = await spaces.prepare(order())
    (Path(space.path) / "new.txt").write_text("new\n")
    full.touch()
    with pytest.raises(EnvironmentTrouble, match="No space left"):
        await spaces.commit_work(space, "work")
    with pytest.raises(GoentError):
        await spaces.release(space)
    full.unlink()
    assert (await spaces.commit_work(space, "work")).files


async def test_a_worktree_that_is_not_wanted_any_more_while_it_is_made_leaves_nothing(
    with_git: Stand_in, order: OrderFor, repository: Repository, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    os.mkfifo(begun)
    spaces = with_git(f'case "$*" in *" reset "*) echo > {begun}; sleep 60;; esac')
    async with anyio.create_task_group() as group:
        group.start_soon(spaces.prepare, order())
        await anyio.to_thread.run_sync(begun.read_text)
        group.cancel_scope.cancel()
    assert await spaces.list_kept() == []
    assert repository.git("branch", "--list", "go-ent/*") == ""


@pytest.mark.parametrize("kind", ["worktree", "copy"])
async def test_what_a_go_ent_that_was_killed_left_half_made_is_cleared_away(
    repository: Repository,
    spaces: GitWorkspaces,
    order: OrderFor,
    kind: WorkspaceKind,
    tmp_path: Path,
) -> None:
    space = await spaces.prepare(order(kind=kind))
    record = workspace_records.read_record(Path(space.path))
    assert record and record.ready
    workspace_records.write_record(replace(record, ready=False))
    (Path(space.path) / "README.md").unlink()
    next_one = GitWorkspaces(tmp_path / "state", environ=lambda: repository.environ)
    assert [gone.worker for gone in await next_one.remove_finished()] == [record.worker]
    assert repository.git("branch", "--list", "go-ent/*") == ""
    assert repository.git("worktree", "list").count("\n") == 0


async def test_a_state_folder_that_cannot_be_written_is_named(
    repository: Repository, order: OrderFor, tmp_path: Path
) -> None:
    (tmp_path / "state").write_text("no folder")
    spaces = GitWorkspaces(tmp_path / "state", environ=lambda: repository.environ)
    with pytest.raises(EnvironmentTrouble, match="w-abcde' cannot be made"):
        await spaces.prepare(order())


async def test_a_users_care_for_line_ends_keeps_no_file_out(
    repository: Repository, spaces: GitWorkspaces, order: OrderFor
) -> None:
    repository.git("config", "core.autocrlf", "input")
    repository.git("config", "core.safecrlf", "true")
    space = await spaces.prepare(order())
    (Path(space.path) / "dos.txt").write_bytes(b"one\r\ntwo\r\n")
    assert [change.path for change in (await spaces.commit_work(space, "w")).files] == ["dos.txt"]


async def test_thousands_of_files_are_kept_and_counted_but_not_all_told(
    repository: Repository, spaces: GitWorkspaces, order: OrderFor
) -> None:
    space = await spaces.prepare(order())
    for number in range(2_050):
        (Path(space.path) / f"{number}.txt").write_text("x\n")
    work = await spaces.commit_work(space, "many")
    assert len(work.files) == 2_000
    assert "2,050 files were changed" in work.warnings[0]
    assert repository.git("ls-tree", "--name-only", space.branch).count(".txt") == 2_050


async def test_a_worktree_that_somebody_is_just_making_is_waited_for(
    repository: Repository, spaces: GitWorkspaces, order: OrderFor
) -> None:
    await spaces.prepare(order("w-1"))
    half = repository.write(".git/worktrees/other/commondir", "")
    repository.write(".git/worktrees/other/gitdir", "/nowhere/.git\n")
    repository.write(".git/worktrees/other/HEAD", "ref: refs/heads/main\n")
    git = Git(repository.top, repository.environ)
    with pytest.raises(GitFailed, match="failed to read"):
        await git.run_checked("worktree", "list")

    async def make_whole() -> None:
        await anyio.sleep(0.2)
        half.write_text("../..\n")

    async with anyio.create_task_group() as group:
        group.start_soon(make_whole)
        await git.run_checked("worktree", "list")
    half.write_text("")
    async with anyio.create_task_group() as group:
        group.start_soon(make_whole)
        await spaces.prepare(order("w-2"))
