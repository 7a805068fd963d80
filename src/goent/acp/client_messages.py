"""ACP messages from a client to an agent, and their results.

Both directions use the same types: go-ent is a client of agents, and an agent for editors.
"""

from collections.abc import Mapping

from msgspec import UNSET, Raw, UnsetType, field
from msgspec.json import Decoder

from goent.acp.message_parts import (
    AcpMessage,
    ConfigOption,
    ContentBlock,
    RawFields,
    decode_lenient,
    field_wrapper,
    wrap_blocks,
    wrap_options,
)


class NameValue(AcpMessage, frozen=True, kw_only=True):
    name: str
    value: str


class StdioServer(AcpMessage, frozen=True, kw_only=True):
    """A server on pipes; the only kind without a `type` on the wire."""

    name: str
    command: str
    args: tuple[str, ...] = ()
    env: tuple[NameValue, ...] = ()


class HttpServer(AcpMessage, frozen=True, kw_only=True, tag="http"):
    name: str
    url: str
    headers: tuple[NameValue, ...] = ()


def server_transport(raw: Raw) -> str:
    """The server's transport: `stdio`, `http`, or one that this version does not know."""
    return RawFields.of(raw).text("type") or "stdio"


PROTOCOL_VERSION = 1

INITIALIZE = "initialize"
AUTHENTICATE = "authenticate"
SESSION_NEW = "session/new"
SESSION_LOAD = "session/load"
SESSION_RESUME = "session/resume"
SESSION_CLOSE = "session/close"
SESSION_DELETE = "session/delete"
SESSION_LIST = "session/list"
SESSION_PROMPT = "session/prompt"
SESSION_CANCEL = "session/cancel"
SESSION_SET_MODE = "session/set_mode"
SESSION_SET_CONFIG_OPTION = "session/set_config_option"
SESSION_SET_MODEL = "session/set_model"
SESSION_UPDATE = "session/update"


class Implementation(AcpMessage, frozen=True, kw_only=True):
    name: str
    version: str = ""
    title: str | None = None


class FileSystemCapabilities(AcpMessage, frozen=True, kw_only=True):
    read_text_file: bool = False
    write_text_file: bool = False


class AuthCapabilities(AcpMessage, frozen=True, kw_only=True):
    """`terminal`: the client can start the agent in a terminal for its user to log in."""

    terminal: bool = False


class ClientCapabilities(AcpMessage, frozen=True, kw_only=True):
    fs: FileSystemCapabilities | None = None
    terminal: bool = False
    auth: AuthCapabilities | None = None


class PromptCapabilities(AcpMessage, frozen=True, kw_only=True):
    image: bool = False
    audio: bool = False
    embedded_context: bool = False


class EmptyCapability(AcpMessage, frozen=True, kw_only=True):
    """An empty object, which is how a capability says yes."""


class SessionCapabilities(AcpMessage, frozen=True, kw_only=True):
    """The optional session requests that the agent answers: those that are not None."""

    close: EmptyCapability | None = None
    delete: EmptyCapability | None = None
    list: EmptyCapability | None = None
    resume: EmptyCapability | None = None
    additional_directories: EmptyCapability | None = None


class AgentAuthCapabilities(AcpMessage, frozen=True, kw_only=True):
    logout: EmptyCapability | None = None


class AgentCapabilities(AcpMessage, frozen=True, kw_only=True):
    load_session: bool = False
    prompt_capabilities: PromptCapabilities | None = None
    session_capabilities: SessionCapabilities | None = None
    mcp_capabilities: Raw | UnsetType = UNSET
    auth: AgentAuthCapabilities | None = None


class AuthMethod(AcpMessage, frozen=True, kw_only=True):
    id: str
    name: str = ""
    description: str | None = None
    type: str | None = None
    args: tuple[str, ...] | None = None
    env: Mapping[str, str] | None = None


class AcpInitializeParams(AcpMessage, frozen=True, kw_only=True):
    protocol_version: int
    client_capabilities: ClientCapabilities | None = None
    client_info: Implementation | None = None


class AcpInitializeResult(AcpMessage, frozen=True, kw_only=True):
    protocol_version: int
    agent_capabilities: AgentCapabilities = AgentCapabilities()
    agent_info: Implementation | None = None
    auth_methods: tuple[AuthMethod, ...] | None = None


class AuthenticateParams(AcpMessage, frozen=True, kw_only=True):
    method_id: str


class NewSessionParams(AcpMessage, frozen=True, kw_only=True, omit_defaults=False):
    """Clients forget `mcpServers`, agents insist on it: always sent, never required."""

    cwd: str
    mcp_servers: tuple[Raw, ...] = ()
    additional_directories: tuple[str, ...] | UnsetType = UNSET


class SessionMode(AcpMessage, frozen=True, kw_only=True):
    id: str
    name: str
    description: str | None = None


class SessionModes(AcpMessage, frozen=True, kw_only=True):
    current_mode_id: str
    available_modes: tuple[SessionMode, ...]


class OfferedModel(AcpMessage, frozen=True, kw_only=True):
    model_id: str
    name: str = ""


class OfferedModels(AcpMessage, frozen=True, kw_only=True):
    """The older way to choose a model, by `session/set_model`; gone from the protocol, still in use."""

    available_models: tuple[OfferedModel, ...] = ()
    current_model_id: str = ""


class SetModelParams(AcpMessage, frozen=True, kw_only=True):
    session_id: str
    model_id: str


class NewSession(AcpMessage, frozen=True, kw_only=True):
    session_id: str
    config_options: tuple[ConfigOption, ...] | None = None
    models: OfferedModels | None = None
    modes: Raw | UnsetType = UNSET


class OpenSessionParams(AcpMessage, frozen=True, kw_only=True, omit_defaults=False):
    """For `session/load`, which replays the session, and `session/resume`, which does not."""

    session_id: str
    cwd: str
    mcp_servers: tuple[Raw, ...] = ()
    additional_directories: tuple[str, ...] | UnsetType = UNSET


class OpenedSession(AcpMessage, frozen=True, kw_only=True):
    config_options: tuple[ConfigOption, ...] | None = None
    models: OfferedModels | None = None
    modes: Raw | UnsetType = UNSET


class SessionParams(AcpMessage, frozen=True, kw_only=True):
    """For `session/close`, `session/delete` and `session/cancel`."""

    session_id: str


class ListSessionsParams(AcpMessage, frozen=True, kw_only=True):
    cwd: str | None = None
    cursor: str | None = None


class AcpSessionInfo(AcpMessage, frozen=True, kw_only=True):
    session_id: str
    cwd: str = ""
    title: str | None = None
    updated_at: str | None = None


class SessionList(AcpMessage, frozen=True, kw_only=True):
    sessions: tuple[AcpSessionInfo, ...]
    next_cursor: str | None = None


class SetModeParams(AcpMessage, frozen=True, kw_only=True):
    session_id: str
    mode_id: str


class SetConfigOptionParams(AcpMessage, frozen=True, kw_only=True):
    """`type` is "boolean" for a boolean option."""

    session_id: str
    config_id: str
    value: str | bool
    type: str | None = None


class ConfigOptions(AcpMessage, frozen=True, kw_only=True):
    config_options: tuple[ConfigOption, ...]


class PromptParams(AcpMessage, frozen=True, kw_only=True):
    session_id: str
    prompt: tuple[ContentBlock, ...]
    meta: Raw | UnsetType = field(name="_meta", default=UNSET)


class TurnUsage(AcpMessage, frozen=True, kw_only=True, omit_defaults=False):
    """Tokens. Agents differ in what they count: OpenCode reports the last model call only."""

    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    thought_tokens: int | None = None
    cached_read_tokens: int | None = None
    cached_write_tokens: int | None = None


class PromptResult(AcpMessage, frozen=True, kw_only=True):
    """`stop_reason` is `end_turn`, `cancelled`, `refusal`, `max_tokens` and others."""

    stop_reason: str
    usage: TurnUsage | None = None
    meta: Raw | UnsetType = field(name="_meta", default=UNSET)


class EmptyResult(AcpMessage, frozen=True, kw_only=True):
    pass


_wrap_config_options = field_wrapper("configOptions", wrap_options)


def decode_new_session(raw: Raw) -> NewSession:
    return decode_lenient(raw, Decoder(NewSession), _wrap_config_options)


def decode_opened_session(raw: Raw) -> OpenedSession:
    return decode_lenient(null_as_empty(raw), Decoder(OpenedSession), _wrap_config_options)


def decode_config_options(raw: Raw) -> ConfigOptions:
    return decode_lenient(raw, Decoder(ConfigOptions), _wrap_config_options)


def decode_prompt(raw: Raw) -> PromptParams:
    return decode_lenient(raw, Decoder(PromptParams), field_wrapper("prompt", wrap_blocks))


def null_as_empty(raw: Raw) -> Raw:
    """Some agents send `null` where the protocol has an object without fields."""
    return Raw(b"{}") if bytes(raw) in (b"", b"null") else raw
