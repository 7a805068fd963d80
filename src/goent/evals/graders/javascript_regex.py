r"""Compiles JavaScript regular expressions, and searches with a time limit.

In JavaScript `$` is the very end, `\d`, `\w` and `\b` know ASCII alone, a dot stops at every line
terminator, and groups are named without a P.

Some patterns backtrack practically for ever on a text made for it, and the text is an agent's. So a
search is interrupted after some processor time.
"""

import re
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from goent.evals.graders.findings import InvalidGrader

SEARCH_LIMIT_S: Final = 1.0
_REGEX_FLAGS: Final = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL}
_IDLE_FLAGS: Final = frozenset("dguvy")  # they change nothing about whether it matches
_TOKEN: Final = re.compile(
    r"\\u\{[0-9a-fA-F]+\}|\\k<\w+>|\\.|\[\^?\]|\[(?:\\.|[^\]\\])*\]|\$|\.|\(\?<(?![=!])", re.DOTALL
)
_CLASS_TOKEN: Final = re.compile(r"\\u\{[0-9a-fA-F]+\}|\\.|[\[&|~]", re.DOTALL)
_TOKENS: Final = {
    "(?<": "(?P<",
    "[]": "(?!)",
    "[^]": r"[\s\S]",
    **{token: f"(?a:{token})" for token in (r"\d", r"\D", r"\w", r"\W", r"\b", r"\B")},
}
_CLASS_MEMBERS: Final = {
    r"\d": "0-9",
    r"\D": r"\x00-/:-\U0010ffff",
    r"\w": "A-Za-z0-9_",
    r"\W": r"\x00-/:-@\[-\^`{-\U0010ffff",
    **{sign: f"\\{sign}" for sign in "[&|~"},  # Python may give them a meaning one day
}


def compile_javascript(source: str, flags: str) -> re.Pattern[str]:
    """Raises `InvalidGrader`."""
    if strange := set(flags) - _REGEX_FLAGS.keys() - _IDLE_FLAGS:
        raise InvalidGrader(f"{sorted(strange)!r} are not flags of a regular expression.")
    tokens = {
        **_TOKENS,
        "$": "$" if "m" in flags else r"\Z",
        ".": "." if "s" in flags else r"[^\n\r\u2028\u2029]",
    }
    bits = sum((_REGEX_FLAGS[flag] for flag in set(flags) & _REGEX_FLAGS.keys()), start=re.NOFLAG)
    try:
        return re.compile(_TOKEN.sub(lambda found: _python_token(found[0], tokens), source), bits)
    except (re.error, OverflowError, ValueError) as error:
        raise InvalidGrader(f"{source!r} is not a regular expression: {error}.") from None


def _python_token(token: str, tokens: dict[str, str]) -> str:
    if token in tokens:
        return tokens[token]
    if token.startswith("["):
        return "[" + _CLASS_TOKEN.sub(lambda found: _class_member(found[0]), token[1:-1]) + "]"
    if token.startswith(r"\k<"):
        return f"(?P={token[3:-1]})"
    return _character(token)


def _class_member(token: str) -> str:
    return _CLASS_MEMBERS.get(token) or _character(token)


def _character(token: str) -> str:
    return re.escape(chr(int(token[3:-1], 16))) if token.startswith(r"\u{") else token


def pattern_found(pattern: re.Pattern[str], text: str) -> bool:
    """Raises `InvalidGrader` if the search takes too long."""
    with _interrupted_after(SEARCH_LIMIT_S, pattern.pattern):
        return pattern.search(text) is not None


@contextmanager
def _interrupted_after(seconds: float, pattern: str) -> Generator[None]:
    """Interrupts by a signal, which Python checks while it searches; only the main thread gets any."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise InvalidGrader(
            f"{pattern!r} needs more than {seconds:g} s for this text; make it simpler."
        )

    before = signal.signal(signal.SIGVTALRM, interrupt)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before or signal.SIG_DFL)
