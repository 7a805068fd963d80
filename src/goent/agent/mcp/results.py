"""What does a server's result become for the model, and for people?"""

import binascii

import msgspec
from msgspec import Raw

from goent.agent.content import Picture
from goent.agent.mcp.messages import Block, CallResult, ResourceBody
from goent.agent.ports import Outcome
from goent.llm.talk import Image

MAX_TEXT = 60_000  # characters for the model, of a result
TAIL = 10_000  # of them from its end
MAX_IMAGES = 8
MAX_IMAGE = 4 * 1024 * 1024  # characters of base64
DRAWN = ("image/png", "image/jpeg", "image/gif", "image/webp")


def outcome_of(raw: Raw) -> Outcome:
    """Raises `msgspec.DecodeError` if it is no result."""
    result = msgspec.json.decode(raw, type=CallResult)
    if result.result_type != "complete":
        return Outcome(
            text=f"The server wants something before it goes on ({result.result_type!r}), which this "
            "agent does not offer: the call was not finished.",
            failed=True,
        )
    pieces: list[str] = []
    images: list[Image] = []
    for block in result.content:
        piece = _read(block, room=len(images) < MAX_IMAGES)
        if isinstance(piece, Image):
            images.append(piece)
        elif piece:
            pieces.append(piece)
    structured = bytes(result.structured_content)
    if structured not in (b"", b"null") and not _told(pieces, structured):
        pieces.append(structured.decode())
    text = cut("\n".join(pieces))
    if not text and not images:
        text = "(the tool returned nothing)"
    pictures = tuple(Picture(media_type=i.media_type, data=i.data) for i in images)
    return Outcome(text=text, failed=result.is_error, images=tuple(images), shown=pictures)


def cut(text: str) -> str:
    """As much as a model should read of one result; where and how much is missing is said."""
    if len(text) <= MAX_TEXT:
        return text
    head, tail = text[: MAX_TEXT - TAIL], text[-TAIL:]
    left_out = len(text) - MAX_TEXT
    return f"{head}\n\n[… {left_out} of {len(text)} characters left out: ask the tool for less …]\n\n{tail}"


def _read(raw: Raw, *, room: bool) -> str | Image:
    try:
        block = msgspec.json.decode(raw, type=Block)
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


def _resource(resource: ResourceBody, *, room: bool) -> str | Image:
    if resource.text is not None:
        return f"[resource {resource.uri}]\n{resource.text}"
    kind = resource.mime_type or "of no known type"
    if kind in DRAWN and resource.blob:
        return _image(resource.blob, kind, room=room)
    return f"[resource {resource.uri}, {kind}, {len(resource.blob or '') * 3 // 4} bytes: no text]"


def _image(data: str, kind: str, *, room: bool) -> str | Image:
    """A picture that the vendors take. A bad one would stay in the talk and spoil every call."""
    if kind not in DRAWN:
        return f"[a picture of type {kind!r}: only {', '.join(DRAWN)} can be looked at]"
    if len(data) > MAX_IMAGE or not room:
        why = "too large" if room else "one too many"
        return f"[a picture, {kind}, {len(data) * 3 // 4} bytes: {why} to look at]"
    try:
        binascii.a2b_base64(data, strict_mode=True)
    except (ValueError, binascii.Error):
        return f"[a picture, {kind}, whose data is no base64]"
    return Image(media_type=kind, data=data)


def _told(pieces: list[str], structured: bytes) -> bool:
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
