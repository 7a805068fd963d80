"""Which tasks cannot be done in words alone? In doubt, they can."""

from pathlib import Path

import pytest

from goent.domain.task_profile import TaskText, TaskType
from goent.routing.classification import classify, count_context
from goent.routing.task_advice import asks_for_edits, only_reads
from goent.routing.task_features import load_weights


def asked(text: str, kind: TaskType | None = None) -> bool:
    task = TaskText(text=text, type=kind)
    context = count_context(task, Path(__file__).parent)
    return asks_for_edits(text, classify(task, weights=load_weights(), context=context))


@pytest.mark.parametrize(
    "text",
    [
        "Fix the crash when the list is empty",
        "Refactor the parser without changing its behaviour",
        "Add a --json flag to the list command",
        "Write tests for the date parser",
        "Please update the README",
        "Format the code with ruff",
        "Rename foo to bar in src/x.py",
        "feat(ui): a new button for the form",
        "Fix the login bug in src/login.py, then say what it was",
        "Document the config module",
        "Create src/app.py with a main function",
    ],
)
def test_an_order_to_change_something_of_the_project_asks_for_edits(text: str) -> None:
    assert asked(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "do it",
        "hello",
        "What does the doc say about retries?",
        "Why does the parser fail?",
        "Can the crash in src/x.py be fixed?",
        "Explain what this repository does",
        "Review the diff of src/x.py",
        "Run the tests",
        "Check whether the tests of the parser pass",
        "Find out why the build fails",
        "Suggest a fix for the flaky test in tests/test_a.py",
        "Write a haiku about the sea",
        "Write a summary of the docs",
        "Write a summary of docs/routing.md",
        "Update me on the state of the tests",
        "Add two and two, e.g. with and/or without carry",
        "Add up the figures of the table",
        "Change nothing in src/a.py, only look at it",
        "Fix the parser in src/a.py, but do not change any file: show what you would do",
        "Rename foo to bar in src/x.py; dry run",
        "Refactor the function and reply with the code",
        "Refactor the function:\n```python\nimport os.path, a/b/c.py\n```",
        "Implement a feature",
        "```",
    ],
)
def test_what_words_may_answer_does_not(text: str) -> None:
    assert not asked(text)


def test_an_order_of_a_kind_that_edits_nothing_does_not_either() -> None:
    assert not asked("Fix the crash in src/x.py", "analyze")


@pytest.mark.parametrize(
    ("text", "kind", "reads"),
    [
        ("Explain what README.md says", "analyze", True),
        ("Review README.md for spelling", "documentation", True),
        ("Summarize README.md", "documentation", True),
        ("Review the parser", "review", True),
        ("Document the parser", "documentation", False),
        ("Review the parser and fix what is wrong", "review", False),
        ("Explain why the tests fail: run them", "analyze", False),
        ("Fix the typo in README.md", "fix", False),
    ],
)
def test_a_task_that_only_reads_is_known(text: str, kind: TaskType, *, reads: bool) -> None:
    assert only_reads(text, kind) is reads
