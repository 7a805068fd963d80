"""The Anthropic dialect of the scripted models."""

import msgspec
import pytest
from vendor_talk import ask_claude, events, post, trouble

from goent.domain.types import Usage
from goent.testing.script import (
    Script,
    ScriptedRateLimits,
    ScriptedRateWindow,
    ScriptedToolUse,
    Step,
    anthropic,
    case,
    fail,
    say,
)
from goent.testing.scripted_server import ScriptedModels

pytestmark = pytest.mark.anyio

WRITE = Step(
    say="I write.",
    think="Hmm.",
    call=ScriptedToolUse(tool="write", input={"filePath": "a.txt"}),
    usage=Usage(input=500, output=90, cache_read=200, cache_write=300, reasoning=10),
    chunk=5,
)
SCRIPT = Script(
    providers={"claude": anthropic(case("write", WRITE, say("Done.")), case(None, say("Hello.")))}
)


async def test_a_stream_has_the_vendors_order() -> None:
    async with ScriptedModels(SCRIPT) as server:
        response = await post(server, "claude", ask_claude("write"))
        billed = server.billed("claude")
    got = events(response.text)
    assert [event.name for event in got] == [
        "message_start", "ping",
        "content_block_start", "content_block_delta", "content_block_delta", "content_block_stop",
        "content_block_start", "content_block_delta", "content_block_delta", "content_block_stop",
        "content_block_start", *["content_block_delta"] * 5, "content_block_stop",
        "message_delta", "message_stop",
    ]  # fmt: skip
    assert got[0].json() == {
        "type": "message_start",
        "message": {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "claude-x",
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {
                "input_tokens": 500,
                "cache_creation_input_tokens": 300,
                "cache_read_input_tokens": 200,
                "output_tokens": 1,
            },
        },
    }
    assert got[-2].json() == {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use", "stop_sequence": None},
        "usage": {"output_tokens": 100},
    }
    assert billed == Usage(input=500, output=100, cache_read=200, cache_write=300)


async def test_a_tools_input_comes_in_pieces_of_json() -> None:
    class Delta(msgspec.Struct):
        type: str
        partial_json: str = ""

    class Body(msgspec.Struct):
        type: str
        index: int = -1
        content_block: object = None
        delta: Delta | None = None

    async with ScriptedModels(SCRIPT) as server:
        response = await post(server, "claude", ask_claude("write"))
    deltas = [e for e in events(response.text) if e.name and e.name.startswith("content")]
    third = [b for e in deltas if (b := msgspec.json.decode(e.data, type=Body)).index == 2]
    assert third[0].content_block == {
        "type": "tool_use",
        "id": "toolu_1_0",
        "name": "write",
        "input": {},
    }
    pieces = [b.delta.partial_json for b in third if b.delta]
    assert len(pieces) == 5 and "".join(pieces) == '{"filePath":"a.txt"}'


async def test_without_stream_the_answer_is_one_document() -> None:
    async with ScriptedModels(SCRIPT) as server:
        response = await post(server, "claude", ask_claude("write", stream=False))
    assert response.json() == {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": [
            {"type": "thinking", "thinking": "Hmm.", "signature": "scripted"},
            {"type": "text", "text": "I write."},
            {
                "type": "tool_use",
                "id": "toolu_1_0",
                "name": "write",
                "input": {"filePath": "a.txt"},
            },
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 500,
            "cache_creation_input_tokens": 300,
            "cache_read_input_tokens": 200,
            "output_tokens": 100,
        },
    }


async def test_tool_results_are_no_new_prompt_but_words_beside_them_are() -> None:
    result = {"type": "tool_result", "tool_use_id": "toolu_1_0", "content": "ok"}
    use = {"type": "tool_use", "id": "toolu_1_0", "name": "write", "input": {"a": 1}}
    history: list[object] = [
        {"role": "user", "content": "write"},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [result]},
    ]
    interrupted = [
        *history[:2],
        {"role": "user", "content": [result, {"type": "text", "text": "hi"}]},
    ]
    async with ScriptedModels(SCRIPT) as server:
        second = await post(server, "claude", ask_claude("", messages=history))
        fresh = await post(server, "claude", ask_claude("", messages=interrupted))
        seen = server.calls[0].request
    assert "Done." in second.text and "Hello." in fresh.text
    assert seen and [m.role for m in seen.messages] == ["user", "assistant", "tool"]
    assert seen.messages[1].tool_calls[0].arguments == '{"a":1}'


async def test_errors_have_the_vendors_shape() -> None:
    script = Script(
        providers={"claude": anthropic(case("busy", fail(529)), case(None, say("hi")), key="sk-a")}
    )
    async with ScriptedModels(script) as server:
        wrong = await post(server, "claude", ask_claude("x"), headers={"x-api-key": "sk-b"})
        busy = await post(server, "claude", ask_claude("busy"), headers={"x-api-key": "sk-a"})
    assert (wrong.status_code, trouble(wrong).type) == (401, "authentication_error")
    assert (busy.status_code, trouble(busy).type) == (529, "overloaded_error")


async def test_rate_limits_are_told_in_the_headers() -> None:
    limits = ScriptedRateLimits(tokens=ScriptedRateWindow(limit=1000, remaining=10))
    provider = msgspec.structs.replace(SCRIPT.providers["claude"], limits=limits)
    async with ScriptedModels(Script(providers={"claude": provider})) as server:
        headers = (await post(server, "claude", ask_claude("hi"))).headers
    assert headers["anthropic-ratelimit-tokens-limit"] == "1000"
    assert headers["anthropic-ratelimit-tokens-remaining"] == "10"
    assert headers["anthropic-ratelimit-tokens-reset"].endswith("Z")
