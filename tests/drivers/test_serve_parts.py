"""What is read from the parts of a message, when some of what was told of them is lost or late."""

from collections.abc import Sequence

from msgspec import Raw

from goent.acp.content import plain_text
from goent.acp.updates import AgentMessageChunk, AnyUpdate, ToolCall, ToolCallUpdate
from goent.drivers.opencode.events import PartGrew
from goent.drivers.opencode.shapes import MessageInfo, Part
from goent.drivers.opencode_serve.parts import Reader


def a_reader() -> Reader:
    reader = Reader()
    reader.learn(MessageInfo(id="m", role="assistant"))
    return reader


def whole(text: str) -> Part:
    return Part(id="p", type="text", message="m", text=text)


def more(text: str) -> PartGrew:
    return PartGrew(session="s", message="m", part="p", field="text", delta=text)


def tool(status: bytes) -> Part:
    state = Raw(b'{"status":"%b"}' % status)
    return Part(id="t", type="tool", message="m", call="c", tool="bash", state=state)


def texts(updates: Sequence[AnyUpdate]) -> list[str]:
    return [plain_text(u.content) for u in updates if isinstance(u, AgentMessageChunk)]


def test_a_text_is_told_as_it_grows_and_its_whole_adds_nothing() -> None:
    reader = a_reader()
    told = [reader.read(whole("")), reader.grow(more("One ")), reader.grow(more("two."))]
    assert [texts(updates) for updates in told] == [[], ["One "], ["two."]]
    assert texts(reader.read(whole("One two."))) == []


def test_after_a_gap_a_text_is_told_by_its_whole_alone() -> None:
    reader = a_reader()
    reader.read(whole(""))
    assert texts(reader.grow(more("One "))) == ["One "]
    reader.doubt()
    assert texts(reader.grow(more("three."))) == []
    assert texts(reader.read(whole("One two three."))) == ["two three."]


def test_what_begins_after_the_gap_is_told_as_it_grows() -> None:
    reader = a_reader()
    reader.doubt()
    reader.read(whole(""))
    assert texts(reader.grow(more("One "))) == ["One "]


def test_a_part_of_nobodys_message_is_not_read() -> None:
    reader = Reader()
    reader.learn(MessageInfo(id="m", role="user"))
    assert reader.read(whole("the prompt")) == []
    assert reader.grow(more("more of it")) == []


def test_a_tool_call_that_has_ended_is_not_told_again_by_news_that_come_late() -> None:
    reader = a_reader()
    begun, running = reader.read(tool(b"running"))
    assert isinstance(begun, ToolCall) and isinstance(running, ToolCallUpdate)
    (ended,) = reader.read(tool(b"completed"))
    assert isinstance(ended, ToolCallUpdate) and ended.status == "completed"
    assert reader.read(tool(b"running")) == reader.read(tool(b"completed")) == []
