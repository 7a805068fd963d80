"""What have all ACP messages in common?

Names are camelCase on the wire. Going out, what has its default is left out. Coming in, unknown
fields are ignored and unknown values of open enumerations are kept: those are plain strings.
A *kind* that we do not know (of content, of update, of option) would fail a tagged union; it is
wrapped as unknown before the decoder sees it, and its body is kept as it came.
"""

from collections.abc import Callable
from typing import TypeVar

import msgspec
from msgspec import Raw, Struct
from msgspec.json import Decoder

T = TypeVar("T")

UNKNOWN = "_unknown"


class Message(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Everything that ACP says."""


class Fields(dict[str, Raw]):
    """One object of the wire, its values untouched."""

    @classmethod
    def of(cls, raw: Raw) -> "Fields":
        return cls(msgspec.json.decode(raw, type=dict[str, Raw]))

    def text(self, key: str) -> str:
        """The string under the key, or nothing."""
        raw = self.get(key)
        return msgspec.json.decode(raw, type=str) if raw is not None else ""

    def change(self, key: str, change: Callable[[Raw], Raw]) -> None:
        """Put another value in the place of one that is there."""
        raw = self.get(key)
        if raw is not None and bytes(raw) != b"null":
            self[key] = change(raw)

    def encoded(self) -> Raw:
        return Raw(msgspec.json.encode(self))


def decode(raw: Raw, decoder: Decoder[T], wrap: Callable[[Raw], Raw]) -> T:
    """Decode; if that fails, once more with the unknown kinds wrapped."""
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError:
        return decoder.decode(wrap(raw))


def wrap_kind(raw: Raw, *, tag: str, known: frozenset[str], default: str = "") -> Raw:
    """The object itself if its kind is known, else one that says what it is and keeps it."""
    fields = Fields.of(raw)
    kind = fields.text(tag) or default
    if kind in known:
        return Fields(fields, **{tag: Raw(msgspec.json.encode(kind))}).encoded()
    return Raw(msgspec.json.encode({tag: UNKNOWN, "kind": kind, "body": raw}))


def wrap_each(raw: Raw, wrap: Callable[[Raw], Raw]) -> Raw:
    """The same for every item of an array."""
    return Raw(
        msgspec.json.encode([wrap(item) for item in msgspec.json.decode(raw, type=list[Raw])])
    )


def changing(key: str, change: Callable[[Raw], Raw]) -> Callable[[Raw], Raw]:
    """Wrap an object by wrapping what it has under the key."""

    def wrap(raw: Raw) -> Raw:
        fields = Fields.of(raw)
        fields.change(key, change)
        return fields.encoded()

    return wrap
