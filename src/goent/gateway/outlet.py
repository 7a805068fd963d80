"""How does an answer reach the worker's program while it is being made?

Nothing is sent before there is something to say, so that a failure can still have its status. If
that takes long, comments keep the connection alive; from then on a failure is told in the stream.
"""

import asyncio
import time
from collections.abc import Sequence

import anyio

from goent.domain.errors import WorkerError
from goent.gateway import http
from goent.gateway.http import Send
from goent.gateway.refusals import refusal
from goent.llm.codec import StreamWriter, codec
from goent.llm.errors import error_event
from goent.llm.sse import SseEvent
from goent.upstream.course import Order
from goent.upstream.said import Streamed

KEEP_ALIVE_S = 5.0
CLOSELY_S = 0.001  # so pieces come that were read at once
MOST_PENDING = 256  # pieces; a client that reads slowly slows its model down
COMMENT = b": go-ent is waiting for the model\n\n"


class Outlet:
    """The answer to one streaming call, in the dialect of the order."""

    def __init__(self, send: Send, order: Order) -> None:
        self._send = send
        self._order = order
        self._started = False
        self._last: Streamed | None = None  # that was passed on as it came
        self._writer: StreamWriter | None = None
        self._quiet_since = time.monotonic()
        self._pending: list[bytes] = []
        self._called = anyio.Event()
        self._lock = asyncio.Lock()  # several tasks send; anyio's takes three times as long

    async def take(self, pieces: Sequence[Streamed]) -> None:
        """What comes after a pause goes out at once; what follows closely, together."""
        self._pending += [self._written(piece) for piece in pieces]
        quiet = time.monotonic() - self._quiet_since
        if not self._started or quiet > CLOSELY_S or len(self._pending) > MOST_PENDING:
            await self._flush()
        else:
            self._called.set()

    async def pour(self) -> None:
        """Send what was taken and has not gone out, for ever."""
        while True:
            await self._called.wait()
            self._called = anyio.Event()
            await self._flush()

    async def keep_alive(self) -> None:
        while True:
            quiet = time.monotonic() - self._quiet_since
            if quiet >= KEEP_ALIVE_S:
                self._pending.append(COMMENT)
                await self._flush()
            else:
                await anyio.sleep(KEEP_ALIVE_S - quiet)

    async def finish(self) -> None:
        """All was said."""
        async with self._lock:
            await self._start()
            end = self._writer.close() if self._writer else b""
            await http.finish(self._send, self._taken() + end)

    async def fail(self, error: WorkerError) -> None:
        """Say so in a way that makes nobody call again."""
        async with self._lock:
            told = refusal(error)
            if self._started or self._pending:
                await self._start()
                end = error_event(self._order.dialect, told.message)
                await http.finish(self._send, self._taken() + end)
            else:
                await http.refuse(self._send, self._order.dialect, *told)

    def _written(self, piece: Streamed) -> bytes:
        if piece.event and not self._writer:
            self._last = piece
            return _wire(piece.event)
        if not self._writer:
            theirs = codec(self._order.dialect)
            self._writer = theirs.writer(self._order.model, after=self._last)
        return b"".join(self._writer.write(chunk) for chunk in piece.chunks)

    async def _flush(self) -> None:
        async with self._lock:
            if self._pending:
                self._quiet_since = time.monotonic()
                await self._start()
                await http.go_on(self._send, self._taken())

    def _taken(self) -> bytes:
        taken, self._pending = b"".join(self._pending), []
        return taken

    async def _start(self) -> None:
        if not self._started:
            self._started = True
            await http.start(self._send, 200, http.SSE)


def _wire(event: SseEvent) -> bytes:
    name = b"event: " + event.event + b"\n" if event.event else b""
    return name + b"data: " + event.data.replace(b"\n", b"\ndata: ") + b"\n\n"
