"""What does the daemon write down about itself, and how much of it is kept?"""

import logging
import os
import sys
from collections.abc import Callable, Collection
from pathlib import Path

from goent.launch import LOG_LIMIT, open_log
from goent.store.redact import Redactor

CHATTY = ("httpx2", "httpcore2", "mcp", "uvicorn")


class Discreet(logging.Formatter):
    """Writes no key down, whoever put it into a message. `secrets` are the held keys."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        self.secrets: Callable[[], Collection[str]] = tuple
        self._redactor = Redactor(self._held)
        self._asking = False

    def format(self, record: logging.LogRecord) -> str:
        if not self._asking:  # asking reads the settings, and they may have something to log
            self._redactor.refresh()
        text = super().format(record).encode(errors="backslashreplace")
        return self._redactor.redact(text).decode()

    def _held(self) -> Collection[str]:
        self._asking = True
        try:
            return self.secrets()
        finally:
            self._asking = False


def log_to_stderr(level: str) -> Discreet:
    """Everything that is logged goes to standard error, which is the log's file."""
    handler, discreet = logging.StreamHandler(), Discreet()
    handler.setFormatter(discreet)
    logging.basicConfig(level=level.upper(), handlers=[handler])
    for name in CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)
    return discreet


def bound_log(path: Path) -> None:
    """Begin a new file if the one that standard error goes to has grown long."""
    if os.fstat(sys.stderr.fileno()).st_size <= LOG_LIMIT:
        return
    fresh = open_log(path)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(fresh, stream.fileno())
    os.close(fresh)
