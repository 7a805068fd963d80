"""Holds a project's lock as a daemon does: a client speaks to the holder alone."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from goent.lock import holder, take_lock


@contextmanager
def held_as_daemon(folder: Path) -> Generator[None]:
    """By this process; inside itself it changes nothing."""
    lock = take_lock(folder, kind="daemon")
    held = holder(folder)
    assert held and held.pid == os.getpid(), f"{held} serves the project"
    try:
        yield
    finally:
        if lock is not None:
            os.close(lock)
