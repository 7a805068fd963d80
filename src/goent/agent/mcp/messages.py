"""MCP's messages, as far as a client of tools needs them.

Two eras: until 2025-11-25 a connection begins with `initialize`; since 2026-07-28 there is no
beginning, and every request says in its `_meta` who asks and in which version.
"""

from msgspec import Raw, Struct, field

from goent import __version__

HANDSHAKE_VERSION = "2025-11-25"
STATELESS_VERSION = "2026-07-28"

INITIALIZE = "initialize"
INITIALIZED = "notifications/initialized"
CANCELLED = "notifications/cancelled"
TOOLS_CHANGED = "notifications/tools/list_changed"
TOOLS_LIST = "tools/list"
TOOLS_CALL = "tools/call"
PING = "ping"
ROOTS_LIST = "roots/list"

_PREFIX = "io.modelcontextprotocol/"


class Message(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Of what is not named here we take no notice."""


class Empty(Message, frozen=True, kw_only=True):
    """An object without members."""


class ClientInfo(Message, frozen=True, kw_only=True, omit_defaults=False):
    """Who we are."""

    name: str = "go-ent"
    version: str = __version__


class Capabilities(Message, frozen=True, kw_only=True, omit_defaults=False):
    """What a server may ask of us."""

    roots: Empty = Empty()


class InitializeParams(Message, frozen=True, kw_only=True, omit_defaults=False):
    """How the older era begins."""

    protocol_version: str = HANDSHAKE_VERSION
    capabilities: Capabilities = Capabilities()
    client_info: ClientInfo = ClientInfo()


class InitializeResult(Message, frozen=True, kw_only=True):
    """Which version it is to be, and whether there are tools at all."""

    protocol_version: str
    capabilities: dict[str, Raw] = {}


class Envelope(Message, frozen=True, kw_only=True, omit_defaults=False):
    """What the newer era wants with every request."""

    version: str = field(default=STATELESS_VERSION, name=f"{_PREFIX}protocolVersion")
    client: ClientInfo = field(default=ClientInfo(), name=f"{_PREFIX}clientInfo")
    capabilities: Empty = field(default=Empty(), name=f"{_PREFIX}clientCapabilities")


class ListToolsParams(Message, frozen=True, kw_only=True):
    """`cursor` is where the page before ended."""

    cursor: str | None = None
    meta: Envelope | None = field(default=None, name="_meta")


class ListToolsResult(Message, frozen=True, kw_only=True):
    """A page. A tool is read by itself, so that a bad one costs no other."""

    tools: list[Raw]
    next_cursor: str | None = None


class Annotations(Message, frozen=True, kw_only=True):
    """What the server says of its tool; nothing to rely on."""

    title: str | None = None
    read_only_hint: bool | None = None


class Offered(Message, frozen=True, kw_only=True):
    """A tool as its server describes it."""

    name: str
    title: str | None = None
    description: str | None = None
    input_schema: Raw = Raw(b"{}")
    annotations: Annotations | None = None


class CallParams(Message, frozen=True, kw_only=True):
    """A call of a tool; `arguments` are a JSON object, as the model wrote it."""

    name: str
    arguments: Raw
    meta: Envelope | None = field(default=None, name="_meta")


class CallResult(Message, frozen=True, kw_only=True):
    """What came of a call. In the newer era `result_type` may say that it is not all."""

    content: list[Raw] = []
    structured_content: Raw = Raw()
    is_error: bool = False
    result_type: str = "complete"


class ResourceBody(Message, frozen=True, kw_only=True):
    """A resource that comes along: text, or base64."""

    uri: str = ""
    mime_type: str | None = None
    text: str | None = None
    blob: str | None = None


class Block(Message, frozen=True, kw_only=True):
    """A piece of a result; which members it has depends on its type."""

    type: str
    text: str = ""
    data: str = ""
    mime_type: str | None = None
    uri: str = ""
    name: str = ""
    description: str | None = None
    resource: ResourceBody | None = None


class Root(Message, frozen=True, kw_only=True):
    """A directory of the session."""

    uri: str
    name: str


class Roots(Message, frozen=True, kw_only=True, omit_defaults=False):
    """The answer to `roots/list`."""

    roots: tuple[Root, ...]
