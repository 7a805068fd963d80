import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goent.store.redactor import Redactor

# Put together here, so that nobody's scanner takes them for real ones.
TAIL = "0123456789abcdefghij" * 2
SHAPES = [
    f"sk-ant-api03-{TAIL}-{TAIL}_AA",
    f"sk-{TAIL}",
    f"ghp_{TAIL[:36]}",
    f"github_pat_11ABCDEFG0_{TAIL}",
    f"AKIA{TAIL[:16].upper()}",
    f"AIza{TAIL[:35]}",
    f"goent_{TAIL}",
]


def redacted(text: str, *keys: str) -> str:
    redactor = Redactor(lambda: keys)
    redactor.refresh()
    return msgspec.json.decode(redactor.redact(msgspec.json.encode(text)), type=str)


@pytest.mark.parametrize("key", SHAPES)
@pytest.mark.parametrize("around", ["{}", "KEY={}", "line\n{}\nline", '"{}"', "tab\t{}", "é{} "])
def test_what_looks_like_a_key_is_taken_out(key: str, around: str):
    assert redacted(around.format(key)) == around.format("[redacted]")


def test_a_bearer_token_is_taken_out():
    text = "curl -H 'Authorization: Bearer abc.def-0123456789_xyz'"
    assert redacted(text) == "curl -H 'Authorization: Bearer [redacted]'"


@pytest.mark.parametrize(
    "text",
    [
        "the task-0123456789-abcdefghijk is done",
        "use sk-learn-compatible-estimators here",
        "a bearer authentication-scheme for everyone",
        "ghp_short",
        "disk-1234567890123456",
    ],
)
def test_plain_words_stay(text: str):
    assert redacted(text) == text


def test_held_keys_go_by_value_whatever_they_look_like():
    assert redacted('x a"b\\c-d-e-f-g y', 'a"b\\c-d-e-f-g') == "x [redacted] y"
    assert redacted("abcdefghijkl-more", "abcdefghijkl", "abcdefghijkl-more") == "[redacted]"


def test_a_placeholder_that_is_too_short_for_a_key_is_left_alone():
    assert redacted("provider ollama", "ollama", "") == "provider ollama"


def test_keys_that_come_later_are_known_from_the_next_batch_on():
    held: list[str] = []
    redactor = Redactor(lambda: held)
    redactor.refresh()
    body = b'"the-later-key-1"'
    assert redactor.redact(body) is body
    held.append("the-later-key-1")
    redactor.refresh()
    assert redactor.redact(body) == b'"[redacted]"'


@given(st.text(), st.sampled_from(SHAPES), st.text())
def test_json_stays_json(before: str, key: str, after: str):
    redacted(before + key + after, key)
