"""What do a message's parts mean, told again whenever they grow?

A text is told by what is added to it, and at its end whole; what has been told is remembered, so that
nothing is said twice and nothing that a broken stream has swallowed is lost: after a gap, what is
added to a text that had begun cannot be placed, and is told with the whole. Tool calls become the same
updates that ACP makes of them.
"""

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, Raw, UnsetType

from goent.acp.content import Text
from goent.acp.updates import (
    AgentMessageChunk,
    AgentThoughtChunk,
    AnyUpdate,
    ToolCall,
    ToolCallUpdate,
)
from goent.drivers.opencode.events import PartGrew
from goent.drivers.opencode.shapes import Message, MessageInfo, Part, Reading

_STATUS = {"running": "in_progress", "completed": "completed", "error": "failed"}


class ToolState(Reading, frozen=True, kw_only=True):
    """How far a tool call has come."""

    status: str = ""
    input: Raw | UnsetType = UNSET
    title: str = ""


class Reader:
    """Reads the parts of one turn's messages; what the user said is not repeated."""

    def __init__(self) -> None:
        self._models: set[str] = set()
        self._kinds: dict[str, str] = {}
        self._told: dict[str, int] = {}
        self._begun: set[str] = set()
        self._ended: set[str] = set()
        self._doubted: set[str] = set()

    def doubt(self) -> None:
        """There was a gap: of a part that is known by now, only its whole counts from here on."""
        self._doubted.update(self._kinds)

    def learn(self, info: MessageInfo) -> None:
        """Whose message it is. A part of a message that nobody told of is not read."""
        if info.role == "assistant":
            self._models.add(info.id)

    def read_message(self, message: Message) -> Sequence[AnyUpdate]:
        self.learn(message.info)
        return [update for part in message.parts for update in self.read(part)]

    def read(self, part: Part) -> Sequence[AnyUpdate]:
        if part.message not in self._models or part.synthetic:
            return []
        match part.type:
            case "text" | "reasoning":
                self._kinds[part.id] = part.type
                return self._more(part.id, part.message, part.text[self._told.get(part.id, 0) :])
            case "tool":
                return self._tool(part)
            case _:
                return []

    def grow(self, more: PartGrew) -> Sequence[AnyUpdate]:
        known = more.part in self._kinds and more.part not in self._doubted
        text = more.delta if known and more.field == "text" else ""
        return self._more(more.part, more.message, text)

    def _more(self, part: str, message: str, text: str) -> Sequence[AnyUpdate]:
        if not text:
            return []
        self._told[part] = self._told.get(part, 0) + len(text)
        thinks = self._kinds[part] == "reasoning"
        kind = AgentThoughtChunk if thinks else AgentMessageChunk
        return [kind(content=Text(text=text), message_id=message)]

    def _tool(self, part: Part) -> Sequence[AnyUpdate]:
        if part.id in self._ended:
            return []
        state = _state(part)
        if state.status in ("completed", "error"):
            self._ended.add(part.id)
        begun = ToolCall(tool_call_id=part.call, title=part.tool, raw_input=state.input)
        now = ToolCallUpdate(
            tool_call_id=part.call,
            title=state.title or None,
            status=_STATUS.get(state.status, "pending"),
            raw_input=state.input,
            raw_output=UNSET if state.status in ("pending", "running") else part.state,
        )
        if part.id in self._begun:
            return [now]
        self._begun.add(part.id)
        return [begun, now]


def _state(part: Part) -> ToolState:
    try:
        return msgspec.json.decode(part.state, type=ToolState)
    except msgspec.DecodeError:
        return ToolState()
