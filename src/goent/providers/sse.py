"""Splits a byte stream into server-sent events."""

import re
from typing import NamedTuple

MAX_EVENT_BYTES = 16 * 1024 * 1024  # bytes of a line, and of an event's data
_ONE_EVENT = re.compile(rb"data: ([^\n]*[^\r\n])\n\n")  # what most pieces are


class SseEvent(NamedTuple):
    """One event: its name, if it has one, and its data lines joined."""

    event: bytes
    data: bytes


class SseSplitter:
    """Turns bytes into events. Lines end in LF or CRLF; comments are skipped.

    An event beyond the limit is dropped and counted, and the stream continues.
    """

    def __init__(self, *, limit: int = MAX_EVENT_BYTES) -> None:
        self.dropped = 0
        self.limit = limit
        # The incomplete line. A list of pieces of two bytes would take 20 times the memory.
        self._line = bytearray()
        self._length = 0  # of that line, pieces that were not kept included
        self._event = b""
        self._data: list[bytes] = []
        self._size = 0  # of the data

    def feed(self, piece: bytes) -> list[SseEvent]:
        """The events that this piece completes."""
        begun = self._length or self._data or self._size or self._event
        if not begun and len(piece) < self.limit and (one := _ONE_EVENT.fullmatch(piece)):
            return [SseEvent(b"", one[1])]
        *ends, rest = piece.split(b"\n")
        events: list[SseEvent] = []
        for end in ends:
            self._keep(end)
            self._end_line(events)
        self._keep(rest)
        return events

    def close(self) -> list[SseEvent]:
        """The last event, if the stream ended without the empty line after it."""
        return self.feed(b"\n\n")

    def _keep(self, piece: bytes) -> None:
        if piece:
            self._length += len(piece)
            if self._length <= self.limit:
                self._line += piece

    def _end_line(self, events: list[SseEvent]) -> None:
        if self._length > self.limit:
            self._size = self.limit + 1
        elif self._length and (line := bytes(self._line).removesuffix(b"\r")):
            self._take(line)
        else:
            self._end_event(events)
        if self._length:
            self._line.clear()
            self._length = 0

    def _take(self, line: bytes) -> None:
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._size += len(value) or 1  # empty lines take memory, too
            if self._size <= self.limit:
                self._data.append(value)
        elif field == b"event":
            self._event = value

    def _end_event(self, events: list[SseEvent]) -> None:
        if self._size > self.limit:
            self.dropped += 1
        elif self._data:
            events.append(SseEvent(self._event, b"\n".join(self._data)))
        self._event, self._size = b"", 0
        self._data.clear()
