"""Describes a process's confinement: its limits, the launcher's command line, its temporary folder.

The name of a temporary folder is a mark: processes for which it is mounted are found by it, and the next
go-ent removes the folders that a killed one left.
"""

import logging
import os
import shutil
import stat
import sys
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cache
from importlib.util import MAGIC_NUMBER, cache_from_source
from pathlib import Path
from py_compile import PyCompileError
from py_compile import compile as compile_file

import anyio
from anyio import to_thread

from goent.domain.errors import WorkerCrashed
from goent.domain.sandbox_port import NetworkAccess, SandboxLevelName
from goent.domain.types import Value
from goent.proc.process_table import MOUNT_PREFIX, is_owner_alive, mount_name, new_mark, new_owner

LAUNCHER = Path(__file__).with_name("launcher.py")
# Where other programs leave sockets and files: a confined process has folders of its own there.
PRIVATE_FOLDERS = tuple(map(Path, ("/tmp", "/var/tmp", "/dev/shm", "/run", "/var/run")))  # noqa: S108 (not written here)
OPTIONS_VARIABLE = "GOENT_SANDBOX"  # a variable with the launcher's options
OPTIONS_SEPARATOR = "\x1f"  # between two of them


class Confinement(Value, frozen=True, kw_only=True):
    """The limits of one process and of everything that it starts.

    `is_nestable`: its own commands are confined again. `is_scoped`: it can neither send signals out of the
    sandbox nor reach abstract sockets; with namespaces, commands inside could then not move files between
    folders, because Landlock forbids that unless every outer layer allows it. `kept_visible` stays visible
    although the folder around it is replaced by a private one. `readable` is None if it can read everything.
    `temporary` is None for a command of a process that is already confined: it shares that one's folder.
    `always_read_only` is read-only at every level, `read_only` only with namespaces. It can connect to
    `ports` only, unless `network` is `all`.
    """

    level: SandboxLevelName
    writable: tuple[Path, ...]
    temporary: Path | None = None
    read_only: tuple[Path, ...] = ()
    always_read_only: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    kept_visible: tuple[Path, ...] = ()
    readable: tuple[Path, ...] | None = None
    network: NetworkAccess = "all"
    ports: tuple[int, ...] = ()
    is_nestable: bool = False
    is_scoped: bool = True
    unix_sockets: bool = False
    unset: tuple[str, ...] = ()

    def wrap(self, command: Sequence[str]) -> tuple[str, ...]:
        """The command line that starts the command inside."""
        if self.level == "none":
            return tuple(command)
        return (*launcher_command(), *self.options(), "--", *command)

    def options(self) -> tuple[str, ...]:
        """The launcher's options."""
        return tuple(self._options())

    def _options(self) -> Iterator[str]:
        if self.level == "namespace":
            yield "--namespaces"
            yield from _repeat_option("--tmp", (self.temporary or "/tmp",))  # noqa: S108 (private by then)
            yield from _repeat_option("--read-only", self.read_only)
        if self.level != "none":
            yield from _repeat_option("--keep", self._covered_kept())
            # Without mounts, a long-lived agent would not see new files beside a hidden folder.
            yield from _repeat_option(
                "--hide", () if self.level != "namespace" and self.is_nestable else self.hidden
            )
            limits_ports = self.network != "all" and self.is_nestable
            yield from (
                ("--landlock",)
                if self.level == "landlock" or self.is_scoped or limits_ports
                else ()
            )
            yield from ("--nestable",) if self.is_nestable and self.level == "namespace" else ()
            yield from _repeat_option("--write", self.writable)
            yield from _repeat_option("--read-only", self.always_read_only)
            if self.level == "landlock":
                yield "--write-tmpdir"
            yield from _repeat_option("--read", self.readable or ())
            yield from self._network()
            if self.level == "landlock" and not self.unix_sockets:
                yield "--no-unix-sockets"
        yield from _repeat_option("--unset", self.unset)

    def _network(self) -> Iterator[str]:
        if self.network == "off" and not self.is_nestable:
            yield from ("--network", "off")
        elif self.network != "all":
            yield from _repeat_option(
                "--port", self.ports or ("0",)
            )  # port 0: nothing can be reached

    def _covered_kept(self) -> Iterator[Path]:
        """The part of `kept_visible` that would otherwise be invisible."""
        for path in dict.fromkeys(self.kept_visible):
            if any(
                path.is_relative_to(root) and path != root
                for root in (*PRIVATE_FOLDERS, *self.hidden)
            ):
                yield path


def launcher_command() -> tuple[str, ...]:
    """The program that confines itself and then becomes the command."""
    return (sys.executable, "-I", "-S", str(_compiled_launcher() or LAUNCHER))


@cache
def _compiled_launcher() -> Path | None:
    """The launcher's bytecode, if it is up to date: it starts in three quarters of the time."""
    try:
        file = Path(cache_from_source(str(LAUNCHER)))
        if not sys.dont_write_bytecode and not _is_current(file):
            compile_file(str(LAUNCHER), doraise=True)
        is_seen = LAUNCHER.parent in file.parents  # where a confined process can see it
        return file if is_seen and _is_current(file) else None
    except (OSError, NotImplementedError, PyCompileError):
        return None


def _is_current(compiled: Path) -> bool:
    """Whether bytecode is up to date, by the source's time and size, as Python itself checks."""
    if not compiled.is_file():
        return False
    source, begin = LAUNCHER.stat(), compiled.read_bytes()[:16]
    noted = (0, int(source.st_mtime), source.st_size & 0xFFFFFFFF)
    return begin == MAGIC_NUMBER + b"".join(each.to_bytes(4, "little") for each in noted)


def goent_programs() -> tuple[Path, ...]:
    """The folders of go-ent's own code, which may be installed in a temporary folder."""
    return (Path(sys.prefix), Path(sys.base_prefix), LAUNCHER.parents[1])


def _repeat_option(option: str, values: Iterable[object]) -> Iterator[str]:
    for value in values:
        yield from (option, str(value))


TEMPORARY_FOLDER = "tmp"

log = logging.getLogger(__name__)


@asynccontextmanager
async def temporary_folder(state: Path) -> AsyncGenerator[Path]:
    """A new folder below the state folder, removed with all that is in it.

    Raises `WorkerCrashed` if it cannot be created: the process is not started without it.
    """
    folder = await to_thread.run_sync(_make_folder, state)
    try:
        yield folder
    finally:
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(_remove_folder, folder)


def remove_leftovers(state: Path) -> None:
    """Remove temporary folders whose owners are dead."""
    with suppress(OSError):
        for folder in (state / TEMPORARY_FOLDER).iterdir():
            if not is_owner_alive(folder.name.removeprefix(MOUNT_PREFIX).rpartition("~")[0]):
                _remove_folder(folder)


def _make_folder(state: Path) -> Path:
    folder = state / TEMPORARY_FOLDER / mount_name(new_mark(new_owner(state.name)))
    try:
        folder.parent.mkdir(0o700, parents=True, exist_ok=True)
        folder.mkdir(0o700)
    except OSError as error:
        raise WorkerCrashed(
            f"the sandbox has no temporary folder in {str(folder.parent)!r}: {error.strerror}; "
            "free some space, or check its owner and mode"
        ) from error
    return folder


def folder_mark(folder: Path) -> str:
    """The mark of the processes for which such a folder is mounted."""
    return folder.name.removeprefix(MOUNT_PREFIX).replace("~", "/")


def _remove_folder(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():  # a worker may have made a folder inaccessible
        for path, folders, _ in os.walk(folder):
            for name in folders:
                with suppress(OSError):
                    Path(path, name).chmod(stat.S_IRWXU)
        shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        log.warning("the temporary folder %s could not be removed", folder)
