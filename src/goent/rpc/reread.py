"""How are bytes given back that were read together with something else, such as a hello?"""

from anyio.abc import ByteReceiveStream


class Reread(ByteReceiveStream):
    """A stream whose first bytes were already read."""

    def __init__(self, first: bytes, stream: ByteReceiveStream) -> None:
        self._first = first
        self._stream = stream

    async def receive(self, max_bytes: int = 65536) -> bytes:
        if self._first:
            piece, self._first = self._first[:max_bytes], self._first[max_bytes:]
            return piece
        return await self._stream.receive(max_bytes)

    async def aclose(self) -> None:
        await self._stream.aclose()
