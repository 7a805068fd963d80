"""The daemon's log: no keys in it, and no flood of similar lines."""

import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self, TextIO

from goent.daemon.daemon_connection import LOG_LIMIT, open_log
from goent.store.redactor import Redactor

if TYPE_CHECKING:
    pass


LOG_WINDOW_S = 10.0


MAX_SIMILAR_LINES = 10  # lines of one kind in a window


MAX_LINES = 200  # in all


TEMPLATE_CHARS = 120  # characters of a line that tell its kind


MAX_LINE_CHARS = 16 * 1024  # characters of one line, its traceback included


CHATTY_LOGGERS = ("httpx2", "httpcore2", "mcp", "uvicorn")


class RedactingFormatter(logging.Formatter):
    """Redacts keys in every message. `secrets` returns the keys that go-ent holds."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        self.secrets: Callable[[], Collection[str]] = tuple
        self._redactor = Redactor(self._current_secrets)
        self._is_refreshing = False

    def format(self, record: logging.LogRecord) -> str:
        if not self._is_refreshing:  # reading the settings for it may log something
            self._redactor.refresh()
        text = super().format(record).encode(errors="backslashreplace")
        return self._redactor.redact(text).decode()

    def _current_secrets(self) -> Collection[str]:
        self._is_refreshing = True
        try:
            return self.secrets()
        finally:
            self._is_refreshing = False


class FloodHandler(logging.StreamHandler[TextIO]):
    """Limits the lines on standard error per time window, and says how many were left out.

    Lines are similar if they have the same logger, level, template and kind of exception. Lines below
    INFO are not limited: they were asked for.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._until = 0.0
        self._lines: Counter[_LineKind] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno < logging.INFO:
            super().emit(record)
            return
        self.report_left_out()
        kind = _LineKind.of(record) if self._written() < MAX_LINES else OTHER_LINES
        self._lines[kind] += 1
        if kind is not OTHER_LINES and self._lines[kind] <= MAX_SIMILAR_LINES:
            super().emit(record)

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        if len(text) <= MAX_LINE_CHARS:
            return text
        half, left_out = MAX_LINE_CHARS // 2, len(text) - MAX_LINE_CHARS
        return f"{text[:half]}\n… {left_out} characters left out …\n{text[-half:]}"

    def report_left_out(self) -> None:
        """At the end of a window: how many lines were left out in it."""
        if self._clock() < self._until:
            return
        self._until = self._clock() + LOG_WINDOW_S
        lines, self._lines = self._lines, Counter()
        for kind, count in lines.items():
            left_out = count if kind is OTHER_LINES else count - MAX_SIMILAR_LINES
            if left_out > 0:
                super().emit(kind.summary(left_out))

    def close(self) -> None:
        self._until = 0.0
        self.report_left_out()
        super().close()

    def _written(self) -> int:
        return sum(min(count, MAX_SIMILAR_LINES) for count in self._lines.values())


class _LineKind(NamedTuple):
    name: str
    level: int
    template: str
    exception: str

    @classmethod
    def of(cls, record: logging.LogRecord) -> Self:
        raised = record.exc_info[0] if record.exc_info else None
        template = str(record.msg)[:TEMPLATE_CHARS]
        return cls(record.name, record.levelno, template, raised.__name__ if raised else "")

    def summary(self, left_out: int) -> logging.LogRecord:
        what = f"{left_out} similar lines left out: {self.template} {self.exception}".rstrip()
        return logging.LogRecord(self.name, self.level, "", 0, what, None, None)


OTHER_LINES = _LineKind(
    "goent.daemon.daemon_server",
    logging.WARNING,
    f"more than {MAX_LINES} in {LOG_WINDOW_S:g} s",
    "",
)


def log_to_stderr(level: str) -> RedactingFormatter:
    """Log everything to standard error, which is the log file."""
    handler, formatter = FloodHandler(), RedactingFormatter()
    handler.setFormatter(formatter)
    logging.basicConfig(level=level.upper(), handlers=[handler])
    for name in CHATTY_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)
    return formatter


def rotate_log(path: Path) -> None:
    """Begin a new file if the one behind standard error has grown long."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, FloodHandler):
            handler.report_left_out()
    if os.fstat(sys.stderr.fileno()).st_size <= LOG_LIMIT:
        return
    fresh = open_log(path)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(fresh, stream.fileno())
    os.close(fresh)
