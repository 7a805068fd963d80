"""Others understand what we write, and we understand them: the vendors' SDKs, scripted models."""

import time

import anthropic
import httpx2
import msgspec
import openai
import pytest
from asking import TOOL, ask, model, user
from llm_wire import DIALECTS, read_bytes, written
from vendor_sdks import PIXEL, SYSTEM, Canned, Understood, understood

from goent.domain.types import Dialect, Usage
from goent.providers.dialects import codec_for
from goent.providers.model_messages import (
    AnswerChunk,
    ErrorPiece,
    MessageImage,
    MessageText,
    MessageToolResult,
    MessageToolUse,
    ModelAnswer,
    ModelRequest,
    ReasoningPiece,
    StopPiece,
    TextPiece,
    ToolPiece,
    UsagePiece,
    build_answer,
)
from goent.providers.provider_errors import read_rate_limits
from goent.providers.sse import SseSplitter
from goent.testing.script import (
    Script,
    ScriptedProvider,
    ScriptedRateLimits,
    ScriptedRateWindow,
    ScriptedToolUse,
    Step,
    case,
)
from goent.testing.scripted_server import ScriptedModels

pytestmark = pytest.mark.anyio

ANSWER: list[AnswerChunk] = [
    ReasoningPiece(text="hm, "),
    ReasoningPiece(text="well"),
    TextPiece(text="I "),
    TextPiece(text="read é"),
    ToolPiece(index=0, id="toolu_1", name="read"),
    ToolPiece(index=0, arguments='{"path":'),
    ToolPiece(index=1, id="toolu_2", name="now"),
    ToolPiece(index=0, arguments='"a"}'),
    UsagePiece(usage=Usage(input=10, cache_read=5, output=4, reasoning=3)),
    StopPiece(reason="tool_calls"),
]
EXPECTED = {
    "openai": Understood(
        text="I read é",
        calls=(("toolu_1", "read", '{"path":"a"}'), ("toolu_2", "now", "{}")),
        stop="tool_calls",
        input=15,
        output=7,
        cache_read=5,
    ),
    "anthropic": Understood(
        text="I read é",
        reasoning="hm, well",
        calls=(("toolu_1", "read", {"path": "a"}), ("toolu_2", "now", {})),
        stop="tool_use",
        input=10,
        output=7,
        cache_read=5,
    ),
}
ASKED = ModelRequest(
    model="m",
    system=SYSTEM,
    messages=(
        user(MessageText(text="Look."), MessageImage(media_type="image/png", data=PIXEL)),
        model(
            MessageText(text="I read."),
            MessageToolUse(id="c1", name="read"),
            MessageToolUse(id="c2", name="read"),
        ),
        user(
            MessageToolResult(id="c1", parts=(MessageText(text="A"),)),
            MessageToolResult(id="c2", parts=(MessageText(text="B"),)),
            MessageText(text="Go on."),
        ),
    ),
    tools=(TOOL,),
    max_tokens=100,
    stop=("END",),
)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_vendors_sdk_reads_our_stream_and_we_read_its_request(dialect: Dialect):
    stream = written(dialect, ANSWER)
    wire = Canned(*(stream[at : at + 37] for at in range(0, len(stream), 37)))
    assert await understood(dialect, transport=wire) == EXPECTED[dialect]
    assert wire.path == f"/v1/{codec_for(dialect).path}"
    assert codec_for(dialect).decode(wire.asked) == ASKED


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_vendors_sdk_reads_our_plain_answer_and_we_read_its_request(dialect: Dialect):
    wire = Canned(codec_for(dialect).write_answer("m", ANSWER), stream=False)
    assert await understood(dialect, transport=wire, stream=False) == EXPECTED[dialect]
    whole = msgspec.structs.replace(ASKED, stream=False)
    assert codec_for(dialect).decode(wire.asked) == whole


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_vendors_sdk_reads_a_message_that_changed_hands(dialect: Dialect):
    """Begun in one stream, and continued from one of the other dialect."""
    other: Dialect = "anthropic" if dialect == "openai" else "openai"
    begun = codec_for(dialect).writer("m")
    sent = b"".join(begun.write(chunk) for chunk in ANSWER[:3])
    reader = codec_for(dialect).reader()
    for event in SseSplitter().feed(sent):
        reader.read(event)
    writer = codec_for(dialect).writer("m", after=reader)
    rest = read_bytes(other, written(other, ANSWER[3:]))
    wire = Canned(sent, *(writer.write(chunk) for chunk in rest), writer.close())
    assert await understood(dialect, transport=wire) == EXPECTED[dialect]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_vendors_sdk_sees_an_error_inside_our_stream(dialect: Dialect):
    wire = Canned(written(dialect, [TextPiece(text="a"), ErrorPiece(message="gone")]))
    with pytest.raises((openai.APIError, anthropic.APIError), match="gone"):
        await understood(dialect, transport=wire)


# The scripted models


def scripted(dialect: Dialect) -> ScriptedProvider:
    return ScriptedProvider(
        dialect=dialect,
        models=("m",),
        cases=(
            case(
                None,
                Step(
                    think="hm, well",
                    say="I read.",
                    calls=(
                        ScriptedToolUse(tool="read", input={"path": "a"}),
                        ScriptedToolUse(tool="now"),
                    ),
                    usage=Usage(input=10, cache_read=5, output=4),
                    chunk=3,
                ),
            ),
        ),
        limits=ScriptedRateLimits(tokens=ScriptedRateWindow(limit=10, remaining=7, reset=30)),
    )


async def asked(server: ScriptedModels, dialect: Dialect, *, stream: bool) -> httpx2.Response:
    request = ask(user(MessageText(text="Read.")), tools=(TOOL,), stream=stream)
    async with httpx2.AsyncClient(timeout=10) as client:
        url = f"{server.base_url(dialect)}/{codec_for(dialect).path}"
        headers = dict(codec_for(dialect).headers)
        return await client.post(url, content=codec_for(dialect).encode(request), headers=headers)


def as_scripted(answer: ModelAnswer) -> bool:
    calls = [(call.name, msgspec.json.decode(call.arguments)) for call in answer.calls]
    return (
        answer.text == "I read."
        and answer.reasoning == "hm, well"
        and calls == [("read", {"path": "a"}), ("now", {})]
        and answer.usage == Usage(input=10, cache_read=5, output=4)
        and answer.stop_reason == "tool_calls"
    )


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_scripted_models_understand_our_request_and_we_their_answer(dialect: Dialect):
    async with ScriptedModels(Script(providers={dialect: scripted(dialect)})) as server:
        streamed = await asked(server, dialect, stream=True)
        assert as_scripted(build_answer(read_bytes(dialect, streamed.content)))
        plain = await asked(server, dialect, stream=False)
        assert as_scripted(build_answer(codec_for(dialect).read_answer(plain.content)))
        limits = read_rate_limits(plain.headers.raw, now=time.time())
        assert limits.tokens_left == 7
        assert limits.resets_in_s == pytest.approx(30, abs=5)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_vendors_sdk_reads_a_scripted_model_through_our_translation(dialect: Dialect):
    other: Dialect = "anthropic" if dialect == "openai" else "openai"
    async with ScriptedModels(Script(providers={other: scripted(other)})) as server:
        streamed = await asked(server, other, stream=True)
    answer = await understood(
        dialect, transport=Canned(written(dialect, read_bytes(other, streamed.content)))
    )
    assert answer.text == "I read."
    assert [name for _, name, _ in answer.calls] == ["read", "now"]
    assert answer.stop == ("tool_calls" if dialect == "openai" else "tool_use")
    assert (answer.output, answer.cache_read) == (4, 5)
