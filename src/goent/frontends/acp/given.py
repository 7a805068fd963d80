"""What has a client put into a prompt or a session, in the agent's words?"""

from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import UNSET, Raw, UnsetType

from goent.acp.content import (
    Audio,
    ContentBlock,
    Image,
    Resource,
    ResourceContents,
    ResourceLink,
    Text,
    UnknownBlock,
)
from goent.acp.servers import HttpServer, StdioServer, transport
from goent.agent.content import Document, Given, Link, Picture, Words
from goent.agent.ports import ServerSpec
from goent.rpc import InvalidParams


def given(blocks: Sequence[ContentBlock]) -> tuple[Given, ...]:
    """Raises `InvalidParams` for what an agent of words and pictures cannot take."""
    if not blocks:
        raise InvalidParams("the prompt is empty: send at least one block of text")
    return tuple(_given(block) for block in blocks)


def _given(block: ContentBlock) -> Given:
    match block:
        case Text(text=text):
            return Words(text=text)
        case Image(data=data, mime_type=media_type):
            return _picture(data, media_type)
        case ResourceLink(uri=uri, name=name):
            return Link(uri=uri, name=name)
        case Resource(resource=contents):
            return _document(contents)
        case Audio():
            raise InvalidParams("audio is not taken: send what was said as text")
        case UnknownBlock(kind=kind):
            raise InvalidParams(
                f"content of type {kind!r} is not taken: send text, image, resource_link or resource"
            )


def _document(contents: ResourceContents) -> Given:
    media_type = contents.mime_type
    if contents.blob is not None and media_type is not None and media_type.startswith("image/"):
        return _picture(contents.blob, media_type)
    return Document(uri=contents.uri, text=contents.text, media_type=media_type)


def _picture(data: str, media_type: str) -> Picture:
    if not media_type.startswith("image/"):
        raise InvalidParams(f"{media_type!r} is no type of image, such as 'image/png'")
    try:
        b64decode(data, validate=True)
    except (NotBase64, ValueError) as error:
        raise InvalidParams(f"the {media_type} image is not base64: {error}") from error
    return Picture(media_type=media_type, data=data)


def directory(path: str, field: str) -> Path:
    """Raises `InvalidParams` if no session can work there."""
    folder = Path(path)
    if not folder.is_absolute():
        raise InvalidParams(f"{field} {path!r} is not absolute: send the whole path")
    try:
        there = folder.is_dir()
    except (OSError, ValueError) as error:  # a name too long, or with a NUL in it
        raise InvalidParams(f"{field} {path!r} cannot be looked at: {error}") from error
    if not there:
        raise InvalidParams(f"{field} {path!r} is no directory on this machine")
    return folder


def directories(paths: Sequence[str] | UnsetType) -> tuple[Path, ...]:
    if paths is UNSET:
        return ()
    return tuple(directory(path, "additionalDirectories:") for path in paths)


def servers(named: Sequence[Raw]) -> tuple[ServerSpec, ...]:
    return tuple(_server(raw, place) for place, raw in enumerate(named))


def _server(raw: Raw, place: int) -> ServerSpec:
    try:
        kind = transport(raw)
        if kind == "stdio":
            local = msgspec.json.decode(raw, type=StdioServer)
            return ServerSpec(
                name=local.name,
                command=local.command,
                arguments=local.args,
                environ={pair.name: pair.value for pair in local.env},
            )
        if kind == "http":
            remote = msgspec.json.decode(raw, type=HttpServer)
            headers = {pair.name: pair.value for pair in remote.headers}
            return ServerSpec(name=remote.name, url=remote.url, headers=headers)
    except msgspec.DecodeError as error:
        raise InvalidParams(f"mcpServers[{place}]: {error}") from error
    raise InvalidParams(f"mcpServers[{place}] is of type {kind!r}: only stdio and http are spoken")
