"""Defines MCP's messages for a client of tools, and fits tools and results to model vendors.

There are two protocol eras: until 2025-11-25 a connection begins with `initialize`; since
2026-07-28 there is no handshake, and every request names client and version in its `_meta`.

One tool that a vendor rejects would make every model call fail: a tool that cannot be adapted is
left out, with a warning.
"""

import binascii
from collections.abc import Sequence

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

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

_CLIENT_INFO = {"name": "go-ent", "version": __version__}
INITIALIZE_PARAMS: dict[str, object] = {
    "protocolVersion": HANDSHAKE_VERSION,
    "capabilities": {"roots": {}},
    "clientInfo": _CLIENT_INFO,
}
REQUEST_META = Raw(
    msgspec.json.encode(
        {
            "io.modelcontextprotocol/protocolVersion": STATELESS_VERSION,
            "io.modelcontextprotocol/clientInfo": _CLIENT_INFO,
            "io.modelcontextprotocol/clientCapabilities": {},
        }
    )
)


class McpMessage(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The base of the messages that are decoded; unknown members are ignored."""


class McpInitializeResult(McpMessage, frozen=True, kw_only=True):
    """The server's choice of version."""

    protocol_version: str


class ListToolsParams(McpMessage, frozen=True, kw_only=True):
    """`cursor` is the end of the previous page; `meta` belongs to the newer era."""

    cursor: str | None = None
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")


class ListToolsResult(McpMessage, frozen=True, kw_only=True):
    """A page of tools, decoded one by one, so that a bad one does not cost the others."""

    tools: list[Raw]
    next_cursor: str | None = None


class Annotations(McpMessage, frozen=True, kw_only=True):
    """Hints of the server about its tool, not to be relied on."""

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
    """A tool call; `arguments` are a JSON object, as the model wrote it."""

    name: str
    arguments: Raw
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")


class CallResult(McpMessage, frozen=True, kw_only=True):
    """The result of a call. In the newer era `result_type` may say that it is not complete."""

    content: list[Raw] = []
    structured_content: Raw = Raw()
    is_error: bool = False
    result_type: str = "complete"


class ResourceBody(McpMessage, frozen=True, kw_only=True):
    """An embedded resource: text, or base64."""

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


MAX_DESCRIPTION = 8_000
MAX_SCHEMA = 64 * 1024
# Vendors reject these beside a type at the top level; the server checks the arguments anyway.
UNSUPPORTED_TOP_KEYS = ("oneOf", "anyOf", "allOf", "not", "enum", "const", "if", "then", "else")


class McpToolOffer(Value, frozen=True, kw_only=True):
    """A tool that can be offered to a model. `read_only` is the server's own claim."""

    tool: str
    title: str
    description: str
    schema: Raw
    read_only: bool = False


def read_offers(raw: Sequence[Raw]) -> tuple[tuple[McpToolOffer, ...], tuple[str, ...]]:
    """The usable tools, the first of each name, and what is wrong with the others."""
    offers: dict[str, McpToolOffer] = {}
    problems: list[str] = []
    for number, tool in enumerate(raw, 1):
        try:
            offer = _offer(tool)
        except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
            problems.append(f"its tool number {number} cannot be used: {error}")
        else:
            offers.setdefault(offer.tool, offer)
    return tuple(offers.values()), tuple(problems)


def _offer(raw: Raw) -> McpToolOffer:
    offered = msgspec.json.decode(raw, type=OfferedTool)
    if not offered.name:
        raise ValueError("it has no name")
    if len(offered.input_schema) > MAX_SCHEMA:
        raise ValueError(f"the schema of {offered.name!r} has more than {MAX_SCHEMA} bytes")
    schema, left_out = _object_schema(offered.input_schema)
    description = offered.description or offered.title or offered.name
    if left_out:
        extra = msgspec.json.encode(left_out).decode()
        description += f"\n\nThe arguments must also satisfy this JSON schema: {extra}"
    if len(description) > MAX_DESCRIPTION:
        description = f"{description[:MAX_DESCRIPTION]} […]"
    notes = offered.annotations
    return McpToolOffer(
        tool=offered.name,
        title=(notes.title if notes else None) or offered.title or offered.name,
        description=description,
        schema=schema,
        read_only=bool(notes and notes.read_only_hint),
    )


def _object_schema(raw: Raw) -> tuple[Raw, dict[str, Raw]]:
    """The schema of an object that vendors accept, and the keywords it had to leave out."""
    schema = msgspec.json.decode(raw, type=dict[str, Raw])
    left_out = {key: schema.pop(key) for key in UNSUPPORTED_TOP_KEYS if key in schema}
    kind = msgspec.json.decode(schema.get("type", b'"object"'))
    if kind != "object":
        raise ValueError(f"its arguments are of type {kind!r}, not an object")
    whole = {"type": Raw(b'"object"'), "properties": Raw(b"{}"), **schema}
    msgspec.json.decode(whole["properties"], type=dict[str, dict[str, Raw] | bool])
    return Raw(msgspec.json.encode(whole)), left_out


MAX_TEXT_CHARS = 60_000  # of a result, for the model
TAIL_CHARS = 10_000  # of them from its end
MAX_IMAGES = 8
MAX_IMAGE_CHARS = 4 * 1024 * 1024  # of base64
IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")


def outcome_of(raw: Raw) -> ToolOutcome:
    """The outcome of a tool call. Raises `msgspec.DecodeError` for an invalid result."""
    result = msgspec.json.decode(raw, type=CallResult)
    if result.result_type != "complete":
        return ToolOutcome(
            text=f"The call was not finished: the server needs {result.result_type!r}, "
            "which this agent does not support.",
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
    """As much as a model should read of one result, with a note where some is left out."""
    if len(text) <= MAX_TEXT_CHARS:
        return text
    head, tail = text[: MAX_TEXT_CHARS - TAIL_CHARS], text[-TAIL_CHARS:]
    left_out = len(text) - MAX_TEXT_CHARS
    return f"{head}\n\n[… {left_out} of {len(text)} characters left out: ask the tool for less …]\n\n{tail}"


def _read_block(raw: Raw, *, room: bool) -> str | MessageImage:
    try:
        block = msgspec.json.decode(raw, type=ResultBlock)
    except msgspec.DecodeError as error:
        return f"[a part of the result cannot be read: {error}]"
    match block.type:
        case "text":
            return block.text
        case "image":
            return _image(block.data, block.mime_type or "", room=room)
        case "audio":
            return f"[audio, {block.mime_type}: not supported by this agent]"
        case "resource_link":
            about = f": {block.description}" if block.description else ""
            return f"[resource {block.name or block.uri!r} at {block.uri}{about}]"
        case "resource" if block.resource:
            return _resource(block.resource, room=room)
        case kind:
            return f"[content of unknown type {kind!r}]"


def _resource(resource: ResourceBody, *, room: bool) -> str | MessageImage:
    if resource.text is not None:
        return f"[resource {resource.uri}]\n{resource.text}"
    kind = resource.mime_type or "unknown type"
    if kind in IMAGE_TYPES and resource.blob:
        return _image(resource.blob, kind, room=room)
    return f"[resource {resource.uri}, {kind}, {len(resource.blob or '') * 3 // 4} bytes: not text]"


def _image(data: str, kind: str, *, room: bool) -> str | MessageImage:
    """An image that vendors accept. A bad one would stay in the conversation and fail every call."""
    if kind not in IMAGE_TYPES:
        return f"[an image of type {kind!r}: only {', '.join(IMAGE_TYPES)} are supported]"
    if len(data) > MAX_IMAGE_CHARS or not room:
        why = "too large" if room else f"more than {MAX_IMAGES} images"
        return f"[an image, {kind}, {len(data) * 3 // 4} bytes: {why}]"
    try:
        binascii.a2b_base64(data, strict_mode=True)
    except (ValueError, binascii.Error):
        return f"[an image, {kind}, with invalid base64]"
    return MessageImage(media_type=kind, data=data)


def _is_repeated(pieces: list[str], structured: bytes) -> bool:
    """The SDKs send a plain result twice: as text, and in JSON, alone or as the member `result`."""
    text = "\n".join(pieces)
    try:
        whole = msgspec.json.decode(structured)
        if whole in ({"result": text}, {"result": pieces}):
            return True
        parsed = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    return whole in (parsed, {"result": parsed})
