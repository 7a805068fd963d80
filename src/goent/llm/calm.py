"""How are words said to a program that looks for reasons to call again in them?

OpenCode takes numbers (`503`, also inside a port) and words (`rate_limit`, `overloaded`) anywhere in
an error for a fault that passes, whatever the status, and calls again for minutes. So the letters
are kept apart by a character that nobody sees. People read the same words.
"""

import re

JOINER = "\N{WORD JOINER}"
_INSIDE = re.compile(r"(?<=\w)(?=\w)")


def calm(words: str) -> str:
    """The same to the eye, and no word or number of it is found by a search."""
    return _INSIDE.sub(JOINER, words)


def plain(words: str) -> str:
    """As they were before."""
    return words.replace(JOINER, "")
