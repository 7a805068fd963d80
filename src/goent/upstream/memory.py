"""Bounds the bytes of requests and answers that are in memory at a time, over all calls."""

from collections.abc import Generator
from contextlib import contextmanager

from goent.domain.errors import AtLimit

MOST_IN_ALL = 512 * 1024 * 1024


class Memory:
    """The bytes that are held now."""

    def __init__(self, most: int = MOST_IN_ALL) -> None:
        self.most = most
        self.held = 0

    @contextmanager
    def share(self) -> "Generator[Share]":
        """One call's part; given back on leaving."""
        share = Share(self)
        try:
            yield share
        finally:
            self.held -= share.size


class Share:
    """What one call holds."""

    def __init__(self, memory: Memory) -> None:
        self.size = 0
        self._memory = memory

    def add(self, size: int) -> None:
        """Raises `AtLimit` where it would be too much, over all calls."""
        if self._memory.held + size > self._memory.most:
            raise AtLimit(
                f"requests and answers take {self._memory.held} bytes of go-ent's memory already, "
                f"and at most {self._memory.most} may be held: try again when others are done"
            )
        self._memory.held += size
        self.size += size
