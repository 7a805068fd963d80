"""Reads suite files of other tools, and writes go-ent's."""

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Final, TypeGuard

import yaml

from goent.config.file_syntax import BOOLEAN_WORDS, NULL_WORDS, NUMBER_PATTERN, parse_document
from goent.config.settings_tree import Problems, SettingPlace
from goent.domain.errors import ConfigError
from goent.domain.types import Value
from goent.evals.files.file_source import (
    LARGEST_FILE,
    MOST_VALUES,
    invalid_byte,
    parse_json,
    plain_value,
    value_count,
)
from goent.system.plain_files import NotPlainFile, read_plain_text

ForeignTable = dict[str, object]


class ImportResult(Value, frozen=True, kw_only=True):
    """Files to write, by relative path; `notes` say what was not carried over.

    `lost_checks` are checks and cases without which the suite demands less.
    """

    files: Mapping[str, str]
    notes: tuple[str, ...] = ()
    lost_checks: tuple[str, ...] = ()


def read_yaml(path: Path) -> object:
    """A YAML file, with `${{ NAME }}` left as it is. Raises `ConfigError`."""
    problems = Problems()
    node = parse_document(read_text(path), SettingPlace(file=str(path)), problems)
    problems.raise_all()
    if node is not None and value_count(node) > MOST_VALUES:
        raise ConfigError(f"{path}: holds more than {MOST_VALUES} values, or is nested too deeply")
    return plain_value(node)


def read_json_lines(path: Path) -> list[object]:
    """The objects of a file with one per line."""
    problems = Problems()
    found: list[object] = []
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if line.strip():
            node = parse_json(line, SettingPlace(file=str(path), line=number), problems)
            found.append(plain_value(node))
    problems.raise_all()
    return found


def read_text(path: Path) -> str:
    try:
        return read_plain_text(path, LARGEST_FILE)
    except NotPlainFile as error:
        raise ConfigError(f"{path}: {error.why}") from None
    except UnicodeDecodeError as error:
        why = f"not UTF-8 text ({invalid_byte(error)})"
        raise ConfigError(f"{path}: cannot be read: {why}") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"{path}: cannot be read: {why}") from None


def is_table(value: object) -> TypeGuard[ForeignTable]:
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[object]]:
    return isinstance(value, list)


def as_table(value: object) -> ForeignTable:
    """The value if it is a table, else an empty one."""
    return value if is_table(value) else {}


def as_list(value: object) -> list[object]:
    """The value if it is a list, else a list with it, or an empty one."""
    if value is None:
        return []
    return value if is_list(value) else [value]


def first_value(entries: Mapping[str, object], *keys: str) -> object:
    """The value of the first of these keys that has one."""
    return next((entries[key] for key in keys if entries.get(key) is not None), None)


def slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:60].strip("-")


_LINE_BREAKS: Final = re.compile("[\r\x85\u2028\u2029]")  # line ends in YAML only


class _Dumper(yaml.SafeDumper):
    """Writes long texts as blocks, and no aliases."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None
    mistakable = (
        NUMBER_PATTERN.fullmatch(text) or text.lower() in BOOLEAN_WORDS or text in NULL_WORDS
    )
    if mistakable or _LINE_BREAKS.search(text):
        style = '"'  # otherwise it would be read as another value
    elif "\n" in text.strip("\n"):
        style = "|"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)  # pyright: ignore[reportUnknownMemberType] (PyYAML says no type)


_Dumper.add_representer(str, _represent_text)


def as_yaml(value: Mapping[str, object]) -> str:
    """A document that is read back as this value."""
    return yaml.dump(
        dict(value), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120, indent=2
    )


def as_json_lines(values: Sequence[object]) -> str:
    """One object per line."""
    return "".join(f"{json.dumps(value, ensure_ascii=False)}\n" for value in values)


class PathMove:
    """Rewrites paths relative to `origin` as relative to `to`."""

    def __init__(self, origin: Path, to: Path) -> None:
        self.origin = origin.resolve()
        self._to = to.resolve()

    def __call__(self, name: object) -> object:
        if not isinstance(name, str) or not name or self.origin == self._to:
            return name
        if PurePosixPath(name).is_absolute() or "${{" in name or "{{" in name:
            return name
        return Path(os.path.relpath(self.origin / name, self._to)).as_posix()
