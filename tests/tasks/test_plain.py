"""Tasks as people type them are taken for what they are, and little ones for little."""

import re

import pytest
from plain_tasks import OTHERS, PLAIN, SIMPLE

from goent.domain.task_profile import COMPLEXITIES, TaskText, TaskType
from goent.routing.classification import classify
from goent.routing.pins import tier_for
from goent.routing.task_features import load_weights
from goent.routing.task_grammar import read_plainly

WEIGHTS = load_weights()


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
    "text", ["", " ", "?", "!!!", "42", "äöü", "\ud800", "the", "In the end, ", "please"]
)
def test_what_asks_for_nothing_is_read_without_trouble(text: str):
    asked = read_plainly(text)
    assert asked is None or asked.type == "analyze"


def test_each_task_of_the_lists_is_another_one():
    texts = [re.sub(r"\W+", " ", text).lower() for text, _ in (*PLAIN, *OTHERS)]
    assert len(set(texts)) == len(texts) == 120
