"""Reads the settings of a target, and reports what is wrong with them."""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, TypeVar, get_type_hints

import msgspec

from goent.domain.errors import ConfigError
from goent.domain.input_mistakes import KEYS, explain_mistake, quote_value, type_choices
from goent.domain.types import Value
from goent.evals.suites import SETTINGS_FOLDERS, TargetSpec

T = TypeVar("T", bound=Value)
_SECRET_NAME: Final = re.compile(r"KEY|TOKEN|SECRET|PASSWORD", re.IGNORECASE)
_SECRET_HOLDERS: Final = ("env", "config", "mcp")


def read_target_settings(spec: TargetSpec, kind: type[T]) -> T:
    """Raises a `ConfigError` that names the file, the target and the key."""
    try:
        # A number or a switch may come from the environment, and is text then.
        return msgspec.convert(dict(spec.settings), kind, strict=False)
    except msgspec.ValidationError as error:
        where = (
            spec.place.file if spec.place.line is None else f"{spec.place.file}:{spec.place.line}"
        )
        mistake = explain_mistake(error, spec.settings, kind, KEYS)
        raise ConfigError(f"{where}: target {spec.name!r} ({spec.kind}): {mistake}") from None


def setting_names(kind: type[Value]) -> tuple[str, ...]:
    return kind.__struct_fields__


def settings_mistakes(
    settings: Mapping[str, object], kind: type[Value]
) -> Iterator[tuple[str, str]]:
    """All mistakes in known settings, by the path of the key; `read_target_settings` stops at the first."""
    known = get_type_hints(kind, include_extras=True)
    for field in msgspec.structs.fields(kind):
        if field.required and field.name not in settings:
            yield field.name, "is missing"
    for key, value in settings.items():
        if key in known:
            yield from value_mistakes(key, value, known[key])


def value_mistakes(path: str, value: object, kind: object) -> Iterator[tuple[str, str]]:
    """Why a value is not of this kind, if it is not; with the path as deep as it is known."""
    try:
        msgspec.convert(value, kind, strict=not isinstance(value, str))  # from the environment
    except msgspec.ValidationError as error:
        mistake = explain_mistake(error, value, kind, KEYS)
        options = ", ".join(type_choices(kind))
        if options and not mistake.path:
            yield path, f"unknown {path} {quote_value(value)}; one of {options}"
        else:
            joint = "" if mistake.path[:1] in ("", "[") else "."
            yield f"{path}{joint}{mistake.path}", mistake.reason


def target_secrets(specs: Iterable[TargetSpec]) -> tuple[str, ...]:
    """The secrets in targets' variables and configuration, which nobody may log, found by name."""
    given = (spec.settings.get(key) for spec in specs for key in _SECRET_HOLDERS)
    return tuple(dict.fromkeys(secret for table in given for secret in _secret_values("", table)))


def _secret_values(name: str, value: object) -> Iterator[str]:
    if isinstance(value, str) and _SECRET_NAME.search(name):
        yield value
    elif isinstance(value, Mapping):
        for key, entry in msgspec.convert(value, dict[object, object]).items():
            yield from _secret_values(str(key), entry)


def target_folder(spec: TargetSpec) -> Path:
    """The base of a target's relative paths: the folder with `.goent`, or else that of its file."""
    folder = Path(spec.place.file).absolute().parent
    return folder.parent if folder.name in SETTINGS_FOLDERS else folder
