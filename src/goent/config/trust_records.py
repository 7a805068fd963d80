"""Records what a user has approved, project by project, with digests of its content.

A person says yes to content. So the digest of an act covers whatever go-ent can find of it: the
words of a command and the project's files among them, a plugin and what it imports by a relative
path. What a program loads by itself later is beyond that.

A yes is for content, not for a name: a record holds the acts as they were shown, with their
digests, and whatever has another digest waits for another yes. `GOENT_TRUST=1` in the environment
says yes to everything, for machines where nobody can be asked.
"""

import json
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from goent.config.settings_tree import Items, Node, Scalar
from goent.domain.errors import EnvironmentTrouble
from goent.domain.settings import Act, Material, content_digest
from goent.domain.types import Value
from goent.system.plain_files import NotPlainFile, read_plain
from goent.system.project_folders import PRIVATE_MODE, project_key, state_dir, state_path

MAX_FILE_BYTES: Final = 16_000_000  # of one file
MAX_FILES: Final = 2_000
_WORD_BREAK: Final = re.compile(r"[\s\"'=;|&<>()`,:]+")
# Blanks and comments. Possessive and bounded: a repository could make a search in it last for hours.
_GAP: Final = rb"(?:\s++|/\*(?:[^*]|\*(?!/)){0,200}+\*/|//[^\n]{0,200}+\n){0,20}+"
_IMPORTED: Final = re.compile(
    rb"\b(?:from|import|require)" + _GAP + rb"\(?" + _GAP + rb"""["'`](\.{1,2}/[^"'`\n]+)["'`]"""
)
_ENDINGS: Final = ("", ".ts", ".js", ".mjs", ".cjs", ".mts", ".cts", ".tsx", ".jsx", ".json")
_SCRIPT_ENDING: Final = re.compile(r"\.[mc]?jsx?$")  # a `.js` may stand for a `.ts`
_PACKAGE: Final = "package.json"
_QUOTED_TEXT: Final = re.compile(rb'"([^"\\\n]+)"')


class UnreadableMaterial(Exception):
    """Something that go-ent cannot look at, and so nobody can say yes to."""


def setting_material(name: str, node: Node) -> Material:
    """A setting, whatever its layout and comments are."""
    return Material(name=name, digest=content_digest(json.dumps(plain_values(node)).encode()))


def plain_values(node: Node) -> object:
    """The values of a tree, without their places."""
    if isinstance(node, Scalar):
        return [node.kind, node.text]
    if isinstance(node, Items):
        return {"list": [plain_values(item) for item in node.items]}
    return {"table": {key: plain_values(entry) for key, entry in sorted(node.entries.items())}}


def file_material(path: Path, top: Path) -> Material:
    """A file by its content; a link by where it leads and what is there. Raises `UnreadableMaterial`."""
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
    """Every file that the import of a path may mean: with an ending, after a `?`, of a package."""
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
    """What its `package.json` says of entries, and whatever files of the folder are named there."""
    package = folder / _PACKAGE
    if not _is_file(package):
        return
    yield package
    try:
        names = _QUOTED_TEXT.findall(read_plain(package, MAX_FILE_BYTES))
    except OSError:
        return  # the file itself is told as one that cannot be looked at
    for name in dict.fromkeys(names):
        yield from _with_endings(f"{folder}/{os.fsdecode(name)}")


def _is_file(path: Path) -> bool:
    try:
        return os.path.isfile(path)  # noqa: PTH113 (a Path raises for what is too long)
    except ValueError:
        return False


def _raise_unreadable(error: OSError) -> None:
    raise UnreadableMaterial(f"{error.filename!r} cannot be read: {error.strerror}")


TRUST_VARIABLE: Final = "GOENT_TRUST"
TRUST_FOLDER: Final = "trust"


class TrustRecord(Value, frozen=True, kw_only=True):
    """What was said of one project. `declined` are digests that somebody has said no to."""

    project: str
    trusted_at: str = ""
    acts: tuple[Act, ...] = ()
    declined: tuple[str, ...] = ()


class Approvals:
    """What holds for one project now."""

    def __init__(self, record: TrustRecord | None, *, everything: bool = False) -> None:
        self._digests = frozenset(act.digest for act in record.acts) if record else frozenset[str]()
        self._everything = everything

    def covers(self, act: Act) -> bool:
        return bool(act.digest) and (self._everything or act.digest in self._digests)

    def missing(self, acts: Iterable[Act]) -> tuple[Act, ...]:
        return tuple(act for act in acts if not self.covers(act))


def read_approvals(project: Path, environ: Mapping[str, str]) -> Approvals:
    """What the user has allowed for the project."""
    everything = environ.get(TRUST_VARIABLE) == "1"
    return Approvals(read_record(project, environ), everything=everything)


def record_path(project: Path, environ: Mapping[str, str]) -> Path:
    return state_path(environ) / TRUST_FOLDER / f"{project_key(project)}.json"


def read_record(project: Path, environ: Mapping[str, str]) -> TrustRecord | None:
    """None if nothing was said, or what was written down cannot be read: then it is asked again."""
    found = _read_record(record_path(project, environ))
    return found if found and found.project == os.path.realpath(project) else None


def all_records(environ: Mapping[str, str]) -> list[TrustRecord]:
    """Of all projects, by their paths."""
    folder = state_path(environ) / TRUST_FOLDER
    paths = folder.glob("*.json") if folder.is_dir() else ()
    return sorted(
        (r for path in paths if (r := _read_record(path))), key=lambda record: record.project
    )


def grant(project: Path, environ: Mapping[str, str], acts: Iterable[Act]) -> TrustRecord:
    """Remember a yes to exactly these, instead of what was remembered before."""
    record = TrustRecord(
        project=os.path.realpath(project),
        trusted_at=datetime.now(UTC).isoformat(timespec="seconds"),
        acts=tuple(act for act in acts if act.digest),
    )
    _write_record(record, environ)
    return record


def decline(project: Path, environ: Mapping[str, str], acts: Iterable[Act]) -> None:
    """Remember a no, so that the same is not asked again. What was allowed stays allowed."""
    before = read_record(project, environ) or TrustRecord(project=os.path.realpath(project))
    declined = tuple(dict.fromkeys((*before.declined, *(act.digest for act in acts))))
    _write_record(msgspec.structs.replace(before, declined=declined), environ)


def revoke(project: Path, environ: Mapping[str, str]) -> bool:
    """Forget what was said of the project; False if nothing was."""
    try:
        record_path(project, environ).unlink()
    except FileNotFoundError:
        return False
    return True


def _read_record(path: Path) -> TrustRecord | None:
    with suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode(read_plain(path, MAX_FILE_BYTES), type=TrustRecord)
    return None


def _write_record(record: TrustRecord, environ: Mapping[str, str]) -> None:
    path = record_path(Path(record.project), environ)
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    try:
        (state_dir(environ) / TRUST_FOLDER).mkdir(PRIVATE_MODE, exist_ok=True)
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file:  # noqa: PTH123 (a descriptor, no path)
            file.write(msgspec.json.encode(record))
        fresh.replace(path)
    except OSError as error:
        with suppress(OSError):
            fresh.unlink()
        raise EnvironmentTrouble(
            f"cannot write {str(path)!r}: {error.strerror}; check the folder's owner and disk"
        ) from error
