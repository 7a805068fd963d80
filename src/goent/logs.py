"""What does the daemon write down about itself, and how much of it is kept?"""

import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path
from typing import NamedTuple, Self, TextIO

from goent.launch import LOG_LIMIT, open_log
from goent.store.redact import Redactor

WINDOW_S = 10.0
MOST_SIMILAR = 10  # lines of one kind in a window
MOST_LINES = 200  # in all
SHOWN = 120  # characters of a line that tell its kind
MOST_TEXT = 16 * 1024  # characters of one line, its traceback included

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


class FloodHandler(logging.StreamHandler[TextIO]):
    """Writes to standard error so many lines in a while, and says how many were left out.

    Lines are similar if they have the same logger, level, template and kind of exception. What is
    below INFO is written as it is: it was asked for.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._until = 0.0
        self._lines: Counter[_Kind] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno < logging.INFO:
            super().emit(record)
            return
        self.tell_left_out()
        kind = _Kind.of(record) if self._written() < MOST_LINES else OTHERS
        self._lines[kind] += 1
        if kind is not OTHERS and self._lines[kind] <= MOST_SIMILAR:
            super().emit(record)

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        if len(text) <= MOST_TEXT:
            return text
        half, left_out = MOST_TEXT // 2, len(text) - MOST_TEXT
        return f"{text[:half]}\n… {left_out} characters left out …\n{text[-half:]}"

    def tell_left_out(self) -> None:
        """Once a window is over: what was not written in it."""
        if self._clock() < self._until:
            return
        self._until = self._clock() + WINDOW_S
        lines, self._lines = self._lines, Counter()
        for kind, count in lines.items():
            left_out = count if kind is OTHERS else count - MOST_SIMILAR
            if left_out > 0:
                super().emit(kind.summary(left_out))

    def close(self) -> None:
        self._until = 0.0
        self.tell_left_out()
        super().close()

    def _written(self) -> int:
        return sum(min(count, MOST_SIMILAR) for count in self._lines.values())


class _Kind(NamedTuple):
    name: str
    level: int
    template: str
    exception: str

    @classmethod
    def of(cls, record: logging.LogRecord) -> Self:
        raised = record.exc_info[0] if record.exc_info else None
        template = str(record.msg)[:SHOWN]
        return cls(record.name, record.levelno, template, raised.__name__ if raised else "")

    def summary(self, left_out: int) -> logging.LogRecord:
        what = f"{left_out} similar lines left out: {self.template} {self.exception}".rstrip()
        return logging.LogRecord(self.name, self.level, "", 0, what, None, None)


OTHERS = _Kind("goent.logs", logging.WARNING, f"more than {MOST_LINES} in {WINDOW_S:g} s", "")


def log_to_stderr(level: str) -> Discreet:
    """Everything that is logged goes to standard error, which is the log's file."""
    handler, discreet = FloodHandler(), Discreet()
    handler.setFormatter(discreet)
    logging.basicConfig(level=level.upper(), handlers=[handler])
    for name in CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)
    return discreet


def bound_log(path: Path) -> None:
    """Begin a new file if the one that standard error goes to has grown long."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, FloodHandler):
            handler.tell_left_out()
    if os.fstat(sys.stderr.fileno()).st_size <= LOG_LIMIT:
        return
    fresh = open_log(path)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(fresh, stream.fileno())
    os.close(fresh)
