"""The daemon's log tells what happened, and no key."""

import logging
import sys

from goent.logs import Discreet

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
    discreet = Discreet()
    discreet.secrets = lambda: [HELD]
    told = discreet.format(
        record(f"bad {HELD}", error=ValueError(f"of {HELD}, sk-abc1234567890123456"))
    )
    assert HELD not in told and "sk-abc" not in told
    assert "bad [redacted]" in told and "ValueError" in told


def test_asking_for_the_keys_may_itself_log():
    discreet = Discreet()

    def held() -> list[str]:
        assert "mistake" in discreet.format(record("the settings have a mistake"))
        return [HELD]

    discreet.secrets = held
    assert HELD not in discreet.format(record(HELD))


def test_text_that_is_no_text_is_logged_all_the_same():
    assert "\\udcff" in Discreet().format(record("/tmp/\udcff"))
