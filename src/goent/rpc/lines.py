"""Where does one line end, and which one is too long to keep?"""


class LineSplitter:
    """Cuts a stream of chunks at the newlines. However it was chunked, the lines are the same."""

    def __init__(self, max_line: int) -> None:
        self._max = max_line
        self._partial: list[bytes] = []
        self._size = 0
        self._skipping = False

    def feed(self, chunk: bytes) -> list[bytes | None]:
        """The lines that the chunk completes; None stands for one beyond the limit."""
        found: list[bytes | None] = []
        head, *lines = chunk.split(b"\n")
        found.extend(self._continue(head, ends=bool(lines)))
        if lines:
            tail = lines.pop()
            found.extend(line if len(line) <= self._max else None for line in lines)
            found.extend(self._continue(tail, ends=False))
        return found

    def rest(self) -> list[bytes | None]:
        """What the stream ended with instead of a newline."""
        return self._continue(b"", ends=True)

    def _continue(self, piece: bytes, *, ends: bool) -> list[bytes | None]:
        found: list[bytes | None] = []
        self._size += len(piece)
        if self._skipping:
            pass
        elif self._size > self._max:
            self._skipping = True
            self._partial.clear()
            found.append(None)
        elif ends:
            found.append(b"".join((*self._partial, piece)))
        else:
            self._partial.append(piece)
        if ends:
            self._partial.clear()
            self._size = 0
            self._skipping = False
        return found
