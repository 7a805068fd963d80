"""The OpenAI dialect of the scripted models, byte for byte where it matters."""

import msgspec
import pytest
from vendor_talk import Completion, ask, chunks, post, trouble

from goent.domain.types import Usage
from goent.testing.script import (
    Script,
    ScriptedRateLimits,
    ScriptedRateWindow,
    ScriptedToolUse,
    Step,
    call,
    case,
    openai,
    say,
)
from goent.testing.scripted_server import ScriptedModels

pytestmark = pytest.mark.anyio

USAGE = Usage(input=800, output=90, cache_read=200, reasoning=10)
WIRE_USAGE = {
    "prompt_tokens": 1000,
    "completion_tokens": 100,
    "total_tokens": 1100,
    "prompt_tokens_details": {"cached_tokens": 200},
    "completion_tokens_details": {"reasoning_tokens": 10},
}
WRITE = Step(
    say="I write.",
    think="Hmm.",
    calls=(
        ScriptedToolUse(tool="write", input={"filePath": "a.txt", "content": "hi {n}\n"}),
        ScriptedToolUse(tool="bash"),
    ),
    usage=USAGE,
    chunk=5,
)
SCRIPT = Script(
    providers={"moonshot": openai(case("write", WRITE, say("Done.")), case(None, say("Hello.")))}
)


async def test_a_stream_has_the_vendors_order() -> None:
    async with ScriptedModels(SCRIPT) as server:
        response = await post(server, "moonshot", ask("please write"))
    assert response.headers["content-type"].startswith("text/event-stream")
    got = chunks(response.text)

    deltas = [choice.delta for chunk in got for choice in chunk.choices]
    assert deltas[0].role == "assistant"
    assert [d.reasoning_content for d in deltas if d.reasoning_content] == ["Hmm."]
    assert [d.content for d in deltas if d.content] == ["I wri", "te."]
    tools = [tool for delta in deltas for tool in delta.tool_calls]
    heads = [(t.index, t.id, t.type, t.function.name) for t in tools if t.id]
    assert heads == [(0, "call_1_0", "function", "write"), (1, "call_1_1", "function", "bash")]
    pieces = [t.function.arguments for t in tools if t.index == 0]
    assert len(pieces) > 5
    assert msgspec.json.decode("".join(pieces)) == {"filePath": "a.txt", "content": "hi 1\n"}
    assert "".join(t.function.arguments for t in tools if t.index == 1) == "{}"

    *_, finish, usage = got
    assert [choice.finish_reason for choice in finish.choices] == ["tool_calls"]
    assert usage.choices == [] and usage.usage == WIRE_USAGE
    assert all(chunk.usage is None for chunk in got[:-1])
    assert {(chunk.id, chunk.kind, chunk.model) for chunk in got} == {
        ("chatcmpl-1", "chat.completion.chunk", "glm-4")
    }


async def test_usage_is_streamed_only_to_those_who_ask() -> None:
    async with ScriptedModels(SCRIPT) as server:
        response = await post(server, "moonshot", ask("hi", stream_options=None))
        assert server.billed() == Usage(input=100, output=20)
    assert all(chunk.choices and chunk.usage is msgspec.UNSET for chunk in chunks(response.text))


async def test_without_stream_the_answer_is_one_document() -> None:
    async with ScriptedModels(SCRIPT) as server:
        response = await post(server, "moonshot", ask("write", stream=False))
    whole = msgspec.json.decode(response.content, type=Completion)
    (choice,) = whole.choices
    assert whole.kind == "chat.completion" and whole.usage == WIRE_USAGE
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", "I write.")
    assert [tool.function.name for tool in choice.message.tool_calls] == ["write", "bash"]


async def test_the_step_follows_from_the_conversation_alone() -> None:
    tool_call = {"id": "call_1_0", "type": "function", "function": {"name": "write"}}
    history = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": [{"type": "text", "text": "write it"}]},
        {"role": "assistant", "content": None, "tool_calls": [tool_call]},
        {"role": "tool", "tool_call_id": "call_1_0", "content": "ok"},
    ]
    async with ScriptedModels(SCRIPT) as server:
        response = await post(server, "moonshot", ask("", messages=history))
        (seen,) = server.calls
    assert "Done." in response.text
    assert (seen.case, seen.step, seen.status) == ("write", 1, 200)
    assert seen.request and seen.request.system == "Be brief."
    assert [m.role for m in seen.request.messages] == [
        "user", "assistant", "user", "assistant", "tool",
    ]  # fmt: skip
    assert seen.request.messages[-1].tool_call_id == "call_1_0"


async def test_an_answer_already_begun_is_continued() -> None:
    story = Script(providers={"b": openai(case(None, say("one two three four")))})
    history = [
        {"role": "user", "content": "count"},
        {"role": "assistant", "content": "one two "},
    ]
    async with ScriptedModels(story) as server:
        response = await post(server, "b", ask("", messages=history))
        (seen,) = server.calls
    said = (choice.delta.content or "" for c in chunks(response.text) for choice in c.choices)
    assert ("".join(said), seen.step) == (" three four", 0)


async def test_a_wrong_key_and_an_unknown_model_are_refused_in_the_vendors_shape() -> None:
    locked = Script(providers={"moonshot": openai(case(None, say("hi")), key="sk-right")})
    right = {"authorization": "Bearer sk-right"}
    async with ScriptedModels(locked) as server:
        wrong = await post(server, "moonshot", ask("x"), headers={"authorization": "Bearer no"})
        none = await post(server, "moonshot", ask("x"))
        unknown = await post(server, "moonshot", ask("x", model="gpt-9"), headers=right)
        fine = await post(server, "moonshot", ask("x"), headers=right)
        assert [call.key for call in server.calls] == ["no", None, "sk-right", "sk-right"]
    assert [r.status_code for r in (wrong, none, unknown, fine)] == [401, 401, 404, 200]
    assert trouble(wrong).code == "invalid_api_key"
    assert trouble(unknown).code == "model_not_found"
    assert "'gpt-9'" in trouble(unknown).message


async def test_rate_limits_are_told_in_the_headers() -> None:
    limits = ScriptedRateLimits(requests=ScriptedRateWindow(limit=60, remaining=59, reset=1.5))
    provider = msgspec.structs.replace(SCRIPT.providers["moonshot"], limits=limits)
    async with ScriptedModels(Script(providers={"moonshot": provider})) as server:
        response = await post(server, "moonshot", ask("hi"))
    told = {k: v for k, v in response.headers.items() if k.startswith("x-ratelimit")}
    assert told == {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "59",
        "x-ratelimit-reset-requests": "1.5s",
    }


async def test_a_script_without_an_answer_says_so_and_is_not_retried() -> None:
    short = Script(providers={"a": openai(case("once", call("bash", command="true")))})
    history = [{"role": "user", "content": "once"}, {"role": "assistant", "content": "x"}]
    history += [{"role": "tool", "content": "ok", "tool_call_id": "1"}]
    async with ScriptedModels(short) as server:
        no_case = await post(server, "a", ask("something else"))
        no_step = await post(server, "a", ask("", messages=history))
        nonsense = await post(server, "a", {"model": "glm-4"})
    assert [r.status_code for r in (no_case, no_step, nonsense)] == [400, 400, 400]
    assert "no case for 'something else'" in trouble(no_case).message
    assert "no step 1 in its case 'once'" in trouble(no_step).message
    assert "messages" in trouble(nonsense).message


async def test_placeholders_are_filled_in_and_escaped() -> None:
    step = call("write", filePath="{cwd}/a", content='{prompt} {"json": {}}')
    script = Script(providers={"a": openai(case(None, step.having(say="in {cwd}, {model}")))})
    history = [
        {"role": "system", "content": '<env>\n  Working directory: /tmp/my "dir"\n</env>'},
        {"role": "user", "content": 'say "x"'},
    ]
    async with ScriptedModels(script) as server:
        response = await post(server, "a", ask("", stream=False, messages=history))
        lost = await post(server, "a", ask("x", stream=False))
    message = msgspec.json.decode(response.content, type=Completion).choices[0].message
    assert message.content == 'in /tmp/my "dir", glm-4'
    assert msgspec.json.decode(message.tool_calls[0].function.arguments) == {
        "filePath": '/tmp/my "dir"/a',
        "content": 'say "x" {"json": {}}',
    }
    assert lost.status_code == 400 and "{cwd}" in trouble(lost).message
