"""Inspects and compares JSON values of unknown shape."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import TypeGuard

NO_KEYS: Mapping[str, object] = {}
_ABSENT = object()
_STEP = re.compile(r"\[(\d+)\]|([^.\[\]]+)")


def json_value(text: str) -> object:
    """As JavaScript reads it: NaN and infinities are no JSON. Raises `ValueError`."""
    try:
        value: object = json.loads(text, parse_constant=reject_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value


def reject_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")


def is_object(value: object) -> TypeGuard[Mapping[str, object]]:
    return isinstance(value, Mapping)


def is_array(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, list | tuple)


def json_equal(left: object, right: object) -> bool:
    """Deep equality, where true is not 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if is_object(left) and is_object(right):
        return left.keys() == right.keys() and all(
            json_equal(left[key], right[key]) for key in left
        )
    if is_array(left) and is_array(right):
        return len(left) == len(right) and all(map(json_equal, left, right))
    return left == right


def value_at(value: object, path: str) -> object:
    """What lies at `a.b[0].c`; `absent` tells if nothing does."""
    for step in _STEP.finditer(path):
        value = _value_inside(value, step[1] or step[2])
    return value


def is_absent(value: object) -> bool:
    return value is _ABSENT


def _value_inside(value: object, key: str) -> object:
    if is_object(value):
        return value.get(key, _ABSENT)
    if is_array(value) and key.isdecimal() and int(key) < len(value):
        return value[int(key)]
    return _ABSENT
