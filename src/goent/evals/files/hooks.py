"""What runs around an attempt, and is it there?"""

import os
import re
from pathlib import Path
from typing import Final

from goent.config.fields import Fields
from goent.config.tree import Items, Place, Scalar
from goent.evals.files.checks import take_all
from goent.evals.suites import Hook

NAMES: Final = ("before_all", "before_each", "after_each", "after_all")
USUAL_S: Final = 120.0
# A line for the shell that is one program and its words: nothing is piped, chained or filled in.
_SIMPLE: Final = re.compile(r"\s*([\w.-]*(?:/[\w.-]+)+)(?:\s[^|&;<>$`()]*)?")


def read_hooks(fields: Fields, template: Path | None) -> dict[str, Hook | None]:
    """By name; `template` is what the workspace begins with, where that is known."""
    if not fields.flag("enabled", default=True):
        take_all(fields)
        return dict.fromkeys(NAMES)
    found: dict[str, Hook | None] = {}
    is_first = True
    for name in NAMES:
        begins = template if name.startswith("before") else None  # agents change what is there
        hook = None
        if fields.has(name):
            hook = fields.section(
                name, lambda inner, at=begins, new=is_first: _hook(inner, at, new=new)
            )
            is_first = False
        found[name] = hook
    return found


def _hook(fields: Fields, begins: Path | None, *, new: bool) -> Hook | None:
    """`new`: no other hook has run before it, which could have made the program."""
    # AgentV resets a workspace that several tests share: here each attempt has its own.
    fields.choice("reset", ("none", "fast", "strict"), None)
    key = fields.one_of("command", "script")
    node = fields.node(key) if key else None
    words = fields.texts(key) if key else ()
    if key is None and not fields.has("reset"):
        fields.mistake("command", "is missing; say what to run")
    elif key and isinstance(node, Items) and not node.items:
        fields.mistake(key, "says nothing to run")
    command = ("sh", "-c", *words) if isinstance(node, Scalar) else words
    cwd = _folder(fields)
    timeout_s = _timeout(fields)
    if not words or key is None:
        return None
    if new:
        _check_program(fields, key, command, cwd or begins)
    return Hook(command=command, timeout_s=timeout_s, cwd=cwd)


def _folder(fields: Fields) -> Path | None:
    mention = fields.mention("cwd")
    if mention is None:
        return None
    path = seen_from(mention.place, mention.name).absolute()
    if not is_folder(path):
        fields.mistake("cwd", f"there is no folder {str(path)!r}")
    return path


def _check_program(fields: Fields, key: str, command: tuple[str, ...], folder: Path | None) -> None:
    """One that is given by its path, where it is known what that begins with."""
    name = command[0]
    if command[:2] == ("sh", "-c") and (line := _SIMPLE.fullmatch(command[-1])):
        name = line[1]
    if "/" not in name or not (folder or name.startswith("/")):
        return
    where = folder or Path("/")
    if is_folder(where) and not _is_file(where / name):
        fields.mistake(key, f"there is no file {name!r} in {str(where)!r}")


def _timeout(fields: Fields) -> float:
    key = fields.one_of("timeout_ms", "timeout_seconds", "timeout_s")
    value = fields.amount(key, None, above=True) if key else None
    if value is None:
        return USUAL_S
    return value / 1000 if key == "timeout_ms" else value


def seen_from(place: Place, name: str) -> Path:
    """A path as a file names it."""
    return Path(place.file).parent / name


def is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # a name that no file can have
        return False


def _is_file(path: Path) -> bool:
    try:
        return os.path.isfile(path)  # noqa: PTH113 (a Path raises for what is too long)
    except ValueError:
        return False
