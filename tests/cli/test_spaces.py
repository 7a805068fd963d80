"""`go-ent gc`, at the command line."""

import json
from pathlib import Path

from desk import Desk, OpenDesk
from real_git import Repository, a_repository

from goent.cli.labels import byte_size
from goent.testing.driver import say


def a_closed_worker(desk: Desk, text: str = "new\n") -> str:
    """One that has left this in its folder."""
    worker = desk.detached("do it", "--isolation", "worktree")
    desk.until(worker, "completed")
    if text:
        (Path(cwd_of(desk, worker)) / "new.txt").write_text(text)
        assert desk.go_ent("prompt", worker, "more").code == 0
    assert desk.go_ent("cancel", "--close", worker).code == 0
    return worker


def cwd_of(desk: Desk, worker: str) -> str:
    return str(json.loads(desk.go_ent("status", worker, "--json").out)["cwd"])


def repository_of(desk: Desk) -> Repository:
    return a_repository(desk.project.folder)


def test_unmerged_work_is_listed_and_goes_only_by_name(open_desk: OpenDesk) -> None:
    with open_desk(lambda _: [say("done")]) as desk:
        repository = repository_of(desk)
        assert desk.go_ent("gc").out == "no workers' folders are kept\n"
        worker = a_closed_worker(desk)
        shown = desk.go_ent("gc").out
        assert worker in shown
        assert "unmerged: merge the branch" in shown
        assert repository.git("show", f"go-ent/solo/{worker}:new.txt") == "new"
        listed = json.loads(desk.go_ent("gc", "--dry-run", "--json").out)
        (space,) = listed["kept"]
        assert (space["worker"], space["state"], listed["removed"]) == (worker, "unmerged", [])
        removed = desk.go_ent("gc", "--remove", worker).out
        assert f"removed {worker} (unmerged" in removed
        assert f"branch NAME {space['commit'][:12]}` brings its work back" in removed
        repository.git("branch", "rescued", space["commit"])
        assert repository.git("show", "rescued:new.txt") == "new"
        assert not Path(space["path"]).exists()


def test_merged_work_goes_by_itself(open_desk: OpenDesk) -> None:
    with open_desk(lambda _: [say("done")]) as desk:
        repository = repository_of(desk)
        worker = a_closed_worker(desk)
        repository.git("merge", "-q", f"go-ent/solo/{worker}")
        assert f"{worker}  merged" in desk.go_ent("gc", "-n").out
        assert f"removed {worker} (merged" in desk.go_ent("gc").out
        assert repository.git("branch", "--list", "go-ent/*") == ""


def test_a_folder_in_use_is_not_removed_and_one_that_is_not_there_is_named(
    open_desk: OpenDesk,
) -> None:
    with open_desk(lambda _: [say("done")]) as desk:
        repository_of(desk)
        closed, worker = a_closed_worker(desk), desk.detached("do it", "--isolation", "worktree")
        desk.until(worker, "completed")
        for name, words in ((worker, "close it first"), ("w-nobody", "has no workspace")):
            refused = desk.go_ent("gc", "--remove", closed, "--remove", name)
            assert refused.code == 2
            assert words in refused.err
        assert "in_use" in desk.go_ent("gc").out
        assert closed in desk.go_ent("gc").out
        assert Path(cwd_of(desk, worker)).is_dir()


def test_sizes_are_said_for_people() -> None:
    assert [byte_size(n) for n in (0, 1023, 2048, 15 * 2**20, 3 * 2**30)] == [
        *("0 B", "1023 B", "2.0 KiB", "15 MiB", "3.0 GiB")
    ]
