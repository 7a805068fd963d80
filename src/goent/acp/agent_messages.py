"""What an ACP agent tells its client while it works, what it asks, and what comes back."""

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field
from msgspec.json import Decoder

from goent.acp.client_messages import NameValue
from goent.acp.message_parts import (
    UNKNOWN,
    AcpMessage,
    ConfigOption,
    ContentBlock,
    RawFields,
    ToolCallContent,
    decode_lenient,
    field_wrapper,
    wrap_block,
    wrap_kind,
    wrap_options,
    wrap_tool_contents,
)


class Update(AcpMessage, frozen=True, kw_only=True, tag_field="sessionUpdate"):
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


class ToolLocation(AcpMessage, frozen=True, kw_only=True):
    """A file that a tool looks at or changes."""

    path: str
    line: int | None = None


class ToolFields(AcpMessage, frozen=True, kw_only=True):
    """What is known of a tool call; in an update, what is absent is as before."""

    tool_call_id: str
    title: str | None = None
    kind: str | None = None
    status: str | None = None
    content: tuple[ToolCallContent, ...] | None = None
    locations: tuple[ToolLocation, ...] | None = None
    raw_input: Raw | UnsetType = UNSET
    raw_output: Raw | UnsetType = UNSET
    meta: Raw | UnsetType = field(name="_meta", default=UNSET)


class AcpToolCall(
    ToolFields, frozen=True, kw_only=True, tag_field="sessionUpdate", tag="tool_call"
):
    """A tool is about to be used."""


class ToolCallUpdate(
    ToolFields, frozen=True, kw_only=True, tag_field="sessionUpdate", tag="tool_call_update"
):
    """What has changed about a tool call."""


class AcpPlanEntry(AcpMessage, frozen=True, kw_only=True, omit_defaults=False):
    """One thing to do."""

    content: str
    priority: str = "medium"
    status: str = "pending"


class AcpPlan(Update, frozen=True, kw_only=True, tag="plan"):
    """All that the agent means to do; replaces the plan before."""

    entries: tuple[AcpPlanEntry, ...]


class SessionCost(AcpMessage, frozen=True, kw_only=True):
    """Money spent by the session so far."""

    amount: float
    currency: str


class UsageUpdate(Update, frozen=True, kw_only=True, tag="usage_update"):
    """How full the context is, and what the session has cost."""

    used: int
    size: int
    cost: SessionCost | None = None


class AvailableCommand(AcpMessage, frozen=True, kw_only=True):
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
    | AcpToolCall
    | ToolCallUpdate
    | AcpPlan
    | UsageUpdate
    | AvailableCommandsUpdate
    | CurrentModeUpdate
    | ConfigOptionUpdate
    | SessionInfoUpdate
    | UnknownUpdate
)

_CHUNK_KINDS = frozenset({"agent_message_chunk", "agent_thought_chunk", "user_message_chunk"})
_TOOL_KINDS = frozenset({"tool_call", "tool_call_update"})
_OTHER_KINDS = frozenset(
    {
        "plan",
        "usage_update",
        "available_commands_update",
        "current_mode_update",
        "config_option_update",
        "session_info_update",
    }
)


class SessionUpdate(AcpMessage, frozen=True, kw_only=True):
    """The parameters of `session/update`."""

    session_id: str
    update: AnyUpdate


_update_decoder = Decoder(SessionUpdate)


def decode_update(raw: Raw) -> SessionUpdate:
    """Raises `msgspec.ValidationError` only if a kind that we know lacks what it must have."""
    return decode_lenient(raw, _update_decoder, field_wrapper("update", _wrap_update))


def _wrap_update(raw: Raw) -> Raw:
    fields = RawFields.of(
        wrap_kind(raw, tag="sessionUpdate", known=_CHUNK_KINDS | _TOOL_KINDS | _OTHER_KINDS)
    )
    kind = fields.text("sessionUpdate")
    if kind in _CHUNK_KINDS:
        fields.replace_value("content", wrap_block)
    elif kind in _TOOL_KINDS:
        fields.replace_value("content", wrap_tool_contents)
    elif kind == "config_option_update":
        fields.replace_value("configOptions", wrap_options)
    return fields.encode()


wrap_tool_fields = field_wrapper("content", wrap_tool_contents)

REQUEST_PERMISSION = "session/request_permission"
FS_READ_TEXT_FILE = "fs/read_text_file"
FS_WRITE_TEXT_FILE = "fs/write_text_file"


class AcpPermissionOption(AcpMessage, frozen=True, kw_only=True):
    """One possible answer; `kind` is `allow_once`, `allow_always`, `reject_once` and others."""

    option_id: str
    name: str = ""
    kind: str = ""


class PermissionRequest(AcpMessage, frozen=True, kw_only=True):
    """May this tool be used?"""

    session_id: str
    tool_call: ToolFields
    options: tuple[AcpPermissionOption, ...]


class OptionSelected(AcpMessage, frozen=True, kw_only=True, tag_field="outcome", tag="selected"):
    """One of the options was chosen. `meta` has the user's words, between go-ent and its own agent."""

    option_id: str
    meta: Raw | UnsetType = field(name="_meta", default=UNSET)


class PermissionCancelled(
    AcpMessage, frozen=True, kw_only=True, tag_field="outcome", tag="cancelled"
):
    """The turn was cancelled before an answer came."""


PermissionOutcome = OptionSelected | PermissionCancelled


class PermissionResponse(AcpMessage, frozen=True, kw_only=True):
    """The answer."""

    outcome: PermissionOutcome


class ReadTextFileParams(AcpMessage, frozen=True, kw_only=True):
    """The agent wants a file as the client's editor shows it."""

    session_id: str
    path: str
    line: int | None = None
    limit: int | None = None


class ReadTextFileResult(AcpMessage, frozen=True, kw_only=True):
    """Its text."""

    content: str


class WriteTextFileParams(AcpMessage, frozen=True, kw_only=True):
    """The agent wants the client's editor to hold this text."""

    session_id: str
    path: str
    content: str


class _UserWords(Struct, frozen=True, kw_only=True):
    message: str = ""


class _GoentMeta(Struct, frozen=True, kw_only=True, rename={"own": "go-ent"}):
    """What go-ent adds to messages to itself."""

    own: _UserWords = _UserWords()


def encode_words(message: str) -> Raw:
    return Raw(msgspec.json.encode(_GoentMeta(own=_UserWords(message=message))))


def decode_words(meta: Raw | UnsetType) -> str:
    try:
        return "" if meta is UNSET else msgspec.json.decode(meta, type=_GoentMeta).own.message
    except msgspec.DecodeError:
        return ""


_permission_request_decoder = Decoder(PermissionRequest)


def decode_permission_request(raw: Raw) -> PermissionRequest:
    return decode_lenient(
        raw, _permission_request_decoder, field_wrapper("toolCall", wrap_tool_fields)
    )


TERMINAL_CREATE = "terminal/create"
TERMINAL_OUTPUT = "terminal/output"
TERMINAL_WAIT_FOR_EXIT = "terminal/wait_for_exit"
TERMINAL_KILL = "terminal/kill"
TERMINAL_RELEASE = "terminal/release"


class CreateTerminalParams(AcpMessage, frozen=True, kw_only=True):
    """Run a command where the user can see it."""

    session_id: str
    command: str
    args: tuple[str, ...] = ()
    env: tuple[NameValue, ...] = ()
    cwd: str | None = None
    output_byte_limit: int | None = None


class CreatedTerminal(AcpMessage, frozen=True, kw_only=True):
    """It runs."""

    terminal_id: str


class TerminalParams(AcpMessage, frozen=True, kw_only=True):
    """All that the other requests say."""

    session_id: str
    terminal_id: str


class ExitStatus(AcpMessage, frozen=True, kw_only=True):
    """How it ended: one of the two."""

    exit_code: int | None = None
    signal: str | None = None


class TerminalOutput(AcpMessage, frozen=True, kw_only=True):
    """What it has said, and how it ended once it has."""

    output: str
    truncated: bool = False
    exit_status: ExitStatus | None = None
