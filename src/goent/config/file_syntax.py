"""Parses YAML files, and JSON files with comments, into trees with line numbers.

Both are built without a library's composer, see `docs/decisions/0009-dependencies.md`: PyYAML's own
recurses without bound, and the one in C crashes the process on a few hundred kilobytes of brackets.
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import Final, Protocol

import yaml

from goent.config.settings_tree import (
    TRUE_WORDS,
    Items,
    Node,
    Problems,
    Scalar,
    SettingPlace,
    Table,
)
from goent.domain.types import Value

NUMBER_PATTERN: Final = re.compile(r"[-+]?(\d[\d_]*\.?[\d_]*|\.\d[\d_]*)([eE][-+]?\d{1,3})?")
NULL_WORDS: Final = frozenset({"", "~", "null", "Null", "NULL"})
BOOLEAN_WORDS: Final = TRUE_WORDS | {"false", "no", "off"}
MAX_YAML_LEVELS: Final = 30
MAX_MERGED: Final = 1_000_000  # entries merged by `<<` in one file
MERGE_KEY: Final = "<<"


class _YamlEvents(Protocol):
    def get_event(self) -> yaml.Event | None: ...


# libyaml is optional in PyYAML, and ten times as fast.
_YamlLoader: Callable[[str], _YamlEvents] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _MalformedYaml(Exception):
    """The file cannot be read as settings; `line` counts from 1."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


def parse_yaml(text: str, root: SettingPlace, problems: Problems) -> Table:
    """The file as a tree; an empty one, and a problem, where it cannot be read."""
    tree = parse_document(text, root, problems)
    if isinstance(tree, Table):
        return tree
    if tree and not (isinstance(tree, Scalar) and tree.kind == "null"):
        problems.note_unreadable(root, "expected settings, one `key: value` a line")
    return Table(place=root)


def parse_document(text: str, root: SettingPlace, problems: Problems) -> Node | None:
    """The file's only document; None if it is empty or, with a problem, cannot be read."""
    try:
        return _YamlBuilder(text, problems).document(root)
    except _MalformedYaml as error:
        where = SettingPlace(file=root.file, line=error.line, layer=root.layer)
        problems.note_unreadable(where, str(error))
        return None


class _YamlBuilder:
    """Builds a tree from parser events. An alias is the node of its anchor, not a copy."""

    def __init__(self, text: str, problems: Problems) -> None:
        self._text = text
        self._problems = problems
        self._anchors: dict[str, Node] = {}
        self._merged = 0
        self._loader = self._open_loader()

    def document(self, root: SettingPlace) -> Node | None:
        self._event()  # the stream starts
        if isinstance(self._event(), yaml.StreamEndEvent):
            return None
        tree = self._node(self._event(), root, 0)
        self._event()  # the document ends
        after = self._event()
        if not isinstance(after, yaml.StreamEndEvent):
            raise _MalformedYaml("a second document begins; keep one", _event_line(after))
        return tree

    def _node(self, event: yaml.Event, place: SettingPlace, level: int) -> Node:
        if level > MAX_YAML_LEVELS:
            raise _MalformedYaml(
                f"nested more than {MAX_YAML_LEVELS} levels deep", _event_line(event)
            )
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        if isinstance(event, yaml.MappingStartEvent):
            node = self._table(place, level)
        elif isinstance(event, yaml.SequenceStartEvent):
            node = self._items(place, level)
        else:
            assert isinstance(event, yaml.ScalarEvent)
            node = _yaml_scalar(event, place)
        if anchor := getattr(event, "anchor", None):
            self._anchors[str(anchor)] = node
        return node

    def _table(self, place: SettingPlace, level: int) -> Table:
        entries: dict[str, Node] = {}
        others: list[tuple[SettingPlace, Node]] = []
        while not isinstance(event := self._event(), yaml.MappingEndEvent):
            line = _event_line(event)
            is_merge = isinstance(event, yaml.ScalarEvent) and event.implicit[0]
            key = self._node(event, place.entry("?", line), level + 1)
            name = key.text if isinstance(key, Scalar) else "?"
            where = place.entry(name, line)
            if not isinstance(key, Scalar):
                self._problems.note(where, "a key must be a plain word")
            elif name in entries:
                first = entries[name].place.line
                self._problems.note(where, f"given twice, first on line {first}; keep one")
            entries[name] = self._node(self._event(), where, level + 1)
            if is_merge and name == MERGE_KEY:
                others.append((where, entries.pop(name)))
        for where, other in others:
            self._merge(other, where, entries)
        return Table(place=place, entries=entries)

    def _merge(self, other: Node, where: SettingPlace, entries: dict[str, Node]) -> None:
        """Add the entries of `<<: *name`; the table's own, and those of earlier names, take precedence."""
        for each in other.items if isinstance(other, Items) else (other,):
            if not isinstance(each, Table):
                self._problems.note(where, "expected a table to take over, such as *name")
                continue
            self._merged += len(each.entries)
            if self._merged > MAX_MERGED:
                raise _MalformedYaml(f"takes over more than {MAX_MERGED} entries by <<", where.line)
            for name, node in each.entries.items():
                entries.setdefault(name, node)

    def _items(self, place: SettingPlace, level: int) -> Items:
        items: list[Node] = []
        while not isinstance(event := self._event(), yaml.SequenceEndEvent):
            where = place.entry(f"[{len(items)}]", _event_line(event))
            items.append(self._node(event, where, level + 1))
        return Items(place=place, items=tuple(items))

    def _alias(self, event: yaml.AliasEvent) -> Node:
        anchor = str(event.anchor)
        if anchor not in self._anchors:
            raise _MalformedYaml(f"nothing before it is named &{anchor}", _event_line(event))
        return self._anchors[anchor]

    def _open_loader(self) -> _YamlEvents:
        try:
            return _YamlLoader(self._text)
        except (yaml.YAMLError, UnicodeError) as error:
            raise self._malformed_error(error) from error

    def _event(self) -> yaml.Event:
        try:
            event = self._loader.get_event()
        except (yaml.YAMLError, UnicodeError) as error:
            raise self._malformed_error(error) from error
        assert event is not None
        return event

    def _malformed_error(self, error: Exception) -> _MalformedYaml:
        if isinstance(error, yaml.MarkedYAMLError):
            mark = error.problem_mark or error.context_mark
            if mark is None:
                return _MalformedYaml(f"invalid YAML: {error.problem or error.context}", 1)
            why = self._odd_character(mark.line, mark.column) or error.problem or error.context
            return _MalformedYaml(f"invalid YAML: {why}", mark.line + 1)
        if isinstance(error, yaml.reader.ReaderError):
            line = self._text.count("\n", 0, error.position) + 1
            return _MalformedYaml(f"invalid YAML: {error.reason}", line)
        return _MalformedYaml("invalid YAML: characters that cannot be encoded", 1)

    def _odd_character(self, line: int, column: int) -> str:
        """A plain explanation, if a common character is the cause."""
        lines = self._text.splitlines()
        rest = lines[line][column:] if line < len(lines) else ""
        if rest.startswith("\t"):
            return "a tab, where only spaces may indent"
        if rest.startswith(("@", "`")):
            return f"{rest[0]!r} cannot begin a value; put it in quotes"
        return ""


def _yaml_scalar(event: yaml.ScalarEvent, place: SettingPlace) -> Scalar:
    text = str(event.value)
    plain: bool = event.implicit[0]
    if plain and text in NULL_WORDS:
        return Scalar(place=place, kind="null", text=text)
    if plain and text.lower() in BOOLEAN_WORDS:
        return Scalar(place=place, kind="bool", text=text)
    # YAML 1.1 reads `1e-5` as text and `1:30` as a number; people mean the opposite.
    number = plain and NUMBER_PATTERN.fullmatch(text) is not None
    return Scalar(place=place, kind="number" if number else "text", text=text)


def _event_line(event: yaml.Event) -> int:
    return event.start_mark.line + 1


MAX_JSON_LEVELS: Final = 60

_JSON_TOKEN: Final = re.compile(
    r"""
    (?P<skip>   \s+ | //[^\n]* | /\*.*?\*/ )
  | (?P<string> "(?:[^"\\\n]|\\.)*" )
  | (?P<number> -?\d+(?:\.\d+)?(?:[eE][-+]?\d{1,3})?(?![\w.]) )
  | (?P<word>   true | false | null )
  | (?P<mark>   [\[\]{},:] )
    """,
    re.VERBOSE | re.DOTALL,
)


class _MalformedJson(Exception):
    """Malformed JSON; `line` counts from 1. The message quotes nothing: such files hold keys."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


class _JsonToken(Value, frozen=True, kw_only=True):
    kind: str
    text: str
    line: int


def parse_jsonc(text: str, root: SettingPlace, problems: Problems) -> Table:
    """The file as a tree; an empty one, and a problem, where it cannot be read."""
    try:
        tree = _JsonParser(_json_tokens(text)).parse(root)
    except _MalformedJson as error:
        where = SettingPlace(file=root.file, line=error.line, layer=root.layer)
        problems.note_unreadable(where, f"invalid JSON: {error}")
        return Table(place=root)
    if isinstance(tree, Table):
        return tree
    problems.note_unreadable(root, "invalid JSON: expected an object in braces")
    return Table(place=root)


def _json_tokens(text: str) -> Iterator[_JsonToken]:
    position, line = 0, 1
    while position < len(text):
        match = _JSON_TOKEN.match(text, position)
        if match is None:
            raise _MalformedJson("a value, a quote or a comment is broken", line)
        kind = match.lastgroup or "skip"
        if kind != "skip":
            yield _JsonToken(kind=kind, text=match.group(), line=line)
        line += match.group().count("\n")
        position = match.end()
    yield _JsonToken(kind="end", text="", line=line)


class _JsonParser:
    """Recursive descent over the tokens, one token ahead."""

    def __init__(self, tokens: Iterator[_JsonToken]) -> None:
        self._tokens = tokens
        self._next = next(tokens)

    def parse(self, place: SettingPlace) -> Node:
        node = self._value(place, 0)
        if self._next.kind != "end":
            raise _MalformedJson("something follows the end", self._next.line)
        return node

    def _value(self, place: SettingPlace, level: int) -> Node:
        if level > MAX_JSON_LEVELS:
            raise _MalformedJson("nested too deeply", self._next.line)
        token = self._take()
        if token.text == "{":
            return self._table(place, level)
        if token.text == "[":
            return self._items(place, level)
        if token.kind == "string":
            return Scalar(place=place, kind="text", text=_unquote(token))
        if token.kind == "number":
            return Scalar(place=place, kind="number", text=token.text)
        if token.kind == "word":
            kind = "null" if token.text == "null" else "bool"
            return Scalar(place=place, kind=kind, text=token.text)
        raise _MalformedJson("expected a value", token.line)

    def _table(self, place: SettingPlace, level: int) -> Table:
        entries: dict[str, Node] = {}
        while self._next.text != "}":
            key = self._take()
            if key.kind != "string":
                raise _MalformedJson("expected a key in double quotes", key.line)
            self._expect(":")
            name = _unquote(key)
            entries[name] = self._value(place.entry(name, key.line), level + 1)
            self._separator("}")
        self._take()
        return Table(place=place, entries=entries)

    def _items(self, place: SettingPlace, level: int) -> Items:
        items: list[Node] = []
        while self._next.text != "]":
            where = place.entry(f"[{len(items)}]", self._next.line)
            items.append(self._value(where, level + 1))
            self._separator("]")
        self._take()
        return Items(place=place, items=tuple(items))

    def _take(self) -> _JsonToken:
        token = self._next
        if token.kind == "end":
            raise _MalformedJson("the file ends too early", token.line)
        self._next = next(self._tokens)
        return token

    def _expect(self, mark: str) -> None:
        token = self._take()
        if token.text != mark:
            raise _MalformedJson(f"expected '{mark}'", token.line)

    def _separator(self, closing: str) -> None:
        if self._next.text != closing:
            token = self._take()
            if token.text != ",":
                raise _MalformedJson(f"expected ',' or '{closing}'", token.line)


def _unquote(token: _JsonToken) -> str:
    try:
        text = str(json.loads(token.text, strict=False))
        text.encode()
    except ValueError as error:  # a bad escape, or half of a surrogate pair
        raise _MalformedJson("a string holds a broken escape", token.line) from error
    return text
