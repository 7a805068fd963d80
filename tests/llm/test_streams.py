"""Streams in golden samples, the odd ones of real vendors included."""

import msgspec
import pytest
from llm_wire import DIALECTS, call, delta, event, finish, piece, read, read_bytes, start, written

from goent.domain.types import Dialect, Usage
from goent.providers.dialects import codec_for
from goent.providers.model_messages import (
    AnswerChunk,
    ErrorPiece,
    ReasoningPiece,
    StopPiece,
    TextPiece,
    ToolPiece,
    UsagePiece,
    build_answer,
)
from goent.providers.sse import SseEvent

MEGABYTES = 10 * 1024 * 1024


def calls_of(*events: SseEvent) -> list[tuple[str, str, str]]:
    calls = build_answer(read("openai", *events, finish("tool_calls"))).calls
    return [(one.id, one.name, one.arguments) for one in calls]


# OpenAI's dialect


@pytest.mark.parametrize(
    ("said", "chunk"),
    [
        ({"content": "hi"}, TextPiece(text="hi")),
        ({"reasoning_content": "hm"}, ReasoningPiece(text="hm")),
        ({"reasoning": "hm", "content": ""}, ReasoningPiece(text="hm")),
        ({"refusal": "I will not."}, TextPiece(text="I will not.")),
        ({"content": [{"type": "text", "text": "hi"}]}, TextPiece(text="hi")),
        (
            {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]},
            ReasoningPiece(text="hm"),
        ),
    ],
)
def test_text_and_thoughts_are_found_wherever_vendors_put_them(
    said: dict[str, object], chunk: AnswerChunk
):
    assert read("openai", delta(role="assistant", **said)) == [chunk]


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("stop", "end"),
        ("length", "length"),
        ("tool_calls", "tool_calls"),
        ("function_call", "tool_calls"),
        ("content_filter", "refused"),
        ("sensitive", "refused"),
        ("something_new", "end"),
    ],
)
def test_reasons_to_stop_have_few_meanings(reason: str, expected: str):
    (stopped,) = read("openai", finish(reason))
    assert stopped == msgspec.convert({"reason": expected}, StopPiece)


@pytest.mark.parametrize("reason", ["error", "network_error", "insufficient_system_resource"])
def test_a_provider_that_gives_up_has_not_finished(reason: str):
    (broken,) = read("openai", finish(reason))
    assert isinstance(broken, ErrorPiece) and broken.kind == reason


def test_whoever_says_stop_after_calls_means_that_they_be_made():
    assert read("openai", call(index=0, id="a", name="f", arguments="{}"), finish("stop"))[-1] == (
        StopPiece(reason="tool_calls")
    )


def test_parallel_calls_may_come_by_turns():
    assert calls_of(
        call(index=0, id="a", name="f", arguments=""),
        call(index=1, id="b", name="g", arguments=""),
        call(index=0, arguments='{"x":'),
        call(index=1, arguments="{}"),
        call(index=0, arguments="1}"),
    ) == [("a", "f", '{"x":1}'), ("b", "g", "{}")]


def test_a_call_without_index_is_told_apart_by_its_id_or_by_a_new_name():
    with_ids = (
        call(id="a", name="f", arguments="{"),
        call(id="a", arguments="}"),
        call(id="b", name="f", arguments="{}"),
    )
    assert calls_of(*with_ids) == [("a", "f", "{}"), ("b", "f", "{}")]
    without = (
        call(name="f", arguments="{"),
        call(arguments="}"),
        call(name="g", arguments="{}"),
    )
    assert calls_of(*without) == [("call_goent_0", "f", "{}"), ("call_goent_1", "g", "{}")]


def test_an_index_that_is_always_0_does_not_glue_calls_together():
    assert calls_of(
        call(index=0, id="a", name="f", arguments="{"),
        call(index=0, arguments="}"),
        call(index=0, id="b", name="f", arguments="{}"),
    ) == [("a", "f", "{}"), ("b", "f", "{}")]


def test_an_id_or_a_name_may_come_late_or_again():
    assert calls_of(
        call(index=0, name="f", arguments="{"),
        call(index=0, id="a", name=None, arguments="}"),
        call(index=0, id="a", name="f", arguments=" "),
        call(index=3, id="b", arguments="{}"),
        call(index=3, name="g"),
    ) == [("a", "f", "{} "), ("b", "g", "{}")]


def test_an_id_and_a_name_are_told_once():
    again = call(index=0, id="a", name="f", arguments="{}")
    assert read("openai", again, again) == [
        ToolPiece(index=0, id="a", name="f", arguments="{}"),
        ToolPiece(index=0, arguments="{}"),
    ]


def test_arguments_may_come_as_an_object_or_not_at_all():
    assert calls_of(
        call(index=0, id="a", name="f", arguments={"x": 1}),
        call(index=1, id="b", name="g", arguments=None),
        call(index=2, id="c", name="h"),
    ) == [("a", "f", '{"x":1}'), ("b", "g", "{}"), ("c", "h", "{}")]


def test_odd_fields_break_nothing():
    chunk = {
        "id": 7,
        "created": "now",
        "choices": [
            {
                "index": None,
                "delta": {"content": "hi", "reasoning": {"effort": "low"}, "role": None, "x": 1},
                "logprobs": {},
                "finish_reason": None,
            }
        ],
        "usage": [],
        "error": None,
    }
    assert read("openai", event(chunk)) == [TextPiece(text="hi")]
    fields = {"text": "hi", "thinking": None, "partial_json": None, "type": "text_delta"}
    assert read("anthropic", piece(0, **fields)) == [TextPiece(text="hi")]


def test_a_second_choice_is_not_mixed_into_the_first():
    other = event({"choices": [{"index": 1, "delta": {"content": "other"}}]})
    assert read("openai", delta(content="one"), other) == [TextPiece(text="one")]


def test_usage_is_told_when_it_changes_and_absurd_usage_never():
    def told(**usage: object) -> SseEvent:
        return event({"choices": [], "usage": usage})

    assert read(
        "openai",
        told(prompt_tokens=3, completion_tokens=1),
        told(prompt_tokens=3, completion_tokens=1),
        told(prompt_tokens="many"),
        event({"choices": [{"index": 0, "usage": {"prompt_tokens": 3, "completion_tokens": 2}}]}),
    ) == [UsagePiece(usage=Usage(input=3, output=1)), UsagePiece(usage=Usage(input=3, output=2))]
    assert read("openai", told(prompt_tokens=-5), told(prompt_tokens=10**12)) == []


# Anthropic's dialect


def stop(index: int) -> SseEvent:
    return event({"type": "content_block_stop", "index": index})


def ending(reason: str, **usage: int) -> SseEvent:
    return event({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage})


def test_a_message_is_read_block_by_block():
    usage = {"input_tokens": 5, "cache_read_input_tokens": 2, "output_tokens": 1}
    assert read(
        "anthropic",
        event({"type": "message_start", "message": {"id": "msg_1", "usage": usage}}),
        event({"type": "ping"}),
        start(0, type="thinking", thinking="", signature=""),
        piece(0, type="thinking_delta", thinking="hm"),
        piece(0, type="signature_delta", signature="sig"),
        stop(0),
        start(1, type="redacted_thinking", data="xyz"),
        stop(1),
        start(2, type="text", text=""),
        piece(2, type="text_delta", text="hi"),
        piece(2, type="citations_delta", citation={"type": "char_location"}),
        stop(2),
        start(3, type="server_tool_use", id="srv", name="web_search", input={}),
        piece(3, type="input_json_delta", partial_json='{"query":"x"}'),
        stop(3),
        start(4, type="tool_use", id="a", name="f", input={}),
        piece(4, type="input_json_delta", partial_json=""),
        piece(4, type="input_json_delta", partial_json='{"x":1}'),
        stop(4),
        start(5, type="tool_use", id="b", name="g"),
        stop(5),
        ending("tool_use", output_tokens=9),
        event({"type": "message_stop"}),
    ) == [
        UsagePiece(usage=Usage(input=5, cache_read=2, output=1)),
        ReasoningPiece(text="hm"),
        ReasoningPiece(signature="sig"),
        ReasoningPiece(redacted="xyz"),
        TextPiece(text="hi"),
        ToolPiece(index=0, id="a", name="f"),
        ToolPiece(index=0, arguments='{"x":1}'),
        ToolPiece(index=1, id="b", name="g"),
        ToolPiece(index=1, arguments="{}"),
        UsagePiece(usage=Usage(input=5, cache_read=2, output=9)),
        StopPiece(reason="tool_calls"),
    ]


def test_a_block_may_begin_with_all_that_is_in_it():
    assert read(
        "anthropic",
        start(0, type="text", text="hi"),
        stop(0),
        start(1, type="tool_use", id="a", name="f", input={"x": 1}),
        stop(1),
    ) == [
        TextPiece(text="hi"),
        ToolPiece(index=0, id="a", name="f"),
        ToolPiece(index=0, arguments='{"x":1}'),
    ]


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("end_turn", "end"),
        ("stop_sequence", "end"),
        ("pause_turn", "end"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "refused"),
    ],
)
def test_anthropics_reasons_have_the_same_few_meanings(reason: str, expected: str):
    assert read("anthropic", ending(reason)) == [msgspec.convert({"reason": expected}, StopPiece)]


# Both


ERRORS = [
    ("openai", event({"error": {"message": "Too much.", "type": "overloaded"}}), "overloaded"),
    ("openai", event({"message": "Too much."}, "error"), ""),
    ("openai", event({"error": "Too much."}), ""),
    ("openai", event({"error": {"message": "Too much.", "code": 529}, "choices": []}), "529"),
    (
        "anthropic",
        event({"type": "error", "error": {"type": "overloaded_error", "message": "Too much."}}),
        "overloaded_error",
    ),
]


@pytest.mark.parametrize(("dialect", "told", "kind"), ERRORS)
def test_an_error_inside_a_stream_is_told_as_one(dialect: Dialect, told: SseEvent, kind: str):
    assert read(dialect, told) == [ErrorPiece(message="Too much.", kind=kind)]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("data", [b"", b"<html>", b'{"choices": [{"delta": {"con', b"[1]", b"\xff"])
def test_what_is_no_event_is_broken_and_shown(dialect: Dialect, data: bytes):
    (broken,) = read(dialect, SseEvent(b"", data))
    assert isinstance(broken, ErrorPiece) and broken.kind == "malformed"
    (plain,) = codec_for(dialect).read_answer(data)
    assert isinstance(plain, ErrorPiece) and plain.kind == "malformed"


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("body", [b"{}", b'{"choices":[],"content":[]}', b'{"base_resp":{}}'])
def test_a_plain_answer_with_nothing_in_it_is_none(dialect: Dialect, body: bytes):
    (broken,) = codec_for(dialect).read_answer(body)
    assert isinstance(broken, ErrorPiece) and "it is empty" in broken.message


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_plain_error_is_told_as_one_although_its_status_was_200(dialect: Dialect):
    body = b'{"type":"error","error":{"type":"api_error","message":"Too much."}}'
    assert codec_for(dialect).read_answer(body) == (
        ErrorPiece(message="Too much.", kind="api_error"),
    )


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_chunk_of_ten_megabytes_is_a_chunk(dialect: Dialect):
    stream = written(dialect, [TextPiece(text="x" * MEGABYTES), StopPiece(reason="end")])
    text, stopped, *_ = read_bytes(dialect, stream)
    assert text == TextPiece(text="x" * MEGABYTES)
    assert stopped == StopPiece(reason="end")
