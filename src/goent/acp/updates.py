"""What does an agent tell while it works? The kinds of `session/update`."""

from msgspec import UNSET, Raw, UnsetType, field
from msgspec.json import Decoder

from goent.acp.base import UNKNOWN, Fields, Message, changing, decode, wrap_kind
from goent.acp.content import ContentBlock, ToolCallContent, wrap_block, wrap_tool_contents
from goent.acp.options import ConfigOption, wrap_options


class Update(Message, frozen=True, kw_only=True, tag_field="sessionUpdate"):
    """What the kinds have in common: a tag of their own."""


class Chunk(Update, frozen=True, kw_only=True):
    """A piece of a message; pieces with one `message_id` belong together."""

    content: ContentBlock
    message_id: str | None = None
    meta: Raw | UnsetType = field(name="_meta", default=UNSET)


class AgentMessageChunk(Chunk, frozen=True, kw_only=True, tag="agent_message_chunk"):
    """What the agent says."""


class AgentThoughtChunk(Chunk, frozen=True, kw_only=True, tag="agent_thought_chunk"):
    """What it thinks."""


class UserMessageChunk(Chunk, frozen=True, kw_only=True, tag="user_message_chunk"):
    """What it was told, when a session is replayed."""


class Location(Message, frozen=True, kw_only=True):
    """A file that a tool looks at or changes."""

    path: str
    line: int | None = None


class ToolFields(Message, frozen=True, kw_only=True):
    """What is known of a tool call; in an update, what is absent is as before."""

    tool_call_id: str
    title: str | None = None
    kind: str | None = None
    status: str | None = None
    content: tuple[ToolCallContent, ...] | None = None
    locations: tuple[Location, ...] | None = None
    raw_input: Raw | UnsetType = UNSET
    raw_output: Raw | UnsetType = UNSET
    meta: Raw | UnsetType = field(name="_meta", default=UNSET)


class ToolCall(ToolFields, frozen=True, kw_only=True, tag_field="sessionUpdate", tag="tool_call"):
    """A tool is about to be used."""


class ToolCallUpdate(
    ToolFields, frozen=True, kw_only=True, tag_field="sessionUpdate", tag="tool_call_update"
):
    """What has changed about a tool call."""


class PlanEntry(Message, frozen=True, kw_only=True, omit_defaults=False):
    """One thing to do."""

    content: str
    priority: str = "medium"
    status: str = "pending"


class Plan(Update, frozen=True, kw_only=True, tag="plan"):
    """All that the agent means to do; replaces the plan before."""

    entries: tuple[PlanEntry, ...]


class Cost(Message, frozen=True, kw_only=True):
    """Money spent by the session so far."""

    amount: float
    currency: str


class UsageUpdate(Update, frozen=True, kw_only=True, tag="usage_update"):
    """How full the context is, and what the session has cost."""

    used: int
    size: int
    cost: Cost | None = None


class AvailableCommand(Message, frozen=True, kw_only=True):
    """A slash command of the agent."""

    name: str
    description: str = ""
    input: Raw | UnsetType = UNSET


class AvailableCommandsUpdate(Update, frozen=True, kw_only=True, tag="available_commands_update"):
    """The slash commands that can be used now."""

    available_commands: tuple[AvailableCommand, ...]


class CurrentModeUpdate(Update, frozen=True, kw_only=True, tag="current_mode_update"):
    """The session's mode has changed."""

    current_mode_id: str


class ConfigOptionUpdate(Update, frozen=True, kw_only=True, tag="config_option_update"):
    """The session's options have changed; these are all of them."""

    config_options: tuple[ConfigOption, ...]


class SessionInfoUpdate(Update, frozen=True, kw_only=True, tag="session_info_update"):
    """The session has another title."""

    title: str | None = None
    updated_at: str | None = None


class UnknownUpdate(Update, frozen=True, kw_only=True, tag=UNKNOWN):
    """An update of a kind that this version does not know."""

    kind: str
    body: Raw


AnyUpdate = (
    AgentMessageChunk
    | AgentThoughtChunk
    | UserMessageChunk
    | ToolCall
    | ToolCallUpdate
    | Plan
    | UsageUpdate
    | AvailableCommandsUpdate
    | CurrentModeUpdate
    | ConfigOptionUpdate
    | SessionInfoUpdate
    | UnknownUpdate
)

_CHUNKS = frozenset({"agent_message_chunk", "agent_thought_chunk", "user_message_chunk"})
_TOOLS = frozenset({"tool_call", "tool_call_update"})
_REST = frozenset(
    {
        "plan",
        "usage_update",
        "available_commands_update",
        "current_mode_update",
        "config_option_update",
        "session_info_update",
    }
)


class SessionUpdate(Message, frozen=True, kw_only=True):
    """The parameters of `session/update`."""

    session_id: str
    update: AnyUpdate


_update = Decoder(SessionUpdate)


def decode_update(raw: Raw) -> SessionUpdate:
    """Raises `msgspec.ValidationError` only if a kind that we know lacks what it must have."""
    return decode(raw, _update, changing("update", _wrap_update))


def _wrap_update(raw: Raw) -> Raw:
    fields = Fields.of(wrap_kind(raw, tag="sessionUpdate", known=_CHUNKS | _TOOLS | _REST))
    kind = fields.text("sessionUpdate")
    if kind in _CHUNKS:
        fields.change("content", wrap_block)
    elif kind in _TOOLS:
        fields.change("content", wrap_tool_contents)
    elif kind == "config_option_update":
        fields.change("configOptions", wrap_options)
    return fields.encoded()


wrap_tool_fields = changing("content", wrap_tool_contents)
