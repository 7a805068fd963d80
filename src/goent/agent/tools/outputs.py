"""What did a command say, if it said too much?"""

import re

KEPT = 30_000  # bytes
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")


class Kept:
    """The beginning and the end of a flood."""

    def __init__(self, kept: int = KEPT) -> None:
        self._half = kept // 2
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    def add(self, data: bytes) -> None:
        self.total += len(data)
        room = self._half - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 4 * self._half:
            del self._tail[: -self._half]

    @property
    def text(self) -> str:
        left_out = self.total - len(self._head) - self._half
        if left_out <= 0:
            return _read(self._head + self._tail)
        notice = f"\n[... {left_out:,} bytes left out ...]\n"
        return _read(self._head) + notice + _read(self._tail[-self._half :])

    def take(self) -> str:
        """What was said since it was taken last."""
        text = self.text
        self._head.clear()
        self._tail.clear()
        self.total = 0
        return text


def _read(data: bytearray) -> str:
    return readable(data.decode(errors="replace"))


def readable(text: str) -> str:
    """Without colours and cursor movements; of a line that was written over, the last version."""
    text = _ESCAPES.sub("", text).replace("\r\n", "\n")
    if "\r" not in text:
        return text
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
