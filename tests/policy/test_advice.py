"""When not to delegate, when not to split, and when words will do."""

import pytest
from routing_ground import GLM, a_task

from goent.domain.task_profile import Classification, TaskType
from goent.domain.types import Method
from goent.routing.forecast import estimate_task
from goent.routing.task_advice import advise, needs_no_tools


def advice(task: Classification, *files: str, method: Method = "acp") -> str:
    return " ".join(advise(task, files, method, estimate_task(task, method, GLM.price)))


@pytest.mark.spec("P28")
def test_an_edit_of_a_few_lines_is_not_worth_a_worker() -> None:
    small = a_task("fix", "trivial", files=1, size=3)
    assert advice(small).startswith("Do not delegate")
    assert advice(a_task("fix", "trivial", files=1, size=40)) == ""
    assert advice(a_task("fix", "trivial", files=2, size=3)) == ""
    assert advice(a_task("analyze", "trivial", files=1, size=1)) == ""


@pytest.mark.spec("P28")
def test_files_of_one_folder_belong_to_one_worker() -> None:
    task = a_task("refactor", "high", files=3)
    together = advice(task, "src/a/x.py", "src/a/y.py", "src/a/z.py")
    assert "Do not split: the 3 files are in 'src/a'" in together
    assert "Split it" in advice(task, "src/a/x.py", "src/b/y.py", "src/c/z.py")


def test_much_work_should_be_split_and_verified() -> None:
    big = advice(a_task("implement", "complex", named=20))
    assert "Split it: 20 files are much" in big and "Pass verify commands" in big
    assert advice(a_task("implement", "medium", files=20)) == ""
    assert "a high task like this is much" in advice(a_task("implement", "high"))


def test_a_question_is_answered_in_one_call() -> None:
    assert "one call" in advice(a_task("analyze", "simple"), method="api")


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("What is the difference between a mutex and a semaphore?", "analyze", True),
        ("Explain how garbage collection works in Go", "analyze", True),
        ("Explain this repository in five lines.", "analyze", False),
        ("How does the scheduler pick a worker?", "analyze", False),
        ("Why does tests/core/test_life.py fail?", "analyze", False),
        ("Explain setup.py", "documentation", False),
        ("Explain TLS and write a summary file", "documentation", False),
        ("What is TLS?", "implement", False),
        ("Compare SQLite with PostgreSQL", "review", True),
    ],
)
def test_only_what_needs_nothing_of_the_project_can_do_with_words(
    text: str, kind: TaskType, words: bool
) -> None:
    assert needs_no_tools(text, kind, attached=False) is words


def test_a_question_about_a_file_that_comes_with_it_needs_words_alone() -> None:
    assert needs_no_tools("What does this function do?", "analyze", attached=True)
    assert not needs_no_tools("Fix this function", "analyze", attached=True)
