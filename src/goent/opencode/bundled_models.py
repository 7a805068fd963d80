"""Extracts the models that a process needs from the catalogue inside the OpenCode program.

The program carries a catalogue of every model of two hundred providers and copies it for each
directory, which is most of what a directory costs. A process of ours can reach only the enabled
backends, so it gets their entries alone, unchanged, by `OPENCODE_MODELS_PATH`.

OpenCode uses the list that it last fetched for the user, if there is one, or else the one built
into the program. The bundler's notation there is almost JSON: names without quotes, strings with
either kind of quotes, `!0` and `!1`. It is converted token by token; anything unknown is refused,
and then the catalogue stays as it is.
"""

import hashlib
import mmap
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from goent.domain.types import Value

_TOKEN = re.compile(
    rb"""(?P<mark>[{}\[\],:])
    | (?P<string>
        "(?:[^"\\\x00-\x1f\x7f-\xff]|\\(?:["'\\bfnrt]|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}))*"
      | '(?:[^'\\\x00-\x1f\x7f-\xff]|\\(?:["'\\bfnrt]|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}))*')
    | (?P<name>[A-Za-z0-9_$]+(?=:))
    | (?P<number>-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)
    | (?P<word>!0|!1|null)""",
    re.VERBOSE,
)
_STEPS = {b"{": 1, b"[": 1, b"}": -1, b"]": -1}
_WORDS = {b"!0": b"true", b"!1": b"false", b"null": b"null"}
_SPECIAL = re.compile(rb'\\.|"')
_SPELT = {b"\\x": b"\\u00", b"\\'": b"'", b'"': b'\\"'}  # as JSON has it


class UnreadableLiteral(ValueError):
    """The source is not in the notation that this reader knows."""


def literal_as_json(source: bytes) -> bytes:
    """The object at the beginning of `source`, as JSON."""
    text = b"".join(_json_tokens(source))
    try:
        msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError as error:
        raise UnreadableLiteral(f"not an object as a bundler writes it: {error}") from None
    return text


def _json_tokens(source: bytes) -> Iterator[bytes]:
    at, depth = 0, 0
    while depth or not at:
        token = _TOKEN.match(source, at)
        if token is None:
            raise UnreadableLiteral(f"unknown notation: {source[at : at + 40]!r}")
        at, kind, text = token.end(), token.lastgroup, token.group()
        depth += _STEPS.get(text, 0)
        yield _as_json(kind, text)


def _as_json(kind: str | None, text: bytes) -> bytes:
    match kind:
        case "name":
            return b'"%b"' % text
        case "string":
            return b'"%b"' % _SPECIAL.sub(lambda found: _SPELT.get(found[0], found[0]), text[1:-1])
        case _:
            return _WORDS.get(text, text)


VARIABLE = "OPENCODE_MODELS_PATH"
LANDMARK = "anthropic"  # in every catalogue; without it, the program has another structure
MAX_ENTRY_BYTES = 4 * 1024**2  # the longest that was seen has 0.4 MB
KEEP_S = 30 * 86400.0  # after the last use of a file

Entries = dict[str, msgspec.Raw]


class BundledModels(Value, frozen=True, kw_only=True):
    """The models that processes with these backends need, cached in `folder`."""

    backends: tuple[str, ...]
    folder: Path

    def variables(self, program: Path, env: Mapping[str, str]) -> dict[str, str]:
        """The variables that restrict the program to these models; empty if it cannot be read.

        A file is named after its sources, so the program is read once.
        """
        fetched = _fetched_path(env)
        try:
            sources = (self.backends, _state(program), _state(fetched) if fetched.exists() else "")
            name = hashlib.sha256(msgspec.json.encode(sources)).hexdigest()[:16]
            path = self.folder / f"{name}.json"
            if not path.exists():
                entries = _read_fetched(fetched) if fetched.exists() else self._built_in(program)
                # In the original order, which is the one in which OpenCode offers them.
                chosen = {name: entry for name, entry in entries.items() if name in self.backends}
                self._write(path, msgspec.json.encode(chosen))
            os.utime(path)
        except (OSError, ValueError):
            return {}
        return {VARIABLE: str(path)}

    def _built_in(self, program: Path) -> Entries:
        with (
            program.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as source,
        ):
            return {
                name: msgspec.Raw(literal_as_json(source[at : at + MAX_ENTRY_BYTES]))
                for name, at in _find_entries(source, self.backends).items()
            }

    def _write(self, path: Path, text: bytes) -> None:
        self.folder.mkdir(0o700, parents=True, exist_ok=True)
        for old in self.folder.iterdir():
            if time.time() - old.stat().st_mtime > KEEP_S:
                old.unlink()
        whole = path.with_suffix(f".{os.getpid()}")
        whole.write_bytes(text)
        whole.replace(path)


def _fetched_path(env: Mapping[str, str]) -> Path:
    cache = env.get("XDG_CACHE_HOME") or f"{env.get('HOME', '')}/.cache"
    return Path(cache, "opencode", "models.json")


def _state(path: Path) -> str:
    seen = path.stat()
    return f"{path}\0{seen.st_mtime_ns}\0{seen.st_size}"


def _read_fetched(path: Path) -> Entries:
    """OpenCode also accepts an empty file, and deletes one that is not JSON."""
    return msgspec.json.decode(path.read_bytes(), type=Entries)


def _find_entries(program: mmap.mmap, backends: Sequence[str]) -> dict[str, int]:
    """The offsets of the entries."""
    wanted = {LANDMARK, *backends}
    if odd := [name for name in wanted if not re.fullmatch(r"[ !#-&(-\[\]-~]+", name)]:
        raise UnreadableLiteral(f"{odd[0]!r} may be escaped in a program")
    either = "|".join(map(re.escape, wanted)).encode()
    found: dict[str, int] = {}
    for entry in re.finditer(rb'\{id:"(' + either + rb')",env:\[', program):
        name = entry[1].decode()
        if name in found:
            raise UnreadableLiteral(f"two entries of {name!r}")
        found[name] = entry.start()
    if LANDMARK not in found:
        raise UnreadableLiteral("no catalogue found in this program")
    return found
