"""Digests the content that an approval covers: settings, files, and what these import.

A person approves content. So the digest of an act covers whatever go-ent can find of it: the words of
a command and the project's files among them, a plugin and what it imports by a relative path. What a
program loads by itself later is beyond that.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from goent.config.settings_tree import Items, Node, Scalar
from goent.domain.settings import Material, content_digest
from goent.system.plain_files import NotPlainFile, read_plain

MAX_FILE_BYTES: Final = 16_000_000  # of one file


MAX_FILES: Final = 2_000


_WORD_BREAK: Final = re.compile(r"[\s\"'=;|&<>()`,:]+")


# Blanks and comments. Possessive and bounded: otherwise a repository could make the search last hours.
_GAP: Final = rb"(?:\s++|/\*(?:[^*]|\*(?!/)){0,200}+\*/|//[^\n]{0,200}+\n){0,20}+"


_IMPORTED: Final = re.compile(
    rb"\b(?:from|import|require)" + _GAP + rb"\(?" + _GAP + rb"""["'`](\.{1,2}/[^"'`\n]+)["'`]"""
)


_ENDINGS: Final = ("", ".ts", ".js", ".mjs", ".cjs", ".mts", ".cts", ".tsx", ".jsx", ".json")


_SCRIPT_ENDING: Final = re.compile(r"\.[mc]?jsx?$")  # a `.js` may stand for a `.ts`


_PACKAGE: Final = "package.json"


_QUOTED_TEXT: Final = re.compile(rb'"([^"\\\n]+)"')


class UnreadableMaterial(Exception):
    """Content that go-ent cannot read, so that nobody can approve it."""


def setting_material(name: str, node: Node) -> Material:
    """A setting; its layout and comments do not matter."""
    return Material(name=name, digest=content_digest(json.dumps(plain_values(node)).encode()))


def plain_values(node: Node) -> object:
    """The values of a tree, without their places."""
    if isinstance(node, Scalar):
        return [node.kind, node.text]
    if isinstance(node, Items):
        return {"list": [plain_values(item) for item in node.items]}
    return {"table": {key: plain_values(entry) for key, entry in sorted(node.entries.items())}}


def file_material(path: Path, top: Path) -> Material:
    """A file, by its content. Raises `UnreadableMaterial`."""
    try:
        content = read_plain(path, MAX_FILE_BYTES)
    except NotPlainFile as error:
        raise UnreadableMaterial(str(error)) from None
    except OSError as error:
        raise UnreadableMaterial(f"{str(path)!r} cannot be read: {error.strerror}") from None
    return Material(name=os.path.relpath(path, top), digest=content_digest(content))


def folder_materials(
    folder: Path, top: Path, *, skipped: frozenset[str] = frozenset()
) -> list[Material]:
    """Every file of a folder, at any depth, through links to folders too. Raises `UnreadableMaterial`."""
    found: list[Material] = []
    seen: set[str] = set()
    for root, folders, names in os.walk(folder, followlinks=True, onerror=_raise_unreadable):
        real = os.path.realpath(root)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if name not in skipped)
        for name in sorted(names):
            found.append(file_material(Path(root, name), top))
            if len(found) > MAX_FILES:
                raise UnreadableMaterial(f"{str(folder)!r} holds more than {MAX_FILES} files")
    return found


def named_file_materials(words: Sequence[str], folder: Path, top: Path) -> list[Material]:
    """Files of the project that the words of a command name."""
    found: dict[Path, Material] = {}
    for name in (part for word in words for part in (word, *_WORD_BREAK.split(word))):
        path = folder / name
        if name and path not in found and path.is_relative_to(top) and _is_file(path):
            found[path] = file_material(path, top)
    return list(found.values())


def import_materials(paths: Iterable[Path], top: Path) -> Iterator[Material]:
    """The files, and what they import by relative paths, and so on. Raises `UnreadableMaterial`."""
    waiting, seen = list(paths), set[str]()
    while waiting:
        path = waiting.pop()
        real = os.path.realpath(path)
        if real in seen:
            continue
        seen.add(real)
        if len(seen) > MAX_FILES:
            raise UnreadableMaterial(
                f"{str(path)!r} is one of more than {MAX_FILES} files that are imported"
            )
        yield file_material(path, top)
        for name in _IMPORTED.findall(read_plain(path, MAX_FILE_BYTES)):
            waiting.extend(module_files(f"{path.parent}/{os.fsdecode(name)}"))


def module_files(path: str) -> Iterator[Path]:
    """Every file that the import of a path may mean: with an ending, without a query, of a package."""
    for base in dict.fromkeys((path, re.split(r"[?#]", path)[0])):
        yield from _with_endings(base)
        if os.path.isdir(base):  # noqa: PTH112 (a Path raises for what is too long)
            yield from _with_endings(f"{base}/index")
            yield from _package_files(Path(base))


def _with_endings(base: str) -> Iterator[Path]:
    stems = dict.fromkeys((base, _SCRIPT_ENDING.sub("", base)))
    tried = (Path(stem + ending) for stem in stems for ending in _ENDINGS)
    return (each for each in tried if _is_file(each))


def _package_files(folder: Path) -> Iterator[Path]:
    """Its `package.json`, and every file of the folder that is named there."""
    package = folder / _PACKAGE
    if not _is_file(package):
        return
    yield package
    try:
        names = _QUOTED_TEXT.findall(read_plain(package, MAX_FILE_BYTES))
    except OSError:
        return  # the file itself is reported as unreadable
    for name in dict.fromkeys(names):
        yield from _with_endings(f"{folder}/{os.fsdecode(name)}")


def _is_file(path: Path) -> bool:
    try:
        return os.path.isfile(path)  # noqa: PTH113 (a Path raises for what is too long)
    except ValueError:
        return False


def _raise_unreadable(error: OSError) -> None:
    raise UnreadableMaterial(f"{error.filename!r} cannot be read: {error.strerror}")
