"""Defines MCP's messages for a client of tools, and fits tools and results to model vendors.

Two eras: until 2025-11-25 a connection begins with `initialize`; since 2026-07-28 there is no
beginning, and every request says in its `_meta` who asks and in which version.

One tool that a vendor does not take would make every call of the model fail: what cannot be made
fit is left out, and said.
"""

import binascii

import msgspec
from msgspec import Raw, Struct, field

from goent import __version__
from goent.agent.agent_events import ImagePart
from goent.agent.agent_ports import ToolOutcome
from goent.domain.types import Value
from goent.providers.model_messages import MessageImage

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


class McpMessage(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Of what is not named here we take no notice."""


class EmptyObject(McpMessage, frozen=True, kw_only=True):
    """An object without members."""


class ClientInfo(McpMessage, frozen=True, kw_only=True, omit_defaults=False):
    """Who we are."""

    name: str = "go-ent"
    version: str = __version__


class Capabilities(McpMessage, frozen=True, kw_only=True, omit_defaults=False):
    """What a server may ask of us."""

    roots: EmptyObject = EmptyObject()


class McpInitializeParams(McpMessage, frozen=True, kw_only=True, omit_defaults=False):
    """How the older era begins."""

    protocol_version: str = HANDSHAKE_VERSION
    capabilities: Capabilities = Capabilities()
    client_info: ClientInfo = ClientInfo()


class McpInitializeResult(McpMessage, frozen=True, kw_only=True):
    """Which version it is to be, and whether there are tools at all."""

    protocol_version: str
    capabilities: dict[str, Raw] = {}


class RequestMeta(McpMessage, frozen=True, kw_only=True, omit_defaults=False):
    """What the newer era wants with every request."""

    version: str = field(default=STATELESS_VERSION, name=f"{_PREFIX}protocolVersion")
    client: ClientInfo = field(default=ClientInfo(), name=f"{_PREFIX}clientInfo")
    capabilities: EmptyObject = field(default=EmptyObject(), name=f"{_PREFIX}clientCapabilities")


class ListToolsParams(McpMessage, frozen=True, kw_only=True):
    """`cursor` is where the page before ended."""

    cursor: str | None = None
    meta: RequestMeta | None = field(default=None, name="_meta")


class ListToolsResult(McpMessage, frozen=True, kw_only=True):
    """A page. A tool is read by itself, so that a bad one costs no other."""

    tools: list[Raw]
    next_cursor: str | None = None


class Annotations(McpMessage, frozen=True, kw_only=True):
    """What the server says of its tool; nothing to rely on."""

    title: str | None = None
    read_only_hint: bool | None = None


class OfferedTool(McpMessage, frozen=True, kw_only=True):
    """A tool as its server describes it."""

    name: str
    title: str | None = None
    description: str | None = None
    input_schema: Raw = Raw(b"{}")
    annotations: Annotations | None = None


class CallParams(McpMessage, frozen=True, kw_only=True):
    """A call of a tool; `arguments` are a JSON object, as the model wrote it."""

    name: str
    arguments: Raw
    meta: RequestMeta | None = field(default=None, name="_meta")


class CallResult(McpMessage, frozen=True, kw_only=True):
    """What came of a call. In the newer era `result_type` may say that it is not all."""

    content: list[Raw] = []
    structured_content: Raw = Raw()
    is_error: bool = False
    result_type: str = "complete"


class ResourceBody(McpMessage, frozen=True, kw_only=True):
    """A resource that comes along: text, or base64."""

    uri: str = ""
    mime_type: str | None = None
    text: str | None = None
    blob: str | None = None


class ResultBlock(McpMessage, frozen=True, kw_only=True):
    """A piece of a result; which members it has depends on its type."""

    type: str
    text: str = ""
    data: str = ""
    mime_type: str | None = None
    uri: str = ""
    name: str = ""
    description: str | None = None
    resource: ResourceBody | None = None


class Root(McpMessage, frozen=True, kw_only=True):
    """A directory of the session."""

    uri: str
    name: str


class Roots(McpMessage, frozen=True, kw_only=True, omit_defaults=False):
    """The answer to `roots/list`."""

    roots: tuple[Root, ...]


MAX_DESCRIPTION = 8_000
MAX_SCHEMA = 64 * 1024
# Vendors take none of these beside a type at the top; the server checks the arguments anyway.
UNSUPPORTED_TOP_KEYS = ("oneOf", "anyOf", "allOf", "not", "enum", "const", "if", "then", "else")


class McpToolOffer(Value, frozen=True, kw_only=True):
    """A tool that can be offered to a model. `reads` is the server's own word for it."""

    tool: str
    title: str
    description: str
    schema: Raw
    read_only: bool = False


def read_offers(raw: list[Raw]) -> tuple[tuple[McpToolOffer, ...], tuple[str, ...]]:
    """The tools that can be used, and what is wrong with the others. The first of a name counts."""
    offers: dict[str, McpToolOffer] = {}
    wrong: list[str] = []
    for number, tool in enumerate(raw, 1):
        try:
            offer = _offer(tool)
        except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
            wrong.append(f"its tool number {number} cannot be used: {error}")
        else:
            offers.setdefault(offer.tool, offer)
    return tuple(offers.values()), tuple(wrong)


def _offer(raw: Raw) -> McpToolOffer:
    offered = msgspec.json.decode(raw, type=OfferedTool)
    if not offered.name:
        raise ValueError("it has no name")
    if len(offered.input_schema) > MAX_SCHEMA:
        raise ValueError(f"the schema of {offered.name!r} has more than {MAX_SCHEMA} bytes")
    schema, beside = _object_schema(offered.input_schema)
    description = offered.description or offered.title or offered.name
    if beside:
        description += f"\n\nThe arguments must also satisfy this JSON schema: {beside}"
    notes = offered.annotations
    return McpToolOffer(
        tool=offered.name,
        title=(notes.title if notes else None) or offered.title or offered.name,
        description=_shorten_description(description),
        schema=schema,
        read_only=bool(notes and notes.read_only_hint),
    )


def _object_schema(raw: Raw) -> tuple[Raw, str]:
    """The schema as an object's, and what of it had to be left out, as text."""
    schema = msgspec.json.decode(raw, type=dict[str, Raw])
    left_out = {key: schema.pop(key) for key in UNSUPPORTED_TOP_KEYS if key in schema}
    kind = msgspec.json.decode(schema.get("type", b'"object"'))
    if kind != "object":
        raise ValueError(f"its arguments are of type {kind!r}, and not an object")
    whole = {"type": Raw(b'"object"'), "properties": Raw(b"{}"), **schema}
    msgspec.json.decode(whole["properties"], type=dict[str, dict[str, Raw] | bool])
    return Raw(msgspec.json.encode(whole)), msgspec.json.encode(
        left_out
    ).decode() if left_out else ""


def _shorten_description(text: str) -> str:
    return text if len(text) <= MAX_DESCRIPTION else f"{text[:MAX_DESCRIPTION]} […]"


MAX_TEXT_CHARS = 60_000  # characters for the model, of a result
TAIL_CHARS = 10_000  # of them from its end
MAX_IMAGES = 8
MAX_IMAGE_CHARS = 4 * 1024 * 1024  # characters of base64
IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")


def outcome_of(raw: Raw) -> ToolOutcome:
    """Raises `msgspec.DecodeError` if it is no result."""
    result = msgspec.json.decode(raw, type=CallResult)
    if result.result_type != "complete":
        return ToolOutcome(
            text=f"The server wants something before it goes on ({result.result_type!r}), which this "
            "agent does not offer: the call was not finished.",
            failed=True,
        )
    pieces: list[str] = []
    images: list[MessageImage] = []
    for block in result.content:
        piece = _read_block(block, room=len(images) < MAX_IMAGES)
        if isinstance(piece, MessageImage):
            images.append(piece)
        elif piece:
            pieces.append(piece)
    structured = bytes(result.structured_content)
    if structured not in (b"", b"null") and not _is_repeated(pieces, structured):
        pieces.append(structured.decode())
    text = shorten_result("\n".join(pieces))
    if not text and not images:
        text = "(the tool returned nothing)"
    pictures = tuple(ImagePart(media_type=i.media_type, data=i.data) for i in images)
    return ToolOutcome(text=text, failed=result.is_error, images=tuple(images), shown=pictures)


def shorten_result(text: str) -> str:
    """As much as a model should read of one result; where and how much is missing is said."""
    if len(text) <= MAX_TEXT_CHARS:
        return text
    head, tail = text[: MAX_TEXT_CHARS - TAIL_CHARS], text[-TAIL_CHARS:]
    left_out = len(text) - MAX_TEXT_CHARS
    return f"{head}\n\n[… {left_out} of {len(text)} characters left out: ask the tool for less …]\n\n{tail}"


def _read_block(raw: Raw, *, room: bool) -> str | MessageImage:
    try:
        block = msgspec.json.decode(raw, type=ResultBlock)
    except msgspec.DecodeError as error:
        return f"[a piece of the result cannot be read: {error}]"
    match block.type:
        case "text":
            return block.text
        case "image":
            return _image(block.data, block.mime_type or "", room=room)
        case "audio":
            return f"[a sound, {block.mime_type}: this agent cannot hear]"
        case "resource_link":
            about = f": {block.description}" if block.description else ""
            return f"[resource {block.name or block.uri!r} at {block.uri}{about}]"
        case "resource" if block.resource:
            return _resource(block.resource, room=room)
        case kind:
            return f"[a piece of type {kind!r}, which this agent does not know]"


def _resource(resource: ResourceBody, *, room: bool) -> str | MessageImage:
    if resource.text is not None:
        return f"[resource {resource.uri}]\n{resource.text}"
    kind = resource.mime_type or "of no known type"
    if kind in IMAGE_TYPES and resource.blob:
        return _image(resource.blob, kind, room=room)
    return f"[resource {resource.uri}, {kind}, {len(resource.blob or '') * 3 // 4} bytes: no text]"


def _image(data: str, kind: str, *, room: bool) -> str | MessageImage:
    """A picture that the vendors take. A bad one would stay in the talk and spoil every call."""
    if kind not in IMAGE_TYPES:
        return f"[a picture of type {kind!r}: only {', '.join(IMAGE_TYPES)} can be looked at]"
    if len(data) > MAX_IMAGE_CHARS or not room:
        why = "too large" if room else "one too many"
        return f"[a picture, {kind}, {len(data) * 3 // 4} bytes: {why} to look at]"
    try:
        binascii.a2b_base64(data, strict_mode=True)
    except (ValueError, binascii.Error):
        return f"[a picture, {kind}, whose data is no base64]"
    return MessageImage(media_type=kind, data=data)


def _is_repeated(pieces: list[str], structured: bytes) -> bool:
    """The SDKs tell a plain result twice: as text, and in JSON, alone or as its member `result`."""
    text = "\n".join(pieces)
    try:
        whole = msgspec.json.decode(structured)
        if whole in ({"result": text}, {"result": pieces}):
            return True
        said = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    return whole in (said, {"result": said})
