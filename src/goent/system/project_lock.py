"""Locks a project for one process, and finds the process that holds it and its daemon's socket.

A lock is an flock, which ends with its holder. The content of the file counts while the lock is held, and
only if no other user could have written it. The lock that counts lies beside the journal, so that a journal
has one writer, whatever the environments of its clients. Standard library only.
"""

import json
import os
import socket
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from goent.system.project_folders import (
    UnsafeFolder,
    default_state_path,
    is_private_folder,
    project_state_dir,
    runtime_dir,
    runtime_folder_names,
    runtime_folders,
    state_path,
    unusable_folder_error,
)

MAX_HOLDER_BYTES = 4096
LOCK_FILE = "lock"

HolderKind = Literal["daemon", "embedded"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectHolder:
    """The process that holds a project, as its lock file describes it.

    `socket` is None if it has none, or names none. `is_earlier`: a daemon of a version that locked only
    beside its socket.
    """

    kind: str = ""
    pid: int = 0
    since: float = 0.0
    host: str = ""
    socket: Path | None = None
    state: str = ""
    is_earlier: bool = False

    def __str__(self) -> str:
        name = "`go-ent mcp --embedded`" if self.kind == "embedded" else "another go-ent"
        if not self.pid:
            return name
        day = "" if time.time() - self.since < 12 * 3600 else "%Y-%m-%d "
        since = time.strftime(f"{day}%H:%M:%S", time.localtime(self.since))
        where = f" on {self.host}" if self.is_elsewhere else ""
        return f"{name} (process {self.pid}{where}, since {since})"

    @property
    def is_elsewhere(self) -> bool:
        """On another machine, or in a container with a name of its own."""
        return self.host not in ("", socket.gethostname())


class ProjectLock:
    """A project that this process holds, until it is closed or the process ends."""

    def __init__(self, descriptors: Mapping[Path, int], socket: Path) -> None:
        self._descriptors = descriptors
        self.socket = socket

    def is_visible(self) -> bool:
        """Whether other processes still see the locks: somebody may have removed the folders."""
        for path, fd in self._descriptors.items():
            try:
                if not os.path.samestat(path.lstat(), os.fstat(fd)):
                    return False
            except OSError:
                return False
        return True

    def close(self) -> None:
        for fd in self._descriptors.values():
            os.close(fd)


def lock_project(key: str, environ: Mapping[str, str], kind: HolderKind) -> ProjectLock | None:
    """Take every lock of the project; None if another process holds one, or is just checking one."""
    folders = (
        project_state_dir(key, environ),
        *_default_state_folders(key, environ),
        runtime_dir(key, environ),
    )
    taken: dict[Path, int] = {}
    lock = ProjectLock(taken, folders[-1] / "sock")
    for folder in folders:
        if (fd := take_lock(folder)) is None:
            lock.close()
            return None
        taken[folder / LOCK_FILE] = fd
    if _old_version_holder(key, environ, folders[-1]):
        lock.close()
        return None
    words = {
        "kind": kind,
        "pid": os.getpid(),
        "since": time.time(),
        "host": socket.gethostname(),
        "socket": str(lock.socket) if kind == "daemon" else "",
        "state": str(state_path(environ)),
    }
    for path, fd in taken.items():
        _write_holder(path, fd, json.dumps(words).encode())
    return lock


def find_holder(key: str, environ: Mapping[str, str]) -> ProjectHolder | None:
    """The process that holds the project, whatever its environment. Creates nothing.

    Raises `UnsafeFolder` for a lock beside the journal that another user could have prepared.
    """
    for folder in _state_folders(key, environ):
        if held := lock_holder(folder):
            return held
    beside = runtime_folders(key, environ)[:1]
    found = (
        _holder_beside_socket(folder) for folder in beside
    )  # of a process with another home, for example
    return next(filter(None, found), None) or _old_version_holder(key, environ, *beside)


def take_lock(folder: Path, name: str = LOCK_FILE) -> int | None:
    """A descriptor that holds the lock until it is closed; None if it is taken."""
    path = folder / name
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise unusable_folder_error(path, error, "XDG_STATE_HOME or XDG_RUNTIME_DIR") from error
    try:
        _lock_file(fd, shared=False)
    except BlockingIOError:
        os.close(fd)
        return None
    except OSError as error:  # some network file systems have no locks
        os.close(fd)
        raise unusable_folder_error(path, error, "XDG_STATE_HOME or XDG_RUNTIME_DIR") from error
    return fd


def lock_holder(folder: Path, name: str = LOCK_FILE) -> ProjectHolder | None:
    """The process that holds the lock now; None if none does."""
    path = folder / name
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise unusable_folder_error(path, error, "XDG_STATE_HOME or XDG_RUNTIME_DIR") from error
    try:
        _check_lock_file(path, os.fstat(fd))
        _lock_file(fd, shared=True)
    except BlockingIOError:
        return _parse_holder(os.read(fd, MAX_HOLDER_BYTES))
    else:
        return None
    finally:
        os.close(fd)


def _lock_file(fd: int, *, shared: bool) -> None:
    import fcntl  # noqa: PLC0415 (Windows has none, and should show a message instead of a traceback)

    fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)


def _state_folders(key: str, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """The folder of the journal, and the one for processes without XDG_STATE_HOME."""
    folders = (
        each / "projects" / key for each in (state_path(environ), default_state_path(environ))
    )
    found: dict[str, Path] = {}
    for folder in folders:
        found.setdefault(os.path.realpath(folder), folder)
    return tuple(found.values())


def _default_state_folders(key: str, environ: Mapping[str, str]) -> Iterator[Path]:
    """The second of them, if it is writable: XDG_STATE_HOME may be set because it is not."""
    for folder in _state_folders(key, environ)[1:]:
        with suppress(OSError):
            made = project_state_dir(key, {**environ, "XDG_STATE_HOME": ""})
            if os.access(made, os.W_OK):
                yield folder


def _old_version_holder(key: str, environ: Mapping[str, str], *but: Path) -> ProjectHolder | None:
    """A go-ent whose only lock is beside its socket, perhaps in the folder of another environment."""
    for folder in dict.fromkeys((*runtime_folders(key, environ), *_listening_folders(key))):
        held = None if folder in but else _holder_beside_socket(folder)
        if held and held.is_earlier:
            return held
    return None


def _holder_beside_socket(folder: Path) -> ProjectHolder | None:
    held = None
    if is_private_folder(folder):
        if (folder / LOCK_FILE).is_char_device():  # so a worker's sandbox hides it
            return ProjectHolder(kind="daemon", host=socket.gethostname(), socket=folder / "sock")
        with suppress(OSError):  # code that needs the folder reports what is wrong with it
            held = lock_holder(folder)
    if held and not held.host:
        return replace(held, socket=folder / "sock", is_earlier=True)
    return held


def _listening_folders(key: str) -> Iterator[Path]:
    """Folders of the project's sockets on which a process listens, from the kernel's list."""
    names = runtime_folder_names(key)
    with suppress(OSError), open("/proc/net/unix", errors="replace") as lines:  # noqa: PTH123 (cheaper than a Path)
        for line in lines:
            folder, _, name = line.rstrip("\n").partition(" /")[2].rpartition("/")
            if name == "sock" and folder.rpartition("/")[2] in names:
                yield Path("/" + folder)


def _check_lock_file(path: Path, info: os.stat_result) -> None:
    if not stat.S_ISREG(info.st_mode):
        raise UnsafeFolder(f"{str(path)!r} must be a plain file: remove it")
    if info.st_uid != os.geteuid():
        raise UnsafeFolder(
            f"{str(path)!r} belongs to user {info.st_uid}, not to {os.geteuid()}: "
            "run go-ent as that user, or remove the file"
        )
    if info.st_mode & 0o022:
        raise UnsafeFolder(
            f"{str(path)!r} can be written by others (mode {info.st_mode & 0o777:o}): remove it"
        )


def _parse_holder(text: bytes) -> ProjectHolder:
    try:
        words = json.loads(text)
        held = ProjectHolder(
            kind=str(words["kind"]),
            pid=int(words["pid"]),
            since=float(words["since"]),
            host=str(words.get("host", "")),
            socket=Path(words["socket"]) if words.get("socket") else None,
            state=str(words.get("state", "")),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return ProjectHolder()
    if held.is_elsewhere or _is_alive(held.pid):
        return held
    return ProjectHolder(host=held.host, socket=held.socket)


def _is_alive(pid: int) -> bool:
    """Whether a holder is alive; if not, it is in another PID namespace, or its successor has not written."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return pid > 0


def _write_holder(path: Path, fd: int, words: bytes) -> None:
    try:
        os.pwrite(fd, words, 0)
        os.ftruncate(fd, len(words))
    except OSError as error:
        raise unusable_folder_error(path, error, "XDG_STATE_HOME or XDG_RUNTIME_DIR") from error
