"""Builds HTML elements, and escapes text that others wrote."""

import re
from collections.abc import Iterable
from html import escape
from typing import Final

_CONTROL_PICTURES: Final = {code: 0x2400 + code for code in range(0x20) if code not in (0x09, 0x0A)}
_CONTROL_PICTURES[0x7F] = 0x2421
# C1, what turns the direction of writing around, and halves of characters.
_DIRECTION_CONTROLS: Final = re.compile(
    "[\x80-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


class Markup(str):
    """HTML that is whole, and made here."""

    __slots__ = ()


MarkupChild = Markup | str | int | None


def escape_text(words: str) -> Markup:
    """Escaped. Control characters are shown as pictures of themselves: what was there can be seen."""
    if not words.isprintable():
        words = _DIRECTION_CONTROLS.sub(
            "\ufffd", words.replace("\r\n", "\n").translate(_CONTROL_PICTURES)
        )
    return Markup(escape(words))


def tag(name: str, *children: MarkupChild, **attributes: str | float | None) -> Markup:
    """An element. `class_` and `for_` are the attributes without the underscore, `_` in a name is `-`."""
    told = "".join(
        f' {_attribute_name(key)}="{escape_text(_attribute_text(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    inside = "".join(map(_child_markup, children))
    return Markup(f"<{name}{told}>{inside}</{name}>")


def void_tag(name: str, **attributes: str | float | None) -> Markup:
    """An element that holds nothing and has no end; in SVG it is closed by its slash."""
    return Markup(tag(name, **attributes).removesuffix(f"></{name}>") + "/>")


def join_markup(parts: Iterable[MarkupChild]) -> Markup:
    return Markup("".join(map(_child_markup, parts)))


def _child_markup(child: MarkupChild) -> str:
    if isinstance(child, Markup):
        return child
    return "" if child is None else escape_text(str(child))


def _attribute_name(key: str) -> str:
    return key.rstrip("_").replace("_", "-")


def _attribute_text(value: str | float) -> str:
    """Coordinates with no more figures than can be seen."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
