"""The terminal: output streams, notices, single keys and Ctrl-C."""

import os
import re
import select
import signal
import sys
import termios
import tty
from codecs import getincrementaldecoder
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from io import BufferedWriter, FileIO, TextIOWrapper
from types import FrameType
from typing import TYPE_CHECKING, TextIO

from goent.cli import drawing

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


TAB_SPACES = "    "
# C0 and C1 except the line feed, and characters that change the writing direction.
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

_ASCII_SIGNS = {
    "✓": "ok",
    "✗": "FAIL",
    "↻": "again",
    "…": "...",
    "·": "-",
    "\N{MULTIPLICATION SIGN}": "x",
    "█": "#",
    "▒": "=",
    "░": ".",
}


def strip_controls(text: str) -> str:
    """The text without control characters: a worker must not control the terminal."""
    if text.isprintable():
        return text
    return _CONTROL_CHARACTERS.sub("", text.replace("\t", TAB_SPACES))


def encodable(text: str, stream: TextIO) -> str:
    """The text with ASCII instead of signs that the stream's locale lacks."""
    try:
        text.encode(stream.encoding or "utf-8")
    except UnicodeEncodeError:
        return "".join(_ASCII_SIGNS.get(letter, letter) for letter in text)
    return text


def print_now(text: str = "") -> None:
    print(text, flush=True)


def print_notice(message: str) -> None:
    """A line on stderr, so that stdout has only the output."""
    print_stderr(f"go-ent: {message}")


def print_mistakes(mistakes: Sequence[str]) -> None:
    """One mistake per line, so that tools find `file:line:` at its start."""
    if len(mistakes) == 1:
        print_notice(mistakes[0])
        return
    print_notice(f"{len(mistakes)} mistakes")
    for mistake in mistakes:
        print_stderr(mistake)


def print_stderr(line: str) -> None:
    """A line on stderr. If stderr cannot be written, the command continues without it."""
    try:
        print(encodable(line, sys.stderr), file=sys.stderr, flush=True)
    except OSError:
        discard_output(sys.stderr)


class StdoutUnwritable(OSError):
    """Stdout cannot be written: its disk is full, or it was closed from the start."""


class _Stdout(FileIO):
    """Marks failures of stdout itself. A broken pipe is not one."""

    def write(self, data: "ReadableBuffer", /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise StdoutUnwritable(error.errno, error.strerror) from error


def open_streams() -> None:
    """Open closed streams on the null device, and let no unencodable character fail."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # else the next opened file would take its number
            setattr(sys, name, _open_null_stream(name))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a ✓ may be missing from the locale
    if type(sys.stdout) is TextIOWrapper:
        sys.stdout = _with_stdout_errors(sys.stdout)


def _open_null_stream(name: str) -> TextIO:
    """The null device for a closed stream. Stdout gets it read-only, so that output fails."""
    flags = os.O_WRONLY if name == "stderr" else os.O_RDONLY
    descriptor = os.open(os.devnull, flags)
    return os.fdopen(descriptor, "r" if name == "stdin" else "w", closefd=False)


def _with_stdout_errors(stream: TextIOWrapper) -> TextIOWrapper:
    raw = _Stdout(stream.fileno(), "w", closefd=False)
    return TextIOWrapper(
        raw if stream.write_through else BufferedWriter(raw),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def discard_output(stream: TextIO) -> None:
    """Discard what is buffered, so that no later flush fails too."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
    stream.flush()


def make_console() -> "drawing.Console":
    """A console on stdout; without a terminal, lines are up to 200 wide."""
    wide = None if sys.stdout.isatty() else 200
    return drawing.Console(highlight=False, markup=False, emoji=False, width=wide)


def print_text(text: "str | drawing.Text", style: str = "") -> None:
    """Print text, in colour on a terminal; the terminal wraps long lines."""
    drawn = (
        drawing.Text(encodable(strip_controls(text), sys.stdout), style=style)
        if isinstance(text, str)
        else text
    )
    make_console().print(drawn, soft_wrap=True)


def is_interactive() -> bool:
    """Whether a person can be asked."""
    return sys.stdin.isatty() and sys.stdout.isatty()


class Keyboard:
    """Single keys without Enter while a question is open; the terminal is always restored."""

    def __init__(self) -> None:
        self._fd = sys.stdin.fileno()
        self._decoder = getincrementaldecoder("utf-8")(errors="replace")
        self._before: list[object] | None = None

    def listen(self) -> None:
        """Start reading keys. Keys typed before do not answer, not a next question either."""
        if self._before is None:
            self._before = termios.tcgetattr(self._fd)
            tty.setcbreak(self._fd, termios.TCSAFLUSH)
        else:
            termios.tcflush(self._fd, termios.TCIFLUSH)

    def read_key(self) -> str:
        """The key that was pressed, or nothing."""
        if self._before is None or not select.select([self._fd], [], [], 0)[0]:
            return ""
        return os.read(self._fd, 1).decode(errors="replace").lower()

    def read_text(self) -> str:
        """Everything typed since the last call."""
        if self._before is None or not select.select([self._fd], [], [], 0)[0]:
            return ""
        return self._decoder.decode(os.read(self._fd, 4096))

    def restore(self) -> None:
        if self._before is not None:
            termios.tcsetattr(self._fd, termios.TCSAFLUSH, self._before)  # pyright: ignore[reportArgumentType] (what tcgetattr gave)
            self._before = None


@contextmanager
def open_keyboard() -> Generator[Keyboard | None]:
    """The keyboard, or None without a terminal."""
    if not is_interactive():
        yield None
        return
    keyboard = Keyboard()
    try:
        yield keyboard
    finally:
        keyboard.restore()


STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class InterruptCount:
    """Counts Ctrl-C and other stop signals: the first asks to stop, the second stops immediately."""

    def __init__(self) -> None:
        self.count = 0

    def handle_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1
        if self.count > 1:
            raise KeyboardInterrupt


SignalHandler = signal.Handlers | Callable[[int, FrameType | None], None]


@contextmanager
def signal_handlers(
    handler: SignalHandler, signals: Sequence[signal.Signals] = STOP_SIGNALS
) -> Generator[None]:
    """The handler for these signals, until the context is left."""
    before = {number: signal.signal(number, handler) for number in signals}
    try:
        yield
    finally:
        for number, earlier in before.items():
            with suppress(TypeError):  # a handler that C code set cannot be restored
                signal.signal(number, earlier)


@contextmanager
def count_interrupts() -> Generator[InterruptCount]:
    interrupts = InterruptCount()
    with signal_handlers(interrupts.handle_signal):
        yield interrupts
