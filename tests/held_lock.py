"""Holds a project's lock as a daemon does: a client speaks to the holder alone."""

import json
import os
import socket
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from goent.system.project_lock import LOCK_FILE, lock_holder, take_lock


@contextmanager
def held_as_daemon(folder: Path) -> Generator[None]:
    """The lock beside the socket, by this process; inside itself it changes nothing."""
    lock = take_lock(folder)
    if lock is not None:
        words = {
            "kind": "daemon",
            "pid": os.getpid(),
            "since": time.time(),
            "host": socket.gethostname(),
            "socket": str(folder / "sock"),
        }
        (folder / LOCK_FILE).write_text(json.dumps(words))
    held = lock_holder(folder)
    assert held and held.pid == os.getpid(), f"{held} serves the project"
    try:
        yield
    finally:
        if lock is not None:
            os.close(lock)
