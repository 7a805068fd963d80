"""Do the settings of a grader make sense? What would fail in every run is a mistake before the first."""

from collections.abc import Callable, Mapping
from typing import Final

from goent.config.fields import Fields, read_table
from goent.config.tree import Items, Node, Problems, Table
from goent.evals.files.kinds import KINDS, MODES
from goent.evals.graders.rubrics import Entry, Range
from goent.evals.graders.settings import ExpectedCall, Field, Settable


def check_settings(fields: Fields, kind: str) -> None:
    if check := _CHECKS.get(kind):
        check(fields)


def check_criteria(node: Node | None, problems: Problems) -> None:
    """The items of a rubric: texts, or tables that say no more than they may."""
    for item in node.items if isinstance(node, Items) else ():
        if isinstance(item, Table):
            read_table(item, _criterion, problems)


def share(fields: Fields, key: str) -> float | None:
    """A number from 0 to 1."""
    value = fields.amount(key, None)
    if value is not None and value > 1:
        fields.mistake(key, f"must be from 0 to 1, not {value:g}")
        return None
    return value


def take_all(fields: Fields) -> None:
    """Nothing in it is unknown: somebody else judges it."""
    for key in fields.keys:
        fields.has(key)


def _only(form: type[Settable]) -> Callable[[Fields], None]:
    """What a form has no place for is unknown; what its values are is judged by who reads them."""

    def take(fields: Fields) -> None:
        for key in form.__struct_fields__:
            fields.has(key)

    return take


def _criterion(fields: Fields) -> None:
    _only(Entry)(fields)
    if fields.shape("score_ranges") == "list":
        fields.rows("score_ranges", _only(Range))


def _trajectory(fields: Fields) -> None:
    fields.choice("mode", MODES, None)
    fields.rows("expected", _only(ExpectedCall))
    shaped(fields, "forbidden", "list")
    for key in ("minimums", "max", "followed_by"):
        shaped(fields, key, "table")


def _judge(fields: Fields) -> None:
    for key in ("criteria", "rubrics"):
        check_criteria(fields.node(key), fields.problems)


def _rubrics(fields: Fields) -> None:
    shaped(fields, "criteria", "list")
    _judge(fields)


def _limits(kind: str) -> Callable[[Fields], None]:
    def check(fields: Fields) -> None:
        keys = KINDS[kind].known
        for key in keys:
            fields.amount(key, None)
        if not any(fields.has(key) for key in keys):
            fields.mistake("type", f"{kind} has nothing to check; give one of {', '.join(keys)}")

    return check


def _amount(key: str) -> Callable[[Fields], None]:
    def check(fields: Fields) -> None:
        fields.amount(key, None)

    return check


def _list(key: str) -> Callable[[Fields], None]:
    return lambda fields: shaped(fields, key, "list")


def _accuracy(fields: Fields) -> None:
    fields.rows("fields", _only(Field))


def shaped(fields: Fields, key: str, shape: str) -> None:
    found = fields.shape(key)
    if found not in {None, shape}:
        fields.mistake(key, f"expected a {shape}, not a {found}")


_CHECKS: Final[Mapping[str, Callable[[Fields], None]]] = {
    "tool-trajectory": _trajectory,
    "latency": _amount("threshold"),
    "cost": _amount("budget"),
    "token-usage": _limits("token-usage"),
    "execution-metrics": _limits("execution-metrics"),
    "field-accuracy": _accuracy,
    "llm-grader": _judge,
    "rubrics": _rubrics,
    "contains-any": _list("value"),
    "contains-all": _list("value"),
    "icontains-any": _list("value"),
    "icontains-all": _list("value"),
}
