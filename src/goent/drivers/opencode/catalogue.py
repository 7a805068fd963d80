"""How much of the world's models must OpenCode know of?

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
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from goent.domain.types import Value
from goent.drivers.opencode.literal import Unreadable, literal_as_json

VARIABLE = "OPENCODE_MODELS_PATH"
LANDMARK = "anthropic"  # in every catalogue: without it, the program is built otherwise
LONGEST = 4 * 1024**2  # bytes of one entry; the longest that was seen has 0.4 MB
KEPT = 30 * 86400.0  # seconds after its last use for which a file is kept

Entries = dict[str, msgspec.Raw]


class Catalogue(Value, frozen=True, kw_only=True):
    """What processes with these backends need; `folder` is where it is written down."""

    backends: tuple[str, ...]
    folder: Path

    def variables(self, program: Path, env: Mapping[str, str]) -> dict[str, str]:
        """What to start the program with, so that it knows no more; empty if that is unclear.

        A file is named by what it was made from, so reading the program is for the first start.
        """
        fetched = _fetched(env)
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
                name: msgspec.Raw(literal_as_json(source[at : at + LONGEST]))
                for name, at in _find(source, self.backends).items()
            }

    def _write(self, path: Path, text: bytes) -> None:
        self.folder.mkdir(0o700, parents=True, exist_ok=True)
        for old in self.folder.iterdir():
            if time.time() - old.stat().st_mtime > KEPT:
                old.unlink()
        whole = path.with_suffix(f".{os.getpid()}")
        whole.write_bytes(text)
        whole.replace(path)


def _fetched(env: Mapping[str, str]) -> Path:
    cache = env.get("XDG_CACHE_HOME") or f"{env.get('HOME', '')}/.cache"
    return Path(cache, "opencode", "models.json")


def _state(path: Path) -> str:
    seen = path.stat()
    return f"{path}\0{seen.st_mtime_ns}\0{seen.st_size}"


def _read_fetched(path: Path) -> Entries:
    """An empty one counts for OpenCode too; one that is no JSON is thrown away by it."""
    return msgspec.json.decode(path.read_bytes(), type=Entries)


def _find(program: mmap.mmap, backends: Sequence[str]) -> dict[str, int]:
    """Where the entries begin."""
    wanted = {LANDMARK, *backends}
    if odd := [name for name in wanted if not re.fullmatch(r"[ !#-&(-\[\]-~]+", name)]:
        raise Unreadable(f"{odd[0]!r} may be spelt otherwise in a program")
    either = "|".join(map(re.escape, wanted)).encode()
    found: dict[str, int] = {}
    for entry in re.finditer(rb'\{id:"(' + either + rb')",env:\[', program):
        name = entry[1].decode()
        if name in found:
            raise Unreadable(f"there are two entries of {name!r}")
        found[name] = entry.start()
    if LANDMARK not in found:
        raise Unreadable("this program has its catalogue elsewhere, or none")
    return found
