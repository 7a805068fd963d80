"""What do the `{{variables}}` of a case stand for?"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Final

from goent.config.tree import Items, Node, Scalar, Table, suggestion
from goent.evals.files.graders import LISTS
from goent.evals.files.kinds import TEXTS
from goent.evals.files.texts import Source
from goent.evals.files.trees import MOST_VALUES, plain, replaced, weight

_PLACEHOLDER: Final = re.compile(r"\{\{\s*([A-Za-z_][\w.-]*)\s*\}\}")


def with_variables(table: Table, source: Source, *, strict: bool) -> Table:
    """The case, filled in. What `vars` does not hold stays as it is: prompts of judges have placeholders as well.

    If `strict`, it is a mistake where nobody else would fill it in.
    """
    values = table.entries.get("vars")
    if values is None or (isinstance(values, Scalar) and values.kind == "null"):
        return table
    if not isinstance(values, Table):
        source.problems.note(values.place, "expected a table of variables")
        return table
    known = values.entries
    if strict:
        _check(table, known, source)

    def filled(scalar: Scalar) -> Node:
        if scalar.kind != "text" or "{{" not in scalar.text:
            return scalar
        whole = _PLACEHOLDER.fullmatch(scalar.text)
        if whole and whole[1] in known:
            return known[whole[1]]
        text = _PLACEHOLDER.sub(lambda found: _text(known.get(found[1]), found[0]), scalar.text)
        return Scalar(place=scalar.place, kind="text", text=text)

    shared: dict[int, Node] = {}
    entries = {
        key: part if key == "vars" else replaced(part, filled, shared)
        for key, part in table.entries.items()
    }
    changed = Table(place=table.place, entries=entries)
    if weight(changed) > MOST_VALUES:
        source.problems.note(values.place, f"the case would hold more than {MOST_VALUES} values")
        return table
    return changed


def _text(node: Node | None, otherwise: str) -> str:
    if node is None:
        return otherwise
    if isinstance(node, Scalar):
        return node.text
    return json.dumps(plain(node), ensure_ascii=False)


def _check(table: Table, known: Mapping[str, Node], source: Source) -> None:
    for scalar in _filled_by_vars(table):
        for found in _PLACEHOLDER.finditer(scalar.text):
            if found[1] not in known:
                remedy = suggestion(found[1], known)
                source.problems.note(scalar.place, f"{found[0]} is none of its vars; {remedy}")


def _filled_by_vars(table: Table) -> Iterator[Scalar]:
    """What is said to the agent, and what graders of texts look for; in turns and composites as well."""
    for key, node in table.entries.items():
        if key in ("input", "input_messages") or (key == "value" and _is_text_grader(table)):
            yield from _scalars(node)
        elif key == "execution" and isinstance(node, Table):
            yield from _filled_by_vars(node)
        elif key in ("turns", *LISTS) and isinstance(node, Items):
            for item in node.items:
                if isinstance(item, Table):
                    yield from _filled_by_vars(item)


def _is_text_grader(table: Table) -> bool:
    kind = table.entries.get("type")
    return isinstance(kind, Scalar) and kind.text.replace("_", "-") in TEXTS


def _scalars(node: Node) -> Iterator[Scalar]:
    if isinstance(node, Scalar):
        yield node
    else:
        for part in node.items if isinstance(node, Items) else node.entries.values():
            yield from _scalars(part)
