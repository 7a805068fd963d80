"""How is a file's name, which need not be text, told in a report, and in a shell command?"""

import re
import shlex
from typing import Final

_PLAIN: Final = re.compile(r"[^\x00-\x1f\x7f]*")


def readable(path: bytes) -> str:
    r"""A path as text; a byte that is none is shown as `\xe9`."""
    return path.decode("utf-8", "backslashreplace")


def for_shell(path: bytes) -> str:
    """What a shell (bash, zsh, ksh) reads as just this path, on one line."""
    try:
        text = path.decode()
    except UnicodeDecodeError:
        text = "\0"
    if _PLAIN.fullmatch(text):
        return shlex.quote(text)
    return "$'" + "".join(map(_ansi, path)) + "'"


def _ansi(byte: int) -> str:
    char = chr(byte)
    if char in "\\'":
        return f"\\{char}"
    return char if " " <= char <= "~" else f"\\{byte:03o}"
