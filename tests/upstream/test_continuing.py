"""What a listener has heard is not said again, however the continuation begins."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goent.providers.call_translation import ContinuationFilter, continue_request
from goent.providers.model_messages import ChatMessage, MessageText, MessageToolResult, ModelRequest

SAID = "The parser reads a line, then splits it at"


def _through(said: str, pieces: list[str]) -> str:
    rest = ContinuationFilter(said)
    return "".join([*(rest.feed(piece) for piece in pieces), rest.close()])


@pytest.mark.parametrize(
    ("told", "new"),
    [
        (" the first colon and keeps both halves, because the value may hold colons too.", None),
        (SAID + " the first colon.", " the first colon."),
        (SAID, ""),
        ("The parser reads", ""),
        ("splits it at the first colon, whatever follows it in the rest of the line.", None),
        ("", ""),
    ],
    ids=["goes on", "begins again", "says the same", "stops early", "repeats the end", "nothing"],
)
def test_only_what_is_new_comes_through(told: str, new: str | None) -> None:
    expected = told if new is None else new
    if told.startswith("splits"):
        expected = told.removeprefix("splits it at")
    assert _through(SAID, [told]) == expected
    assert _through(SAID, list(told)) == expected


def test_a_short_word_in_common_is_no_repetition() -> None:
    assert _through("I looked at the", ["the end of the file, and it is fine."]).startswith(
        "the end"
    )


@given(st.text(min_size=1, max_size=60), st.text(max_size=60), st.integers(1, 7))
def test_an_answer_told_anew_from_the_start_is_heard_once(said: str, more: str, size: int) -> None:
    again = said + more
    pieces = [again[i : i + size] for i in range(0, len(again), size)]
    assert said + _through(said, pieces) == again


def test_text_flows_at_once_when_nothing_was_said_before() -> None:
    assert ContinuationFilter("").feed("a") == "a"


def test_the_next_model_sees_what_was_said_and_is_asked_for_the_rest() -> None:
    question = ChatMessage(role="user", parts=(MessageText(text="Explain."),))
    request = ModelRequest(model="m", messages=(question,))
    (asked,) = continue_request(request, "Half an ans ").messages
    first, note = asked.parts
    assert first == MessageText(text="Explain."), "the task is where it was"
    assert isinstance(note, MessageText) and "Half an ans " in note.text and "Continue" in note.text


def test_after_a_tool_the_note_is_at_the_end_of_what_the_tool_said() -> None:
    output = MessageToolResult(id="c1", parts=(MessageText(text="exit 0"),))
    request = ModelRequest(model="m", messages=(ChatMessage(role="user", parts=(output,)),))
    (answered,) = continue_request(request, "It worked, and").messages
    (result,) = answered.parts
    assert isinstance(result, MessageToolResult) and result.id == "c1"
    assert result.parts[0] == MessageText(text="exit 0")
    assert "It worked, and" in str(result.parts[1])


def test_a_request_is_the_same_if_nothing_was_said() -> None:
    request = ModelRequest(model="m", messages=())
    assert continue_request(request, " \n") == request
