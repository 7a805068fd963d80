"""What is read from the parts of a message, when some of what was told of them is lost or late."""

from collections.abc import Sequence

from msgspec import Raw

from goent.acp.agent_messages import AcpToolCall, AgentMessageChunk, AnyUpdate, ToolCallUpdate
from goent.acp.message_parts import plain_text
from goent.opencode.event_stream import PartDelta
from goent.opencode.opencode_translator import PartReader
from goent.opencode.server_api import MessageInfo, MessagePart


def a_reader() -> PartReader:
    reader = PartReader()
    reader.note_message(MessageInfo(id="m", role="assistant"))
    return reader


def whole(text: str) -> MessagePart:
    return MessagePart(id="p", type="text", message="m", text=text)


def more(text: str) -> PartDelta:
    return PartDelta(session="s", message="m", part="p", field="text", delta=text)


def tool(status: bytes) -> MessagePart:
    state = Raw(b'{"status":"%b"}' % status)
    return MessagePart(id="t", type="tool", message="m", call="c", tool="bash", state=state)


def texts(updates: Sequence[AnyUpdate]) -> list[str]:
    return [plain_text(u.content) for u in updates if isinstance(u, AgentMessageChunk)]


def test_a_text_is_told_as_it_grows_and_its_whole_adds_nothing() -> None:
    reader = a_reader()
    told = [
        reader.read(whole("")),
        reader.read_delta(more("One ")),
        reader.read_delta(more("two.")),
    ]
    assert [texts(updates) for updates in told] == [[], ["One "], ["two."]]
    assert texts(reader.read(whole("One two."))) == []


def test_after_a_gap_a_text_is_told_by_its_whole_alone() -> None:
    reader = a_reader()
    reader.read(whole(""))
    assert texts(reader.read_delta(more("One "))) == ["One "]
    reader.mark_gap()
    assert texts(reader.read_delta(more("three."))) == []
    assert texts(reader.read(whole("One two three."))) == ["two three."]


def test_what_begins_after_the_gap_is_told_as_it_grows() -> None:
    reader = a_reader()
    reader.mark_gap()
    reader.read(whole(""))
    assert texts(reader.read_delta(more("One "))) == ["One "]


def test_a_part_of_nobodys_message_is_not_read() -> None:
    reader = PartReader()
    reader.note_message(MessageInfo(id="m", role="user"))
    assert reader.read(whole("the prompt")) == []
    assert reader.read_delta(more("more of it")) == []


def test_a_tool_call_that_has_ended_is_not_told_again_by_news_that_come_late() -> None:
    reader = a_reader()
    begun, running = reader.read(tool(b"running"))
    assert isinstance(begun, AcpToolCall) and isinstance(running, ToolCallUpdate)
    (ended,) = reader.read(tool(b"completed"))
    assert isinstance(ended, ToolCallUpdate) and ended.status == "completed"
    assert reader.read(tool(b"running")) == reader.read(tool(b"completed")) == []
