"""Whatever is said comes through: written and read again, cut anywhere, in both dialects."""

from itertools import pairwise

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from llm_wire import DIALECTS, read, read_bytes, written
from msgspec import Raw

from goent.domain.errors import RequestError
from goent.domain.types import Dialect, Usage
from goent.providers.dialects import codec_for
from goent.providers.model_messages import (
    AnswerChunk,
    ChatMessage,
    MessageImage,
    MessageReasoning,
    MessageText,
    MessageToolResult,
    MessageToolUse,
    ModelAnswer,
    ModelRequest,
    ReasoningPiece,
    RequiredTool,
    StopPiece,
    TextPiece,
    ThinkingSettings,
    ToolDefinition,
    ToolPiece,
    UsagePiece,
    build_answer,
)
from goent.providers.sse import SseEvent

dialects = st.sampled_from(DIALECTS)
words = st.text(min_size=1, max_size=8).filter(str.strip)
names = st.text("abcXYZ09_-", min_size=1, max_size=6)
json = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)
objects = st.dictionaries(st.text(max_size=4), json, max_size=3).map(
    lambda value: msgspec.json.encode(value).decode()
)


# Streams


@st.composite
def tool_calls(draw: st.DrawFn, index: int) -> list[AnswerChunk]:
    arguments = draw(objects)
    middle = draw(st.integers(0, len(arguments)))
    return [
        ToolPiece(index=index, id=f"c{index}", name=draw(names)),
        *(
            ToolPiece(index=index, arguments=part)
            for part in (arguments[:middle], arguments[middle:])
            if part
        ),
    ]


@st.composite
def answers(draw: st.DrawFn) -> list[AnswerChunk]:
    """An answer whose parts may come by turns: only the pieces of one call keep their order."""
    said = draw(
        st.lists(
            st.one_of(
                st.builds(TextPiece, text=words),
                st.builds(ReasoningPiece, text=words),
            ),
            max_size=6,
        )
    )
    rows: list[list[AnswerChunk]] = [list(said)]
    rows += (draw(tool_calls(index)) for index in range(draw(st.integers(0, 3))))
    chunks: list[AnswerChunk] = []
    while rows := [row for row in rows if row]:
        chunks.append(draw(st.sampled_from(rows)).pop(0))
    usage = Usage(input=draw(st.integers(1, 99)), cache_read=3, cache_write=2, output=7)
    calls = any(isinstance(chunk, ToolPiece) for chunk in chunks)
    reason = st.sampled_from(["tool_calls"] if calls else ["end", "length", "refused"])
    stopped = msgspec.convert({"reason": draw(reason)}, StopPiece)
    return [*chunks, UsagePiece(usage=usage), stopped]


def meaning(answer: ModelAnswer) -> object:
    calls = sorted((call.id, call.name, call.arguments) for call in answer.calls)
    return answer.text, answer.reasoning, calls, answer.usage, answer.stop_reason


@given(dialects, answers(), st.lists(st.integers(0, 3000)))
def test_a_stream_that_is_written_can_be_read_whatever_pieces_it_comes_in(
    dialect: Dialect, chunks: list[AnswerChunk], cuts: list[int]
):
    stream = written(dialect, chunks)
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    found = read_bytes(dialect, *(stream[a:b] for a, b in pairwise(edges)))
    assert meaning(build_answer(found)) == meaning(build_answer(chunks))


@given(answers())
def test_openais_stream_keeps_every_piece(chunks: list[AnswerChunk]):
    """In order, but for the usage: it comes last."""
    told, stopped = chunks[-2:]
    numbers: dict[int, int] = {}
    expected = [
        msgspec.structs.replace(chunk, index=numbers.setdefault(chunk.index, len(numbers)))
        if isinstance(chunk, ToolPiece)
        else chunk
        for chunk in chunks[:-2]
    ]
    assert read_bytes("openai", written("openai", chunks)) == [*expected, stopped, told]


@given(
    st.lists(
        st.one_of(
            st.builds(MessageText, text=words),
            st.builds(MessageReasoning, text=words, signature=words),
            st.builds(MessageReasoning, redacted=words),
            st.builds(MessageToolUse, id=st.uuids().map(str), name=names, arguments=objects),
        ),
        max_size=6,
    )
)
def test_anthropics_stream_keeps_every_part_in_its_place(
    parts: list[MessageText | MessageReasoning | MessageToolUse],
):
    chunks: list[AnswerChunk] = []
    for number, part in enumerate(parts):
        match part:
            case MessageText(text=text):
                chunks.append(TextPiece(text=text))
            case MessageReasoning(text=text, signature=signature, redacted=redacted):
                chunks.append(ReasoningPiece(text=text, signature=signature, redacted=redacted))
            case MessageToolUse(id=call_id, name=name, arguments=arguments):
                chunks.append(ToolPiece(index=number, id=call_id, name=name, arguments=arguments))
    whole = build_answer(chunks).parts
    assert build_answer(read_bytes("anthropic", written("anthropic", chunks))).parts == whole
    plain = codec_for("anthropic").write_answer("m", chunks)
    assert build_answer(codec_for("anthropic").read_answer(plain)).parts == whole


@given(dialects, answers())
def test_a_plain_answer_says_the_same(dialect: Dialect, chunks: list[AnswerChunk]):
    body = codec_for(dialect).write_answer("m", chunks)
    assert meaning(build_answer(codec_for(dialect).read_answer(body))) == meaning(
        build_answer(chunks)
    )


@given(dialects, dialects, answers())
def test_a_stream_is_translated_by_reading_and_writing_it(
    one: Dialect, other: Dialect, chunks: list[AnswerChunk]
):
    translated = written(other, read_bytes(one, written(one, chunks)))
    assert meaning(build_answer(read_bytes(other, translated))) == meaning(build_answer(chunks))


FIELDS = [
    "id",
    "type",
    "choices",
    "delta",
    "message",
    "content",
    "text",
    "tool_calls",
    "function",
    "name",
    "arguments",
    "index",
    "usage",
    "error",
    "finish_reason",
    "content_block",
    "thinking",
    "partial_json",
    "input",
    "stop_reason",
    "role",
    "model",
    "messages",
    "system",
    "tools",
    "input_schema",
    "parameters",
    "source",
    "image_url",
    "url",
    "tool_use_id",
    "stream",
    "stop",
    "thinking",
]
any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.sampled_from(FIELDS),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4)
    ),
    max_leaves=12,
)
any_body = st.binary(max_size=40) | any_json.map(msgspec.json.encode)


@given(dialects, st.lists(st.tuples(st.sampled_from([b"", b"error", b"x\xff"]), any_body)))
def test_no_events_make_a_reader_fail(dialect: Dialect, events: list[tuple[bytes, bytes]]):
    chunks = read(dialect, *(SseEvent(name, data) for name, data in events))
    read_bytes(dialect, written(dialect, chunks))


@given(dialects, any_body)
def test_no_body_makes_it_fail(dialect: Dialect, body: bytes):
    chunks = codec_for(dialect).read_answer(body)
    assert chunks
    codec_for(dialect).write_answer("m", chunks)
    try:
        codec_for(dialect).decode(body)
    except RequestError:
        return


# Requests

texts = st.builds(MessageText, text=st.text(max_size=6))
images = st.builds(MessageImage, url=st.just("https://x.example/a")) | st.builds(
    MessageImage, media_type=st.just("image/png"), data=st.just("iVBO")
)
shown = st.lists(texts | images, max_size=3).map(tuple)
results = st.builds(MessageToolResult, id=names, parts=shown, is_error=st.booleans())
thoughts = st.builds(
    MessageReasoning, text=st.text(max_size=4), signature=st.sampled_from(["", "s"])
)
uses = st.builds(
    MessageToolUse, id=st.text(max_size=5), name=names, arguments=objects | st.just("{")
)
messages = st.one_of(
    st.builds(
        ChatMessage,
        role=st.just("user"),
        parts=st.lists(texts | images | results, max_size=4).map(tuple),
    ),
    st.builds(
        ChatMessage,
        role=st.just("assistant"),
        parts=st.lists(texts | thoughts | uses, max_size=4).map(tuple),
    ),
)
requests = st.builds(
    ModelRequest,
    model=names,
    messages=st.lists(messages, max_size=5).map(tuple),
    system=st.text(max_size=4),
    tools=st.lists(
        st.builds(
            ToolDefinition,
            name=names,
            description=words,
            schema=objects.map(lambda t: Raw(t.encode())),
        ),
        max_size=2,
    ).map(tuple),
    tool_choice=st.sampled_from([None, "auto", "none", "required"])
    | st.builds(RequiredTool, name=names),
    parallel_tools=st.booleans(),
    max_tokens=st.none() | st.integers(1, 9999),
    temperature=st.none() | st.floats(0, 2),
    top_p=st.none() | st.floats(0, 1),
    stop=st.lists(words, max_size=2).map(tuple),
    stream=st.booleans(),
    reasoning_effort=st.sampled_from([None, "low"]),
    thinking=st.none() | st.just(ThinkingSettings(mode="enabled", budget=2000)),
)


@given(dialects, requests)
def test_a_request_says_the_same_when_it_is_read_and_said_again(
    dialect: Dialect, request: ModelRequest
):
    once = codec_for(dialect).encode(request)
    assert codec_for(dialect).encode(codec_for(dialect).decode(once)) == once


@given(dialects, dialects, requests)
def test_a_translated_request_loses_no_word_and_no_call(
    one: Dialect, other: Dialect, request: ModelRequest
):
    there = codec_for(one).decode(codec_for(one).encode(request))
    back = codec_for(other).decode(codec_for(other).encode(there))
    for asked in (there, back):
        assert (asked.model, asked.stream) == (request.model, request.stream)
        assert [tool.name for tool in asked.tools] == [tool.name for tool in request.tools]
    assert said(back) >= said(there)


def said(request: ModelRequest) -> set[str]:
    """All words, and the names of all calls."""
    parts = [part for message in request.messages for part in message.parts]
    inner = [shown for part in parts if isinstance(part, MessageToolResult) for shown in part.parts]
    spoken = [part.text for part in (*parts, *inner) if isinstance(part, MessageText)]
    return {word for text in (request.system, *spoken) for word in text.split()} | {
        part.name for part in parts if isinstance(part, MessageToolUse)
    }
