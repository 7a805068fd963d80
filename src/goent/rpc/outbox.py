"""How do many small messages become few large writes, without piling up?"""

import anyio
from anyio.abc import ByteSendStream

HIGH_WATER = 256 * 1024


class Outbox:
    """Lines are taken at once and sent in order, as many in one go as have gathered."""

    def __init__(self, stream: ByteSendStream) -> None:
        self._stream = stream
        self._lines: list[bytes] = []
        self._unsent = 0
        self._filled = anyio.Event()
        self._sent = anyio.Event()
        self.broken = False

    def put(self, line: bytes) -> None:
        """Never waits: whoever can wait calls `room` afterwards."""
        if self.broken:
            return
        if not self._lines:
            self._filled.set()
        self._lines.append(line)
        self._unsent += len(line)

    def offer(self, line: bytes) -> None:
        """Put it if there is room: it is for nobody in particular, and no reason to wait."""
        if self._unsent + len(line) <= HIGH_WATER:
            self.put(line)

    @property
    def full(self) -> bool:
        return self._unsent > HIGH_WATER

    async def room(self) -> None:
        """Wait until the peer has read enough of what it was sent."""
        while self._unsent > HIGH_WATER:
            await self._sent.wait()

    async def flushed(self) -> None:
        while self._unsent:
            await self._sent.wait()

    async def run(self) -> None:
        """Send until the stream breaks; from then on, lines go nowhere."""
        try:
            while True:
                await self._filled.wait()
                self._filled = anyio.Event()
                batch = b"".join(self._lines)
                self._lines.clear()
                await self._stream.send(batch)
                self._account(len(batch))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            self.close()

    def close(self) -> None:
        """Nothing more is sent, and nobody waits for it."""
        self.broken = True
        self._account(self._unsent)

    def _account(self, size: int) -> None:
        self._unsent -= size
        self._sent.set()
        self._sent = anyio.Event()
