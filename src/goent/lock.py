"""Who holds a project? One process at a time, and whoever comes second can say which.

The lock is an flock, gone with its holder however that ends. What the file says is only for
people: it is believed while the lock is held. Standard library only.
"""

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from goent.project import unusable

LIMIT = 4096

Kind = Literal["daemon", "embedded"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """The process that holds a project, as it introduced itself."""

    kind: str = ""
    pid: int = 0
    since: float = 0.0

    def __str__(self) -> str:
        name = "`go-ent mcp --embedded`" if self.kind == "embedded" else "another go-ent"
        if not self.pid:
            return name
        day = "" if time.time() - self.since < 12 * 3600 else "%Y-%m-%d "
        since = time.strftime(f"{day}%H:%M:%S", time.localtime(self.since))
        return f"{name} (process {self.pid}, since {since})"


def take_lock(folder: Path, name: str = "lock", *, kind: Kind | None = None) -> int | None:
    """A descriptor that holds the lock until it is closed; None if it is taken."""
    import fcntl  # noqa: PLC0415 (Windows has none, and is to get a message, not a traceback)

    try:
        fd = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise unusable(folder / name, error, "XDG_RUNTIME_DIR") from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    if kind:
        _introduce(fd, kind)
    return fd


def holder(folder: Path, name: str = "lock") -> Holder | None:
    """Who holds the lock now; None if nobody does."""
    fd = take_lock(folder, name)
    if fd is not None:
        os.close(fd)
        return None
    try:
        with (folder / name).open("rb") as file:
            said = json.loads(file.read(LIMIT))
        return Holder(kind=str(said["kind"]), pid=int(said["pid"]), since=float(said["since"]))
    except (OSError, ValueError, KeyError, TypeError):
        return Holder()


def _introduce(fd: int, kind: Kind) -> None:
    words = json.dumps({"kind": kind, "pid": os.getpid(), "since": time.time()}).encode()
    try:
        os.ftruncate(fd, 0)
        os.write(fd, words)
    except OSError:  # a full disk: the lock holds all the same
        return
