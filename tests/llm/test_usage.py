"""Whatever shape a vendor gives its figures, they become one `Usage`, or none."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goent.domain.types import Dialect, Usage
from goent.providers.dialects import codec_for
from goent.providers.model_messages import AnswerChunk, UsagePiece
from goent.providers.sse import SseEvent, SseSplitter

DIALECTS: list[Dialect] = ["openai", "anthropic"]


def of_stream(dialect: Dialect, *events: object) -> Usage | None:
    reader = codec_for(dialect).reader()
    told = (reader.read(SseEvent(b"", msgspec.json.encode(event))) for event in events)
    return _last(tuple(chunk for chunks in told for chunk in chunks))


def of_body(dialect: Dialect, body: bytes) -> Usage | None:
    return _last(codec_for(dialect).read_answer(body))


def _last(chunks: tuple[AnswerChunk, ...]) -> Usage | None:
    told = [chunk.usage for chunk in chunks if isinstance(chunk, UsagePiece)]
    return told[-1] if told else None


@pytest.mark.parametrize(
    ("told", "usage"),
    [
        ({"prompt_tokens": 10, "completion_tokens": 5}, Usage(input=10, output=5)),
        (
            {"prompt_tokens": 10, "completion_tokens": 5, "prompt_cache_hit_tokens": 4},
            Usage(input=6, cache_read=4, output=5),
        ),
        ({"prompt_tokens": 10, "cached_tokens": 4}, Usage(input=6, cache_read=4)),
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "total_tokens": 15,
                "prompt_tokens_details": {"cached_tokens": 8, "audio_tokens": 0},
                "completion_tokens_details": {"reasoning_tokens": 3},
            },
            Usage(input=2, cache_read=8, output=2, reasoning=3),
        ),
        # reasoning counted beside the completion, not inside it
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "total_tokens": 18,
                "prompt_tokens_details": None,
                "completion_tokens_details": {"reasoning_tokens": 3},
            },
            Usage(input=10, output=5, reasoning=3),
        ),
    ],
)
def test_openai_usage_is_split_into_disjoint_parts(told: dict[str, object], usage: Usage):
    assert of_stream("openai", {"choices": [], "usage": told}) == usage
    assert of_body("openai", msgspec.json.encode({"usage": told})) == usage


def test_usage_inside_a_choice_is_found():
    choice = {"index": 0, "finish_reason": "stop", "usage": {"prompt_tokens": 3}}
    assert of_stream("openai", {"choices": [choice]}, {"choices": []}) == Usage(input=3)


def test_the_last_word_counts_where_openai_usage_is_repeated():
    events = ({"usage": {"prompt_tokens": 3, "completion_tokens": n}} for n in range(5))
    assert of_stream("openai", *events, {"usage": None}) == Usage(input=3, output=4)


def test_anthropic_totals_run_and_may_come_late():
    start = {"type": "message_start", "message": {"usage": {"input_tokens": 0, "output_tokens": 0}}}
    delta = {
        "type": "message_delta",
        "usage": {"input_tokens": 9, "cache_read_input_tokens": 4, "output_tokens": 7},
    }
    expected = Usage(input=9, cache_read=4, output=7)
    assert of_stream("anthropic", start, delta) == expected
    assert of_body("anthropic", msgspec.json.encode(delta)) == expected


@pytest.mark.parametrize(
    "told",
    [
        None,
        {},
        {"prompt_tokens": 0, "completion_tokens": 0},
        {"prompt_tokens": -1, "completion_tokens": 5},
        {"prompt_tokens": 10**12},
        {"prompt_tokens": "many"},
        {"completion_tokens": 5},
        [1],
        "usage",
    ],
)
def test_what_makes_no_sense_is_unknown(told: object):
    assert of_stream("openai", {"usage": told}) is None
    assert of_body("openai", msgspec.json.encode({"usage": told})) is None


def test_a_model_that_talks_about_usage_changes_nothing():
    said = {"choices": [{"delta": {"content": '"usage": {"prompt_tokens": 5} "error": {"a":1}'}}]}
    assert of_stream("openai", said) is None


@given(st.sampled_from(DIALECTS), st.lists(st.binary()))
def test_no_bytes_make_it_fail(dialect: Dialect, pieces: list[bytes]):
    reader, splitter = codec_for(dialect).reader(), SseSplitter()
    for piece in pieces:
        for event in splitter.feed(b'data: {"usage": {' + piece):
            reader.read(event)
    for event in splitter.close():
        reader.read(event)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
FIELDS = st.sampled_from(
    [
        "prompt_tokens",
        "completion_tokens",
        "total_tokens",
        "prompt_tokens_details",
        "completion_tokens_details",
        "input_tokens",
        "output_tokens",
        "cache_read_input_tokens",
    ]
)


@given(st.sampled_from(DIALECTS), st.dictionaries(FIELDS, JSON))
def test_no_usage_makes_it_fail(dialect: Dialect, told: dict[str, object]):
    usage = of_stream(dialect, {"usage": told}, {"message": {"usage": told}})
    assert usage is None or usage.total > 0
