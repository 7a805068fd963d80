"""Which commands does a line of shell run, as far as its letters tell?

A rule that allows `git *` must not allow `git status; rm -rf .`, so each command of a line is judged
by itself. Where the shell would do more than is written (substitutions, redirections), or may read
it otherwise than we do (comments, quotes that do not close), only a rule for every command can allow
the line.
"""

import re

from goent.domain.types import Value

# Quoted text, an escaped character, a redirection that writes nothing, or what ends a command.
# A shell may read `&>` as `&` and `>`: it is harmless only where nothing could be run behind it.
_TOKEN = re.compile(
    r"""
      (?P<single>'[^']*')
    | (?P<double>"(?:[^"\\]|\\.)*")
    | (?P<escaped>\\[^\n]|(?<=[ \t])\\\n)
    | (?P<harmless>\d?>(?:&\d|[ \t]*/dev/null)(?=[ \t\n;&|)]|\Z)
                 | &>[ \t]*/dev/null(?=[ \t]*(?:[\n;&|)]|\Z)))
    | (?P<unclear>`|\$[({\["']|[<>'"\\]|(?<![\w./:=-])\#|\([ \t\n]*\))
    | (?P<end>\n|;|&&?|\|[|&]?|[(){}])
    """,
    re.VERBOSE | re.DOTALL,
)
# In double quotes a substitution is still one, also if a continued line parts its letters.
_SUBSTITUTION = re.compile(r"(?<!\\)(?:\\\\)*(?:`|\$[({\[]|\\\n)")
# Shells leave some of these out, and a terminal takes them for keys.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_BLANK = " \t\n"


class Line(Value, frozen=True, kw_only=True):
    """Its commands; `clear` if it does nothing but run these."""

    commands: tuple[str, ...]
    clear: bool


def read_line(text: str) -> Line:
    commands, begin, clear = list[str](), 0, not _CONTROL.search(text)
    for token in _TOKEN.finditer(text):
        match token.lastgroup:
            case "end":
                commands.append(text[begin : token.start()].strip(_BLANK))
                begin = token.end()
            case "unclear":
                clear = False
            case "double" if _SUBSTITUTION.search(token.group()):
                clear = False
            case _:
                pass
    commands.append(text[begin:].strip(_BLANK))
    return Line(commands=tuple(filter(None, commands)), clear=clear)
