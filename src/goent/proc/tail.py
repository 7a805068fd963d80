"""What did a process say last? Its pipe is read to the end, whoever else is busy."""

import asyncio
import os
from typing import Self

import anyio

CHUNK = 256 * 1024


class Tail:
    """Reads a pipe without a task of its own, and keeps the last of it. The child gets `writer`."""

    def __init__(self, kept: int) -> None:
        self.ended = anyio.Event()
        self._kept = kept
        self._bytes = bytearray()
        self._reader, self.writer = os.pipe()
        self._loop = asyncio.get_running_loop()
        os.set_blocking(self._reader, False)
        self._loop.add_reader(self._reader, self._read)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close_writer()
        self._close_reader()

    def close_writer(self) -> None:
        """Once the child has it: the end of the pipe is seen when nobody holds it any more."""
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1

    @property
    def text(self) -> str:
        """So far."""
        return self._bytes[-self._kept :].decode(errors="replace")

    def _read(self) -> None:
        try:
            data = os.read(self._reader, CHUNK)
        except BlockingIOError:
            return
        self._bytes += data
        if len(self._bytes) > 2 * self._kept:
            del self._bytes[: -self._kept]
        if not data:
            self._close_reader()

    def _close_reader(self) -> None:
        if self._reader >= 0:
            self._loop.remove_reader(self._reader)
            os.close(self._reader)
            self._reader = -1
            self.ended.set()
