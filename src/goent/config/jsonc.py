"""What does a JSON file with comments and trailing commas say, and on which line?"""

import json
import re
from collections.abc import Iterator
from typing import Final

from goent.config.tree import Items, Node, Place, Problems, Scalar, Table
from goent.domain.types import Value

MOST_LEVELS: Final = 60

_TOKEN: Final = re.compile(
    r"""
    (?P<skip>   \s+ | //[^\n]* | /\*.*?\*/ )
  | (?P<string> "(?:[^"\\\n]|\\.)*" )
  | (?P<number> -?\d+(?:\.\d+)?(?:[eE][-+]?\d{1,3})?(?![\w.]) )
  | (?P<word>   true | false | null )
  | (?P<mark>   [\[\]{},:] )
    """,
    re.VERBOSE | re.DOTALL,
)


class _Malformed(Exception):
    """No JSON; `line` counts from 1. The message quotes nothing: such files hold keys."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


class _Token(Value, frozen=True, kw_only=True):
    kind: str
    text: str
    line: int


def parse_jsonc(text: str, root: Place, problems: Problems) -> Table:
    """The file as a tree; an empty one, and a problem, where it cannot be read."""
    try:
        tree = _Parser(_tokens(text)).whole(root)
    except _Malformed as error:
        where = Place(file=root.file, line=error.line, layer=root.layer)
        problems.note_unreadable(where, f"no valid JSON: {error}")
        return Table(place=root)
    if isinstance(tree, Table):
        return tree
    problems.note_unreadable(root, "no valid JSON: expected an object in braces")
    return Table(place=root)


def _tokens(text: str) -> Iterator[_Token]:
    position, line = 0, 1
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise _Malformed("a value, a quote or a comment is broken", line)
        kind = match.lastgroup or "skip"
        if kind != "skip":
            yield _Token(kind=kind, text=match.group(), line=line)
        line += match.group().count("\n")
        position = match.end()
    yield _Token(kind="end", text="", line=line)


class _Parser:
    """Recursive descent over the tokens, one token ahead."""

    def __init__(self, tokens: Iterator[_Token]) -> None:
        self._tokens = tokens
        self._next = next(tokens)

    def whole(self, place: Place) -> Node:
        node = self._value(place, 0)
        if self._next.kind != "end":
            raise _Malformed("something follows the end", self._next.line)
        return node

    def _value(self, place: Place, level: int) -> Node:
        if level > MOST_LEVELS:
            raise _Malformed("nested too deeply", self._next.line)
        token = self._take()
        if token.text == "{":
            return self._table(place, level)
        if token.text == "[":
            return self._items(place, level)
        if token.kind == "string":
            return Scalar(place=place, kind="text", text=_unquoted(token))
        if token.kind == "number":
            return Scalar(place=place, kind="number", text=token.text)
        if token.kind == "word":
            kind = "null" if token.text == "null" else "bool"
            return Scalar(place=place, kind=kind, text=token.text)
        raise _Malformed("expected a value", token.line)

    def _table(self, place: Place, level: int) -> Table:
        entries: dict[str, Node] = {}
        while self._next.text != "}":
            key = self._take()
            if key.kind != "string":
                raise _Malformed("expected a key in double quotes", key.line)
            self._expect(":")
            name = _unquoted(key)
            entries[name] = self._value(place.below(name, key.line), level + 1)
            self._separator("}")
        self._take()
        return Table(place=place, entries=entries)

    def _items(self, place: Place, level: int) -> Items:
        items: list[Node] = []
        while self._next.text != "]":
            where = place.below(f"[{len(items)}]", self._next.line)
            items.append(self._value(where, level + 1))
            self._separator("]")
        self._take()
        return Items(place=place, items=tuple(items))

    def _take(self) -> _Token:
        token = self._next
        if token.kind == "end":
            raise _Malformed("the file ends too early", token.line)
        self._next = next(self._tokens)
        return token

    def _expect(self, mark: str) -> None:
        token = self._take()
        if token.text != mark:
            raise _Malformed(f"expected '{mark}'", token.line)

    def _separator(self, closing: str) -> None:
        if self._next.text != closing:
            token = self._take()
            if token.text != ",":
                raise _Malformed(f"expected ',' or '{closing}'", token.line)


def _unquoted(token: _Token) -> str:
    try:
        text = str(json.loads(token.text, strict=False))
        text.encode()
    except ValueError as error:  # a bad escape, or half of a surrogate pair
        raise _Malformed("a string holds a broken escape", token.line) from error
    return text
