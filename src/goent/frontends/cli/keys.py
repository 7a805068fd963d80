"""Who is at the keyboard, and what do they want: a key, or Ctrl-C?"""

import os
import select
import signal
import sys
import termios
import tty
from codecs import getincrementaldecoder
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType


def somebody_is_there() -> bool:
    """Whether a question can be put to a person."""
    return sys.stdin.isatty() and sys.stdout.isatty()


class Keyboard:
    """Single keys without Enter, while a question is open; the terminal is always put back."""

    def __init__(self) -> None:
        self._fd = sys.stdin.fileno()
        self._decoder = getincrementaldecoder("utf-8")(errors="replace")
        self._before: list[object] | None = None

    def listen(self) -> None:
        """From now on keys count. What was typed before is no answer, to a further question either."""
        if self._before is None:
            self._before = termios.tcgetattr(self._fd)
            tty.setcbreak(self._fd, termios.TCSAFLUSH)
        else:
            termios.tcflush(self._fd, termios.TCIFLUSH)

    def key(self) -> str:
        """The key that was pressed, or nothing."""
        if self._before is None or not select.select([self._fd], [], [], 0)[0]:
            return ""
        return os.read(self._fd, 1).decode(errors="replace").lower()

    def typed(self) -> str:
        """All that was typed meanwhile, as text."""
        if self._before is None or not select.select([self._fd], [], [], 0)[0]:
            return ""
        return self._decoder.decode(os.read(self._fd, 4096))

    def rest(self) -> None:
        if self._before is not None:
            termios.tcsetattr(self._fd, termios.TCSAFLUSH, self._before)  # pyright: ignore[reportArgumentType] (what tcgetattr gave)
            self._before = None


@contextmanager
def open_keyboard() -> Generator[Keyboard | None]:
    """The keyboard, or nothing where nobody sits."""
    if not somebody_is_there():
        yield None
        return
    keyboard = Keyboard()
    try:
        yield keyboard
    finally:
        keyboard.rest()


STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Ctrl-C and its like, counted: the first asks to stop, the second stops us at once."""

    def __init__(self) -> None:
        self.count = 0

    def note(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1
        if self.count > 1:
            raise KeyboardInterrupt


@contextmanager
def counted_interrupts() -> Generator[Interrupts]:
    interrupts = Interrupts()
    before = {number: signal.signal(number, interrupts.note) for number in STOPS}
    try:
        yield interrupts
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
