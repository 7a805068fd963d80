"""How do somebody else's words come into a page? As text: escaped, and without what steers a screen."""

import re
from collections.abc import Iterable
from html import escape
from typing import Final

_PICTURES: Final = {code: 0x2400 + code for code in range(0x20) if code not in (0x09, 0x0A)}
_PICTURES[0x7F] = 0x2421
# C1, what turns the direction of writing around, and halves of characters.
_STEERING: Final = re.compile(
    "[\x80-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


class Markup(str):
    """HTML that is whole, and made here."""

    __slots__ = ()


Child = Markup | str | int | None


def text(words: str) -> Markup:
    """Escaped. Control characters are shown as pictures of themselves: what was there can be seen."""
    if not words.isprintable():
        words = _STEERING.sub("\ufffd", words.replace("\r\n", "\n").translate(_PICTURES))
    return Markup(escape(words))


def tag(name: str, *children: Child, **attributes: str | float | None) -> Markup:
    """An element. `class_` and `for_` are the attributes without the underscore, `_` in a name is `-`."""
    told = "".join(
        f' {_name(key)}="{text(_plain(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    inside = "".join(map(_inside, children))
    return Markup(f"<{name}{told}>{inside}</{name}>")


def void(name: str, **attributes: str | float | None) -> Markup:
    """An element that holds nothing and has no end; in SVG it is closed by its slash."""
    return Markup(tag(name, **attributes).removesuffix(f"></{name}>") + "/>")


def join(parts: Iterable[Child]) -> Markup:
    return Markup("".join(map(_inside, parts)))


def _inside(child: Child) -> str:
    if isinstance(child, Markup):
        return child
    return "" if child is None else text(str(child))


def _name(key: str) -> str:
    return key.rstrip("_").replace("_", "-")


def _plain(value: str | float) -> str:
    """Coordinates with no more figures than can be seen."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
