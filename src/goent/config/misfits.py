"""What is wrong with a value that does not fit its type? Said as all other mistakes are said."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeGuard

import msgspec

from goent.config.tree import QUOTED

_KINDS: Final[Mapping[str, str]] = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
    "null": "nothing",
}
_WHERE: Final = re.compile(r"(?P<words>.*?)(?: - at (?:`key` in )?`\$(?P<path>.*)`)?", re.DOTALL)
_KIND: Final = re.compile(r"Expected `([\w |]+)`, got `(\w+)`")
_BOUND: Final = re.compile(r"Expected `\w+` (<=|>=|<|>) (\S+)")
_BOUNDS: Final[Mapping[str, str]] = {
    "<=": "at most",
    ">=": "at least",
    "<": "less than",
    ">": "more than",
}
_ENUM: Final = re.compile(r"Invalid enum value '(.*)'")
_FIELD: Final = re.compile(r"Object (missing required|contains unknown) field `(.*)`")
_STEP: Final = re.compile(r"\[\.\.\.\]|\[(\d+)\]|\.([^.\[]+)")
_ENTRY: Final = "[...]"  # of a table: the library does not say which


def in_words(error: msgspec.ValidationError, value: object) -> tuple[str, str]:
    """Where in `value` it is, such as `.env.A` or `[0]`, and why it does not fit."""
    found = _WHERE.fullmatch(str(error))
    words, told = (found["words"], found["path"] or "") if found else (str(error), "")
    kind, unknown = _KIND.fullmatch(words), _ENUM.fullmatch(words)

    def is_odd(part: object) -> bool:
        return _kind(part) == kind[2] if kind else bool(unknown and part == unknown[1])

    path, part = _followed(value, told, is_odd)
    if kind:
        options = [_KINDS.get(name, name) for name in kind[1].split(" | ") if name != "null"]
        return path, f"expected {' or '.join(options) or 'nothing'}, not {quoted(part)}"
    if unknown:
        return path, f"unknown value {quoted(unknown[1])}"
    if bound := _BOUND.fullmatch(words):
        limit = bound[2].removesuffix(".0")
        return path, f"must be {_BOUNDS[bound[1]]} {limit}, not {quoted(part)}"
    if field := _FIELD.fullmatch(words):
        missing = field[1] == "missing required"
        return f"{path}.{field[2]}", "is missing" if missing else "unknown setting"
    return path, f"{words[:1].lower()}{words[1:]}".replace("`", "")


def quoted(value: object) -> str:
    """The value as a message repeats it."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case str():
            return repr(value if len(value) <= QUOTED else value[: QUOTED - 1] + "…")
        case Mapping():
            return "a table"
        case Sequence():
            return "a list"
        case _:
            return str(value)


def _followed(value: object, told: str, is_odd: Callable[[object], bool]) -> tuple[str, object]:
    """The path as far as it is known, with the name of the odd entry of a table, and what stands there."""
    path = ""
    for step in _STEP.finditer(told):
        if _is_table(value):
            odd = (key for key, part in value.items() if is_odd(part))
            name = next(odd, None) if step[0] == _ENTRY else step[2]
            if name is None:
                break
            value, path = value.get(name), f"{path}.{name}"
        elif _is_list(value) and step[1] and int(step[1]) < len(value):
            value, path = value[int(step[1])], path + step[0]
        else:
            return path + step[0], value
    return path, value


def _is_table(value: object) -> TypeGuard[Mapping[object, object]]:
    return isinstance(value, Mapping)


def _is_list(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, list | tuple)


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "bool"
        case Mapping():
            return "object"
        case list() | tuple():
            return "array"
        case _:
            return type(value).__name__
