"""The parts of ACP messages: their base, content blocks and session options.

Names are camelCase on the wire. Outgoing messages omit defaults. In incoming messages unknown
fields are ignored and unknown values of open enumerations are kept: those are plain strings.
An unknown *kind* (of content, of update, of option) would fail a tagged union; it is wrapped
as unknown before the decoder sees it, and its body is kept as received.
"""

from collections.abc import Callable, Iterator, Sequence
from types import UnionType
from typing import TypeVar, get_args

import msgspec
from msgspec import Raw, Struct
from msgspec.json import Decoder

T = TypeVar("T")

UNKNOWN = "_unknown"


class AcpMessage(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The base of all ACP messages."""


class RawFields(dict[str, Raw]):
    """The members of a JSON object, values undecoded."""

    @classmethod
    def of(cls, raw: Raw) -> "RawFields":
        return cls(msgspec.json.decode(raw, type=dict[str, Raw]))

    def text(self, key: str) -> str:
        """The string under the key; empty if there is none."""
        raw = self.get(key)
        return msgspec.json.decode(raw, type=str) if raw is not None else ""

    def replace_value(self, key: str, change: Callable[[Raw], Raw]) -> None:
        """Changes a value that is present and not null."""
        raw = self.get(key)
        if raw is not None and bytes(raw) != b"null":
            self[key] = change(raw)

    def encode(self) -> Raw:
        return Raw(msgspec.json.encode(self))


def decode_lenient(raw: Raw, decoder: Decoder[T], wrap: Callable[[Raw], Raw]) -> T:
    """Decodes; if that fails, once more with unknown kinds wrapped."""
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError:
        return decoder.decode(wrap(raw))


def known_tags(union: UnionType) -> frozenset[str]:
    members: tuple[type[Struct], ...] = get_args(union)
    return frozenset(str(member.__struct_config__.tag) for member in members) - {UNKNOWN}


def wrap_kind(raw: Raw, *, tag: str, known: frozenset[str], default: str = "") -> Raw:
    """The object itself if its kind is known, else a wrapper that names the kind and keeps it."""
    fields = RawFields.of(raw)
    kind = fields.text(tag) or default
    if kind in known:
        return RawFields(fields, **{tag: Raw(msgspec.json.encode(kind))}).encode()
    return Raw(msgspec.json.encode({tag: UNKNOWN, "kind": kind, "body": raw}))


def wrap_each(raw: Raw, wrap: Callable[[Raw], Raw]) -> Raw:
    """Wraps every item of an array."""
    items = msgspec.json.decode(raw, type=list[Raw])
    return Raw(msgspec.json.encode([wrap(item) for item in items]))


def field_wrapper(key: str, change: Callable[[Raw], Raw]) -> Callable[[Raw], Raw]:
    """Wraps an object by wrapping its value under the key."""

    def wrap(raw: Raw) -> Raw:
        fields = RawFields.of(raw)
        fields.replace_value(key, change)
        return fields.encode()

    return wrap


class AcpText(AcpMessage, frozen=True, kw_only=True, tag="text"):
    text: str


class AcpImage(AcpMessage, frozen=True, kw_only=True, tag="image"):
    data: str
    mime_type: str
    uri: str | None = None


class AcpAudio(AcpMessage, frozen=True, kw_only=True, tag="audio"):
    data: str
    mime_type: str


class ResourceLink(AcpMessage, frozen=True, kw_only=True, tag="resource_link"):
    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None


class ResourceContents(AcpMessage, frozen=True, kw_only=True):
    uri: str
    text: str | None = None
    blob: str | None = None
    mime_type: str | None = None


class Resource(AcpMessage, frozen=True, kw_only=True, tag="resource"):
    resource: ResourceContents


class UnknownBlock(AcpMessage, frozen=True, kw_only=True, tag=UNKNOWN):
    """Content of an unknown kind."""

    kind: str
    body: Raw


ContentBlock = AcpText | AcpImage | AcpAudio | ResourceLink | Resource | UnknownBlock


class ToolContent(AcpMessage, frozen=True, kw_only=True, tag="content"):
    content: ContentBlock


class AcpDiff(AcpMessage, frozen=True, kw_only=True, tag="diff"):
    """An edit; some agents send fragments instead of whole files. A new file has no old text."""

    path: str
    new_text: str
    old_text: str | None = None


class AcpTerminal(AcpMessage, frozen=True, kw_only=True, tag="terminal"):
    terminal_id: str


class UnknownToolContent(AcpMessage, frozen=True, kw_only=True, tag=UNKNOWN):
    kind: str
    body: Raw


ToolCallContent = ToolContent | AcpDiff | AcpTerminal | UnknownToolContent

_BLOCK_KINDS = known_tags(ContentBlock)
_TOOL_CONTENT_KINDS = known_tags(ToolCallContent)


def wrap_block(raw: Raw) -> Raw:
    return wrap_kind(raw, tag="type", known=_BLOCK_KINDS)


def wrap_blocks(raw: Raw) -> Raw:
    return wrap_each(raw, wrap_block)


def wrap_tool_contents(raw: Raw) -> Raw:
    return wrap_each(raw, _wrap_tool_content)


def _wrap_tool_content(raw: Raw) -> Raw:
    fields = RawFields.of(wrap_kind(raw, tag="type", known=_TOOL_CONTENT_KINDS))
    if fields.text("type") == "content":
        fields.replace_value("content", wrap_block)
    return fields.encode()


def plain_text(block: ContentBlock) -> str:
    """The text of a block; empty if it has none."""
    match block:
        case AcpText(text=text):
            return text
        case Resource(resource=ResourceContents(text=str(text))):
            return text
        case _:
            return ""


class OptionChoice(AcpMessage, frozen=True, kw_only=True):
    """A value of an option, or a group of values in `options`."""

    name: str = ""
    value: str = ""
    description: str | None = None
    group: str | None = None
    options: tuple["OptionChoice", ...] = ()

    def leaves(self) -> Iterator["OptionChoice"]:
        if self.options:
            for choice in self.options:
                yield from choice.leaves()
        else:
            yield self


class SelectOption(AcpMessage, frozen=True, kw_only=True, tag="select"):
    id: str
    name: str = ""
    current_value: str
    options: tuple[OptionChoice, ...] = ()
    category: str | None = None
    description: str | None = None

    @property
    def choices(self) -> tuple[OptionChoice, ...]:
        """All values, groups flattened."""
        return tuple(choice for entry in self.options for choice in entry.leaves())


class BooleanOption(AcpMessage, frozen=True, kw_only=True, tag="boolean"):
    id: str
    name: str = ""
    current_value: bool
    category: str | None = None
    description: str | None = None


class UnknownOption(AcpMessage, frozen=True, kw_only=True, tag=UNKNOWN):
    kind: str
    body: Raw


ConfigOption = SelectOption | BooleanOption | UnknownOption


def wrap_options(raw: Raw) -> Raw:
    return wrap_each(raw, _wrap_option)


def _wrap_option(raw: Raw) -> Raw:
    return wrap_kind(raw, tag="type", known=known_tags(ConfigOption), default="select")


def find_option(options: Sequence[ConfigOption] | None, name: str) -> SelectOption | None:
    """The option with this id, else the first of this category."""
    selects = [option for option in options or () if isinstance(option, SelectOption)]
    by_id = (option for option in selects if option.id == name)
    by_category = (option for option in selects if option.category == name)
    return next(by_id, None) or next(by_category, None)
