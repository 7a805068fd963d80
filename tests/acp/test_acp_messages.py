from pathlib import Path

import msgspec
import pytest
from msgspec import UNSET, Raw, Struct

from goent.acp.agent_messages import (
    AcpPlan,
    AcpToolCall,
    AgentMessageChunk,
    AgentThoughtChunk,
    AvailableCommandsUpdate,
    ConfigOptionUpdate,
    OptionSelected,
    PermissionCancelled,
    PermissionResponse,
    SessionUpdate,
    ToolCallUpdate,
    UnknownUpdate,
    UsageUpdate,
    decode_permission_request,
    decode_update,
)
from goent.acp.client_messages import (
    AcpInitializeParams,
    AcpInitializeResult,
    ClientCapabilities,
    FileSystemCapabilities,
    NewSessionParams,
    PromptParams,
    PromptResult,
    TurnUsage,
    decode_new_session,
    decode_opened_session,
    decode_prompt,
)
from goent.acp.message_parts import (
    AcpDiff,
    AcpText,
    BooleanOption,
    SelectOption,
    ToolContent,
    UnknownBlock,
    UnknownOption,
    UnknownToolContent,
    find_option,
    plain_text,
)


class Recorded(Struct):
    method: str = ""
    params: Raw = Raw()
    result: Raw = Raw()


WIRE = [
    msgspec.json.decode(line, type=Recorded)
    for line in Path(__file__).with_name("opencode_wire.ndjson").read_bytes().splitlines()
]
RESULTS = [message.result for message in WIRE if not message.method]
UPDATES = [message.params for message in WIRE if message.method == "session/update"]


def update(body: str) -> object:
    return decode_update(Raw(f'{{"sessionId":"s","update":{body}}}'.encode())).update


def encoded(value: object) -> object:
    return msgspec.json.decode(msgspec.json.encode(value))


def test_opencode_says_what_it_can_do():
    said = msgspec.json.decode(RESULTS[0], type=AcpInitializeResult)
    assert said.agent_info and said.agent_info.version == "1.18.33"
    assert said.agent_capabilities.load_session
    sessions = said.agent_capabilities.session_capabilities
    assert sessions and sessions.close is not None and sessions.resume is not None


def test_opencodes_models_are_the_choices_of_an_option():
    session = decode_new_session(RESULTS[1])
    model = find_option(session.config_options, "model")
    assert model and model.current_value == "moonshot/glm-4"
    assert [choice.value for choice in model.choices][1] == "moonshot/kimi-k2"


def test_opencodes_updates_are_all_known():
    kinds = [type(decode_update(params).update) for params in UPDATES]
    assert kinds == [
        AvailableCommandsUpdate,
        AgentThoughtChunk,
        AgentMessageChunk,
        AcpToolCall,
        ToolCallUpdate,
        ToolCallUpdate,
        UsageUpdate,
    ]


def test_opencodes_finished_edit_has_its_diff_and_its_raw_output():
    done = decode_update(UPDATES[5]).update
    assert isinstance(done, ToolCallUpdate)
    assert done.status == "completed"
    assert done.content == (
        ToolContent(content=AcpText(text="Edit applied successfully.")),
        AcpDiff(path="/repo/a.txt", old_text="line1", new_text="LINE1"),
    )
    assert done.raw_input is UNSET
    assert done.raw_output is not UNSET
    assert b'"filediff"' in bytes(done.raw_output)


def test_opencodes_question_has_its_options():
    (asked,) = (message for message in WIRE if message.method == "session/request_permission")
    request = decode_permission_request(asked.params)
    assert [option.kind for option in request.options] == [
        "allow_once",
        "allow_always",
        "reject_once",
    ]
    assert request.tool_call.tool_call_id == "call_15_0"


def test_opencodes_turn_ends_with_usage():
    result = msgspec.json.decode(RESULTS[2], type=PromptResult)
    assert result.stop_reason == "end_turn"
    assert result.usage == TurnUsage(
        input_tokens=800,
        output_tokens=90,
        total_tokens=1100,
        thought_tokens=10,
        cached_read_tokens=200,
    )


def test_an_unknown_kind_of_update_is_kept_as_it_came():
    told = update('{"sessionUpdate":"notice","level":5}')
    assert isinstance(told, UnknownUpdate)
    assert (told.kind, bytes(told.body)) == ("notice", b'{"sessionUpdate":"notice","level":5}')


def test_an_update_without_a_kind_is_kept_as_it_came():
    assert isinstance(update('{"level":5}'), UnknownUpdate)


def test_unknown_content_does_not_lose_the_tool_call_around_it():
    told = update(
        '{"sessionUpdate":"tool_call","toolCallId":"c","status":"paused","kind":"dream","content":['
        '{"type":"chart","points":[1]},'
        '{"type":"content","content":{"type":"hologram"}},'
        '{"type":"content","content":{"type":"text","text":"ok"}}]}'
    )
    assert isinstance(told, AcpToolCall)
    assert (told.status, told.kind) == ("paused", "dream")
    assert told.content
    chart, hologram, text = told.content
    assert isinstance(chart, UnknownToolContent) and chart.kind == "chart"
    assert isinstance(hologram, ToolContent) and isinstance(hologram.content, UnknownBlock)
    assert text == ToolContent(content=AcpText(text="ok"))


def test_unknown_content_of_a_message_is_no_text():
    told = update('{"sessionUpdate":"agent_message_chunk","content":{"type":"hologram"}}')
    assert isinstance(told, AgentMessageChunk)
    assert plain_text(told.content) == ""


def test_nulls_stand_for_what_is_absent():
    told = update(
        '{"sessionUpdate":"tool_call_update","toolCallId":"c","title":null,"content":null,'
        '"locations":null,"status":null,"_meta":null,"rawInput":null}'
    )
    assert isinstance(told, ToolCallUpdate)
    assert told.content is None


def test_a_known_kind_without_its_parts_is_an_error():
    with pytest.raises(msgspec.ValidationError, match="toolCallId"):
        update('{"sessionUpdate":"tool_call"}')


def test_a_plan_is_read_whatever_its_words():
    told = update('{"sessionUpdate":"plan","entries":[{"content":"x","priority":"urgent"}]}')
    assert isinstance(told, AcpPlan)
    assert told.entries[0].priority == "urgent"


def test_grouped_choices_are_choices():
    session = decode_new_session(
        Raw(
            b'{"sessionId":"s","configOptions":[{"id":"llm","category":"model","type":"select",'
            b'"currentValue":"a","options":[{"group":"g","name":"G","options":['
            b'{"value":"a","name":"A"},{"value":"b","name":"B"}]}]}]}'
        )
    )
    model = find_option(session.config_options, "model")
    assert model and [choice.value for choice in model.choices] == ["a", "b"]


def test_unknown_options_do_not_hide_the_known_ones():
    told = update(
        '{"sessionUpdate":"config_option_update","configOptions":['
        '{"id":"temperature","type":"slider","currentValue":0.5},'
        '{"id":"fast","type":"boolean","currentValue":true},'
        '{"id":"mode","currentValue":"plan"}]}'
    )
    assert isinstance(told, ConfigOptionUpdate)
    kinds = [type(option) for option in told.config_options]
    assert kinds == [UnknownOption, BooleanOption, SelectOption]


def test_no_options_are_no_option():
    assert find_option(None, "model") is None
    assert decode_opened_session(Raw(b"null")).config_options is None


def test_a_prompt_of_unknown_blocks_is_read():
    prompt = decode_prompt(Raw(b'{"sessionId":"s","prompt":[{"type":"hologram"}]}')).prompt
    assert isinstance(prompt[0], UnknownBlock)


def test_what_goes_out_says_no_more_than_it_must():
    assert encoded(
        AcpInitializeParams(
            protocol_version=1, client_capabilities=ClientCapabilities(fs=FileSystemCapabilities())
        )
    ) == {"protocolVersion": 1, "clientCapabilities": {"fs": {}}}
    assert encoded(PromptParams(session_id="s", prompt=(AcpText(text="hi"),))) == {
        "sessionId": "s",
        "prompt": [{"type": "text", "text": "hi"}],
    }
    assert encoded(
        SessionUpdate(session_id="s", update=AgentMessageChunk(content=AcpText(text="hi")))
    ) == {
        "sessionId": "s",
        "update": {
            "sessionUpdate": "agent_message_chunk",
            "content": {"type": "text", "text": "hi"},
        },
    }


def test_a_new_session_names_its_servers_even_if_there_are_none():
    assert encoded(NewSessionParams(cwd="/w")) == {"cwd": "/w", "mcpServers": []}
    assert msgspec.json.decode(b'{"cwd":"/w"}', type=NewSessionParams).mcp_servers == ()


def test_a_permissions_outcome_is_named_twice():
    assert encoded(PermissionResponse(outcome=OptionSelected(option_id="once"))) == {
        "outcome": {"outcome": "selected", "optionId": "once"}
    }
    assert encoded(PermissionResponse(outcome=PermissionCancelled())) == {
        "outcome": {"outcome": "cancelled"}
    }
