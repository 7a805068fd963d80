"""Answers in JSON in both dialects, and the options of a model in `opencode.json`."""

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from goent.domain.types import Dialect
from goent.providers.dialects import codec_for, with_model_options
from goent.providers.model_messages import (
    ChatMessage,
    JsonFormat,
    MessageText,
    ModelRequest,
    ThinkingSettings,
)

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
ASKED = ModelRequest(
    model="m", messages=(ChatMessage(role="user", parts=(MessageText(text="hi"),)),)
)


def said(dialect: Dialect, request: ModelRequest) -> dict[str, Any]:
    return msgspec.json.decode(codec_for(dialect).encode(request), type=dict[str, Any])


def again(one: Dialect, other: Dialect, body: dict[str, Any]) -> dict[str, Any]:
    told = {"model": "m", "messages": [{"role": "user", "content": "hi"}], **body}
    return said(other, codec_for(one).decode(msgspec.json.encode(told)))


def test_a_schema_for_the_answer_is_asked_for_in_either_dialect() -> None:
    wanted = {"name": "count", "schema": SCHEMA, "strict": True}
    chat = {"response_format": {"type": "json_schema", "json_schema": wanted}}
    form = {"format": {"type": "json_schema", "schema": SCHEMA}}
    assert again("openai", "openai", chat)["response_format"] == chat["response_format"]
    assert again("openai", "anthropic", chat)["output_config"] == form
    assert again("anthropic", "anthropic", {"output_config": form})["output_config"] == form
    back = again("anthropic", "openai", {"output_config": form})["response_format"]
    assert back == {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}


def test_any_json_is_asked_for_in_words_where_there_is_no_field() -> None:
    chat = {"response_format": {"type": "json_object"}}
    assert again("openai", "openai", chat)["response_format"] == {"type": "json_object"}
    asked = again("openai", "anthropic", chat)
    assert "output_config" not in asked
    assert asked["system"][0]["text"] == "Answer with one JSON object and nothing else."
    assert codec_for("openai").decode(msgspec.json.encode({**chat, "model": "m", "messages": []}))


@pytest.mark.parametrize("form", [{"type": "text"}, {"type": "grammar"}])
def test_other_forms_are_none(form: dict[str, Any]) -> None:
    assert "response_format" not in again("openai", "openai", {"response_format": form})


def test_effort_and_form_stand_side_by_side() -> None:
    answer = JsonFormat(schema=Raw(msgspec.json.encode(SCHEMA)))
    request = msgspec.structs.replace(ASKED, thinking_effort="low", json_answer=answer)
    told = said("anthropic", request)["output_config"]
    assert told == {"effort": "low", "format": {"type": "json_schema", "schema": SCHEMA}}


def test_options_are_sent_as_opencodes_package_sends_them() -> None:
    options = {
        "reasoningEffort": "high",
        "textVerbosity": "low",
        "strictJsonSchema": True,
        "chat_template_kwargs": {"enable_thinking": False},
        "temperature": 0.6,
    }
    told = said("openai", with_model_options(ASKED, "openai", msgspec.json.encode(options)))
    assert (told["reasoning_effort"], told["verbosity"]) == ("high", "low")
    assert told["chat_template_kwargs"] == {"enable_thinking": False}
    assert told["temperature"] == 0.6
    assert "strictJsonSchema" not in told


def test_what_a_call_says_goes_before_the_options() -> None:
    request = msgspec.structs.replace(ASKED, temperature=0.0, reasoning_effort="low")
    options = b'{"reasoningEffort":"high","temperature":1,"model":"other"}'
    told = said("openai", with_model_options(request, "openai", options))
    assert (told["reasoning_effort"], told["temperature"], told["model"]) == ("low", 0.0, "m")


def test_anthropics_options_are_thinking_and_effort() -> None:
    options = b'{"thinking":{"type":"enabled","budgetTokens":2000},"effort":"low","other":1}'
    request = with_model_options(ASKED, "anthropic", options)
    assert request.thinking == ThinkingSettings(mode="enabled", budget=2000)
    told = said("anthropic", request)
    assert told["thinking"] == {"type": "enabled", "budget_tokens": 2000}
    assert told["output_config"] == {"effort": "low"}
    assert "other" not in told


@pytest.mark.parametrize("options", [b"", b'{"thinking":7}', b"[1]"])
def test_options_of_another_shape_change_nothing(options: bytes) -> None:
    assert with_model_options(ASKED, "anthropic", options) == ASKED
