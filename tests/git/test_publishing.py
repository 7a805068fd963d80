import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from piecework import ENV, Repo

from goent.domain.errors import RequestError

pytestmark = pytest.mark.anyio


@pytest.fixture
def repo(tmp_path: Path):
    return Repo(tmp_path)


@pytest.fixture
def merged(repo: Repo):
    """A commit that is ahead of `main`, which is checked out."""
    base = repo.commit({"a.txt": "one\n", "b.txt": "one\n"})
    work = repo.piece("work", base, {"a.txt": "two\n", "new.txt": "new\n"})
    repo.done()
    return work.commit


async def test_a_branch_is_made_and_moves_forward(repo: Repo, merged: str):
    base = repo.git("rev-parse", "main")
    await repo.merging.publish(repo.repository, "go-ent/s/merged", base)
    await repo.merging.publish(repo.repository, "go-ent/s/merged", merged)
    assert repo.git("rev-parse", "go-ent/s/merged") == merged
    await repo.merging.publish(repo.repository, "refs/heads/go-ent/s/merged", merged)
    assert repo.git("rev-parse", "go-ent/s/merged") == merged


async def test_a_branch_goes_back_only_from_where_we_put_it(repo: Repo, merged: str):
    base = repo.git("rev-parse", "main")
    await repo.merging.publish(repo.repository, "joined", merged)
    with pytest.raises(RequestError, match=r"'joined'.*would lose commits"):
        await repo.merging.publish(repo.repository, "joined", base)
    await repo.merging.publish(repo.repository, "joined", base, replaces=merged)
    assert repo.git("rev-parse", "joined") == base


@pytest.mark.parametrize("name", ["a..b", "-x", "a b", "x.lock", "", "a\nb", "HEAD", "caf\udce9~"])
async def test_a_name_that_no_branch_can_have_is_refused(repo: Repo, merged: str, name: str):
    before = repo.state()
    with pytest.raises(RequestError, match="is not a valid branch name"):
        await repo.merging.publish(repo.repository, name, merged)
    assert repo.state() == before


async def test_a_branch_that_is_checked_out_anywhere_is_left_alone(
    repo: Repo, merged: str, tmp_path: Path
):
    with pytest.raises(RequestError, match="'main' is checked out in"):
        await repo.merging.publish(repo.repository, "main", merged)
    other = tmp_path / "other place"
    repo.git("worktree", "add", "-q", "-b", "theirs", str(other))
    with pytest.raises(RequestError, match=r"'theirs' is checked out in .*other place"):
        await repo.merging.publish(repo.repository, "theirs", merged)


async def test_a_commit_that_is_not_there_and_a_name_in_the_way_are_refused(
    repo: Repo, merged: str
):
    with pytest.raises(RequestError, match="there is no commit"):
        await repo.merging.publish(repo.repository, "joined", "1234" * 10)
    repo.git("branch", "taken")
    with pytest.raises(RequestError, match=r"'taken/below' could not be set.*taken"):
        await repo.merging.publish(repo.repository, "taken/below", merged)


async def test_of_many_who_publish_at_once_the_branch_has_one_and_none_is_lost(repo: Repo):
    base = repo.commit({"a.txt": "one\n"})
    pieces = [repo.piece(f"t{n}", base, {f"{n}.txt": ""}) for n in range(6)]
    won: list[str] = []

    async def try_it(commit: str) -> None:
        try:
            await repo.merging.publish(repo.repository, "joined", commit)
        except RequestError:
            return
        won.append(commit)

    async with anyio.create_task_group() as group:
        for piece in pieces:
            group.start_soon(try_it, piece.commit)
    assert won == [repo.git("rev-parse", "joined")]


async def test_a_clean_checkout_moves_forward(repo: Repo, merged: str):
    repo.write({"untracked.txt": "mine\n"})
    assert await repo.merging.apply(repo.repository, repo.top, merged) == "main"
    assert repo.git("rev-parse", "main") == merged
    assert (repo.top / "new.txt").read_text() == "new\n"
    assert repo.git("status", "--porcelain") == "?? untracked.txt"


def _staged(repo: Repo):
    repo.write({"b.txt": "staged\n"})
    repo.git("add", "b.txt")


def _ignored(repo: Repo):
    (repo.top / ".git" / "info" / "exclude").write_text("new.txt\n")
    repo.write({"new.txt": "mine, and ignored\n"})


IN_THE_WAY: dict[str, tuple[Callable[[Repo], object], str]] = {
    "changed": (lambda repo: repo.write({"b.txt": "mine\n"}), "uncommitted changes.*b.txt"),
    "staged": (_staged, "uncommitted changes.*b.txt"),
    "untracked": (lambda repo: repo.write({"new.txt": "mine\n"}), "untracked.*Nothing was changed"),
    "ignored": (_ignored, "untracked.*Nothing was changed"),
    "detached": (lambda repo: repo.git("checkout", "-q", "--detach"), "has a detached HEAD"),
    "ahead": (lambda repo: repo.commit({"c.txt": "mine\n"}), "has commits that"),
}


@pytest.mark.parametrize("case", IN_THE_WAY)
async def test_a_checkout_that_would_lose_something_stays_as_it_is(
    repo: Repo, merged: str, case: str
):
    prepare, told = IN_THE_WAY[case]
    prepare(repo)
    before = repo.state(), repo.git("rev-parse", "HEAD")
    with pytest.raises(RequestError, match=f"(?s){told}"):
        await repo.merging.apply(repo.repository, repo.top, merged)
    assert (repo.state(), repo.git("rev-parse", "HEAD")) == before


async def test_a_checkout_of_something_else_is_refused(repo: Repo, merged: str, tmp_path: Path):
    (tmp_path / "elsewhere").mkdir()
    other = Repo(tmp_path / "elsewhere")
    other.commit({"a.txt": ""})
    for place in (other.top, tmp_path):
        with pytest.raises(RequestError, match="is not a checkout of"):
            await repo.merging.apply(repo.repository, place, merged)


async def test_a_scratch_checkout_has_the_commit_and_is_gone_afterwards(repo: Repo, merged: str):
    before = repo.state()
    async with repo.merging.scratch(repo.repository, merged) as place:
        assert not place.is_relative_to(repo.top)
        assert (place / "a.txt").read_text() == "two\n"
        (place / "made").mkdir()
        (place / "made" / "made.txt").write_text("by a verify command\n")
        (place / "made").chmod(0o500)
        assert str(place) in repo.git("worktree", "list")
    _check_nothing_left(repo, before)


async def test_a_scratch_checkout_is_gone_whatever_happens_in_it(repo: Repo, merged: str):
    before = repo.state()
    with pytest.raises(ZeroDivisionError):
        async with repo.merging.scratch(repo.repository, merged):
            _ = 1 // 0
    for delay in (0.0, 0.002, 0.01, 0.1):
        with anyio.move_on_after(delay):
            async with repo.merging.scratch(repo.repository, merged):
                await anyio.sleep_forever()
    with pytest.raises(RequestError, match="worktree add"):
        async with repo.merging.scratch(repo.repository, "1234" * 10):
            pass
    _check_nothing_left(repo, before)


async def test_two_scratch_checkouts_of_one_commit_stand_side_by_side(repo: Repo, merged: str):
    before = repo.state()
    async with (
        repo.merging.scratch(repo.repository, merged) as one,
        repo.merging.scratch(repo.repository, merged) as other,
    ):
        assert one != other and (one / "a.txt").exists() and (other / "a.txt").exists()
    _check_nothing_left(repo, before)


KILLED = """
import anyio, os, signal, sys
from pathlib import Path
from goent.git.git_command import Git
from goent.git.git_merger import GitMerging

async def main(repository, root, commit):
    async with GitMerging(Git(Path(repository), os.environ), Path(root)).scratch(repository, commit):
        os.kill(os.getpid(), signal.SIGKILL)

anyio.run(main, *sys.argv[1:])
"""


async def test_what_a_killed_one_left_is_swept_and_what_others_use_is_not(repo: Repo, merged: str):
    before = repo.state()
    command = [sys.executable, "-c", KILLED, repo.repository, str(repo.root), merged]
    ended = await anyio.to_thread.run_sync(lambda: subprocess.run(command, env=ENV, check=False))
    assert ended.returncode == -signal.SIGKILL
    (left,) = repo.root.iterdir()
    absent = str(repo.root.parent / "on another disk")
    repo.git("worktree", "add", "-q", "--detach", absent)
    Path(absent).rename(f"{absent} (unmounted)")
    async with repo.merging.scratch(repo.repository, merged) as place:
        await repo.merging.sweep()
        assert (place / "a.txt").exists() and not left.exists()
        assert str(left) not in repo.git("worktree", "list")
    assert absent in repo.git("worktree", "list")
    repo.git("worktree", "prune")
    _check_nothing_left(repo, before)


def _check_nothing_left(repo: Repo, before: object) -> None:
    assert repo.state() == before
    assert repo.leftovers() == []
    assert not (Path(repo.repository) / "worktrees").exists()
