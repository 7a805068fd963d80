"""Splits a stream of bytes into lines, and shortens lines that are too long to keep.

A line beyond the limit is not kept, but its sender may wait for an answer. So its two ends are kept: every
library writes JSON-RPC's own members before or behind the bulk of a message.
"""

import re

MAX_LINE = 64 * 1024 * 1024
KEPT_BYTES = 512  # of either end

_SCALAR = rb'(?:"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*|null)'
_MEMBER = rb'\s*"(jsonrpc|id|method)"\s*:\s*(' + _SCALAR + rb")\s*"
_HEAD = re.compile(rb"\s*\{((?:" + _MEMBER + rb",)*)")
_TAIL = re.compile(rb"((?:," + _MEMBER + rb")+)\}\s*\Z")
_EACH_MEMBER = re.compile(_MEMBER)


class OversizedLine:
    """What is left of a line beyond the limit, and the error message for its sender."""

    __slots__ = ("_head", "_tail", "message")

    def __init__(self, head: bytes, tail: bytes, message: str) -> None:
        self._head = head
        self._tail = tail
        self.message = message

    @property
    def members(self) -> dict[str, bytes]:
        """Those of `jsonrpc`, `id` and `method` that are found, as JSON."""
        head, tail = _HEAD.match(self._head), _TAIL.search(self._tail)
        found = (head[1] if head else b"") + (tail[1] if tail else b"")
        return {name.decode(): value for name, value in _EACH_MEMBER.findall(found)}

    @property
    def request_id(self) -> bytes:
        """The id for a refusal; null unless the line is a request whose id is found."""
        members = self.members
        return members.get("id", b"null") if "method" in members else b"null"


class LineSplitter:
    """Splits a stream of chunks into lines, independently of where the chunks end."""

    def __init__(self, max_line: int = MAX_LINE) -> None:
        self._max = max_line
        self._partial: list[bytes] = []
        self._size = 0
        self._head = b""
        self._tail = b""

    def feed(self, chunk: bytes) -> list[bytes | OversizedLine]:
        """The lines that the chunk completes."""
        found: list[bytes | OversizedLine] = []
        *ended, tail = chunk.split(b"\n")
        for piece in ended:
            self._add(piece)
            found.append(self._line())
        self._add(tail)
        return found

    def finish(self) -> bytes | OversizedLine:
        """The rest of the stream behind the last newline."""
        return self._line()

    def _add(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size <= self._max:
            self._partial.append(piece)
            return
        for kept in (*self._partial, piece):
            self._head = (self._head + kept[:KEPT_BYTES])[:KEPT_BYTES]
            self._tail = (self._tail + kept[-KEPT_BYTES:])[-KEPT_BYTES:]
        self._partial.clear()

    def _line(self) -> bytes | OversizedLine:
        if self._size > self._max:
            message = (
                f"a line of {self._size} bytes is too long: at most {self._max} bytes are taken"
            )
            line = OversizedLine(self._head, self._tail, message)
        else:
            line = b"".join(self._partial)
        self._partial.clear()
        self._size = 0
        self._head = self._tail = b""
        return line
