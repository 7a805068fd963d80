"""Tasks as people type them are taken for what they are, and little ones for little."""

import re
from pathlib import Path

import pytest
from plain_tasks import OTHERS, PLAIN, SIMPLE

from goent.domain.task_profile import COMPLEXITIES, TASK_TYPES, TaskText, TaskType
from goent.routing.classification import classify
from goent.routing.pins import tier_for
from goent.routing.task_features import load_weights
from goent.routing.task_grammar import (
    LIKELY,
    NOTED,
    QUESTION,
    REQUEST,
    SAID,
    STATEMENT,
    read_plainly,
)

WEIGHTS = load_weights()
CORPUS = Path(__file__).parents[2] / "scripts" / "classifier_plain.txt"


def kind_of(text: str) -> TaskType:
    return classify(TaskText(text=text), weights=WEIGHTS).type


@pytest.mark.parametrize(("text", "kind"), [*PLAIN, *OTHERS])
def test_a_plainly_worded_task_has_the_type_that_a_reader_would_give_it(text: str, kind: TaskType):
    assert kind_of(text) == kind


@pytest.mark.parametrize("text", SIMPLE)
def test_a_simple_task_is_not_hard_and_goes_to_the_small_model(text: str):
    told = classify(TaskText(text=text), weights=WEIGHTS)
    assert COMPLEXITIES.index(told.complexity) < COMPLEXITIES.index("medium")
    assert tier_for(told) == "haiku"
    assert told.size < 100
    assert told.named or told.files < 10


@pytest.mark.parametrize("text", ["What is 2+2?", "Why does the build take ten minutes?", "hi"])
def test_an_answer_changes_no_line(text: str):
    told = classify(TaskText(text=text), weights=WEIGHTS)
    assert (told.type, told.size, told.files) == ("analyze", 1.0, 1)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Add a test button to the toolbar", "implement"),
        ("Add a test for the toolbar button", "test"),
        ("Test button is misaligned in the toolbar", "fix"),
        ("Format the prices as euros in the invoice", "implement"),
        ("Add a comment to the sort function", "documentation"),
        ("Search results are sorted the wrong way round", "fix"),
        ("Remove the trailing commas", "format"),
        ("Replace the logo in the header", "implement"),
    ],
)
def test_what_a_verb_is_about_decides_as_much_as_the_verb(text: str, kind: TaskType):
    assert kind_of(text) == kind


@pytest.mark.parametrize(
    "text",
    [
        "Fix the crash in the exporter",
        "please fix the crash in the exporter",
        "Hi there, could you fix the crash in the exporter? Thanks!",
        "Would you mind fixing the crash in the exporter?",
        "In export.py, fix the crash.",
        "We need to fix the crash in the exporter.",
        "The exporter crashes when the list is empty. Fix it.",
        "Find out why the exporter crashes and fix it",
    ],
)
def test_one_wish_may_be_worded_in_many_ways(text: str):
    assert kind_of(text) == "fix"


@pytest.mark.parametrize(
    "text",
    [
        "Add a feature flag.",
        "Rename the test folder",
        "Say hello to the team",
        "Fix the whitespace in all files of the parser package",
        "Document the scheduler",
    ],
)
def test_few_plain_words_are_never_more_than_medium(text: str):
    told = classify(TaskText(text=text), weights=WEIGHTS)
    assert COMPLEXITIES.index(told.complexity) <= COMPLEXITIES.index("medium")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Document the helpers of the tests", "documentation"),
        ("Test if the documentation builds", "test"),
        ("Explain how this fix works", "analyze"),
        ("Write a section on refactoring for the README", "documentation"),
        ("Find out why the exporter crashes and fix it", "fix"),
        ("Find out why the exporter crashes", "analyze"),
        ("Look at the coverage and add the missing tests", "test"),
        ("The exporter is slow. Can you review it?", "review"),
        ("Review the bug fix", "review"),
        ("Don't change anything, just tell me why the exporter crashes", "analyze"),
    ],
)
def test_a_word_that_names_another_type_does_not_mislead(text: str, kind: TaskType):
    assert kind_of(text) == kind


@pytest.mark.parametrize(
    "text", ["", " ", "?", "!!!", "42", "äöü", "\ud800", "the", "In the end, ", "please"]
)
def test_what_asks_for_nothing_is_read_without_trouble(text: str):
    assert kind_of(text) in TASK_TYPES
    asked = read_plainly(text)
    assert asked is None or asked.features


@pytest.mark.parametrize(
    ("text", "verb", "kind", "manner"),
    [
        ("Could you please fix it?", "fix", REQUEST, SAID),
        ("In export.py, rename the class", "rename", REQUEST, SAID),
        ("Look at the log and fix the cause", "fix", REQUEST, SAID),
        ("It is slow. Speed up the parser!", "speed", REQUEST, SAID),
        ("why is it slow?", "", QUESTION, SAID),
        ("the parser crashes", "", STATEMENT, LIKELY),
        ("rename class (parser)", "rename", REQUEST, NOTED),
    ],
)
def test_a_reading_is_of_the_sentence_that_asks_most(text: str, verb: str, kind: int, manner: int):
    asked = read_plainly(text)
    assert asked is not None
    assert (asked.verb, asked.kind, asked.manner) == (verb, kind, manner)


def test_small_talk_is_recognised():
    chats = [read_plainly(text) for text in ("Good morning!", "thanks a lot", "2 + 2 = ?")]
    assert all(chat and chat.is_chat for chat in chats)


def test_each_task_of_the_lists_is_another_one():
    texts = [_plain(text) for text, _ in (*PLAIN, *OTHERS)]
    assert len(set(texts)) == len(texts) == 120


def test_nothing_was_learned_from_the_lists():
    learned = {_plain(line) for line in CORPUS.read_text(encoding="utf-8").splitlines()}
    assert len(learned) > 6_000
    assert not learned.intersection(_plain(text) for text, _ in (*PLAIN, *OTHERS))
    assert not learned.intersection(_plain(text) for text in SIMPLE)


def _plain(text: str) -> str:
    return re.sub(r"\W+", " ", text).strip().lower()
