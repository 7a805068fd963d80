"""Requests in golden samples: what comes in is understood, what goes out is what vendors take."""

import msgspec
import pytest
from asking import PIXEL, SCHEMA, TOOL, ask, asked, model, sent, user
from llm_wire import DIALECTS

from goent.domain.errors import RequestError
from goent.domain.types import Dialect
from goent.providers.dialects import codec_for
from goent.providers.model_messages import (
    MessageImage,
    MessageReasoning,
    MessageText,
    MessageToolResult,
    MessageToolUse,
    ModelRequest,
    RequiredTool,
    ThinkingSettings,
    ToolDefinition,
)

TALK = (
    user(MessageText(text="Look."), MessageImage(media_type="image/png", data=PIXEL)),
    model(
        MessageText(text="I read."),
        MessageToolUse(id="c1", name="read", arguments='{"path":"a"}'),
        MessageToolUse(id="c2", name="read", arguments='{"path":"b"}'),
    ),
    user(
        MessageToolResult(id="c1", parts=(MessageText(text="A"),)),
        MessageToolResult(id="c2", parts=(MessageText(text="B"),)),
        MessageText(text="Go on."),
    ),
)
OPENAI = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Look."},
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
            ],
        },
        {
            "role": "assistant",
            "content": "I read.",
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "read", "arguments": '{"path":"a"}'},
                },
                {
                    "id": "c2",
                    "type": "function",
                    "function": {"name": "read", "arguments": '{"path":"b"}'},
                },
            ],
        },
        {"role": "tool", "content": "A", "tool_call_id": "c1"},
        {"role": "tool", "content": "B", "tool_call_id": "c2"},
        {"role": "user", "content": "Go on."},
    ],
    "tools": [
        {
            "type": "function",
            "function": {"name": "read", "description": "Reads.", "parameters": SCHEMA},
        }
    ],
    "tool_choice": {"type": "function", "function": {"name": "read"}},
    "parallel_tool_calls": False,
    "max_tokens": 100,
    "temperature": 1.5,
    "stop": ["END"],
    "stream": True,
    "stream_options": {"include_usage": True},
}
MARK = {"type": "ephemeral"}
ANTHROPIC = {
    "model": "m",
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Look."},
                {
                    "type": "image",
                    "source": {"type": "base64", "media_type": "image/png", "data": PIXEL},
                    "cache_control": MARK,
                },
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I read."},
                {"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "a"}},
                {"type": "tool_use", "id": "c2", "name": "read", "input": {"path": "b"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "c1",
                    "content": [{"type": "text", "text": "A"}],
                },
                {
                    "type": "tool_result",
                    "tool_use_id": "c2",
                    "content": [{"type": "text", "text": "B"}],
                },
                {"type": "text", "text": "Go on.", "cache_control": MARK},
            ],
        },
    ],
    "max_tokens": 100,
    "system": [{"type": "text", "text": "Be brief.", "cache_control": MARK}],
    "tools": [{"name": "read", "description": "Reads.", "input_schema": SCHEMA}],
    "tool_choice": {"type": "tool", "name": "read", "disable_parallel_tool_use": True},
    "temperature": 1,
    "stop_sequences": ["END"],
    "stream": True,
}
REQUEST = ModelRequest(
    model="m",
    messages=TALK,
    system="Be brief.",
    tools=(TOOL,),
    tool_choice=RequiredTool(name="read"),
    parallel_tools=False,
    max_tokens=100,
    temperature=1.5,
    stop=("END",),
)


def test_a_request_of_openai_is_understood_and_said_again():
    assert asked("openai", OPENAI) == REQUEST
    assert sent("openai", REQUEST) == OPENAI


def test_a_request_of_anthropic_is_understood_and_said_again():
    assert asked("anthropic", ANTHROPIC) == msgspec.structs.replace(REQUEST, temperature=1)
    assert sent("anthropic", REQUEST) == ANTHROPIC


def test_a_request_is_translated_by_reading_and_writing_it():
    assert sent("anthropic", asked("openai", OPENAI)) == ANTHROPIC
    assert sent("openai", asked("anthropic", ANTHROPIC)) == {**OPENAI, "temperature": 1}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b"{}", b'{"model":"m"}', b'{"model":1,"messages":[]}', b"\xff"]
)
def test_what_is_no_request_is_refused_with_the_reason(dialect: Dialect, body: bytes):
    with pytest.raises(RequestError, match=r"this is not a .* request"):
        codec_for(dialect).decode(body)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_fields_that_we_do_not_know_change_nothing(dialect: Dialect):
    body = OPENAI if dialect == "openai" else ANTHROPIC
    more = {"metadata": {"user_id": "u"}, "service_tier": "auto", "x": [1], "n": 1, "top_k": 5}
    assert asked(dialect, {**body, **more}) == asked(dialect, body)


# Into OpenAI's dialect


def test_models_that_reason_at_openai_have_another_name_for_their_limit():
    def limits(name: str) -> set[str]:
        return {
            key for key in sent("openai", ask(model=name, max_tokens=5)) if key.startswith("max_")
        }

    assert limits("glm-4.7") == limits("gpt-4o") == limits("kimi-o1") == {"max_tokens"}
    assert (
        limits("gpt-5.1") == limits("o3-mini") == limits("openai/o4") == {"max_completion_tokens"}
    )
    assert (
        asked("openai", {**OPENAI, "max_completion_tokens": 7, "max_tokens": None}).max_tokens == 7
    )


def test_usage_is_always_asked_for_and_the_client_may_not_have_asked():
    assert sent("openai", ask())["stream_options"] == {"include_usage": True}
    assert "stream_options" not in sent("openai", ask(stream=False))


def test_system_messages_come_to_the_front_from_wherever_they_stand():
    body = {
        "model": "m",
        "messages": [
            {"role": "developer", "content": [{"type": "text", "text": "One."}]},
            {"role": "user", "content": "Hi."},
            {"role": "system", "content": "Two."},
            {"role": "user", "content": "There."},
        ],
    }
    request = asked("openai", body)
    assert request.system == "One.\n\nTwo."
    assert request.messages == (user(MessageText(text="Hi."), MessageText(text="There.")),)


def test_a_picture_in_a_tools_result_is_shown_after_it():
    shown = MessageToolResult(
        id="c1", parts=(MessageText(text="see"), MessageImage(url="https://x.example/a.png"))
    )
    messages = sent("openai", ask(user(shown, MessageText(text="What is it?"))))["messages"]
    assert messages == [
        {"role": "tool", "content": "see", "tool_call_id": "c1"},
        {
            "role": "user",
            "content": [
                {"type": "image_url", "image_url": {"url": "https://x.example/a.png"}},
                {"type": "text", "text": "What is it?"},
            ],
        },
    ]


def test_thoughts_go_back_to_those_who_do_not_sign_them():
    thought = model(MessageReasoning(text="hm"), MessageToolUse(id="c1", name="read"))
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    message = {
        "role": "assistant",
        "content": None,
        "reasoning_content": "hm",
        "tool_calls": [call],
    }
    assert sent("openai", ask(thought))["messages"] == [message]
    assert asked("openai", {"model": "m", "messages": [message]}).messages == (thought,)
    signed = model(MessageReasoning(text="hm", signature="s"), MessageText(text="Hi."))
    assert sent("openai", ask(signed))["messages"] == [{"role": "assistant", "content": "Hi."}]


def test_what_cannot_be_carried_leaves_a_note_for_the_model():
    body = {
        "model": "m",
        "messages": [
            {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": ""}}]}
        ],
    }
    assert asked("openai", body).messages == (user(MessageText(text="[input_audio: left out]")),)
    document = {"type": "document", "source": {"type": "text", "data": "x"}, "title": "t"}
    result = {"type": "tool_result", "tool_use_id": "c", "content": [document]}
    found = {"type": "web_search_tool_result", "tool_use_id": "w", "content": {"type": "error"}}
    body = {
        "model": "m",
        "messages": [
            {"role": "assistant", "content": [found]},
            {"role": "user", "content": [result, document]},
        ],
    }
    note = MessageText(text="[document: left out]")
    assert asked("anthropic", body).messages == (
        user(MessageToolResult(id="c", parts=(note,)), note),
    )


def test_a_tool_without_a_schema_takes_nothing_and_anthropics_own_tools_stay_there():
    bare = {**OPENAI, "tools": [{"type": "function", "function": {"name": "now"}}]}
    assert asked("openai", bare).tools == (ToolDefinition(name="now"),)
    search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}
    remote = {"type": "mcp_toolset", "mcp_server_name": "x"}
    assert asked("anthropic", {**ANTHROPIC, "tools": [search, remote]}).tools == ()


def test_each_vendors_way_to_ask_for_thoughts_stays_there():
    effort = asked("openai", {**OPENAI, "reasoning_effort": "high", "tool_choice": "auto"})
    assert sent("openai", effort)["reasoning_effort"] == "high"
    assert "thinking" not in sent("anthropic", effort)
    body = {
        **ANTHROPIC,
        "thinking": {"type": "enabled", "budget_tokens": 2000},
        "output_config": {"effort": "low"},
    }
    thinking = asked("anthropic", body)
    assert thinking.thinking == ThinkingSettings(mode="enabled", budget=2000)
    assert thinking.thinking_effort == "low"
    assert not sent("openai", thinking).keys() & {"thinking", "reasoning_effort", "output_config"}
