"""What does a YAML file say? Its values with their lines; duplicate keys are mistakes.

`<<: *name` takes over the entries of another table, except those that this one has itself. Built from the parser's events: PyYAML's own composer recurses without bound, and the one in C
takes the process down on a file of a few hundred kilobytes of brackets.
"""

import re
from collections.abc import Callable
from typing import Final, Protocol

import yaml

from goent.config.tree import TRUE, Items, Node, Place, Problems, Scalar, Table

NUMBER: Final = re.compile(r"[-+]?(\d[\d_]*\.?[\d_]*|\.\d[\d_]*)([eE][-+]?\d{1,3})?")
NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
TRUTHS: Final = TRUE | {"false", "no", "off"}
MOST_LEVELS: Final = 30
MOST_MERGED: Final = 1_000_000  # entries that are taken over in a file
MERGE: Final = "<<"


class _Events(Protocol):
    def get_event(self) -> yaml.Event | None: ...


# libyaml is an option of PyYAML's build, and ten times as fast.
_Loader: Callable[[str], _Events] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Malformed(Exception):
    """The file cannot be read as settings; `line` counts from 1."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


def parse_yaml(text: str, root: Place, problems: Problems) -> Table:
    """The file as a tree; an empty one, and a problem, where it cannot be read."""
    tree = parse_document(text, root, problems)
    if isinstance(tree, Table):
        return tree
    if tree and not (isinstance(tree, Scalar) and tree.kind == "null"):
        problems.note_unreadable(root, "expected settings, one `key: value` a line")
    return Table(place=root)


def parse_document(text: str, root: Place, problems: Problems) -> Node | None:
    """Whatever the file holds; None where that is nothing, or, with a problem, cannot be read."""
    try:
        return _Builder(text, problems).document(root)
    except _Malformed as error:
        where = Place(file=root.file, line=error.line, layer=root.layer)
        problems.note_unreadable(where, str(error))
        return None


class _Builder:
    """Turns events into a tree. An alias is the very node that its anchor names, never a copy."""

    def __init__(self, text: str, problems: Problems) -> None:
        self._text = text
        self._problems = problems
        self._anchors: dict[str, Node] = {}
        self._merged = 0
        self._loader = self._opened()

    def document(self, root: Place) -> Node | None:
        self._event()  # the stream starts
        if isinstance(self._event(), yaml.StreamEndEvent):
            return None
        tree = self._node(self._event(), root, 0)
        self._event()  # the document ends
        after = self._event()
        if not isinstance(after, yaml.StreamEndEvent):
            raise _Malformed("a second document begins; keep one", _line(after))
        return tree

    def _node(self, event: yaml.Event, place: Place, level: int) -> Node:
        if level > MOST_LEVELS:
            raise _Malformed(f"nested more than {MOST_LEVELS} levels deep", _line(event))
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        if isinstance(event, yaml.MappingStartEvent):
            node = self._table(place, level)
        elif isinstance(event, yaml.SequenceStartEvent):
            node = self._items(place, level)
        else:
            assert isinstance(event, yaml.ScalarEvent)
            node = _scalar(event, place)
        if anchor := getattr(event, "anchor", None):
            self._anchors[str(anchor)] = node
        return node

    def _table(self, place: Place, level: int) -> Table:
        entries: dict[str, Node] = {}
        others: list[tuple[Place, Node]] = []
        while not isinstance(event := self._event(), yaml.MappingEndEvent):
            line = _line(event)
            is_merge = isinstance(event, yaml.ScalarEvent) and event.implicit[0]
            key = self._node(event, place.below("?", line), level + 1)
            name = key.text if isinstance(key, Scalar) else "?"
            where = place.below(name, line)
            if not isinstance(key, Scalar):
                self._problems.note(where, "a key must be a plain word")
            elif name in entries:
                first = entries[name].place.line
                self._problems.note(where, f"given twice, first on line {first}; keep one")
            entries[name] = self._node(self._event(), where, level + 1)
            if is_merge and name == MERGE:
                others.append((where, entries.pop(name)))
        for where, other in others:
            self._merge(other, where, entries)
        return Table(place=place, entries=entries)

    def _merge(self, other: Node, where: Place, entries: dict[str, Node]) -> None:
        """What is there already stays: the table's own, and that of those named first."""
        for each in other.items if isinstance(other, Items) else (other,):
            if not isinstance(each, Table):
                self._problems.note(where, "expected a table to take over, such as *name")
                continue
            self._merged += len(each.entries)
            if self._merged > MOST_MERGED:
                raise _Malformed(f"takes over more than {MOST_MERGED} entries by <<", where.line)
            for name, node in each.entries.items():
                entries.setdefault(name, node)

    def _items(self, place: Place, level: int) -> Items:
        items: list[Node] = []
        while not isinstance(event := self._event(), yaml.SequenceEndEvent):
            where = place.below(f"[{len(items)}]", _line(event))
            items.append(self._node(event, where, level + 1))
        return Items(place=place, items=tuple(items))

    def _alias(self, event: yaml.AliasEvent) -> Node:
        anchor = str(event.anchor)
        if anchor not in self._anchors:
            raise _Malformed(f"nothing before it is named &{anchor}", _line(event))
        return self._anchors[anchor]

    def _opened(self) -> _Events:
        try:
            return _Loader(self._text)
        except (yaml.YAMLError, UnicodeError) as error:
            raise self._malformed(error) from error

    def _event(self) -> yaml.Event:
        try:
            event = self._loader.get_event()
        except (yaml.YAMLError, UnicodeError) as error:
            raise self._malformed(error) from error
        assert event is not None
        return event

    def _malformed(self, error: Exception) -> _Malformed:
        if isinstance(error, yaml.MarkedYAMLError):
            mark = error.problem_mark or error.context_mark
            if mark is None:
                return _Malformed(f"no valid YAML: {error.problem or error.context}", 1)
            why = self._odd_character(mark.line, mark.column) or error.problem or error.context
            return _Malformed(f"no valid YAML: {why}", mark.line + 1)
        if isinstance(error, yaml.reader.ReaderError):
            line = self._text.count("\n", 0, error.position) + 1
            return _Malformed(f"no valid YAML: {error.reason}", line)
        return _Malformed("no valid YAML: characters that cannot be encoded", 1)

    def _odd_character(self, line: int, column: int) -> str:
        """In plain words, where the parser stumbled over one."""
        lines = self._text.splitlines()
        rest = lines[line][column:] if line < len(lines) else ""
        if rest.startswith("\t"):
            return "a tab, where only spaces may indent"
        if rest.startswith(("@", "`")):
            return f"{rest[0]!r} may begin no value; put it in quotes"
        return ""


def _scalar(event: yaml.ScalarEvent, place: Place) -> Scalar:
    text = str(event.value)
    plain: bool = event.implicit[0]
    if plain and text in NULLS:
        return Scalar(place=place, kind="null", text=text)
    if plain and text.lower() in TRUTHS:
        return Scalar(place=place, kind="bool", text=text)
    # YAML 1.1 takes `1e-5` for text and `1:30` for a number; people mean the opposite.
    number = plain and NUMBER.fullmatch(text) is not None
    return Scalar(place=place, kind="number" if number else "text", text=text)


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1
