"""What can a message be made of? Text, images, links, files; in a tool call also diffs."""

from msgspec import Raw

from goent.acp.base import UNKNOWN, Fields, Message, wrap_each, wrap_kind


class Text(Message, frozen=True, kw_only=True, tag="text"):
    """Words."""

    text: str


class Image(Message, frozen=True, kw_only=True, tag="image"):
    """A picture, base64."""

    data: str
    mime_type: str
    uri: str | None = None


class Audio(Message, frozen=True, kw_only=True, tag="audio"):
    """A recording, base64."""

    data: str
    mime_type: str


class ResourceLink(Message, frozen=True, kw_only=True, tag="resource_link"):
    """A file that the reader may open."""

    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None


class ResourceContents(Message, frozen=True, kw_only=True):
    """A file's text, or its bytes in base64."""

    uri: str
    text: str | None = None
    blob: str | None = None
    mime_type: str | None = None


class Resource(Message, frozen=True, kw_only=True, tag="resource"):
    """A file, contents and all."""

    resource: ResourceContents


class UnknownBlock(Message, frozen=True, kw_only=True, tag=UNKNOWN):
    """Content of a kind that this version does not know."""

    kind: str
    body: Raw


ContentBlock = Text | Image | Audio | ResourceLink | Resource | UnknownBlock


class ToolContent(Message, frozen=True, kw_only=True, tag="content"):
    """Ordinary content that a tool gave back."""

    content: ContentBlock


class Diff(Message, frozen=True, kw_only=True, tag="diff"):
    """An edit; some agents give fragments, not whole files. A new file has no old text."""

    path: str
    new_text: str
    old_text: str | None = None


class Terminal(Message, frozen=True, kw_only=True, tag="terminal"):
    """The output of a terminal that the client runs."""

    terminal_id: str


class UnknownToolContent(Message, frozen=True, kw_only=True, tag=UNKNOWN):
    """Tool content of a kind that this version does not know."""

    kind: str
    body: Raw


ToolCallContent = ToolContent | Diff | Terminal | UnknownToolContent

_BLOCKS = frozenset({"text", "image", "audio", "resource_link", "resource"})
_TOOL_CONTENTS = frozenset({"content", "diff", "terminal"})


def wrap_block(raw: Raw) -> Raw:
    return wrap_kind(raw, tag="type", known=_BLOCKS)


def wrap_blocks(raw: Raw) -> Raw:
    return wrap_each(raw, wrap_block)


def wrap_tool_contents(raw: Raw) -> Raw:
    return wrap_each(raw, _wrap_tool_content)


def _wrap_tool_content(raw: Raw) -> Raw:
    fields = Fields.of(wrap_kind(raw, tag="type", known=_TOOL_CONTENTS))
    if fields.text("type") == "content":
        fields.change("content", wrap_block)
    return fields.encoded()


def plain_text(block: ContentBlock) -> str:
    """The words in it, if there are any."""
    match block:
        case Text(text=text):
            return text
        case Resource(resource=ResourceContents(text=str(text))):
            return text
        case _:
            return ""
