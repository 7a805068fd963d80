"""What a confined process can write, read and reach, and the command line that makes it so."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib.util import MAGIC_NUMBER, cache_from_source
from pathlib import Path
from py_compile import PyCompileError
from py_compile import compile as compile_file

from goent.domain.sandbox import Level, Network
from goent.domain.types import Value

LAUNCHER = Path(__file__).with_name("launcher.py")
# Where other programs leave sockets and files: a confined process has folders of its own there.
PRIVATE = tuple(map(Path, ("/tmp", "/var/tmp", "/dev/shm", "/run", "/var/run")))  # noqa: S108 (not written here)
OPTIONS = "GOENT_SANDBOX"  # a variable with the launcher's options
SEPARATOR = "\x1f"  # between them


class Confinement(Value, frozen=True, kw_only=True):
    """The limits of one process and of all that it starts.

    `nestable`: its own commands are confined again. `scoped`: it cannot send signals out of the sandbox, nor
    reach abstract sockets; with namespaces, commands inside could then not move files between folders, because
    Landlock forbids that wherever a layer around does not allow it. `kept` is what it must be able to see although
    the folder around it is replaced by a private one. `readable` is None if it can read everything.
    `temporary` is None for a command of a process that is confined already: it shares that one's.
    `deciding` is read only as well, and at every level.
    `ports` are the only ones that it can connect to, unless the network is all open.
    """

    level: Level
    writable: tuple[Path, ...]
    temporary: Path | None = None
    read_only: tuple[Path, ...] = ()
    deciding: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    kept: tuple[Path, ...] = ()
    readable: tuple[Path, ...] | None = None
    network: Network = "all"
    ports: tuple[int, ...] = ()
    nestable: bool = False
    scoped: bool = True
    unix_sockets: bool = False
    unset: tuple[str, ...] = ()

    def wrap(self, command: Sequence[str]) -> tuple[str, ...]:
        """The command line that starts the command inside."""
        if self.level == "none":
            return tuple(command)
        return (*launcher(), *self.options(), "--", *command)

    def options(self) -> tuple[str, ...]:
        """For the launcher."""
        return tuple(self._options())

    def _options(self) -> Iterator[str]:
        if self.level == "namespace":
            yield "--namespaces"
            yield from _each("--tmp", (self.temporary or "/tmp",))  # noqa: S108 (private by then)
            yield from _each("--read-only", self.read_only)
        if self.level != "none":
            yield from _each("--keep", self._kept())
            # Without mounts, an agent that lives long would not see what is new beside a hidden folder.
            yield from _each(
                "--hide", () if self.level != "namespace" and self.nestable else self.hidden
            )
            limits_ports = self.network != "all" and self.nestable
            yield from (
                ("--landlock",) if self.level == "landlock" or self.scoped or limits_ports else ()
            )
            yield from ("--nestable",) if self.nestable and self.level == "namespace" else ()
            yield from _each("--write", self.writable)
            yield from _each("--read-only", self.deciding)
            if self.level == "landlock":
                yield "--write-tmpdir"
            yield from _each("--read", self.readable or ())
            yield from self._network()
            if self.level == "landlock" and not self.unix_sockets:
                yield "--no-unix-sockets"
        yield from _each("--unset", self.unset)

    def _network(self) -> Iterator[str]:
        if self.network == "off" and not self.nestable:
            yield from ("--network", "off")
        elif self.network != "all":
            yield from _each("--port", self.ports or ("0",))  # port 0: nothing can be reached

    def _kept(self) -> Iterator[Path]:
        """Of what must be seen, that which would be gone."""
        for path in dict.fromkeys(self.kept):
            if any(path.is_relative_to(root) and path != root for root in (*PRIVATE, *self.hidden)):
                yield path


def launcher() -> tuple[str, ...]:
    """The program that confines itself and becomes the command."""
    return (sys.executable, "-I", "-S", str(_compiled() or LAUNCHER))


@cache
def _compiled() -> Path | None:
    """Its bytecode, if there is any and it is up to date: it starts in three quarters of the time."""
    try:
        file = Path(cache_from_source(str(LAUNCHER)))
        if not sys.dont_write_bytecode and not _is_current(file):
            compile_file(str(LAUNCHER), doraise=True)
        is_seen = LAUNCHER.parent in file.parents  # where a confined process may see it
        return file if is_seen and _is_current(file) else None
    except (OSError, NotImplementedError, PyCompileError):
        return None


def _is_current(compiled: Path) -> bool:
    """As Python itself tells: by the time and size of the source that are noted in it."""
    if not compiled.is_file():
        return False
    source, begin = LAUNCHER.stat(), compiled.read_bytes()[:16]
    noted = (0, int(source.st_mtime), source.st_size & 0xFFFFFFFF)
    return begin == MAGIC_NUMBER + b"".join(each.to_bytes(4, "little") for each in noted)


def own_programs() -> tuple[Path, ...]:
    """What go-ent is made of. It may be installed in a temporary folder."""
    return (Path(sys.prefix), Path(sys.base_prefix), LAUNCHER.parents[1])


def _each(option: str, values: Iterable[object]) -> Iterator[str]:
    for value in values:
        yield from (option, str(value))
