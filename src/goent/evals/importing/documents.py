"""How are foreign files read as they are, and ours written?"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Final, TypeGuard

import yaml

from goent.config.tree import Place, Problems
from goent.config.yaml_files import NULLS, NUMBER, TRUTHS, parse_document
from goent.domain.errors import ConfigError
from goent.domain.types import Value
from goent.evals.files.texts import odd_byte
from goent.evals.files.trees import MOST_VALUES, parse_json, plain, weight
from goent.plain_files import NotPlain, read_plain_text

Table = dict[str, object]
LARGEST: Final = 64 * 1024 * 1024  # bytes of a file


class Imported(Value, frozen=True, kw_only=True):
    """Files to write, by their path below the folder they are for; `notes` say what was not carried over.

    `lost` are checks and cases that were not: without them the suite asks for less than it did.
    """

    files: Mapping[str, str]
    notes: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


def read(path: Path) -> object:
    """A YAML file, with `${{ NAME }}` left as it stands. Raises `ConfigError`."""
    problems = Problems()
    node = parse_document(read_text(path), Place(file=str(path)), problems)
    problems.check()
    if node is not None and weight(node) > MOST_VALUES:
        raise ConfigError(f"{path}: holds more than {MOST_VALUES} values, or is nested too deeply")
    return plain(node)


def read_lines(path: Path) -> list[object]:
    """The objects of a file with one in each line."""
    problems = Problems()
    found: list[object] = []
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if line.strip():
            node = parse_json(line, Place(file=str(path), line=number), problems)
            found.append(plain(node))
    problems.check()
    return found


def read_text(path: Path) -> str:
    try:
        return read_plain_text(path, LARGEST)
    except NotPlain as error:
        raise ConfigError(f"{path}: {error.why}") from None
    except UnicodeDecodeError as error:
        why = f"no text in UTF-8 ({odd_byte(error)})"
        raise ConfigError(f"{path}: cannot be read: {why}") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"{path}: cannot be read: {why}") from None


def is_table(value: object) -> TypeGuard[Table]:
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[object]]:
    return isinstance(value, list)


def table(value: object) -> Table:
    """The value if it is a table; else an empty one."""
    return value if is_table(value) else {}


def items(value: object) -> list[object]:
    """The value if it is a list; else as the only one in it, or none."""
    if value is None:
        return []
    return value if is_list(value) else [value]


def first(entries: Mapping[str, object], *keys: str) -> object:
    """What stands under the first of these names that is there."""
    return next((entries[key] for key in keys if entries.get(key) is not None), None)


def slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:60].strip("-")


_BREAKS: Final = re.compile("[\r\x85\u2028\u2029]")  # line ends to YAML, and to nobody else


class _Dumper(yaml.SafeDumper):
    """As people write it: longer texts as blocks, and no aliases."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None
    mistakable = NUMBER.fullmatch(text) or text.lower() in TRUTHS or text in NULLS
    if mistakable or _BREAKS.search(text):
        style = '"'  # else our reader would take it for something else
    elif "\n" in text.strip("\n"):
        style = "|"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)  # pyright: ignore[reportUnknownMemberType] (PyYAML says no type)


_Dumper.add_representer(str, _text)


def as_yaml(value: Mapping[str, object]) -> str:
    """A document that our reader reads as this value."""
    return yaml.dump(
        dict(value), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120, indent=2
    )


def as_lines(values: Sequence[object]) -> str:
    """One object a line."""
    return "".join(f"{json.dumps(value, ensure_ascii=False)}\n" for value in values)


class Move:
    """Paths that a file in `origin` names, as a file in `to` has to name them."""

    def __init__(self, origin: Path, to: Path) -> None:
        self.origin = origin.resolve()
        self._to = to.resolve()

    def __call__(self, name: object) -> object:
        if not isinstance(name, str) or not name or self.origin == self._to:
            return name
        if PurePosixPath(name).is_absolute() or "${{" in name or "{{" in name:
            return name
        return Path(os.path.relpath(self.origin / name, self._to)).as_posix()
