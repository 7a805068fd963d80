"""What a task is: told from its words, explained, and within bounded time for any text."""

import subprocess
import sys
import time
from importlib.resources import files

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goent.domain.task_profile import COMPLEXITIES, TASK_TYPES, TaskContext, TaskText, TaskType
from goent.routing.classification import classify
from goent.routing.task_features import FILE, features, load_weights, prefix

WEIGHTS = load_weights()
EXAMPLES: tuple[tuple[str, TaskType], ...] = (
    ("add a dark mode to the settings page", "implement"),
    ("support pagination in the users endpoint", "implement"),
    ("prevent a crash when the config file is empty", "fix"),
    ("handle null response from the payment service", "fix"),
    ("the upload hangs when the disk is full", "fix"),
    ("extract the retry logic into a module of its own", "refactor"),
    ("Refactor the authentication module to use dependency injection", "refactor"),
    ("fix typo in README", "documentation"),
    ("document the new configuration options", "documentation"),
    ("add unit tests for the parser", "test"),
    ("cover the error path of the uploader", "test"),
    ("run prettier over all files", "format"),
    ("fix eslint warnings", "format"),
    ("Please review the changes in src/api.py", "review"),
    ("Why does the build take ten minutes?", "analyze"),
    ("explain how the cache is invalidated", "analyze"),
)


@pytest.mark.parametrize(("text", "kind"), EXAMPLES)
def test_a_plain_task_is_what_a_person_would_say(text: str, kind: TaskType):
    assert classify(TaskText(text=text), weights=WEIGHTS).type == kind


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("feat: crash handling", "implement"),
        ("fix(ui): add a button", "fix"),
        ("docs(api)!: refactor it", "documentation"),
        ("style: reword", "format"),
        ("bugfix: add tests", "fix"),
    ],
)
def test_a_type_that_the_author_wrote_in_front_decides(text: str, kind: TaskType):
    told = classify(TaskText(text=text), weights=WEIGHTS)
    assert told.type == kind
    assert told.features[0].name.startswith("begins with")


def test_the_callers_word_for_it_is_obeyed():
    told = classify(TaskText(text="fix the crash", type="review"), weights=WEIGHTS)
    assert (told.type, told.confidence) == ("review", 1.0)
    assert told.features[0].name == "the caller says 'review'"


def test_a_stack_trace_is_a_fix():
    text = 'see this\n\nTraceback (most recent call last):\n  File "a.py", line 3\nKeyError: 3'
    told = classify(TaskText(text=text), weights=WEIGHTS)
    assert told.type == "fix"
    assert "stack trace" in [feature.name for feature in told.features]


@pytest.mark.parametrize("text", ["fix: ", "fix:", "notes: keep them", "fixture: a"])
def test_what_only_looks_like_a_prefix_is_left_alone(text: str):
    assert prefix(text) == (None, text)


def test_a_typo_is_trivial_and_a_scheduler_is_not():
    typo = classify(TaskText(text="fix typo in README"), weights=WEIGHTS)
    scheduler = classify(
        TaskText(text="implement a distributed scheduler with a web dashboard"), weights=WEIGHTS
    )
    assert typo.complexity == "trivial"
    assert COMPLEXITIES.index(scheduler.complexity) >= COMPLEXITIES.index("complex")
    assert typo.size < scheduler.size / 10


def test_many_files_and_a_large_context_make_it_harder():
    task = TaskText(text="rename the option everywhere")
    alone = classify(task, weights=WEIGHTS)
    large = classify(task, weights=WEIGHTS, context=TaskContext(files=30, tokens=90_000))
    assert COMPLEXITIES.index(large.complexity) == COMPLEXITIES.index(alone.complexity) + 2
    assert (large.files, large.context_tokens - alone.context_tokens) == (30, 90_000)
    told = {feature.name for feature in large.features if feature.of == "size"}
    assert {"many files", "a large context"} <= told


def test_files_that_are_counted_in_words_count():
    told = classify(TaskText(text="rename it across 15 files"), weights=WEIGHTS)
    assert told.files == 15


def test_the_features_that_decided_are_words_of_the_task():
    told = classify(TaskText(text="add unit tests for the parser"), weights=WEIGHTS)
    names = [feature.name for feature in told.features if feature.of == "type"]
    assert "worded like a wish for tests" in names
    assert any("tests" in name for name in names[1:])
    assert all(feature.weight for feature in told.features)


def test_words_of_politeness_change_nothing():
    plain = features("add tests for the parser")
    assert features("Please, could you add tests for the parser") == plain


def test_the_same_text_gives_the_same_answer():
    task = TaskText(text="migrate the dashboard to the new client (ui)")
    assert classify(task, weights=WEIGHTS) == classify(task, weights=WEIGHTS)


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=600))
def test_any_text_has_a_classification(text: str):
    told = classify(TaskText(text=text), weights=WEIGHTS)
    assert told.type in TASK_TYPES
    assert told.complexity in COMPLEXITIES
    assert 0 < told.confidence <= 1
    assert told.files >= 1 and told.size >= 1 and told.context_tokens >= 0


@pytest.mark.parametrize(
    "piece",
    [
        "a",
        " ",
        "\n",
        "fix ",
        "- x\n",
        "at a:1\n",
        "(",
        "\ud800",
        "no ",
        "1 ",
        "every ",
        "é",
        "😀",
        "please ",
    ],
)
def test_five_megabytes_take_no_longer_than_a_glance(piece: str):
    text = piece * (5_000_000 // len(piece))
    begun = time.process_time()
    told = classify(TaskText(text=text), weights=WEIGHTS)
    assert time.process_time() - begun < 1.0
    assert told.context_tokens > 0 or not text.strip()


def test_the_weights_are_small_and_hold_no_words():
    packed = files("goent.routing").joinpath(FILE).read_bytes()
    assert len(packed) < 400_000
    assert b"test" not in packed
    assert b"readme" not in packed


def test_nothing_is_loaded_before_it_is_asked_for():
    code = (
        "import sys, goent.cli.main, goent.daemon.daemon_server;"
        "late = ('goent.routing.classification', 'goent.routing.task_features', 'goent.routing.task_grammar');"
        "print([name for name in sys.modules if name.startswith(late)])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
