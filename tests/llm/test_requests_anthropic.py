"""What Anthropic would refuse is not sent to it."""

import re

import msgspec
import pytest
from asking import TOOL, ask, model, sent, user
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from goent.providers.anthropic_requests import arguments_object, safe_id
from goent.providers.dialects import codec_for
from goent.providers.model_messages import (
    ChatMessage,
    MessageReasoning,
    MessageText,
    MessageToolResult,
    MessageToolUse,
    ModelRequest,
    ThinkingSettings,
    ToolChoice,
)

CALL = MessageToolUse(id="c1", name="read", arguments="{}")
RESULT = MessageToolResult(id="c1", parts=(MessageText(text="A"),))
SIGNED = MessageReasoning(text="hm", signature="s")
ENABLED = ThinkingSettings(mode="enabled", budget=2000)


class Said(Struct):
    role: str
    content: list[dict[str, object]]


class Body(Struct):
    messages: list[Said]


def turns(*messages: ChatMessage) -> list[tuple[str, list[object]]]:
    """Role and the texts, or else the types, of every turn that is sent."""
    body = msgspec.json.decode(codec_for("anthropic").encode(ask(*messages)), type=Body)
    return [(m.role, [b.get("text", b["type"]) for b in m.content]) for m in body.messages]


def test_sides_take_turns_and_nothing_is_empty():
    assert turns(
        user(MessageText(text="a")),
        user(MessageText(text=" "), MessageText(text="b")),
        model(MessageText(text="")),
        user(),
        user(MessageText(text="c")),
        model(MessageText(text="d")),
        model(CALL),
        user(MessageText(text="now"), RESULT),
    ) == [
        ("user", ["a", "b", "c"]),
        ("assistant", ["d", "tool_use"]),
        ("user", ["tool_result", "now"]),
    ]


def test_the_user_speaks_first_and_nothing_ends_in_blanks():
    assert turns() == [("user", ["Go on."])]
    assert turns(model(MessageText(text="I begin \n"))) == [
        ("user", ["Go on."]),
        ("assistant", ["I begin"]),
    ]


def test_thoughts_that_nobody_signed_are_left_out():
    hidden = MessageReasoning(redacted="xyz")
    said = model(MessageReasoning(text="hm"), SIGNED, hidden, MessageText(text="Hi."))
    assert turns(user(MessageText(text="a")), said)[1] == (
        "assistant",
        ["thinking", "redacted_thinking", "Hi."],
    )


@pytest.mark.parametrize(
    ("why", "request_", "thinks"),
    [
        ("nothing is against it", ask(user(MessageText(text="a")), thinking=ENABLED), True),
        (
            "the call was thought about",
            ask(user(MessageText(text="a")), model(SIGNED, CALL), user(RESULT), thinking=ENABLED),
            True,
        ),
        (
            "the call came from another vendor",
            ask(user(MessageText(text="a")), model(CALL), user(RESULT), thinking=ENABLED),
            False,
        ),
        (
            "an answer is to be continued",
            ask(user(MessageText(text="a")), model(MessageText(text="b")), thinking=ENABLED),
            False,
        ),
        (
            "a tool has to be called",
            ask(
                user(MessageText(text="a")), tools=(TOOL,), tool_choice="required", thinking=ENABLED
            ),
            False,
        ),
        (
            "there is no room",
            ask(user(MessageText(text="a")), max_tokens=2000, thinking=ENABLED),
            False,
        ),
    ],
)
def test_thinking_is_asked_for_where_it_can_be(why: str, request_: ModelRequest, thinks: bool):
    body = sent("anthropic", msgspec.structs.replace(request_, temperature=0.2))
    assert ("thinking" in body) is thinks, why
    assert ("temperature" in body) is not thinks, why


def test_there_is_always_a_limit_and_thoughts_come_on_top():
    assert sent("anthropic", ask())["max_tokens"] == 8192
    assert (
        sent("anthropic", ask(user(MessageText(text="a")), thinking=ENABLED))["max_tokens"] == 10192
    )


@pytest.mark.parametrize(
    ("choice", "parallel", "expected"),
    [
        (None, True, None),
        ("auto", True, {"type": "auto"}),
        ("required", True, {"type": "any"}),
        ("none", False, {"type": "none"}),
        (None, False, {"type": "auto", "disable_parallel_tool_use": True}),
    ],
)
def test_the_choice_of_tools_has_other_names(
    choice: ToolChoice | None, parallel: bool, expected: object
):
    request = ask(user(MessageText(text="a")), tool_choice=choice, parallel_tools=parallel)
    assert sent("anthropic", request).get("tool_choice") is None  # there are no tools
    with_tools = msgspec.structs.replace(request, tools=(TOOL,))
    assert sent("anthropic", with_tools).get("tool_choice") == expected


def test_it_takes_temperature_or_top_p():
    both = sent("anthropic", ask(temperature=0.5, top_p=0.9))
    assert both["temperature"] == 0.5 and "top_p" not in both
    assert sent("anthropic", ask(top_p=0.9))["top_p"] == 0.9


def test_stop_sequences_of_blanks_are_refused():
    assert sent("anthropic", ask(stop=("\n", "END")))["stop_sequences"] == ["END"]


def marks(request: ModelRequest) -> int:
    return codec_for("anthropic").encode(request).count(b'"cache_control"')


def test_what_the_next_call_begins_with_is_marked_and_a_lone_question_is_not():
    question = user(MessageText(text="a"))
    assert marks(ask(question, system="s")) == 0
    assert marks(ask(question, system="s", tools=(TOOL,))) == 2
    assert marks(ask(question, tools=(TOOL,))) == 2
    talk = (question, model(CALL), user(RESULT)) * 20
    assert marks(ask(*talk, system="s", tools=(TOOL,))) == 3


@pytest.mark.parametrize(
    ("arguments", "sent_"),
    [
        ('{"a": 1}', b'{"a": 1}'),
        ("", b"{}"),
        ("[1]", b'{"arguments":"[1]"}'),
        ('{"a": "half', b'{"arguments":"{\\"a\\": \\"half"}'),
    ],
)
def test_arguments_are_an_object_even_if_the_model_got_them_wrong(arguments: str, sent_: bytes):
    assert bytes(arguments_object(arguments)) == sent_


def test_a_calls_id_and_its_results_id_are_mended_alike():
    odd = "functions.read:0"
    talk = (
        user(MessageText(text="a")),
        model(MessageToolUse(id=odd, name="read")),
        user(MessageToolResult(id=odd, parts=())),
    )
    body = codec_for("anthropic").encode(ask(*talk)).decode()
    (used,), (answered,) = (
        re.findall(rf'"{key}":"([^"]*)"', body) for key in ("id", "tool_use_id")
    )
    assert used == answered == safe_id(odd)


@given(st.text(), st.text())
def test_any_id_becomes_one_that_it_takes_and_no_two_become_one(one: str, other: str):
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", safe_id(one))
    assert (safe_id(one) == safe_id(other)) == (one == other)
    assert safe_id(safe_id(one)) == safe_id(one)
