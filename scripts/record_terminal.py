"""Records a command in a terminal of its own, and writes what stands there as an SVG picture.

    .venv/bin/python scripts/record_terminal.py docs/terminal.svg -- .venv/bin/go-ent demo

`--from` and `--to` choose the lines to show, by what they contain.
"""

import argparse
import fcntl
import io
import os
import pty
import re
import struct
import sys
import termios
from pathlib import Path

from rich.console import Console
from rich.text import Text

SEQUENCE = re.compile(r"\x1b\[(\??[0-9;]*)([A-Za-z])|(\r?\n)|([^\x1b\r\n]+)")
WEB_FONT = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)


def record(command: list[str], columns: int, rows: int) -> str:
    process, terminal = pty.fork()
    if process == 0:
        os.environ.update(TERM="xterm-256color", COLUMNS=str(columns), LINES=str(rows))
        os.execvp(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    output = bytearray()
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # on Linux, how a terminal without a program ends
            break
        if not piece:
            break
        output += piece
    status = os.waitpid(process, 0)[1]
    if status:
        sys.exit(f"{command[0]} ended with {os.waitstatus_to_exitcode(status)}")
    return output.decode(errors="replace")


def final_lines(output: str) -> list[str]:
    """The lines as they stand at the end, with their colours: enough of a terminal for go-ent."""
    lines, row = [""], 0
    for match in SEQUENCE.finditer(output):
        numbers, command, newline, text = match.groups()
        if newline:
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif command == "A":
            row = max(0, row - int(numbers or 1))
        elif command == "K":
            lines[row] = ""
        elif command == "m":
            lines[row] += f"\x1b[{numbers}m"
        elif text:
            lines[row] += text
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("picture", type=Path)
    parser.add_argument("--columns", type=int, default=96)
    parser.add_argument("--from", dest="first", default="")
    parser.add_argument("--to", dest="last", default="")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    lines = final_lines(record(options.command, options.columns, 50))
    plain = [Text.from_ansi(line).plain for line in lines]
    first = next(at for at, line in enumerate(plain) if options.first in line)
    last = next(at for at, line in enumerate(plain[first:], first) if options.last in line)
    console = Console(record=True, width=options.columns, file=io.StringIO())
    for line in lines[first : last + 1]:
        console.print(Text.from_ansi(line.rstrip()))
    picture = console.export_svg(title=" ".join(["go-ent", *options.command[1:]]))
    options.picture.write_text(WEB_FONT.sub("", picture), encoding="utf-8")


if __name__ == "__main__":
    main()
