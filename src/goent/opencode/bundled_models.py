"""Extracts the models that a process needs from the catalogue inside the OpenCode program.

What it makes of JSON is little more than JSON: names without quotes, strings with either kind of
them, `!0` and `!1`. So that is turned back, token by token. Anything else is refused, never
guessed at.

It carries a catalogue of every model of two hundred providers and copies it for each directory,
which is most of what a directory costs. A process of ours can reach the enabled backends alone, so
it is given what the catalogue has on these, word for word, by `OPENCODE_MODELS_PATH`.

OpenCode takes the list that it last fetched for the user, if there is one, and else what is built
into the program. Where either is not exactly as we know it, the catalogue stays as it is.
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
    """It is not what this reader knows."""


def literal_as_json(source: bytes) -> bytes:
    """The object that `source` begins with, whatever follows it."""
    text = b"".join(_json_tokens(source))
    try:
        msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError as error:
        raise UnreadableLiteral(f"it is no object as a bundler writes it: {error}") from None
    return text


def _json_tokens(source: bytes) -> Iterator[bytes]:
    at, depth = 0, 0
    while depth or not at:
        token = _TOKEN.match(source, at)
        if token is None:
            raise UnreadableLiteral(
                f"{source[at : at + 40]!r} is nothing that a bundler makes of JSON"
            )
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
LANDMARK = "anthropic"  # in every catalogue: without it, the program is built otherwise
MAX_ENTRY_BYTES = 4 * 1024**2  # bytes of one entry; the longest that was seen has 0.4 MB
KEEP_S = 30 * 86400.0  # seconds after its last use for which a file is kept

Entries = dict[str, msgspec.Raw]


class BundledModels(Value, frozen=True, kw_only=True):
    """What processes with these backends need; `folder` is where it is written down."""

    backends: tuple[str, ...]
    folder: Path

    def variables(self, program: Path, env: Mapping[str, str]) -> dict[str, str]:
        """What to start the program with, so that it knows no more; empty if that is unclear.

        A file is named by what it was made from, so reading the program is for the first start.
        """
        fetched = _fetched_path(env)
        try:
            known = (self.backends, _state(program), _state(fetched) if fetched.exists() else "")
            name = hashlib.sha256(msgspec.json.encode(known)).hexdigest()[:16]
            path = self.folder / f"{name}.json"
            if not path.exists():
                entries = _read_fetched(fetched) if fetched.exists() else self._built_in(program)
                # In its order: that is the order in which OpenCode offers them.
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
    """An empty one counts for OpenCode too; one that is no JSON is thrown away by it."""
    return msgspec.json.decode(path.read_bytes(), type=Entries)


def _find_entries(program: mmap.mmap, backends: Sequence[str]) -> dict[str, int]:
    """Where the entries begin."""
    wanted = {LANDMARK, *backends}
    if odd := [name for name in wanted if not re.fullmatch(r"[ !#-&(-\[\]-~]+", name)]:
        raise UnreadableLiteral(f"{odd[0]!r} may be spelt otherwise in a program")
    either = "|".join(map(re.escape, wanted)).encode()
    found: dict[str, int] = {}
    for entry in re.finditer(rb'\{id:"(' + either + rb')",env:\[', program):
        name = entry[1].decode()
        if name in found:
            raise UnreadableLiteral(f"there are two entries of {name!r}")
        found[name] = entry.start()
    if LANDMARK not in found:
        raise UnreadableLiteral("this program has its catalogue elsewhere, or none")
    return found
