"""Walks through the tree of a settings file, and makes another without some of it."""

from goent.config.tree import Items, Node, Scalar, Table
from goent.config.trust.materials import plain

Keys = tuple[str, ...]


def is_true(node: Node | None) -> bool:
    return isinstance(node, Scalar) and node.is_true


def is_null(node: Node | None) -> bool:
    return isinstance(node, Scalar) and node.kind == "null"


def is_false(node: Node) -> bool:
    return text_of(node).lower() in ("false", "no", "off")


def same(one: Node | None, other: Node | None) -> bool:
    return one is not None and other is not None and plain(one) == plain(other)


def at(node: Node | None, *keys: str) -> Node | None:
    for key in keys:
        node = node.entries.get(key) if isinstance(node, Table) else None
    return None if is_null(node) else node


def table_at(node: Node, key: str) -> Table:
    found = at(node, key)
    return found if isinstance(found, Table) else Table(place=node.place)


def text_of(node: Node | None) -> str:
    return node.text if isinstance(node, Scalar) else ""


def texts_of(node: Node | None) -> tuple[str, ...]:
    if isinstance(node, Items):
        return tuple(map(text_of, node.items))
    return (text_of(node),) if node else ()


def without(table: Table, path: Keys) -> Table:
    head, *rest = path
    entry = table.entries.get(head)
    if entry is None:
        return table
    kept = {key: node for key, node in table.entries.items() if key != head}
    if rest and isinstance(entry, Table):
        kept[head] = without(entry, tuple(rest))
    return Table(place=table.place, entries=kept)


def put(table: Table, key: str, more: Table) -> Table:
    before = table_at(table, key)
    entries = {**before.entries, **more.entries}
    return Table(
        place=table.place,
        entries={**table.entries, key: Table(place=before.place, entries=entries)},
    )
