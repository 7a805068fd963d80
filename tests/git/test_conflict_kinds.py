import json
from pathlib import Path

import msgspec
import pytest
from piecework import ENV, Repo, kinds, the

from goent.domain.errors import EnvironmentTrouble
from goent.domain.workspace import WorkPiece
from goent.git.git_command import Git
from goent.git.git_merger import GitMerging

pytestmark = pytest.mark.anyio
LINES = "".join(f"line {n}\n" for n in range(1, 21))


@pytest.fixture
def repo(tmp_path: Path):
    return Repo(tmp_path)


def changed(number: int, to: str):
    return LINES.replace(f"line {number}\n", f"{to}\n")


@pytest.mark.spec("P31")
async def test_the_same_file_in_two_places_is_an_overlap_and_no_conflict(repo: Repo):
    base = repo.commit({"a.txt": LINES, "b.txt": LINES})
    one = repo.piece("one", base, {"a.txt": changed(2, "ours")})
    two = repo.piece("two", base, {"a.txt": changed(18, "theirs")})
    far = repo.piece("far", base, {"b.txt": changed(2, "elsewhere")})
    found = await repo.merging.conflicts(repo.repository, base, [one, two, far])
    assert kinds(found) == {("file_overlap", "a.txt", ("one", "two"))}
    assert found[0].detail == "merges cleanly"


@pytest.mark.spec("P31")
async def test_the_same_line_is_an_overlap_and_a_conflict_with_its_hunk(repo: Repo):
    base = repo.commit({"a.txt": LINES})
    one = repo.piece("one", base, {"a.txt": changed(5, "of one")})
    two = repo.piece("two", base, {"a.txt": changed(5, "of two")})
    found = await repo.merging.conflicts(repo.repository, base, [one, two])
    assert kinds(found) == {
        ("file_overlap", "a.txt", ("one", "two")),
        ("hunk_conflict", "a.txt", ("one", "two")),
    }
    assert the("file_overlap", found).detail == "does not merge: 'one' with 'two'"
    hunk = "<<<<<<< one\nof one\n||||||| before\nline 5\n=======\nof two\n>>>>>>> two"
    assert the("hunk_conflict", found).hunks == (hunk,)
    assert one.commit not in str(found) and two.commit not in str(found)


async def test_three_in_one_file_are_one_overlap_and_each_pair_is_told_of(repo: Repo):
    base = repo.commit({"a.txt": LINES})
    pieces = [repo.piece(t, base, {"a.txt": changed(5, t)}) for t in ("one", "two", "three")]
    found = await repo.merging.conflicts(repo.repository, base, pieces)
    assert the("file_overlap", found).tasks == ("one", "two", "three")
    pairs = {each.tasks for each in found if each.kind == "hunk_conflict"}
    assert pairs == {("one", "two"), ("one", "three"), ("two", "three")}


async def test_deleted_by_one_and_changed_by_the_other(repo: Repo):
    base = repo.commit({"a.txt": LINES})
    one = repo.piece("one", base, {"a.txt": None})
    two = repo.piece("two", base, {"a.txt": changed(5, "of two")})
    found = await repo.merging.conflicts(repo.repository, base, [one, two])
    told = the("delete_modify", found)
    assert told.path == "a.txt"
    assert "deleted in one and modified in two" in told.detail


async def test_renamed_in_two_ways(repo: Repo):
    base = repo.commit({"a.txt": LINES})
    one = repo.piece("one", base, {"a.txt": None, "b.txt": LINES})
    two = repo.piece("two", base, {"a.txt": None, "c.txt": LINES})
    found = await repo.merging.conflicts(repo.repository, base, [one, two])
    assert "b.txt in one" in the("rename", found).detail
    assert "c.txt in two" in the("rename", found).detail


async def test_renamed_by_one_and_deleted_by_the_other(repo: Repo):
    base = repo.commit({"a.txt": LINES})
    one = repo.piece("one", base, {"a.txt": None, "b.txt": LINES})
    two = repo.piece("two", base, {"a.txt": None})
    found = await repo.merging.conflicts(repo.repository, base, [one, two])
    assert the("rename", found).tasks == ("one", "two")


async def test_renamed_by_one_and_changed_by_the_other_goes_together(repo: Repo):
    base = repo.commit({"a.txt": LINES})
    one = repo.piece("one", base, {"a.txt": None, "b.txt": LINES})
    two = repo.piece("two", base, {"a.txt": changed(5, "of two")})
    found = await repo.merging.conflicts(repo.repository, base, [one, two])
    assert kinds(found) == {("file_overlap", "a.txt", ("one", "two"))}


async def test_a_file_renamed_to_where_another_one_was_made(repo: Repo):
    base = repo.commit({"a.txt": LINES})
    one = repo.piece("one", base, {"a.txt": None, "b.txt": LINES})
    two = repo.piece("two", base, {"b.txt": "something else\n"})
    found = await repo.merging.conflicts(repo.repository, base, [one, two])
    assert the("rename", found).path == "b.txt"


async def test_a_new_file_in_a_folder_that_somebody_moved_is_told(repo: Repo):
    """The two share no path at all."""
    base = repo.commit({f"old/{n}.txt": LINES + str(n) for n in range(4)})
    moved = {f"old/{n}.txt": None for n in range(4)}
    one = repo.piece("one", base, {**moved, **{f"new/{n}.txt": LINES + str(n) for n in range(4)}})
    two = repo.piece("two", base, {"old/more.txt": "more\n"})
    found = await repo.merging.conflicts(repo.repository, base, [one, two])
    assert the("rename", found).path == "new/more.txt"


async def test_a_file_where_the_other_has_a_folder(repo: Repo):
    base = repo.commit({"a.txt": LINES})
    one = repo.piece("one", base, {"thing": "a file\n"})
    repo.begin(base)
    (repo.top / "thing").unlink(missing_ok=True)
    two = repo.piece("two", base, {"thing/inside.txt": "a folder\n"})
    found = await repo.merging.conflicts(repo.repository, base, [one, two])
    told = the("rename", found)
    assert told.path.startswith("thing")
    assert one.commit not in told.path


async def test_a_binary_that_both_changed(repo: Repo):
    base = repo.commit({"a.bin": b"\0\1\2"})
    one = repo.piece("one", base, {"a.bin": b"\0\1\3"})
    two = repo.piece("two", base, {"a.bin": b"\0\1\4"})
    found = await repo.merging.conflicts(repo.repository, base, [one, two])
    assert kinds(found) == {
        ("file_overlap", "a.bin", ("one", "two")),
        ("binary", "a.bin", ("one", "two")),
    }
    assert the("binary", found).hunks == ()


async def test_a_link_that_both_turned_elsewhere(repo: Repo):
    repo.write({"a": "", "b": "", "c": ""})
    (repo.top / "link").symlink_to("a")
    base = repo.commit()
    pieces: list[WorkPiece] = []
    for task, to in (("one", "b"), ("two", "c")):
        repo.begin(base)
        (repo.top / "link").unlink()
        (repo.top / "link").symlink_to(to)
        pieces.append(repo.piece(task, "HEAD"))
    found = await repo.merging.conflicts(repo.repository, base, pieces)
    assert the("mode", found).path == "link"


async def test_a_submodule_that_both_set_elsewhere(repo: Repo):
    def pointed(task: str, to: str):
        repo.git("update-index", "--add", "--cacheinfo", f"160000,{to * 40},sub")
        tree = repo.git("write-tree")
        parent = ["-p", base] if task != "base" else []
        return repo.git("commit-tree", tree, *parent, "-m", task)

    base = ""
    base = pointed("base", "1")
    pieces = [
        WorkPiece(task=task, commit=pointed(task, to)) for task, to in (("one", "2"), ("two", "3"))
    ]
    found = await repo.merging.conflicts(repo.repository, base, pieces)
    assert the("mode", found).path == "sub"


async def test_a_file_made_a_link_by_one_and_changed_by_the_other(repo: Repo):
    base = repo.commit({"a.txt": LINES, "b.txt": ""})
    repo.begin(base)
    (repo.top / "a.txt").unlink()
    (repo.top / "a.txt").symlink_to("b.txt")
    one = repo.piece("one", "HEAD")
    two = repo.piece("two", base, {"a.txt": changed(5, "of two")})
    found = await repo.merging.conflicts(repo.repository, base, [one, two])
    assert {each.kind for each in found} == {"file_overlap", "mode"}


async def test_one_makes_it_executable_and_the_other_changes_it(repo: Repo):
    base = repo.commit({"run.sh": LINES})
    repo.begin(base)
    (repo.top / "run.sh").chmod(0o755)
    one = repo.piece("one", "HEAD")
    two = repo.piece("two", base, {"run.sh": changed(5, "of two")})
    found = await repo.merging.conflicts(repo.repository, base, [one, two])
    assert kinds(found) == {("file_overlap", "run.sh", ("one", "two"))}


@pytest.mark.parametrize(
    "name",
    [b"with space.txt", b"quo\"te's.txt", b"new\nline.txt", b"caf\xe9.txt", "ä/ö.txt".encode()],
)
async def test_a_name_may_be_anything(repo: Repo, name: bytes):
    base = repo.commit({name: LINES})
    one = repo.piece("one", base, {name: changed(5, "of one")})
    two = repo.piece("two", base, {name: changed(5, "of two")})
    found = await repo.merging.conflicts(repo.repository, base, [one, two])
    told = the("hunk_conflict", found)
    assert told.path == name.decode("utf-8", "backslashreplace")
    assert "of one" in told.hunks[0]
    json.loads(msgspec.json.encode(found))
    merge = await repo.merging.merge(repo.repository, base, [one, two], "join")
    json.loads(msgspec.json.encode(merge))
    assert merge.merged == ("one",)


async def test_lines_that_end_in_crlf_and_files_without_a_last_newline(repo: Repo):
    crlf = LINES.replace("\n", "\r\n")
    base = repo.commit({"crlf.txt": crlf, "open.txt": "a\nb"})
    pieces = [
        repo.piece(
            task,
            base,
            {"crlf.txt": crlf.replace("line 5", task), "open.txt": f"a\n{task}"},
        )
        for task in ("one", "two")
    ]
    found = await repo.merging.conflicts(repo.repository, base, pieces)
    hunks = {each.path: each.hunks for each in found if each.kind == "hunk_conflict"}
    expected = "<<<<<<< one\none\r\n||||||| before\nline 5\r\n=======\ntwo\r\n>>>>>>> two"
    assert hunks["crlf.txt"] == (expected,)
    assert hunks["open.txt"] == ("<<<<<<< one\none\n||||||| before\nb\n=======\ntwo\n>>>>>>> two",)


async def test_an_empty_file_that_both_filled(repo: Repo):
    base = repo.commit({"empty.txt": ""})
    one = repo.piece("one", base, {"empty.txt": "of one\n"})
    two = repo.piece("two", base, {"empty.txt": "of two\n"})
    found = await repo.merging.conflicts(repo.repository, base, [one, two])
    assert the("hunk_conflict", found).hunks == (
        "<<<<<<< one\nof one\n||||||| before\n=======\nof two\n>>>>>>> two",
    )


async def test_a_file_that_both_made(repo: Repo):
    base = repo.commit({"a.txt": LINES})
    one = repo.piece("one", base, {"new.txt": "of one\n"})
    two = repo.piece("two", base, {"new.txt": "of two\n"})
    found = await repo.merging.conflicts(repo.repository, base, [one, two])
    assert "of one" in the("hunk_conflict", found).hunks[0]


async def test_the_same_change_by_both_is_an_overlap_only(repo: Repo):
    base = repo.commit({"a.txt": LINES})
    one = repo.piece("one", base, {"a.txt": changed(5, "same"), "mine.txt": ""})
    two = repo.piece("two", base, {"a.txt": changed(5, "same")})
    found = await repo.merging.conflicts(repo.repository, base, [one, two])
    assert kinds(found) == {("file_overlap", "a.txt", ("one", "two"))}


async def test_long_hunks_are_cut_on_both_sides(repo: Repo):
    base = repo.commit({"a.txt": "".join(f"{n}\n" for n in range(1000))})
    one = repo.piece("one", base, {"a.txt": "".join(f"one {n}\n" for n in range(1000))})
    two = repo.piece("two", base, {"a.txt": "x" * 100_000 + "\n" + "two\n" * 1000})
    found = await repo.merging.conflicts(repo.repository, base, [one, two])
    (hunk,) = the("hunk_conflict", found).hunks
    assert len(hunk) < 5_000
    assert hunk.count("more lines)") == 3
    assert hunk.startswith("<<<<<<< one\none 0\n") and hunk.endswith("\n>>>>>>> two")


async def test_comparing_leaves_nothing_in_the_repository(repo: Repo):
    base = repo.commit({"a.txt": LINES})
    one = repo.piece("one", base, {"a.txt": changed(5, "of one")})
    two = repo.piece("two", base, {"a.txt": changed(5, "of two")})
    repo.done()
    before = repo.state(), repo.objects()
    await repo.merging.conflicts(repo.repository, base, [one, two])
    assert (repo.state(), repo.objects()) == before
    assert repo.leftovers() == []


async def test_the_project_says_how_its_files_are_merged(repo: Repo):
    """As `git merge` in a checkout would do it."""
    rules = {".gitattributes": "*.log merge=union\n", "data/.gitattributes": "* -merge\n"}
    base = repo.commit({**rules, "all.log": "first\n", "data/a.txt": LINES})
    one = repo.piece("one", base, {"all.log": "first\none\n", "data/a.txt": changed(2, "one")})
    two = repo.piece("two", base, {"all.log": "first\ntwo\n", "data/a.txt": changed(19, "two")})
    found = await repo.merging.conflicts(repo.repository, base, [one, two])
    assert kinds(found) == {
        ("file_overlap", "all.log", ("one", "two")),
        ("file_overlap", "data/a.txt", ("one", "two")),
        ("binary", "data/a.txt", ("one", "two")),
    }


@pytest.mark.parametrize("count", [2, 5])
async def test_a_git_that_merges_one_pair_at_a_time_tells_the_same(
    repo: Repo, tmp_path: Path, count: int
):
    """As git 2.38 does; made by refusing what came after it."""
    base = repo.commit({"a.txt": LINES, "b.txt": LINES})
    pieces = [
        repo.piece(f"t{n}", base, {"a.txt": changed(5 + n // 2, f"t{n}"), f"{n}": ""})
        for n in range(count)
    ]
    old = tmp_path / "old-git"
    refuse = (
        'for each; do [ "$each" = --stdin ] && tried=1; [ "$each" = merge-tree ] && merge=1; done'
    )
    old.write_text(f'#!/bin/sh\n{refuse}\n[ "$tried$merge" = 11 ] && exit 129\nexec git "$@"\n')
    old.chmod(0o755)
    merging = GitMerging(Git(repo.top, ENV, git=str(old)), repo.root)
    found = await repo.merging.conflicts(repo.repository, base, pieces)
    assert found
    assert await merging.conflicts(repo.repository, base, pieces) == found


async def test_what_the_user_likes_in_conflicts_changes_nothing(repo: Repo):
    base = repo.commit({"a.txt": LINES})
    one = repo.piece("one", base, {"a.txt": changed(5, "of one")})
    two = repo.piece("two", base, {"a.txt": changed(5, "of two")})
    found = await repo.merging.conflicts(repo.repository, base, [one, two])
    repo.git("config", "merge.conflictStyle", "merge")
    repo.git("config", "core.quotePath", "true")
    repo.git("config", "safe.bareRepository", "explicit")
    repo.git("config", "core.abbrev", "4")
    anew = GitMerging(Git(repo.top, ENV), repo.root)
    assert await anew.conflicts(repo.repository, base, [one, two]) == found


async def test_no_room_for_trials_is_told_with_the_place(repo: Repo):
    base = repo.commit({"a.txt": LINES})
    repo.root.write_text("a file is in the way")
    with pytest.raises(
        EnvironmentTrouble, match=r"cannot make a temporary folder in .*scratch.*Free some space"
    ):
        async with repo.merging.scratch(repo.repository, base):
            pass
