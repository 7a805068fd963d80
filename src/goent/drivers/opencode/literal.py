"""How is a value read that a bundler has written into a program as JavaScript?

What it makes of JSON is little more than JSON: names without quotes, strings with either kind of
them, `!0` and `!1`. So that is turned back, token by token. Anything else is refused, never
guessed at.
"""

import re
from collections.abc import Iterator

import msgspec

_TOKEN = re.compile(
    rb"""(?P<mark>[{}\[\],:])
    | (?P<string>
        "(?:[^"\\\x00-\x1f\x7f-\xff]|\\(?:["'\\bfnrt]|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}))*"
      | '(?:[^'\\\x00-\x1f\x7f-\xff]|\\(?:["'\\bfnrt]|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}))*')
    | (?P<name>[A-Za-z0-9_$]+(?=:))
    | (?P<number>-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)
    | (?P<word>!0|!1|null)""",
    re.VERBOSE,
)
_STEPS = {b"{": 1, b"[": 1, b"}": -1, b"]": -1}
_WORDS = {b"!0": b"true", b"!1": b"false", b"null": b"null"}
_SPECIAL = re.compile(rb'\\.|"')
_SPELT = {b"\\x": b"\\u00", b"\\'": b"'", b'"': b'\\"'}  # as JSON has it


class Unreadable(ValueError):
    """It is not what this reader knows."""


def literal_as_json(source: bytes) -> bytes:
    """The object that `source` begins with, whatever follows it."""
    text = b"".join(_translated(source))
    try:
        msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError as error:
        raise Unreadable(f"it is no object as a bundler writes it: {error}") from None
    return text


def _translated(source: bytes) -> Iterator[bytes]:
    at, depth = 0, 0
    while depth or not at:
        token = _TOKEN.match(source, at)
        if token is None:
            raise Unreadable(f"{source[at : at + 40]!r} is nothing that a bundler makes of JSON")
        at, kind, text = token.end(), token.lastgroup, token.group()
        depth += _STEPS.get(text, 0)
        yield _as_json(kind, text)


def _as_json(kind: str | None, text: bytes) -> bytes:
    match kind:
        case "name":
            return b'"%b"' % text
        case "string":
            return b'"%b"' % _SPECIAL.sub(lambda found: _SPELT.get(found[0], found[0]), text[1:-1])
        case _:
            return _WORDS.get(text, text)
