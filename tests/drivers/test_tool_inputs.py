"""What a tool was given is told once, and not without bounds."""

from pathlib import Path

import msgspec
from msgspec import Raw

from goent.acp import agent_messages
from goent.agents.acp_translator import (
    MAX_INPUT_BYTES,
    MAX_INPUT_TEXT,
    AgentTranslator,
    shorten_input,
)
from goent.domain.events import ToolCall
from goent.opencode.opencode_translator import OpenCodeTranslator

CWD = Path("/project")


def raw(value: object) -> Raw:
    return Raw(msgspec.json.encode(value))


def inputs(translator: OpenCodeTranslator | AgentTranslator, given: object) -> list[object]:
    told = [
        agent_messages.AcpToolCall(tool_call_id="a", title="bash"),
        agent_messages.ToolCallUpdate(tool_call_id="a", status="in_progress", raw_input=raw(given)),
        agent_messages.ToolCallUpdate(tool_call_id="a", status="completed", raw_input=raw(given)),
    ]
    events = [event for update in told for event in translator.translate(update)]
    return [event.input for event in events if isinstance(event, ToolCall)]


def test_the_input_is_told_when_it_is_known_and_not_again():
    assert inputs(OpenCodeTranslator(CWD), {"command": "ls"}) == [None, {"command": "ls"}, None]
    assert inputs(AgentTranslator(CWD), {"command": "ls"}) == [None, {"command": "ls"}, None]


def test_the_directory_that_opencode_adds_is_not_the_models():
    told = inputs(OpenCodeTranslator(CWD), {"command": "ls", "cwd": "/project"})
    assert told[1] == {"command": "ls"}
    told = inputs(OpenCodeTranslator(CWD), {"command": "ls", "cwd": "/project/below"})
    assert told[1] == {"command": "ls", "cwd": "/project/below"}


def test_long_texts_are_cut_and_what_is_still_too_long_is_left_out():
    long = {"path": "x", "edits": [{"new": "y" * MAX_INPUT_BYTES}]}
    cut = msgspec.convert(shorten_input(raw(long)), dict[str, object])
    assert cut["path"] == "x"
    assert cut["edits"] == [{"new": "y" * MAX_INPUT_TEXT + "… (15000 characters more)"}]
    assert shorten_input(raw(["z" * 900] * 20)) is None


def test_no_input_is_none():
    assert shorten_input(None) is None
    assert shorten_input(raw({})) is None
    assert shorten_input(Raw(b"{broken")) is None
