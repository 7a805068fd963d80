"""How are trees changed, and turned into plain values?"""

import json
import math
from collections.abc import Callable, Sequence
from typing import Final

from goent.config.tree import Items, Node, Place, Problems, Scalar, Table
from goent.evals import suites

MOST_VALUES: Final = 1_000_000  # of a file, with each alias counted as what it stands for
MOST_LEVELS: Final = 60
LONGEST_INTEGER: Final = 40  # digits; what is longer becomes a float


def weight(node: Node, known: dict[int, int] | None = None, level: int = 0) -> int:
    """How many values there are, were every alias written out; too many if they are too deep."""
    if isinstance(node, Scalar):
        return 1
    known = {} if known is None else known
    if id(node) not in known:
        if level > MOST_LEVELS:
            return MOST_VALUES + 1
        parts = node.items if isinstance(node, Items) else node.entries.values()
        known[id(node)] = 1 + sum(weight(part, known, level + 1) for part in parts)
    return known[id(node)]


def replaced(
    node: Node, change: Callable[[Scalar], Node], known: dict[int, Node] | None = None
) -> Node:
    """The tree with every single value changed. What was shared stays shared."""
    known = {} if known is None else known
    if isinstance(node, Scalar):
        return change(node)
    if id(node) not in known:
        if isinstance(node, Items):
            items = tuple(replaced(item, change, known) for item in node.items)
            known[id(node)] = Items(place=node.place, items=items)
        else:
            entries = {name: replaced(part, change, known) for name, part in node.entries.items()}
            known[id(node)] = Table(place=node.place, entries=entries)
    return known[id(node)]


def plain(node: Node | None) -> object:
    """The value as JSON has it; `yes`, `no`, `on` and `off` are texts, as in YAML 1.2."""
    if node is None:
        return None
    if isinstance(node, Items):
        return [plain(item) for item in node.items]
    if isinstance(node, Table):
        return {name: plain(part) for name, part in node.entries.items()}
    if node.kind == "null":
        return None
    if node.kind == "bool" and node.text.lower() in ("true", "false"):
        return node.is_true
    return number(node.text) if node.kind == "number" else node.text


def as_text(node: Node) -> object:
    """The value where a text is meant: `42` and `yes` as they were written, in a list as well."""
    if isinstance(node, Items):
        return [as_text(item) for item in node.items]
    return plain(node) if isinstance(node, Table) else node.text


def number(text: str) -> float:
    digits = text.replace("_", "")
    if len(digits) <= LONGEST_INTEGER and digits.lstrip("+-").isdecimal():
        return int(digits)
    value = float(digits)
    return value if math.isfinite(value) else math.copysign(1e308, value)


def told(place: Place) -> suites.Place:
    """The place as a suite keeps it."""
    return suites.Place(file=place.file, line=place.line or None, key=place.key)


def heard(place: suites.Place) -> Place:
    """And the other way round, for a mistake that is found later."""
    return Place(file=place.file, line=place.line or 0, key=place.key)


class _Number(str):
    """Digits, as they were written."""

    __slots__ = ()


class _Object:
    """The entries of a JSON object, duplicates included."""

    def __init__(self, pairs: Sequence[tuple[str, object]]) -> None:
        self.pairs = pairs


def _no_constant(text: str) -> object:
    raise ValueError(f"{text} is no JSON")


def parse_json(text: str, place: Place, problems: Problems) -> Node | None:
    """One line of JSON; None, with a problem, if it is none."""
    try:
        value: object = json.loads(
            text,
            object_pairs_hook=_Object,
            parse_int=_Number,
            parse_float=_Number,
            parse_constant=_no_constant,
        )
        return _node(value, place, problems)
    except RecursionError:
        problems.note(place, "nested too deeply")
    except UnicodeError:
        problems.note(place, "no valid JSON: half a surrogate pair")
    except ValueError as error:
        problems.note(place, f"no valid JSON: {getattr(error, 'msg', error)}")
    return None


def _node(value: object, place: Place, problems: Problems) -> Node:
    if isinstance(value, _Object):
        entries: dict[str, Node] = {}
        for name, part in value.pairs:
            name.encode()
            if name in entries:
                problems.note(place.below(name), "given twice; keep one")
            entries[name] = _node(part, place.below(name), problems)
        return Table(place=place, entries=entries)
    if isinstance(value, list):
        parts: list[object] = value  # pyright: ignore[reportUnknownVariableType] (from JSON)
        items = (_node(part, place.below(f"[{i}]"), problems) for i, part in enumerate(parts))
        return Items(place=place, items=tuple(items))
    if value is None:
        return Scalar(place=place, kind="null", text="null")
    if isinstance(value, bool):
        return Scalar(place=place, kind="bool", text="true" if value else "false")
    text = str(value)
    text.encode()
    kind = "number" if isinstance(value, _Number) else "text"
    return Scalar(place=place, kind=kind, text=text)
