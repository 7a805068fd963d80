"""The daemon's log tells what happened, and no key."""

import io
import logging
import sys

from goent.daemon.daemon_log import (
    LOG_WINDOW_S,
    MAX_LINE_CHARS,
    MAX_LINES,
    MAX_SIMILAR_LINES,
    FloodHandler,
    RedactingFormatter,
)

HELD = "a-key-of-no-known-shape"


def record(message: str, *, error: Exception | None = None) -> logging.LogRecord:
    trace = None
    if error:
        try:
            raise error
        except ValueError:
            trace = sys.exc_info()
    return logging.LogRecord("goent.x", logging.ERROR, __file__, 1, message, (), trace)


def test_no_key_is_written_down_whoever_put_it_into_a_message():
    discreet = RedactingFormatter()
    discreet.secrets = lambda: [HELD]
    told = discreet.format(
        record(f"bad {HELD}", error=ValueError(f"of {HELD}, sk-abc1234567890123456"))
    )
    assert HELD not in told and "sk-abc" not in told
    assert "bad [redacted]" in told and "ValueError" in told


def test_asking_for_the_keys_may_itself_log():
    discreet = RedactingFormatter()

    def held() -> list[str]:
        assert "mistake" in discreet.format(record("the settings have a mistake"))
        return [HELD]

    discreet.secrets = held
    assert HELD not in discreet.format(record(HELD))


def test_text_that_is_no_text_is_logged_all_the_same():
    assert "\\udcff" in RedactingFormatter().format(record("/tmp/\udcff"))


class Flood:
    """A handler with a clock of our own."""

    def __init__(self) -> None:
        self.now = 100.0
        self.handler = FloodHandler(lambda: self.now)
        self.handler.setFormatter(RedactingFormatter())
        self.written = self.handler.stream = io.StringIO()

    def log(self, message: str, *arguments: object, error: Exception | None = None) -> None:
        line = record(message, error=error)
        line.args = arguments
        self.handler.handle(line)

    @property
    def lines(self) -> list[str]:
        return self.written.getvalue().splitlines()


def test_a_flood_of_one_line_is_told_as_a_number():
    flood = Flood()
    for number in range(5000):
        flood.log("accept number %d failed", number, error=ValueError("no descriptor"))
    assert flood.written.getvalue().count("accept number") == MAX_SIMILAR_LINES
    flood.log("something else")
    assert "something else" in flood.lines[-1], "others are not kept back"
    flood.now += LOG_WINDOW_S
    flood.log("accept number %d failed", 5001)
    told = flood.written.getvalue()
    assert f"{5000 - MAX_SIMILAR_LINES} similar lines left out: accept number %d failed" in told
    assert "accept number 5001 failed" in flood.lines[-1]


def test_a_flood_of_different_lines_is_bounded_as_well():
    flood = Flood()
    for number in range(5000):
        flood.log(f"line {number}")
    assert len(flood.lines) == MAX_LINES
    flood.handler.close()
    assert f"{5000 - MAX_LINES} similar lines left out" in flood.lines[-1]


def test_one_line_is_bounded():
    flood = Flood()
    flood.log("x" * 1_000_000)
    assert len(flood.written.getvalue()) < MAX_LINE_CHARS + 200
    assert "characters left out" in flood.written.getvalue()
