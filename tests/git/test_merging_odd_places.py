import subprocess
from pathlib import Path

import anyio
import pytest
from piecework import ENV, Repo, the

from goent.domain.errors import EnvironmentTrouble
from goent.domain.workspace import WorkPiece
from goent.git.git_command import Git
from goent.git.git_merger import GitMerging

pytestmark = pytest.mark.anyio
LINES = "".join(f"line {n}\n" for n in range(1, 101))


@pytest.fixture
def repo(tmp_path: Path):
    return Repo(tmp_path)


def changed(number: int, to: str):
    return LINES.replace(f"line {number}\n", f"{to}\n")


async def test_three_that_go_together_by_twos_only(repo: Repo):
    """A new file follows its folder to where the third has made one of that name."""
    repo.git("config", "merge.directoryRenames", "true")
    old = {f"old/{n}.txt": f"{n}\n{LINES}" for n in range(4)}
    base = repo.commit(old)
    mover = {**dict.fromkeys(old), **{name.replace("old", "new"): old[name] for name in old}}
    pieces = [
        repo.piece("adds", base, {"old/more.txt": "of adds\n"}),
        repo.piece("moves", base, mover),
        repo.piece("makes", base, {"new/more.txt": "of makes\n"}),
        repo.piece("far", base, {"far.txt": "far\n"}),
    ]
    assert await repo.merging.conflicts(repo.repository, base, pieces) == ()
    merge = await repo.merging.merge(repo.repository, base, pieces, "join")
    assert len(merge.merged) == 3 and "far" in merge.merged
    (left,) = merge.left
    assert left.conflicts and left.task in {"adds", "moves", "makes"}
    again = await repo.merging.merge(repo.repository, base, pieces, "join")
    assert again == merge


@pytest.mark.parametrize("count", [8, 32])
async def test_many_branches_are_compared_and_merged(repo: Repo, count: int):
    """Each changes a line of one file that all change, and every second one its neighbour's too."""
    base = repo.commit({"all.txt": LINES, **{f"{n}.txt": LINES for n in range(count)}})
    pieces = [
        repo.piece(
            f"t{n}",
            base,
            {"all.txt": changed(3 * n + 2, f"t{n}"), f"{n // 4}.txt": changed(9, f"t{n}")},
        )
        for n in range(count)
    ]
    found = await repo.merging.conflicts(repo.repository, base, pieces)
    assert len(next(each for each in found if each.path == "all.txt").tasks) == count
    pairs = {each.tasks for each in found if each.kind == "hunk_conflict"}
    assert pairs == {(f"t{n}", f"t{m}") for m in range(count) for n in range(m) if n // 4 == m // 4}
    merge = await repo.merging.merge(repo.repository, base, pieces, "join")
    assert merge.merged == tuple(f"t{n}" for n in range(0, count, 4))
    assert [left.task for left in merge.left] == [f"t{n}" for n in range(count) if n % 4]
    assert the("hunk_conflict", merge.left[0].conflicts).tasks == ("t0", "t1")


async def test_a_bare_repository_and_a_path_with_a_colon(repo: Repo, tmp_path: Path):
    base = repo.commit({"a.txt": LINES})
    one = repo.piece("one", base, {"a.txt": changed(5, "of one")})
    two = repo.piece("two", base, {"a.txt": changed(5, "of two")})
    far = repo.piece("far", base, {"b.txt": ""})
    bare = tmp_path / 'odd: "bare" \\ one.git'
    repo.git("clone", "-q", "--bare", str(repo.top), str(bare))
    found = await repo.merging.conflicts(str(bare), base, [one, two])
    assert the("hunk_conflict", found).hunks
    merge = await repo.merging.merge(str(bare), base, [one, two, far], "join")
    assert merge.merged == ("one", "far")
    await repo.merging.publish(str(bare), "joined", merge.commit)
    async with repo.merging.scratch(str(bare), "joined") as place:
        assert (place / "a.txt").read_text() == changed(5, "of one")
    assert not (bare / "worktrees").exists()


async def test_a_repository_with_longer_ids(tmp_path: Path):
    top = tmp_path / "long"
    top.mkdir()
    _git(top, "init", "-q", "--object-format=sha256")
    merging = GitMerging(Git(top, ENV), tmp_path / "scratch")

    def made(message: str, content: str, *parents: str) -> str:
        blob = _git(top, "hash-object", "-w", "--stdin", stdin=content)
        tree = _git(top, "mktree", stdin=f"100644 blob {blob}\ta.txt\n")
        above = [word for parent in parents for word in ("-p", parent)]
        return _git(top, "commit-tree", tree, *above, "-m", message)

    base = made("base", LINES)
    one = WorkPiece(task="one", commit=made("one", changed(5, "of one"), base))
    two = WorkPiece(task="two", commit=made("two", changed(50, "of two"), base))
    merge = await merging.merge(str(top / ".git"), base, [one, two], "join")
    await merging.publish(str(top / ".git"), "joined", merge.commit)
    assert len(merge.commit) == 64 and merge.merged == ("one", "two")


async def test_ended_in_the_middle_nothing_is_left_and_nothing_is_half_done(repo: Repo):
    base = repo.commit({"a.txt": LINES})
    pieces = [repo.piece(f"t{n}", base, {"a.txt": changed(5, f"t{n}")}) for n in range(6)]
    repo.done()
    before = repo.state()
    for delay in (0.0, 0.01, 0.03, 0.06, 0.1, 0.2):
        with anyio.move_on_after(delay):
            await repo.merging.merge(repo.repository, base, pieces, "join")
    assert repo.state() == before and repo.leftovers() == []
    repo.git("fsck", "--strict")


@pytest.mark.parametrize("command", ["merge-tree", "commit-tree", "pack-objects", "unpack-objects"])
async def test_a_full_disk_is_told_and_nothing_is_half_done(
    repo: Repo, tmp_path: Path, command: str
):
    base = repo.commit({"a.txt": LINES})
    pieces = [repo.piece(f"t{n}", base, {"a.txt": changed(9 * n + 2, f"t{n}")}) for n in range(3)]
    repo.done()
    before = repo.state(), repo.objects()
    full = tmp_path / "git-on-a-full-disk"
    says = 'echo "fatal: write error: No space left on device" >&2; exit 128'
    full.write_text(
        f'#!/bin/sh\nfor each; do [ "$each" = {command} ] && {{ {says}; }}; done\nexec git "$@"\n'
    )
    full.chmod(0o755)
    merging = GitMerging(Git(repo.top, ENV, git=str(full)), repo.root)
    with pytest.raises(EnvironmentTrouble, match=r"No space left on device.*Free some space"):
        await merging.merge(repo.repository, base, pieces, "join")
    assert (repo.state(), repo.objects()) == before
    assert repo.leftovers() == []


async def test_a_dirty_checkout_is_neither_seen_nor_touched(repo: Repo):
    base = repo.commit({"a.txt": LINES, "b.txt": LINES})
    one = repo.piece("one", base, {"a.txt": changed(5, "of one")})
    two = repo.piece("two", base, {"a.txt": changed(50, "of two")})
    repo.done()
    repo.write(
        {"a.txt": "mine\n", "b.txt": None, "new.txt": "mine\n", ".gitattributes": "* -merge\n"}
    )
    repo.git("add", "new.txt")
    before = repo.state()
    assert len(await repo.merging.conflicts(repo.repository, base, [one, two])) == 1
    merge = await repo.merging.merge(repo.repository, base, [one, two], "join")
    await repo.merging.publish(repo.repository, "go-ent/s/merged", merge.commit)
    assert merge.merged == ("one", "two")
    repo.git("update-ref", "-d", "refs/heads/go-ent/s/merged")
    assert repo.state() == before
    assert (repo.top / "a.txt").read_text() == "mine\n"


def _git(top: Path, *arguments: str, stdin: str = "") -> str:
    identity = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.invalid"]
    said = subprocess.run(
        ["git", *identity, *arguments],
        cwd=top,
        env=ENV,
        input=stdin,
        capture_output=True,
        check=True,
        text=True,
    )
    return said.stdout.strip()
