"""What is wrong with the arguments of a call, in words that say what would be right?"""

import re
from typing import Literal, get_args, get_origin

import msgspec

NO_CHOICE = re.compile(r"Invalid enum value (?P<value>.+) - at `\$\.(?P<field>\w+)`", re.DOTALL)
NO_FIELD = re.compile(r"Object contains unknown field `(?P<field>.+)`$", re.DOTALL)


def explained(error: msgspec.ValidationError, request: type[msgspec.Struct]) -> str:
    """The codec's complaint; where there is a choice of values or names, with all of them."""
    message = str(error)
    fields = {field.name: field.type for field in msgspec.structs.fields(request)}
    if (found := NO_CHOICE.match(message)) and found["field"] in fields:
        choices = ", ".join(_choices(fields[found["field"]]))
        return f"{found['field']}: {found['value']} is none of {choices}"
    if found := NO_FIELD.match(message):
        return f"there is no argument {found['field']!r}, only {', '.join(fields)}"
    return message


def _choices(kind: object) -> list[str]:
    """In the order in which they are written down."""
    if get_origin(kind) is Literal:
        return [str(value) for value in get_args(kind)]
    return [choice for part in get_args(kind) for choice in _choices(part)]
