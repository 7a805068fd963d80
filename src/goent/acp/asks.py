"""What does an agent ask of its client, and what may come back?"""

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field
from msgspec.json import Decoder

from goent.acp.base import Message, changing, decode
from goent.acp.updates import ToolFields, wrap_tool_fields

REQUEST_PERMISSION = "session/request_permission"
FS_READ_TEXT_FILE = "fs/read_text_file"
FS_WRITE_TEXT_FILE = "fs/write_text_file"


class PermissionOption(Message, frozen=True, kw_only=True):
    """One possible answer; `kind` is `allow_once`, `allow_always`, `reject_once` and others."""

    option_id: str
    name: str = ""
    kind: str = ""


class PermissionRequest(Message, frozen=True, kw_only=True):
    """May this tool be used?"""

    session_id: str
    tool_call: ToolFields
    options: tuple[PermissionOption, ...]


class Selected(Message, frozen=True, kw_only=True, tag_field="outcome", tag="selected"):
    """One of the options was chosen. `meta` has the user's words, between go-ent and its own agent."""

    option_id: str
    meta: Raw | UnsetType = field(name="_meta", default=UNSET)


class Cancelled(Message, frozen=True, kw_only=True, tag_field="outcome", tag="cancelled"):
    """The turn was cancelled before an answer came."""


PermissionOutcome = Selected | Cancelled


class PermissionResponse(Message, frozen=True, kw_only=True):
    """The answer."""

    outcome: PermissionOutcome


class ReadTextFileParams(Message, frozen=True, kw_only=True):
    """The agent wants a file as the client's editor shows it."""

    session_id: str
    path: str
    line: int | None = None
    limit: int | None = None


class ReadTextFileResult(Message, frozen=True, kw_only=True):
    """Its text."""

    content: str


class WriteTextFileParams(Message, frozen=True, kw_only=True):
    """The agent wants the client's editor to hold this text."""

    session_id: str
    path: str
    content: str


class _Words(Struct, frozen=True, kw_only=True):
    message: str = ""


class _Own(Struct, frozen=True, kw_only=True, rename={"own": "go-ent"}):
    """What go-ent adds to messages to itself."""

    own: _Words = _Words()


def encode_words(message: str) -> Raw:
    return Raw(msgspec.json.encode(_Own(own=_Words(message=message))))


def words_of(meta: Raw | UnsetType) -> str:
    try:
        return "" if meta is UNSET else msgspec.json.decode(meta, type=_Own).own.message
    except msgspec.DecodeError:
        return ""


_permission_request = Decoder(PermissionRequest)


def decode_permission_request(raw: Raw) -> PermissionRequest:
    return decode(raw, _permission_request, changing("toolCall", wrap_tool_fields))
