"""Which commands does a line of shell run, as far as its letters tell?

A rule that allows `git *` must not allow `git status; rm -rf .`, so each command of a line is judged
by itself. Where the shell would do more than is written (substitutions, redirections, quotes that
do not close), only a rule for every command can allow the line.
"""

import re

from goent.domain.types import Value

# Quoted text, an escaped character, or one that ends a command. In double quotes a substitution
# is still one.
_TOKEN = re.compile(
    r"""
      (?P<single>'[^']*')
    | (?P<double>"(?:[^"\\]|\\.)*")
    | (?P<escaped>\\.)
    | (?P<harmless>\d?>&\d|&?\d?>\s*/dev/null\b)
    | (?P<unclear>\$\(|`|[<>'"]|\$')
    | (?P<end>\n|;|&&?|\|[|&]?|[(){}])
    """,
    re.VERBOSE | re.DOTALL,
)
_SUBSTITUTION = re.compile(r"(?<!\\)(?:\\\\)*(?:`|\$\()")


class Line(Value, frozen=True, kw_only=True):
    """Its commands; `clear` if it does nothing but run these."""

    commands: tuple[str, ...]
    clear: bool


def read_line(text: str) -> Line:
    commands, begin, clear = list[str](), 0, True
    for token in _TOKEN.finditer(text):
        match token.lastgroup:
            case "end":
                commands.append(text[begin : token.start()].strip())
                begin = token.end()
            case "unclear":
                clear = False
            case "double" if _SUBSTITUTION.search(token.group()):
                clear = False
            case _:
                pass
    commands.append(text[begin:].strip())
    return Line(commands=tuple(filter(None, commands)), clear=clear)
