"""ACP messages from an agent to its client: updates, and requests with their results."""

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
    known_tags,
    wrap_block,
    wrap_kind,
    wrap_options,
    wrap_tool_contents,
)


class Update(AcpMessage, frozen=True, kw_only=True, tag_field="sessionUpdate"):
    pass


class Chunk(Update, frozen=True, kw_only=True):
    """A piece of a message; pieces with the same `message_id` belong together."""

    content: ContentBlock
    message_id: str | None = None
    meta: Raw | UnsetType = field(name="_meta", default=UNSET)


class AgentMessageChunk(Chunk, frozen=True, kw_only=True, tag="agent_message_chunk"):
    pass


class AgentThoughtChunk(Chunk, frozen=True, kw_only=True, tag="agent_thought_chunk"):
    pass


class UserMessageChunk(Chunk, frozen=True, kw_only=True, tag="user_message_chunk"):
    """A prompt, when a session is replayed."""


class ToolLocation(AcpMessage, frozen=True, kw_only=True):
    path: str
    line: int | None = None


class ToolFields(AcpMessage, frozen=True, kw_only=True):
    """The state of a tool call; in an update, absent fields are unchanged."""

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
    pass


class ToolCallUpdate(
    ToolFields, frozen=True, kw_only=True, tag_field="sessionUpdate", tag="tool_call_update"
):
    pass


class AcpPlanEntry(AcpMessage, frozen=True, kw_only=True, omit_defaults=False):
    content: str
    priority: str = "medium"
    status: str = "pending"


class AcpPlan(Update, frozen=True, kw_only=True, tag="plan"):
    """The whole plan; replaces the one before."""

    entries: tuple[AcpPlanEntry, ...]


class SessionCost(AcpMessage, frozen=True, kw_only=True):
    amount: float
    currency: str


class UsageUpdate(Update, frozen=True, kw_only=True, tag="usage_update"):
    used: int
    size: int
    cost: SessionCost | None = None


class AvailableCommand(AcpMessage, frozen=True, kw_only=True):
    name: str
    description: str = ""
    input: Raw | UnsetType = UNSET


class AvailableCommandsUpdate(Update, frozen=True, kw_only=True, tag="available_commands_update"):
    available_commands: tuple[AvailableCommand, ...]


class CurrentModeUpdate(Update, frozen=True, kw_only=True, tag="current_mode_update"):
    current_mode_id: str


class ConfigOptionUpdate(Update, frozen=True, kw_only=True, tag="config_option_update"):
    """All options of the session, after a change."""

    config_options: tuple[ConfigOption, ...]


class SessionInfoUpdate(Update, frozen=True, kw_only=True, tag="session_info_update"):
    title: str | None = None
    updated_at: str | None = None


class UnknownUpdate(Update, frozen=True, kw_only=True, tag=UNKNOWN):
    """An update of an unknown kind."""

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

_UPDATE_KINDS = known_tags(AnyUpdate)


class SessionUpdate(AcpMessage, frozen=True, kw_only=True):
    session_id: str
    update: AnyUpdate


_update_decoder = Decoder(SessionUpdate)


def decode_update(raw: Raw) -> SessionUpdate:
    """Raises `msgspec.ValidationError` only if an update of a known kind lacks required fields."""
    return decode_lenient(raw, _update_decoder, field_wrapper("update", _wrap_update))


def _wrap_update(raw: Raw) -> Raw:
    fields = RawFields.of(wrap_kind(raw, tag="sessionUpdate", known=_UPDATE_KINDS))
    match fields.text("sessionUpdate"):
        case "agent_message_chunk" | "agent_thought_chunk" | "user_message_chunk":
            fields.replace_value("content", wrap_block)
        case "tool_call" | "tool_call_update":
            fields.replace_value("content", wrap_tool_contents)
        case "config_option_update":
            fields.replace_value("configOptions", wrap_options)
        case _:
            pass
    return fields.encode()


REQUEST_PERMISSION = "session/request_permission"
FS_READ_TEXT_FILE = "fs/read_text_file"
FS_WRITE_TEXT_FILE = "fs/write_text_file"


class AcpPermissionOption(AcpMessage, frozen=True, kw_only=True):
    """A possible answer; `kind` is `allow_once`, `allow_always`, `reject_once` and others."""

    option_id: str
    name: str = ""
    kind: str = ""


class PermissionRequest(AcpMessage, frozen=True, kw_only=True):
    session_id: str
    tool_call: ToolFields
    options: tuple[AcpPermissionOption, ...]


class OptionSelected(AcpMessage, frozen=True, kw_only=True, tag_field="outcome", tag="selected"):
    """The chosen option; between go-ent and its own agent `meta` has the user's words."""

    option_id: str
    meta: Raw | UnsetType = field(name="_meta", default=UNSET)


class PermissionCancelled(
    AcpMessage, frozen=True, kw_only=True, tag_field="outcome", tag="cancelled"
):
    pass


PermissionOutcome = OptionSelected | PermissionCancelled


class PermissionResponse(AcpMessage, frozen=True, kw_only=True):
    outcome: PermissionOutcome


class ReadTextFileParams(AcpMessage, frozen=True, kw_only=True):
    """Asks for a file as the client's editor shows it, unsaved changes included."""

    session_id: str
    path: str
    line: int | None = None
    limit: int | None = None


class ReadTextFileResult(AcpMessage, frozen=True, kw_only=True):
    content: str


class WriteTextFileParams(AcpMessage, frozen=True, kw_only=True):
    session_id: str
    path: str
    content: str


class _UserWords(Struct, frozen=True, kw_only=True):
    message: str = ""


class _GoentMeta(Struct, frozen=True, kw_only=True, rename={"own": "go-ent"}):
    """go-ent's own part of `_meta`."""

    own: _UserWords = _UserWords()


def encode_words(message: str) -> Raw:
    return Raw(msgspec.json.encode(_GoentMeta(own=_UserWords(message=message))))


def decode_words(meta: Raw | UnsetType) -> str:
    try:
        return "" if meta is UNSET else msgspec.json.decode(meta, type=_GoentMeta).own.message
    except msgspec.DecodeError:
        return ""


_wrap_request = field_wrapper("toolCall", field_wrapper("content", wrap_tool_contents))


def decode_permission_request(raw: Raw) -> PermissionRequest:
    return decode_lenient(raw, Decoder(PermissionRequest), _wrap_request)


TERMINAL_CREATE = "terminal/create"
TERMINAL_OUTPUT = "terminal/output"
TERMINAL_WAIT_FOR_EXIT = "terminal/wait_for_exit"
TERMINAL_KILL = "terminal/kill"
TERMINAL_RELEASE = "terminal/release"


class CreateTerminalParams(AcpMessage, frozen=True, kw_only=True):
    session_id: str
    command: str
    args: tuple[str, ...] = ()
    env: tuple[NameValue, ...] = ()
    cwd: str | None = None
    output_byte_limit: int | None = None


class CreatedTerminal(AcpMessage, frozen=True, kw_only=True):
    terminal_id: str


class TerminalParams(AcpMessage, frozen=True, kw_only=True):
    session_id: str
    terminal_id: str


class ExitStatus(AcpMessage, frozen=True, kw_only=True):
    """How a command ended: one of the two is set."""

    exit_code: int | None = None
    signal: str | None = None


class TerminalOutput(AcpMessage, frozen=True, kw_only=True):
    output: str
    truncated: bool = False
    exit_status: ExitStatus | None = None
