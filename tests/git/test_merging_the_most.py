import random
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio
import pytest
from piecework import ENV, Repo, the

from goent.domain.errors import RequestError
from goent.domain.workspace import WorkPiece
from goent.git.git_command import Git
from goent.git.scratch_space import scratch_area
from goent.git.work_survey import survey_pieces

pytestmark = pytest.mark.anyio
LINES = "".join(f"line {n}\n" for n in range(1, 41))


@pytest.fixture
def repo(tmp_path: Path):
    return Repo(tmp_path)


def changed(**lines: str):
    text = LINES
    for name, to in lines.items():
        text = text.replace(f"line {name[1:]}\n", f"{to}\n")
    return text


async def test_all_that_goes_together_is_one_commit_with_everybodys_work(repo: Repo):
    base = repo.commit({"a.txt": LINES, "b.txt": LINES})
    one = repo.piece("one", base, {"a.txt": changed(l2="of one")})
    two = repo.piece("two", base, {"a.txt": changed(l30="of two")})
    far = repo.piece("far", base, {"b.txt": None, "c.txt": "new\n"})
    repo.done()
    before = repo.state()
    merge = await repo.merging.merge(repo.repository, base, [one, two, far], "join")
    assert merge.merged == ("one", "two", "far") and merge.left == ()
    assert merge.steps[-1] == merge.commit and len(set(merge.steps)) == 3
    assert repo.content(merge.commit, "a.txt") == changed(l2="of one", l30="of two").strip()
    assert repo.git("ls-tree", "--name-only", merge.commit).split() == ["a.txt", "c.txt"]
    assert repo.content(merge.steps[0], "a.txt") == changed(l2="of one").strip()
    for piece in (one, two, far):
        repo.git("merge-base", "--is-ancestor", piece.commit, merge.commit)
    assert repo.state() == before
    assert repo.leftovers() == []


async def test_one_that_collides_with_two_is_left_for_them(repo: Repo):
    base = repo.commit({"a.txt": LINES})
    wide = repo.piece("wide", base, {"a.txt": changed(l2="wide", l30="wide")})
    one = repo.piece("one", base, {"a.txt": changed(l2="of one")})
    two = repo.piece("two", base, {"a.txt": changed(l30="of two")})
    merge = await repo.merging.merge(repo.repository, base, [wide, one, two], "join")
    assert merge.merged == ("one", "two")
    (left,) = merge.left
    told = the("hunk_conflict", left.conflicts)
    assert left.task == "wide" and told.tasks == ("one", "two", "wide")
    assert len(told.hunks) == 2
    assert told.hunks[0].startswith("<<<<<<< merged work (one, two)\nof one\n")
    assert told.hunks[0].endswith("\n>>>>>>> wide")


async def test_the_instructions_lead_to_a_merge(repo: Repo, tmp_path: Path):
    """Word for word, in a shell; only the file itself is solved by the test."""
    name = "it's\nodd.txt"
    base = repo.commit({name: LINES, "gone.txt": LINES})
    one = repo.piece("one", base, {name: changed(l2="of one"), "gone.txt": None})
    two = repo.piece("two", base, {name: changed(l2="of two"), "gone.txt": changed(l3="kept")})
    repo.done()
    merge = await repo.merging.merge(repo.repository, base, [one, two], "join")
    (left,) = merge.left
    lines = left.instructions.splitlines()
    commands = [line.strip() for line in lines if line.startswith("  git ") or " cd " in line]
    assert commands[2].startswith("git merge --no-ff go-ent/s/two")
    solve = [line.rsplit("`", 2)[1] for line in lines if "git add" in line]
    script = [*commands[:2], f"! {commands[2]}", "sed -i /^[\\<\\|=\\>]/d *odd.txt"]
    script += [*solve, commands[3]]
    bash = ["bash", "-e", "-c", "\n".join(script)]
    await anyio.run_process(bash, cwd=repo.top, env=ENV)
    solved = next(tmp_path.glob("solve-*"))
    assert (solved / "gone.txt").read_text() == changed(l3="kept")
    repo.git("-C", str(solved), "merge-base", "--is-ancestor", two.commit, "HEAD")


async def test_a_dependent_piece_comes_after_what_it_contains(repo: Repo):
    base = repo.commit({"a.txt": LINES})
    first = repo.piece("first", base, {"a.txt": changed(l2="first")})
    second = repo.piece("second", first.commit, {"a.txt": changed(l2="second")})
    assert await repo.merging.conflicts(repo.repository, base, [second, first]) == ()
    merge = await repo.merging.merge(repo.repository, base, [second, first], "join")
    assert merge.merged == ("first", "second")
    assert repo.content(merge.commit, "a.txt") == changed(l2="second").strip()


async def test_a_dependent_piece_begins_with_its_predecessors_merged(repo: Repo):
    base = repo.commit({"a.txt": LINES, "b.txt": LINES})
    one = repo.piece("one", base, {"a.txt": changed(l2="of one")})
    two = repo.piece("two", base, {"a.txt": changed(l30="of two")})
    start = await repo.merging.merge(repo.repository, base, [one, two], "for three")
    three = repo.piece("three", start.commit, {"a.txt": changed(l2="three", l30="three")})
    rival = repo.piece("rival", base, {"a.txt": changed(l2="rival")})
    pieces = [one, two, three, rival]
    found = await repo.merging.conflicts(repo.repository, base, pieces)
    assert {each.tasks for each in found if each.kind == "hunk_conflict"} == {
        ("one", "rival"),
        ("three", "rival"),
    }
    merge = await repo.merging.merge(repo.repository, base, pieces, "join")
    assert merge.merged == ("one", "two", "three")
    assert repo.content(merge.commit, "a.txt") == changed(l2="three", l30="three").strip()


async def test_what_a_piece_only_inherits_is_not_told_twice(repo: Repo):
    base = repo.commit({"a.txt": LINES, "b.txt": LINES})
    first = repo.piece("first", base, {"a.txt": changed(l2="first")})
    second = repo.piece("second", first.commit, {"b.txt": changed(l2="second")})
    rival = repo.piece("rival", base, {"a.txt": changed(l2="rival")})
    found = await repo.merging.conflicts(repo.repository, base, [first, second, rival])
    assert {each.tasks for each in found} == {("first", "rival")}


async def test_a_piece_that_solved_two_others_brings_both(repo: Repo):
    base = repo.commit({"a.txt": LINES})
    one = repo.piece("one", base, {"a.txt": changed(l2="of one")})
    two = repo.piece("two", base, {"a.txt": changed(l2="of two")})
    tree = repo.git("rev-parse", f"{one.commit}^{{tree}}")
    solved = repo.git("commit-tree", tree, "-p", one.commit, "-p", two.commit, "-m", "solved")
    pieces = [one, two, WorkPiece(task="solved", commit=solved)]
    merge = await repo.merging.merge(repo.repository, base, pieces, "join")
    assert set(merge.merged) == {"one", "two", "solved"} and merge.left == ()
    assert repo.content(merge.commit, "a.txt") == changed(l2="of one").strip()


async def test_two_that_both_joined_the_same_two_others_are_compared_by_those(repo: Repo):
    """They parted at two places at once."""
    base = repo.commit({"a.txt": LINES})
    one = repo.piece("one", base, {"a.txt": changed(l2="one")})
    two = repo.piece("two", base, {"a.txt": changed(l30="two")})
    there = await repo.merging.merge(repo.repository, base, [one, two], "there")
    back = await repo.merging.merge(repo.repository, base, [two, one], "back")
    assert there.commit != back.commit
    left = repo.piece("left", there.commit, {"a.txt": changed(l2="one", l15="left", l30="two")})
    right = repo.piece("right", back.commit, {"a.txt": changed(l2="one", l20="right", l30="two")})
    rival = repo.piece("rival", back.commit, {"a.txt": changed(l2="one", l15="rival", l30="two")})
    pieces = [one, two, left, right, rival]
    found = await repo.merging.conflicts(repo.repository, base, pieces)
    assert [each.tasks for each in found if each.kind == "hunk_conflict"] == [("left", "rival")]
    merge = await repo.merging.merge(repo.repository, base, pieces, "join")
    assert merge.merged == ("one", "two", "left", "right")
    whole = changed(l2="one", l15="left", l20="right", l30="two")
    assert repo.content(merge.commit, "a.txt") == whole.strip()


async def test_a_piece_without_work_is_merged_as_it_is(repo: Repo):
    base = repo.commit({"a.txt": LINES})
    pieces = [WorkPiece(task="idle", commit=base), WorkPiece(task="lazy", commit=base)]
    assert await repo.merging.conflicts(repo.repository, base, pieces) == ()
    merge = await repo.merging.merge(repo.repository, base, pieces, "join")
    assert merge.commit == base and merge.merged == ("idle", "lazy")
    empty = await repo.merging.merge(repo.repository, base, [], "join")
    assert (empty.commit, empty.merged, empty.left) == (base, (), ())


async def test_the_same_pieces_give_the_same_commit(repo: Repo):
    base = repo.commit({"a.txt": LINES})
    pieces = [repo.piece(f"t{n}", base, {f"{n}.txt": LINES}) for n in range(3)]
    first = await repo.merging.merge(repo.repository, base, pieces, "join")
    assert await repo.merging.merge(repo.repository, base, pieces, "join") == first
    assert repo.git("show", "-s", "--format=%ct %at", first.commit) == "1700000000 1700000000"


async def test_pieces_that_began_elsewhere_are_compared_by_what_they_share(repo: Repo):
    start = repo.commit({"a.txt": LINES})
    base = repo.piece("saved", start, {"user.txt": "uncommitted\n"}).commit
    one = repo.piece("one", start, {"a.txt": changed(l2="of one")})
    two = repo.piece("two", base, {"a.txt": changed(l2="of two")})
    found = await repo.merging.conflicts(repo.repository, base, [one, two])
    assert the("hunk_conflict", found).tasks == ("one", "two")
    merge = await repo.merging.merge(repo.repository, base, [one], "join")
    assert repo.content(merge.commit, "user.txt") == "uncommitted"


async def test_an_unknown_commit_and_an_unrelated_one_are_refused_by_name(repo: Repo):
    base = repo.commit({"a.txt": LINES})
    with pytest.raises(RequestError, match=r"'gone'.*are in"):
        await repo.merging.conflicts(
            repo.repository, base, [WorkPiece(task="gone", commit="1234" * 10)]
        )
    repo.git("checkout", "-q", "--orphan", "other")
    alien = WorkPiece(task="alien", commit=repo.commit({"b.txt": ""}))
    with pytest.raises(RequestError, match=r"'alien'.*no history in common"):
        await repo.merging.merge(repo.repository, base, [alien], "join")


@pytest.mark.parametrize("seed", range(6))
async def test_no_single_order_merges_more_and_the_tree_is_what_git_merge_makes(
    repo: Repo, seed: int
):
    chance = random.Random(seed)
    files = {f"{n}.txt": LINES for n in range(3)}
    base = repo.commit(files)
    pieces = [repo.piece(f"t{n}", base, _some_work(chance, files)) for n in range(7)]
    merge = await repo.merging.merge(repo.repository, base, pieces, "join")
    by_task = {piece.task: piece for piece in pieces}
    merged, tree = _by_hand(repo, base, [by_task[task] for task in merge.merged])
    assert merged == list(merge.merged)
    assert repo.git("rev-parse", f"{merge.commit}^{{tree}}") == tree
    for _ in range(4):
        order = chance.sample(pieces, len(pieces))
        assert len(_by_hand(repo, base, order)[0]) <= len(merge.merged)
    assert {*merge.merged, *(left.task for left in merge.left)} == set(by_task)
    assert all(left.conflicts for left in merge.left)


@pytest.mark.parametrize("seed", range(4))
async def test_pairs_that_are_not_tried_merge_cleanly(repo: Repo, seed: int):
    """Whatever they moved, made and removed: what is left out could not have collided."""
    chance = random.Random(seed)
    files = {f"d{n % 4}/e{n % 2}/{n}.txt": f"{n}\n{LINES}" for n in range(16)}
    base = repo.commit(files)
    pieces = [repo.piece(f"t{n}", base, _some_upheaval(chance, files)) for n in range(12)]
    git = Git(Path(repo.repository), ENV)
    async with scratch_area(git.folder, repo.root) as place:
        found = await survey_pieces(git, base, pieces, place)
    skipped = [pair for pair in found.lineage.meetings() if pair not in found.met]
    assert skipped and found.met
    for n, m in skipped:
        repo.git("merge-tree", "--write-tree", pieces[n].commit, pieces[m].commit)


def _some_upheaval(chance: random.Random, files: Mapping[str, str]):
    def somewhere() -> str:
        return f"d{chance.randrange(5)}/e{chance.randrange(3)}"

    name = chance.choice(sorted(files))
    folder = name.rpartition("/")[0]
    there = [each for each in files if each.startswith(folder)]
    to = somewhere()
    moves = {each.replace(folder, to, 1): files[each] for each in there}
    options: list[dict[str, str | None]] = [
        {name: files[name].replace("line 3\n", f"{chance.random()}\n")},
        {name: None},
        {f"{somewhere()}/new{chance.randrange(3)}.txt": "new\n"},
        {f"d{chance.randrange(4, 7)}": "a file\n"},
        {**dict.fromkeys(there), **moves},
        {name: None, f"{somewhere()}/moved.txt": files[name]},
    ]
    return chance.choice([*options, *options[:1] * 4])


def _some_work(chance: random.Random, files: Mapping[str, str]):
    work: dict[str, str | None] = {}
    for name in chance.sample(sorted(files), chance.randint(1, 2)):
        lines = {f"l{n}": f"{chance.random()}" for n in chance.sample(range(1, 41), 2)}
        work[name] = chance.choice([changed(**lines)] * 5 + [None])
    return work


def _by_hand(repo: Repo, base: str, pieces: Sequence[WorkPiece]):
    """What `git merge` in a checkout takes, one after the other, and the tree it ends with."""
    repo.begin(base)
    taken: list[str] = []
    for piece in pieces:
        command = ["git", "merge", "-q", "--no-ff", "-m", "by hand", piece.commit]
        said = subprocess.run(command, cwd=repo.top, env=ENV, capture_output=True, check=False)
        if said.returncode == 0:
            taken.append(piece.task)
        else:
            repo.git("merge", "--abort")
    return taken, repo.git("rev-parse", "HEAD^{tree}")
