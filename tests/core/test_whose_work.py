"""Several in one folder: whose work a change is, and where they meet."""

import time
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest
from real_git import Repository
from scripted_project import OpenProject, Project, assert_grammar, result, spawn, wait

from goent.domain.events import DriverEvent, FilesChanged, TextDelta, ToolCall, TurnStarted
from goent.domain.replies import Result, WorkerList
from goent.domain.types import AlsoChanged, Command, FileChange, Overlap, OverlapKind, Prompt
from goent.testing.driver import Pause, ScriptedDriver, ScriptedMove, question
from goent.workers.folder_changes import CLOCK_TOLERANCE_S
from goent.workers.worker_report import SHARED_LIMIT

pytestmark = pytest.mark.anyio

DONE = TextDelta(text="Done.")


def command(name: str = "c1", line: str = "sed -i s/one/1/ app.txt", *, ends: bool) -> DriverEvent:
    return ToolCall(
        id=name,
        tool="bash",
        status="completed" if ends else "running",
        command=Command(command=line, exit=0 if ends else None),
    )


def edit(path: str, old: str, new: str, name: str = "e1") -> Sequence[DriverEvent]:
    return (
        ToolCall(
            id=name, tool="edit", status="running", input={"oldString": old, "newString": new}
        ),
        ToolCall(
            id=name,
            tool="edit",
            status="completed",
            changes=(FileChange(path=path, added=1, removed=1),),
        ),
    )


def paused_in_a_command(at: Pause) -> Sequence[ScriptedMove]:
    return (command(ends=False), at, command(ends=True), DONE)


def each_its_own(**turns: Sequence[ScriptedMove]) -> ScriptedDriver:
    def told(prompt: Prompt) -> Sequence[ScriptedMove]:
        return turns[prompt.text]

    return ScriptedDriver(told)


async def ended(project: Project, *workers: str) -> list[Result]:
    """Their results, once all that changed could be compared."""
    await wait(project, *workers, timeout_s=60)
    for worker in workers:
        events = await project.events(worker)
        assert not [e.unseen for e in events if isinstance(e, FilesChanged) and e.unseen]
    return [await result(project, worker) for worker in workers]


async def test_what_a_command_changed_is_among_the_files_with_its_lines(
    open_project: OpenProject, repository: Repository
) -> None:
    at = Pause()
    before = repository.state()
    async with open_project(ScriptedDriver(lambda _: paused_in_a_command(at))) as project:
        worker = await spawn(project)
        await at.reached.wait()
        repository.write("app.txt", "1\ntwo\nthree\n")
        (repository.top / "README.md").unlink()
        at.go_on.set()
        (told,) = await ended(project, worker)
        assert told.files == (
            FileChange(path="README.md", added=0, removed=1),
            FileChange(path="app.txt", added=1, removed=1),
        )
        assert (told.also_changed, told.overlaps, told.notes) == ((), (), ())
        output = await project.queries.whole_output(worker)
        assert "changed by its commands: README.md, app.txt" in output
        await project.ask("worker_cancel", worker_id=worker, close=True)
        assert_grammar(await project.events(worker))
    assert repository.state()[:3] == before[:3]
    assert not list((repository.top.parent / "state").glob("observed-*"))


async def test_what_was_changed_before_the_turn_is_nobodys_work(
    open_project: OpenProject, repository: Repository
) -> None:
    repository.write("app.txt", "dirty\n")
    repository.write("untracked.txt")
    at = Pause()
    at.go_on.set()
    async with open_project(ScriptedDriver(lambda _: paused_in_a_command(at))) as project:
        (told,) = await ended(project, await spawn(project))
    assert (told.files, told.also_changed, told.notes) == ((), (), ())


async def test_what_changed_while_no_command_ran_is_not_the_workers(
    open_project: OpenProject, repository: Repository
) -> None:
    at = Pause()
    moves = [*edit("src.txt", "a", "b"), at, DONE]
    async with open_project(ScriptedDriver(lambda _: moves)) as project:
        worker = await spawn(project)
        await at.reached.wait()
        repository.write("app.txt", "by hand\n")
        at.go_on.set()
        (told,) = await ended(project, worker)
        assert "1 other file changed meanwhile" in await project.queries.whole_output(worker)
    assert [file.path for file in told.files] == ["src.txt"]
    assert told.also_changed == (AlsoChanged(path="app.txt"),)


async def test_of_much_that_changed_meanwhile_some_is_listed_and_all_is_counted(
    open_project: OpenProject, repository: Repository
) -> None:
    at = Pause()
    async with open_project(ScriptedDriver(lambda _: [at, DONE])) as project:
        worker = await spawn(project)
        await at.reached.wait()
        for number in range(9):
            repository.write(f"{number}.txt")
        at.go_on.set()
        (told,) = await ended(project, worker)
    assert [each.path for each in told.also_changed] == [f"{n}.txt" for n in range(SHARED_LIMIT)]
    assert told.notes == (f"9 files also changed meanwhile, of which {SHARED_LIMIT} are listed",)


async def test_what_changed_while_a_command_waited_for_a_yes_is_not_its_work(
    open_project: OpenProject, repository: Repository
) -> None:
    at = Pause()
    moves = (command(ends=False), question("q1"), at, command(ends=True), DONE)
    async with open_project(ScriptedDriver(lambda _: moves)) as project:
        worker = await spawn(project)
        await wait(project, worker)
        by_hand = repository.write("app.txt", "by hand\n")
        while time.time() - CLOCK_TOLERANCE_S <= by_hand.stat().st_ctime:  # noqa: ASYNC110 (a clock announces nothing)
            await anyio.sleep(0.001)
        await project.ask(
            "worker_answer", worker_id=worker, permission_id="q1", option="allow_once"
        )
        await at.reached.wait()
        repository.write("by-command.txt")
        at.go_on.set()
        (told,) = await ended(project, worker)
    assert [file.path for file in told.files] == ["by-command.txt"]
    assert told.also_changed == (AlsoChanged(path="app.txt"),)


async def test_of_two_whose_commands_ran_together_neither_is_given_the_change(
    open_project: OpenProject, repository: Repository
) -> None:
    first, second = Pause(), Pause()
    driver = each_its_own(one=paused_in_a_command(first), two=paused_in_a_command(second))
    async with open_project(driver) as project:
        one, two = await spawn(project, "one"), await spawn(project, "two")
        await first.reached.wait()
        await second.reached.wait()
        repository.write("app.txt", "by one of them\n")
        first.go_on.set()
        (told,) = await ended(project, one)
        assert told.also_changed == (AlsoChanged(path="app.txt", by=(one, two)),)
        second.go_on.set()
        (told,) = await ended(project, two)
        assert told.also_changed == (AlsoChanged(path="app.txt", by=(two, one)),)
        assert (told.files, told.overlaps) == ((), ())


async def test_who_only_looks_or_edits_or_waits_for_a_yes_is_no_candidate(
    open_project: OpenProject, repository: Repository
) -> None:
    first = Pause()
    reads = ToolCall(id="r", tool="read", status="running")
    edits = ToolCall(id="e", tool="edit", status="running")
    others: dict[str, Sequence[ScriptedMove]] = {
        "reads": (reads, Pause()),
        "edits": (edits, Pause()),
        "waits": (command(ends=False), question("q1")),
    }
    driver = each_its_own(one=paused_in_a_command(first), **others)
    async with open_project(driver) as project:
        for name, moves in others.items():
            worker = await spawn(project, name)
            if isinstance(pause := moves[-1], Pause):
                await pause.reached.wait()
            else:
                await wait(project, worker)
        one = await spawn(project, "one")
        await first.reached.wait()
        repository.write("new.txt")
        first.go_on.set()
        (told,) = await ended(project, one)
    assert [file.path for file in told.files] == ["new.txt"]


async def test_beside_a_worker_whose_commands_are_told_at_their_end_it_may_be_either(
    open_project: OpenProject, repository: Repository
) -> None:
    first, second = Pause(), Pause()
    driver = each_its_own(one=paused_in_a_command(first), two=(second, DONE))
    async with open_project(driver) as project:
        one, two = await spawn(project, "one"), await spawn(project, "two", method="cli")
        await first.reached.wait()
        await second.reached.wait()
        repository.write("new.txt")
        first.go_on.set()
        (told,) = await ended(project, one)
    assert told.also_changed == (AlsoChanged(path="new.txt", by=(one, two)),)


async def test_what_is_anothers_for_certain_is_told_in_that_ones_result_alone(
    open_project: OpenProject, repository: Repository
) -> None:
    first, second, third = Pause(), Pause(), Pause()
    driver = each_its_own(
        one=paused_in_a_command(first), two=(second, *edit("app.txt", "one", "1"), third, DONE)
    )
    async with open_project(driver) as project:
        one, two = await spawn(project, "one"), await spawn(project, "two")
        await first.reached.wait()
        await second.reached.wait()
        repository.write("new.txt")
        first.go_on.set()
        (theirs,) = await ended(project, one)
        second.go_on.set()
        await third.reached.wait()
        third.go_on.set()
        (told,) = await ended(project, two)
    assert [file.path for file in theirs.files] == ["new.txt"]
    assert [file.path for file in told.files] == ["app.txt"]
    assert told.also_changed == theirs.also_changed == ()


@pytest.mark.spec("P31")
@pytest.mark.parametrize(
    ("left", "kind"), [("1\ntwo\n3\n", "file_overlap"), ("ONE\ntwo\n3\n", "hunk_conflict")]
)
async def test_two_that_edit_one_file_at_the_same_time_are_told_everywhere(
    open_project: OpenProject, repository: Repository, left: str, kind: OverlapKind
) -> None:
    """In both results, in the list, and in a notice to each; lost lines apart from the rest."""
    first, second = Pause(), Pause()
    driver = each_its_own(
        one=(*edit("app.txt", "one\n", "1\n"), first, DONE),
        two=(second, *edit("app.txt", "three\n", "3\n"), DONE),
    )
    async with open_project(driver) as project:
        one, two = await spawn(project, "one"), await spawn(project, "two")
        await first.reached.wait()
        await second.reached.wait()
        repository.write("app.txt", left)
        second.go_on.set()
        await ended(project, two)
        first.go_on.set()
        told = await ended(project, one, two)
        assert [each.overlaps for each in told] == [
            (Overlap(worker_id=two, path="app.txt", kind=kind),),
            (Overlap(worker_id=one, path="app.txt", kind=kind),),
        ]
        clash = "one overwrote lines of the other" in told[0].notes[0]
        assert clash == (kind == "hunk_conflict")
        assert f"{two} changed 1 of the same files" in told[0].notes[0]
        listed = await project.ask("worker_list")
        assert isinstance(listed, WorkerList)
        assert {each.worker_id: each.overlaps for each in listed.workers} == {
            one: (two,),
            two: (one,),
        }
        for me, other in ((one, two), (two, one)):
            output = await project.queries.whole_output(me)
            assert output.count(f"{other} changed app.txt, too") == 1
            await project.ask("worker_cancel", worker_id=me, close=True)
            assert_grammar(await project.events(me))


async def test_a_command_and_an_edit_of_the_same_file_overlap_also_if_one_has_ended(
    open_project: OpenProject, repository: Repository
) -> None:
    first, second, third = Pause(), Pause(), Pause()
    driver = each_its_own(
        one=paused_in_a_command(first),
        two=(second, *edit("app.txt", "three\n", "3\n"), third, DONE),
    )
    async with open_project(driver) as project:
        one, two = await spawn(project, "one"), await spawn(project, "two", cwd=".")
        await first.reached.wait()
        await second.reached.wait()
        repository.write("app.txt", "1\ntwo\nthree\n")
        first.go_on.set()
        (alone,) = await ended(project, one)
        assert alone.overlaps == ()
        repository.write("app.txt", "1\ntwo\n3\n")
        second.go_on.set()
        await third.reached.wait()
        third.go_on.set()
        (late,) = await ended(project, two)
        early = await result(project, one)
    assert late.overlaps == (Overlap(worker_id=one, path="app.txt"),)
    assert early.overlaps == (Overlap(worker_id=two, path="app.txt"),)


async def clock_moves_on() -> None:
    """What happens within one tick of a file system's clock cannot be told apart."""
    await anyio.sleep(2 * CLOCK_TOLERANCE_S)


@pytest.mark.spec("P31")
async def test_two_whose_commands_change_one_file_in_turns_overlap(
    open_project: OpenProject, repository: Repository
) -> None:
    """After a command the files are looked at, if others are at work: so neither hides the other."""
    first, second, third = Pause(), Pause(), Pause()
    driver = each_its_own(
        one=(command(ends=False), first, command(ends=True), third, DONE),
        two=paused_in_a_command(second),
    )
    async with open_project(driver) as project:
        one = await spawn(project, "one")
        await first.reached.wait()
        repository.write("app.txt", "1\ntwo\nthree\n")
        await clock_moves_on()
        two = await spawn(project, "two")
        await second.reached.wait()
        first.go_on.set()
        await third.reached.wait()
        await clock_moves_on()
        repository.write("app.txt", "1\ntwo\n3\n")
        second.go_on.set()
        await ended(project, two)
        third.go_on.set()
        told = await ended(project, one, two)
    assert [each.overlaps for each in told] == [
        (Overlap(worker_id=two, path="app.txt"),),
        (Overlap(worker_id=one, path="app.txt"),),
    ]
    assert [[file.path for file in each.files] for each in told] == [["app.txt"], ["app.txt"]]


async def test_one_after_the_other_is_no_overlap(open_project: OpenProject) -> None:
    async with open_project(ScriptedDriver(lambda _: [*edit("app.txt", "a", "b")])) as project:
        for _ in range(2):
            (told,) = await ended(project, await spawn(project))
            assert (told.overlaps, told.notes) == ((), ())


async def test_paths_are_told_as_the_workers_tools_name_them(
    open_project: OpenProject, repository: Repository
) -> None:
    at = Pause()
    (repository.top / "sub").mkdir()
    async with open_project(ScriptedDriver(lambda _: paused_in_a_command(at))) as project:
        worker = await spawn(project, cwd="sub")
        await at.reached.wait()
        repository.write("sub/in.txt")
        repository.write("above.txt")
        at.go_on.set()
        (told,) = await ended(project, worker)
    assert {file.path for file in told.files} == {"in.txt", str(repository.top / "above.txt")}


async def test_the_files_are_looked_at_while_the_session_is_opened(
    open_project: OpenProject, repository: Repository
) -> None:
    at = Pause()
    driver = ScriptedDriver(lambda _: paused_in_a_command(at))
    driver.ready = anyio.Event()
    async with open_project(driver) as project:
        worker = await spawn(project)
        state = repository.top.parent / "state"
        with anyio.fail_after(60):
            while not list(state.glob("observed-*/index-0")):  # noqa: ASYNC110 (a file announces nothing)
                await anyio.sleep(0.01)
        assert not driver.opened
        driver.ready.set()
        await at.reached.wait()
        repository.write("new.txt")
        at.go_on.set()
        (told,) = await ended(project, worker)
    assert [file.path for file in told.files] == ["new.txt"]
    assert not list(state.glob("observed-*"))


async def test_a_second_turn_adds_to_the_first(
    open_project: OpenProject, repository: Repository
) -> None:
    pauses = {"first": Pause(), "second": Pause()}
    driver = ScriptedDriver(lambda prompt: paused_in_a_command(pauses[prompt.text]))
    async with open_project(driver) as project:
        worker = await spawn(project, "first")
        await pauses["first"].reached.wait()
        repository.write("app.txt", "1\ntwo\nthree\n")
        pauses["first"].go_on.set()
        await ended(project, worker)
        repository.commit("by hand, between the turns")
        await project.ask("worker_prompt", worker_id=worker, prompt="second")
        await pauses["second"].reached.wait()
        repository.write("app.txt", "1\n2\n3\n")
        pauses["second"].go_on.set()
        (told,) = await ended(project, worker)
    assert told.files == (FileChange(path="app.txt", added=3, removed=3),)


@pytest.mark.parametrize("how", [{"permissions": "readonly"}, {"isolation": "worktree"}])
async def test_who_cannot_change_a_shared_folder_is_not_watched(
    open_project: OpenProject, repository: Repository, how: dict[str, str]
) -> None:
    at = Pause()
    async with open_project(ScriptedDriver(lambda _: paused_in_a_command(at))) as project:
        worker = await spawn(project, **how)
        await at.reached.wait()
        repository.write("app.txt", "by hand\n")
        at.go_on.set()
        (told,) = await ended(project, worker)
        seen = [e for e in await project.events(worker) if isinstance(e, FilesChanged)]
    assert (told.also_changed, seen) == ((), [])


async def test_what_cannot_be_compared_is_said(
    open_project: OpenProject, repository: Repository
) -> None:
    index = repository.top / ".git" / "index"
    index.write_bytes(b"damaged")
    at = Pause()
    at.go_on.set()
    async with open_project(ScriptedDriver(lambda _: paused_in_a_command(at))) as project:
        worker = await spawn(project)
        await wait(project, worker, timeout_s=60)
        told = await result(project, worker)
    (note,) = told.notes
    assert note.startswith("changes by shell commands may be missing:") and "index" in note


async def test_a_folder_without_git_is_looked_at_as_well(
    open_project: OpenProject, tmp_path: Path
) -> None:
    at = Pause()
    async with open_project(ScriptedDriver(lambda _: paused_in_a_command(at))) as project:
        worker = await spawn(project)
        await at.reached.wait()
        (tmp_path / "project" / "new.txt").write_text("a\nb\n")
        at.go_on.set()
        (told,) = await ended(project, worker)
    assert told.files == (FileChange(path="new.txt", added=2, removed=0),)


async def test_a_turn_that_its_go_ent_died_in_says_that_the_look_is_lost(
    open_project: OpenProject,
) -> None:
    async with open_project(ScriptedDriver(lambda _: [DONE])) as project:
        worker = await spawn(project)
        await ended(project, worker)
        await project.feed.append(worker, TurnStarted(turn=2, prompt="more"))
        await project.feed.commit()
        life = project.orchestrator.living_workers[worker]
        life._services.feed.append = _nothing  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue] (a kill cannot be had otherwise in one process)
    async with open_project(ScriptedDriver(lambda _: [DONE])) as project:
        told = await result(project, worker)
    assert any("go-ent stopped during the turn" in note for note in told.notes)


async def _nothing(*_: object) -> None: ...
