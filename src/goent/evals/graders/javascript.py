r"""What does a regular expression of JavaScript mean to Python?

There `$` is the very end, `\d`, `\w` and `\b` know ASCII alone, a dot stops at every end of a line, and
groups are named without a P.
"""

import re
from typing import Final

from goent.evals.graders.findings import Misfit

_FLAGS: Final = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL}
_IDLE_FLAGS: Final = frozenset("dguvy")  # they change nothing about whether it matches
_TOKEN: Final = re.compile(
    r"\\u\{[0-9a-fA-F]+\}|\\k<\w+>|\\.|\[\^?\]|\[(?:\\.|[^\]\\])*\]|\$|\.|\(\?<(?![=!])", re.DOTALL
)
_INSIDE: Final = re.compile(r"\\u\{[0-9a-fA-F]+\}|\\.|[\[&|~]", re.DOTALL)
_TOKENS: Final = {
    "(?<": "(?P<",
    "[]": "(?!)",
    "[^]": r"[\s\S]",
    **{token: f"(?a:{token})" for token in (r"\d", r"\D", r"\w", r"\W", r"\b", r"\B")},
}
_MEMBERS: Final = {
    r"\d": "0-9",
    r"\D": r"\x00-/:-\U0010ffff",
    r"\w": "A-Za-z0-9_",
    r"\W": r"\x00-/:-@\[-\^`{-\U0010ffff",
    **{sign: f"\\{sign}" for sign in "[&|~"},  # Python may give them a meaning one day
}


def compiled(source: str, flags: str) -> re.Pattern[str]:
    """Raises `Misfit`."""
    if strange := set(flags) - _FLAGS.keys() - _IDLE_FLAGS:
        raise Misfit(f"{sorted(strange)!r} are no flags of a regular expression.")
    tokens = {
        **_TOKENS,
        "$": "$" if "m" in flags else r"\Z",
        ".": "." if "s" in flags else r"[^\n\r\u2028\u2029]",
    }
    bits = sum((_FLAGS[flag] for flag in set(flags) & _FLAGS.keys()), start=re.NOFLAG)
    try:
        return re.compile(_TOKEN.sub(lambda found: _python(found[0], tokens), source), bits)
    except (re.error, OverflowError, ValueError) as error:
        raise Misfit(f"{source!r} is no regular expression: {error}.") from None


def _python(token: str, tokens: dict[str, str]) -> str:
    if token in tokens:
        return tokens[token]
    if token.startswith("["):
        return "[" + _INSIDE.sub(lambda found: _member(found[0]), token[1:-1]) + "]"
    if token.startswith(r"\k<"):
        return f"(?P={token[3:-1]})"
    return _character(token)


def _member(token: str) -> str:
    return _MEMBERS.get(token) or _character(token)


def _character(token: str) -> str:
    return re.escape(chr(int(token[3:-1], 16))) if token.startswith(r"\u{") else token
