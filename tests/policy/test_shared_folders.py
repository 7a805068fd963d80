from goent.workers.change_attribution import SharedWork, shared_overlaps

NOW = 1_000_000.0


def work(task: str, *edited: str, began: float = 0, ended: float = 10):
    return SharedWork(task=task, edited=edited, began=NOW + began, ended=NOW + ended)


def at(second: float, size: int = 1):
    return size, int((NOW + second) * 1e9)


def test_a_file_that_two_edited_is_an_overlap_however_they_named_it():
    works = [
        work("one", "/p/src/a.py", "b.py"),
        work("two", "src/../src/a.py"),
        work("far", "c.py"),
    ]
    (found,) = shared_overlaps("/p", works, {}, {})
    assert (found.kind, found.path, found.tasks) == ("file_overlap", "src/a.py", ("one", "two"))
    assert found.detail == "edited by 'one', 'two' at the same time, in one folder"


def test_one_after_the_other_is_told_as_such():
    works = [work("one", "a.py"), work("two", "a.py", began=20, ended=30)]
    (found,) = shared_overlaps("/p", works, {}, {})
    assert "one after the other" in found.detail


def test_a_file_outside_keeps_its_whole_path():
    works = [work("one", "/q/a.py"), work("two", "../q/a.py")]
    assert [found.path for found in shared_overlaps("/p", works, {}, {})] == ["/q/a.py"]


def test_a_file_changed_again_while_its_editor_rested_is_somebody_elses_too():
    works = [work("one", "a.py"), work("two", "b.py", began=0, ended=60), work("three", began=50)]
    states = {"a.py": at(30), "b.py": at(30)}
    (found,) = shared_overlaps("/p", works, {}, states)
    assert (found.path, found.tasks) == ("a.py", ("one", "two"))
    assert "while it was not working" in found.detail


def test_of_several_who_may_have_changed_it_all_are_named():
    works = [work("one", "a.py"), work("two", ended=60), work("three", ended=60)]
    (found,) = shared_overlaps("/p", works, {"a.py": at(-5)}, {"a.py": at(30)})
    assert found.tasks == ("one", "two", "three")
    assert found.detail.endswith("by one of 'two', 'three'")


def test_what_its_editor_may_have_done_itself_is_no_overlap():
    works = [work("one", "a.py"), work("two", ended=60)]
    for before, after in (
        ({}, {"a.py": at(9)}),  # changed while its editor worked
        ({}, {"a.py": at(11)}),  # clocks differ a little
        ({"a.py": at(30)}, {"a.py": at(30)}),  # as it was
        ({"a.py": at(30)}, {}),  # gone: nobody knows when
        ({}, {"other.py": at(30)}),  # one change, by whomever
    ):
        assert shared_overlaps("/p", works, before, after) == ()
