"""How are words said to a program that looks for reasons to call again in them?

OpenCode takes numbers (`503`, also inside a port) and words (`rate limit`, `overloaded`) anywhere in
an error for a fault that passes, whatever the status, and calls again for minutes; other words make
it shorten its talk, by another call. So these are cut by a character that nobody sees.
"""

import re

JOINER = "\N{WORD JOINER}"
# One of them, or a number of three digits, is in every phrase that OpenCode 1.18 looks for.
_EAGER = re.compile(
    r"rate|too|overload|unavailable|exhaust|error|terminat|fetch|upstream|connect|socket|reset|addr"
    r"|enotfound|econn|time|your|again|capacity|exceed|max|length|context",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\d\d(?=\d)")


def calm(words: str) -> str:
    """The same to the eye, but not to a search for reasons."""
    return _NUMBER.sub(rf"\g<0>{JOINER}", _EAGER.sub(_cut, words))


def plain(words: str) -> str:
    """As they were before."""
    return words.replace(JOINER, "")


def _cut(found: re.Match[str]) -> str:
    return found[0][0] + JOINER + found[0][1:]
