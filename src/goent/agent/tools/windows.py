"""Which lines of a file are wanted, however long the file and its lines are?

No more of it is kept than is shown, and no more is read than `LOOKED` bytes.
"""

from typing import BinaryIO

from goent.domain.types import Value

LINE = 2000  # characters of a line that are shown
SHOWN = 80_000  # bytes of a file that are shown at once
LOOKED = 256_000_000  # bytes that are passed over to find a line, or counted after it
CHUNK = 1 << 20
_LONG = 4 * LINE  # bytes that LINE characters can need


class Window(Value, frozen=True, kw_only=True):
    """Some lines, the first with number `first`. `total` is None if the end was too far away."""

    first: int
    lines: tuple[bytes, ...]
    total: int | None

    @property
    def last(self) -> int:
        return self.first + len(self.lines) - 1

    def numbered(self) -> str:
        """As `cat -n` does."""
        pairs = enumerate(self.lines, start=self.first)
        return "\n".join(f"{number:>6}\t{_shown(line)}" for number, line in pairs)


def window(file: BinaryIO, first: int, limit: int) -> Window:
    passed = _passed(file, first - 1)
    if passed < first - 1:
        return Window(first=first, lines=(), total=None if file.tell() > LOOKED else passed)
    lines: list[bytes] = []
    room = SHOWN
    while len(lines) < limit and room > 0 and (line := file.readline(_LONG)):
        room -= len(line)
        lines.append(line.removesuffix(b"\n").removesuffix(b"\r"))
        if not line.endswith(b"\n") and not _pass_line(file):
            return Window(first=first, lines=tuple(lines), total=None)
    after = _counted(file)
    total = None if after is None else passed + len(lines) + after
    return Window(first=first, lines=tuple(lines), total=total)


def _passed(file: BinaryIO, wanted: int) -> int:
    """Go behind that many lines, or to the end; how many it were. A chunk at a time, as lines are slow."""
    passed, begin = 0, 0
    while passed < wanted and begin <= LOOKED and (chunk := file.read(CHUNK)):
        inside = chunk.count(b"\n")
        if passed + inside >= wanted:
            cut = -1
            for _ in range(wanted - passed):
                cut = chunk.find(b"\n", cut + 1)
            file.seek(begin + cut + 1)
            return wanted
        passed, begin = passed + inside, begin + len(chunk)
        if len(chunk) < CHUNK and not chunk.endswith(b"\n"):
            passed += 1  # the last line, which nothing ends
    return passed


def _pass_line(file: BinaryIO) -> bool:
    """Go to the end of the line, unless that is too far away."""
    while file.tell() <= LOOKED:
        piece = file.readline(CHUNK)
        if not piece or piece.endswith(b"\n"):
            return True
    return False


def _counted(file: BinaryIO) -> int | None:
    count, last = 0, b"\n"
    while chunk := file.read(CHUNK):
        if file.tell() > LOOKED:
            return None
        count += chunk.count(b"\n")
        last = chunk[-1:]
    return count + (last != b"\n")


def _shown(line: bytes) -> str:
    text = line.decode(errors="replace")
    return text if len(text) <= LINE else f"{text[:LINE]} [cut: the line is longer]"
