"""Whose work is a change in a folder that several share?"""

import pytest

from goent.domain.workspace import ObservedChange
from goent.workers.change_attribution import (
    CallSpan,
    TurnActivity,
    edit_lines,
    lines_of,
    possible_authors,
)

COMMAND = CallSpan(began=10, ended=20)


def change(at: float | None, *, exact: bool = True) -> ObservedChange:
    return ObservedChange(path="/p/app.py", at=at, exact=exact)


def part(worker: str, *commands: CallSpan, edits: tuple[CallSpan, ...] = ()) -> TurnActivity:
    return TurnActivity(worker=worker, commands=commands, edits=edits)


def edit(began: float, ended: float | None, path: str = "/p/app.py") -> CallSpan:
    return CallSpan(began=began, ended=ended, path=path)


@pytest.mark.parametrize(
    ("at", "expected"),
    [(9.9, ()), (10, ("w-a",)), (20, ("w-a",)), (20.1, ()), (35, ("w-a", "w-b")), (41, ("w-b",))],
)
def test_a_change_is_of_whoever_had_a_command_running(at: float, expected: tuple[str, ...]):
    parts = [part("w-a", COMMAND, CallSpan(began=30, ended=40)), part("w-b", CallSpan(began=35))]
    assert possible_authors(change(at), parts) == expected


def test_a_command_may_have_begun_a_little_before_it_was_heard_of():
    late = CallSpan(began=22, ended=30, slack=5)
    assert possible_authors(change(21), [part("w-a", late)]) == ("w-a",)
    assert possible_authors(change(18), [part("w-a", late), part("w-b", COMMAND)]) == ("w-b",)


def test_an_edit_explains_a_change_that_happened_meanwhile():
    parts = [part("w-a", edits=(edit(12, 13),)), part("w-b", COMMAND)]
    assert possible_authors(change(12.5), parts) == ("w-a",)
    assert possible_authors(change(15), parts) == ("w-b",), "it was changed again"
    assert possible_authors(change(25), parts) == (), "by somebody else"


def test_an_edit_of_another_file_explains_nothing():
    parts = [part("w-a", edits=(edit(12, 13, "/p/other.py"),))]
    assert possible_authors(change(12.5), parts) == ()


def test_what_has_only_its_folders_time_is_of_those_who_had_begun_a_command_by_then():
    gone = change(15, exact=False)
    assert possible_authors(gone, [part("w-a", COMMAND)]) == ("w-a",)
    assert possible_authors(
        gone, [part("w-a", COMMAND), part("w-b", CallSpan(began=1, ended=2))]
    ) == (
        "w-a",
        "w-b",
    )
    later = change(25, exact=False)
    assert possible_authors(later, [part("w-a", COMMAND)]) == (), "the folder was changed by others"
    wrote = (edit(24, 26, "/p/new.py"),)
    assert possible_authors(later, [part("w-a", COMMAND, edits=wrote)]) == ("w-a",)


def test_without_any_time_it_is_of_those_who_ran_commands():
    parts = [part("w-a", COMMAND), part("w-b")]
    assert possible_authors(change(None), parts) == ("w-a",)
    assert possible_authors(change(None), [*parts, part("w-c", COMMAND)]) == ("w-a", "w-c")


def test_an_edits_lines_are_what_differs():
    said = edit_lines({"oldString": "a\n  b\nc", "newString": "a\n  B\nc\n\n"})
    assert said and (said.removed, said.added) == ({"b"}, {"B"})
    theirs = edit_lines({"file_path": "x", "old_string": "a", "new_string": ""})
    assert theirs and (theirs.removed, theirs.added) == ({"a"}, frozenset())


@pytest.mark.parametrize(
    "given", [None, "text", {}, {"content": "x"}, {"oldString": 1, "newString": 2}, []]
)
def test_of_anything_else_no_lines_are_known(given: object):
    assert edit_lines(given) is None


def test_a_long_edit_is_not_remembered():
    assert edit_lines({"oldString": "", "newString": "\n".join(map(str, range(1000)))}) is None


def test_blank_lines_are_no_lines():
    assert lines_of("\n  \n a \n") == {"a"}
