"""Streams as we write them: whole, in order and with an end, whatever chunks come in."""

import pytest
from llm_wire import DIALECTS, call, event, events_of, piece, read_bytes, start, written

from goent.domain.types import Dialect
from goent.providers.dialects import codec_for
from goent.providers.model_messages import (
    AnswerChunk,
    ErrorPiece,
    MessageToolUse,
    StopPiece,
    TextPiece,
    ToolPiece,
    build_answer,
)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_stream_that_is_closed_early_still_has_its_finish_reason(dialect: Dialect):
    assert read_bytes(dialect, written(dialect, [])) == [StopPiece(reason="end")]
    half = [ToolPiece(index=0, id="a", name="f", arguments='{"x')]
    assert read_bytes(dialect, written(dialect, half))[-1] == StopPiece(reason="tool_calls")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_call_without_arguments_has_an_empty_object(dialect: Dialect):
    stream = written(
        dialect, [ToolPiece(index=0, id="a", name="f"), StopPiece(reason="tool_calls")]
    )
    pieces = [one for one in read_bytes(dialect, stream) if isinstance(one, ToolPiece)]
    assert "".join(one.arguments for one in pieces) == "{}"


def test_anthropics_blocks_come_one_after_the_other_although_calls_came_by_turns():
    chunks = [
        ToolPiece(index=0, id="a", name="f"),
        ToolPiece(index=1, id="b", name="g", arguments="{"),
        TextPiece(text="so"),
        ToolPiece(index=0, arguments='{"x":1}'),
        ToolPiece(index=1, arguments="}"),
    ]
    whole = build_answer(read_bytes("anthropic", written("anthropic", chunks)))
    assert [(one.id, one.arguments) for one in whole.calls] == [("a", '{"x":1}'), ("b", "{}")]
    assert whole.text == "so"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_error_ends_the_stream(dialect: Dialect):
    stream = written(dialect, [TextPiece(text="a"), ErrorPiece(message="gone")])
    assert read_bytes(dialect, stream)[-1] == ErrorPiece(message="gone", kind="api_error")
    assert b'finish_reason":"' not in stream and b"message_stop" not in stream


# Going on


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_message_that_broke_off_is_continued(dialect: Dialect):
    begun = codec_for(dialect).writer("m").write(TextPiece(text="one "))
    reader = codec_for(dialect).reader()
    for data in events_of(begun):
        reader.read(event(data))
    writer = codec_for(dialect).writer("other", after=reader)
    more: list[AnswerChunk] = [
        TextPiece(text="two"),
        ToolPiece(index=0, id="a", name="f", arguments="{}"),
        StopPiece(reason="tool_calls"),
    ]
    rest = b"".join([*(writer.write(chunk) for chunk in more), writer.close()])
    whole = build_answer(read_bytes(dialect, begun, rest))
    assert whole.text == "one two"
    assert whole.calls == (MessageToolUse(id="a", name="f", arguments="{}"),)
    assert rest.count(b"message_start") == rest.count(b'"role"') == 0


@pytest.mark.parametrize("dialect", DIALECTS)
def test_calls_that_lost_only_their_finish_reason_are_to_be_made(dialect: Dialect):
    begun = (
        codec_for(dialect).writer("m").write(ToolPiece(index=0, id="a", name="f", arguments="{}"))
    )
    reader = codec_for(dialect).reader()
    for data in events_of(begun):
        reader.read(event(data))
    rest = codec_for(dialect).writer("m", after=reader).close()
    assert read_bytes(dialect, begun, rest)[-1] == StopPiece(reason="tool_calls")


def test_a_call_that_was_half_sent_is_not_continued():
    """Its block is ended and the next begins: what is half is never made whole by another model."""
    begun = (start(0, type="tool_use", id="a", name="f"), piece(0, partial_json='{"x'))
    reader = codec_for("anthropic").reader()
    for one in (event({"type": "message_start", "message": {"id": "msg_1"}}), *begun):
        reader.read(one)
    writer = codec_for("anthropic").writer("m", after=reader)
    rest = events_of(writer.write(ToolPiece(index=0, id="b", name="g", arguments="{}")))
    assert rest[:2] == [
        {"type": "content_block_stop", "index": 0},
        {
            "type": "content_block_start",
            "index": 1,
            "content_block": {"type": "tool_use", "id": "b", "name": "g", "input": {}},
        },
    ]
    openai = codec_for("openai").reader()
    openai.read(call(index=0, id="a", name="f", arguments='{"x'))
    continued = codec_for("openai").writer("m", after=openai)
    said = continued.write(ToolPiece(index=0, id="b", name="g", arguments="{}"))
    assert b'"tool_calls":[{"index":1,' in said
