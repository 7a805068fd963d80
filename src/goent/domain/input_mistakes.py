"""Explains input that does not fit its type: where it is, what is there, and what is allowed.

One explanation for tool arguments, command line options and files; only the words differ.
msgspec reports a mistake as a line such as "Expected `float` > 0.0 - at `$.tasks[0].timeout_s`":
that line is taken apart here, because nothing else of it is accessible.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from types import UnionType
from typing import Annotated, Final, Literal, TypeGuard, Union, get_args, get_origin

import msgspec
from msgspec import Raw

from goent.domain.types import Value

QUOTED_CHARS: Final = 60  # characters of a value that a message repeats
MAX_LISTED_NAMES: Final = 20  # names that a message offers


class Surface(Value, frozen=True, kw_only=True):
    """Where the input comes from: what a named value and a table are called there."""

    noun: str
    table: str = "a table"


ARGUMENTS: Final = Surface(noun="argument", table="an object")  # of tools, and on the socket
OPTIONS: Final = Surface(noun="option")  # at the terminal
KEYS: Final = Surface(noun="key")  # in files


class InputMistake(Value, frozen=True, kw_only=True):
    """One mistake: `path` is such as `tasks[0].timeout_s` or `--timeout`, or empty for the whole."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}" if self.path else self.reason


_MESSAGE: Final = re.compile(r"(?P<reason>.*?)(?: - at (?:`key` in )?`\$(?P<path>.*)`)?", re.DOTALL)
_WRONG_KIND: Final = re.compile(r"Expected `([\w |]+)`, got `(\w+)`")
_OUT_OF_BOUNDS: Final = re.compile(r"Expected `\w+` (<=|>=|<|>) (\S+)")
_WRONG_LENGTH: Final = re.compile(r"Expected `(\w+)` of length (<=|>=) (\d+)")
_WRONG_PATTERN: Final = re.compile(r"Expected `str` matching regex '(.*)'", re.DOTALL)
_WRONG_CHOICE: Final = re.compile(r"Invalid enum value '?(.*?)'?", re.DOTALL)
_WRONG_FIELD: Final = re.compile(
    r"Object (missing required|contains unknown) field `(.*)`", re.DOTALL
)
_PATH_STEP: Final = re.compile(r"\[\.\.\.\]|\[(\d+)\]|\.([^.\[]+)")
_ANY_ENTRY: Final = "[...]"  # of a table: msgspec does not say which
_BOUND_WORDS: Final[Mapping[str, str]] = {
    "<=": "at most",
    ">=": "at least",
    "<": "less than",
    ">": "more than",
}
_KIND_WORDS: Final[Mapping[str, str]] = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "null": "nothing",
}


def explain_mistake(
    error: msgspec.ValidationError, value: object, kind: object, surface: Surface
) -> InputMistake:
    """Why `value` cannot be converted to the type `kind`, as msgspec found."""
    found = _MESSAGE.fullmatch(str(error))
    reason, told = (found["reason"], found["path"] or "") if found else (str(error), "")
    wrong_kind, wrong_choice = _WRONG_KIND.fullmatch(reason), _WRONG_CHOICE.fullmatch(reason)
    path, part, kind = _follow_path(told, value, kind)
    if field := _WRONG_FIELD.fullmatch(reason):
        path, reason = f"{path}.{field[2]}", "is missing"
        if field[1] == "contains unknown":
            reason = f"unknown {surface.noun}; {suggestion(field[2], _field_names(kind))}"
    elif wrong_kind:
        reason = _wrong_kind_reason(wrong_kind[1], part, kind, surface)
    elif wrong_choice:
        one_of = ", ".join(type_choices(kind))
        reason = f"unknown value {quote_value(part)}" + (f"; one of {one_of}" if one_of else "")
    else:
        reason = _limit_reason(reason, part)
    path = path.removeprefix(".")
    if surface is OPTIONS and path.isidentifier():
        path = "--" + path.removesuffix("_s").replace("_", "-")
    return InputMistake(path=path, reason=reason)


def explain_undecodable(error: Exception, text: bytes | Raw, kind: object, surface: Surface) -> str:
    """As `explain_mistake`, for JSON; what is no JSON at all is explained too."""
    if isinstance(error, msgspec.ValidationError):
        with suppress(msgspec.DecodeError, RecursionError):
            return str(explain_mistake(error, msgspec.json.decode(text), kind, surface))
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)


def _wrong_kind_reason(kinds: str, part: object, kind: object, surface: Surface) -> str:
    names = [name for name in kinds.split(" | ") if name != "null"]
    words = [surface.table if name == "object" else _KIND_WORDS.get(name, name) for name in names]
    if choices := type_choices(kind):
        words = [f"one of {', '.join(choices)}", *(word for word in words if word != "text")]
    return f"expected {' or '.join(words) or 'nothing'}, not {quote_value(part, surface)}"


def _limit_reason(reason: str, part: object) -> str:
    if bound := _OUT_OF_BOUNDS.fullmatch(reason):
        limit = bound[2].removesuffix(".0")
        return f"must be {_BOUND_WORDS[bound[1]]} {limit}, not {quote_value(part)}"
    if length := _WRONG_LENGTH.fullmatch(reason):
        limit = f"{_BOUND_WORDS[length[2]]} {length[3]}"
        if isinstance(part, str):
            return f"must be {limit} characters long, not {len(part)}"
        if _is_list(part):
            return (
                f"must have {limit} {'entry' if length[3] == '1' else 'entries'}, not {len(part)}"
            )
    if pattern := _WRONG_PATTERN.fullmatch(reason):
        return f"must match {pattern[1]}, not {quote_value(part)}"
    return f"{reason[:1].lower()}{reason[1:]}".replace("`", "")


def suggestion(word: str, known: Collection[str]) -> str:
    """The remedy for a name that does not exist."""
    if close := get_close_matches(word, known, n=1):
        return f"did you mean {close[0]!r}?"
    if not known:
        return "there is none"
    more = ", …" if len(known) > MAX_LISTED_NAMES else ""
    return f"one of {', '.join(list(known)[:MAX_LISTED_NAMES])}{more}"


def quote_value(value: object, surface: Surface = KEYS) -> str:
    """The value as a message repeats it."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case str():
            return repr(value if len(value) <= QUOTED_CHARS else value[: QUOTED_CHARS - 1] + "…")
        case Mapping():
            return surface.table
        case Sequence():
            return "a list"
        case _:
            return str(value)


def type_choices(kind: object) -> tuple[str, ...]:
    """The values that a type spells out, in the order in which they are written."""
    choices = (
        str(choice)
        for option in _alternatives(kind)
        if get_origin(option) is Literal
        for choice in get_args(option)
        if choice is not None
    )
    return tuple(dict.fromkeys(choices))


def _follow_path(told: str, value: object, kind: object) -> tuple[str, object, object]:
    """The path, with the name of a table's wrong entry; the value that is there, and its type."""
    path = ""
    for step in _PATH_STEP.finditer(told):
        if _is_table(value):
            name = step[2]
            if step[0] == _ANY_ENTRY:
                name = _wrong_entry(value, _entry_type(kind, ""))
            if name is None:
                break
            value, kind, path = value.get(name), _entry_type(kind, name), f"{path}.{name}"
        elif _is_list(value) and step[1] and int(step[1]) < len(value):
            value, kind, path = value[int(step[1])], _entry_type(kind, None), path + step[0]
        else:
            return path + step[0], value, None
    return path, value, kind


def _wrong_entry(table: Mapping[object, object], kind: object) -> str | None:
    for strict in (False, True):
        for name, part in table.items():
            try:
                msgspec.convert(part, kind, strict=strict)
            except msgspec.ValidationError:
                return str(name)
    return None


def _alternatives(kind: object) -> Iterator[object]:
    """The types of a union, without annotations."""
    origin = get_origin(kind)
    if origin is Annotated:
        yield from _alternatives(get_args(kind)[0])
    elif origin in (Union, UnionType):
        for part in get_args(kind):
            yield from _alternatives(part)
    else:
        yield kind


def _entry_type(kind: object, name: str | None) -> object:
    """The type of a field or of a table's entry, or without a name of a list's; None if unknown."""
    for option in _alternatives(kind):
        parts = get_args(option)
        if _is_struct(option) and name is not None:
            for field in msgspec.structs.fields(option):
                if field.encode_name == name:
                    return field.type
        elif parts and get_origin(option) is not Literal:
            return parts[0] if name is None else parts[-1]
    return None


def _field_names(kind: object) -> tuple[str, ...]:
    structs = (option for option in _alternatives(kind) if _is_struct(option))
    return tuple(dict.fromkeys(name for each in structs for name in each.__struct_encode_fields__))


def _is_struct(kind: object) -> TypeGuard[type[msgspec.Struct]]:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _is_table(value: object) -> TypeGuard[Mapping[object, object]]:
    return isinstance(value, Mapping)


def _is_list(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, list | tuple)
